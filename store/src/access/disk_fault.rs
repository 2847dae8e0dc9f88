//! Faults of the storage under the database, which stop writes until somebody acts: a full, read-only or failing disk, and damaged pages.
//! The last fault that a transaction met is remembered, for `/readyz` and the log.

use std::error::Error as _;
use std::sync::{Mutex, PoisonError};

use rusqlite::ErrorCode;

use super::commit::Committed;
use crate::driver::error::{Broke, Error};

/// Fault of the storage under the database.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DiskFault {
    /// No room is left.
    Full,
    /// The disk or the file can't be written.
    ReadOnly,
    /// Reading or writing fails.
    Failing,
    /// The file holds damaged pages. Unlike the others it doesn't pass by itself.
    Damaged,
}

impl DiskFault {
    /// Returns what to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Full => "make room on the disk of the database",
            Self::ReadOnly => {
                "make the disk, the file and its directory of the database writable for this user"
            }
            Self::Failing => "look at the disk of the database, and at the kernel's log",
            Self::Damaged => {
                "stop the daemon and restore the database from the backup; without one, sqlite3's .recover saves what can be read"
            }
        }
    }

    /// Returns whether writes may succeed again without anybody restoring the database.
    pub(crate) const fn passes(self) -> bool {
        match self {
            Self::Full | Self::ReadOnly | Self::Failing => true,
            Self::Damaged => false,
        }
    }

    pub(crate) fn of_sqlite(error: &rusqlite::Error) -> Option<Self> {
        let code = error.sqlite_error_code()?;
        let of_code = [
            (ErrorCode::DiskFull, Self::Full),
            (ErrorCode::ReadOnly, Self::ReadOnly),
            (ErrorCode::SystemIoFailure, Self::Failing),
            (ErrorCode::CannotOpen, Self::Failing),
            (ErrorCode::DatabaseCorrupt, Self::Damaged),
            (ErrorCode::NotADatabase, Self::Damaged),
        ];
        let mut of_code = of_code.into_iter();
        of_code.find_map(|(of, fault)| (of == code).then_some(fault))
    }

    pub(crate) fn of_postgres(error: &sqlx::Error) -> Option<Self> {
        /// `disk_full`, `read_only_sql_transaction`, `io_error`, `data_corrupted`, `index_corrupted`.
        const OF_CODE: [(&str, DiskFault); 5] = [
            ("53100", DiskFault::Full),
            ("25006", DiskFault::ReadOnly),
            ("58030", DiskFault::Failing),
            ("XX001", DiskFault::Damaged),
            ("XX002", DiskFault::Damaged),
        ];
        let code = error.as_database_error()?.code()?;
        let mut of_code = OF_CODE.into_iter();
        of_code.find_map(|(of, fault)| (of == code).then_some(fault))
    }
}

/// The fault that transactions met last.
#[derive(Debug, Default)]
pub(crate) struct LastFault(Mutex<Option<DiskFault>>);

impl LastFault {
    /// The fault that writes meet now; `None` while they succeed.
    pub(crate) fn now(&self) -> Option<DiskFault> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the outcome of a write. One that has reached the disk ends every fault but damage: another page may still be damaged. One that has
    /// changed nothing proves nothing.
    pub(crate) fn note_write(&self, outcome: Result<Committed, &Error>) {
        match outcome {
            Ok(committed) if committed.has_written => self.end(),
            Ok(_) => {}
            Err(error) => self.note(error),
        }
    }

    /// Notes damage that a read has met. Its other faults may be those of a moment, and the next write meets them too.
    pub(crate) fn note_read<T>(&self, outcome: &Result<T, Error>) {
        if let Err(error @ Error::Broke(broke)) = outcome
            && broke.disk_fault() == Some(DiskFault::Damaged)
        {
            self.note(error);
        }
    }

    fn note(&self, error: &Error) {
        let Error::Broke(broke) = error else {
            return;
        };
        let Some(fault) = broke.disk_fault() else {
            return;
        };
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != Some(DiskFault::Damaged) && *last != Some(fault) {
            *last = Some(fault);
            tracing::error!(%error, cause = error.source(), "the database can't be written, and the API refuses changes: {}", fault.advice());
        }
    }

    fn end(&self) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(DiskFault::passes) {
            *last = None;
            tracing::info!("the database can be written again");
        }
    }
}

impl Broke {
    /// Returns the fault of the storage that is the cause.
    pub fn disk_fault(&self) -> Option<DiskFault> {
        match self {
            Self::Sqlite(error) => DiskFault::of_sqlite(error),
            Self::Postgres(error) => DiskFault::of_postgres(error),
            Self::Away
            | Self::Busy
            | Self::Closed
            | Self::Late
            | Self::Thread(_)
            | Self::NoRow
            | Self::Column { .. }
            | Self::Seal
            | Self::Stored { .. }
            | Self::Keys(_) => None,
        }
    }

    /// Returns whether the same transaction may succeed later: the database is away, or its storage takes nothing now.
    pub fn may_pass(&self) -> bool {
        self.is_away() || self.disk_fault().is_some_and(DiskFault::passes)
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    const NOTHING: Committed = Committed {
        seq: None,
        is_waited_for: false,
        has_events: false,
        has_written: false,
    };
    const WRITTEN: Committed = Committed {
        has_written: true,
        ..NOTHING
    };

    fn broke(code: i32) -> Result<Committed, Error> {
        let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        Err(Broke::Sqlite(failure).into())
    }

    #[test]
    fn the_last_write_tells_what_the_storage_does() {
        let last = LastFault::default();
        let readonly_dir = 1_544; // SQLITE_READONLY_DIRECTORY
        let writing = 778; // SQLITE_IOERR_WRITE
        for (name, outcome, expected) in [
            ("well", Ok(WRITTEN), None),
            ("another fault", broke(ffi::SQLITE_CONSTRAINT), None),
            ("locked", broke(ffi::SQLITE_BUSY), None),
            ("full", broke(ffi::SQLITE_FULL), Some(DiskFault::Full)),
            (
                "a refusal meanwhile",
                broke(ffi::SQLITE_CONSTRAINT),
                Some(DiskFault::Full),
            ),
            ("nothing to write", Ok(NOTHING), Some(DiskFault::Full)),
            ("read-only", broke(readonly_dir), Some(DiskFault::ReadOnly)),
            ("well again", Ok(WRITTEN), None),
            ("failing", broke(writing), Some(DiskFault::Failing)),
            (
                "damaged",
                broke(ffi::SQLITE_CORRUPT),
                Some(DiskFault::Damaged),
            ),
            (
                "a page that is whole",
                Ok(WRITTEN),
                Some(DiskFault::Damaged),
            ),
        ] {
            last.note_write(outcome.as_ref().copied());
            assert_eq!(last.now(), expected, "{name}");
        }

        let last = LastFault::default();
        last.note_read(&broke(writing));
        assert_eq!(last.now(), None, "a read that failed");
        last.note_read(&broke(ffi::SQLITE_CORRUPT));
        assert_eq!(last.now(), Some(DiskFault::Damaged));
    }
}
