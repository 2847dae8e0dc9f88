//! The journal: facts of calls, appended and synced to disk, then projected into the store.
//!
//! Shards append without waiting; one thread writes and syncs in batches, and what must be beyond this process at once the shards write
//! themselves ([`Journal::hand_over`]); a projector hands what is synced to whoever
//! keeps it, as often as it takes, and deletes what is kept; what is no longer in memory it reads back. So the journal is
//! also the spool while the database is away. What [`Journal::synced`] has passed survives kill -9 and the machine's fall. Knows nothing of what a fact says.
//!
//! A fact may be projected more than once, also across a restart: projecting must be idempotent.

mod condition;
mod current;
mod frame;
mod position;
mod projector;
mod queue;
mod recent;
mod segment;
mod settings;
mod shared;
mod writer;

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use trunkline_sip::moment::Moment;

pub use condition::{Condition, State};
pub use position::{Full, Origin, Position};
pub use projector::{Project, Projector, Replayed, Retry};
pub use settings::Settings;

use current::{Current, Handed, Watch};
use frame::{Draft, Unwritable};
use position::Synced;
use queue::Queue;
use recent::Recent;
use segment::{Directory, Disk as _, Segment};
use shared::Shared;
use writer::Writer;

use crate::private;

/// The journal has closed: the fact was never made safe.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal has closed")]
pub struct Closed;

/// Why a journal can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{} is used by another process", .0.display())]
    InUse(PathBuf),
    /// The directory can't be read or written.
    #[error("the journal in {} cannot be opened ({source}): let it be a directory that this user can write, on a disk with room", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// How often is looked whether the segments are gone that a clearing waits for.
const CLEARING_LOOK: Duration = Duration::from_millis(50);

/// Octets of room that a handle keeps from one append to the next.
const ROOM: usize = 64 << 10;

/// A handle to append by; clones share it, and when the last is dropped the journal ends what it began and closes.
pub struct Journal<T> {
    appender: Arc<Appender<T>>,
    /// Lines of the facts that are being appended.
    draft: Draft,
    /// Lines that are being written.
    lines: Vec<u8>,
    watch: Watch,
    synced: watch::Receiver<Synced>,
    projected: watch::Receiver<Position>,
}

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Self {
            appender: Arc::clone(&self.appender),
            draft: Draft::default(),
            lines: Vec::new(),
            watch: Watch::default(),
            synced: self.synced.clone(),
            projected: self.projected.clone(),
        }
    }
}

impl<T> fmt::Debug for Journal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let synced = self.synced.borrow().position;
        f.debug_struct("Journal")
            .field("synced", &synced)
            .field("projected", &*self.projected.borrow())
            .finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Journal<T> {
    /// Opens the journal in `directory`, makes it if there is none, cuts what a fall left unfinished, and starts the
    /// writer. The projector must be run for facts to get anywhere.
    ///
    /// # Errors
    /// The directory can't be used, or another process uses it.
    pub fn open(
        directory: &Path,
        origin: Origin,
        settings: Settings,
    ) -> Result<(Self, Projector<T>), OpenError> {
        let failed = |source| OpenError::Io {
            path: directory.to_owned(),
            source,
        };
        describe();
        let lock = lock(directory)?;
        let (left, spooled) = left_behind(directory).map_err(failed)?;
        let number = left.last().map_or(1, |last| last.number + 1);
        let disk = Directory(directory.to_owned());
        let first = Segment { number, origin };
        // At once, so that a directory which can't be written shows.
        let tail = disk.create(&first).map_err(failed)?;
        let shared = Arc::new(Shared {
            spooled: AtomicU64::new(spooled),
            condition: Arc::default(),
            recent: Recent::new(),
            current: Current::new(Arc::clone(&tail)),
            _lock: lock,
        });
        let queue = Arc::new(Queue::new(settings.queue_facts, settings.queue_octets));
        let (synced_to, synced) = watch::channel(Synced {
            segment: number,
            octets: 0,
            position: Position(0),
        });
        let (projected_to, projected) = watch::channel(Position(0));

        let writer = Writer::new(
            (disk, first, tail),
            Arc::clone(&queue),
            Arc::clone(&shared),
            synced_to,
            settings.clone(),
        );
        writer.start().map_err(failed)?;
        let projector = Projector::new(
            directory.to_owned(),
            origin,
            left,
            shared.clone(),
            settings,
            synced.clone(),
            projected_to,
        );
        let appender = Arc::new(Appender {
            queue,
            shared,
            directory: directory.to_owned(),
        });
        Ok((
            Self {
                appender,
                draft: Draft::default(),
                lines: Vec::new(),
                watch: Watch::default(),
                synced,
                projected,
            },
            projector,
        ))
    }
}

impl<T: Serialize> Journal<T> {
    /// Takes all of `facts`, in order, and returns the position of the last. Never waits for the disk.
    ///
    /// # Errors
    /// The queue has no room for them; they are left where they are, to be tried again.
    pub fn append(&mut self, facts: &mut Vec<T>) -> Result<Position, Full> {
        let mut is_whole = true;

        for (number, fact) in facts.iter().enumerate() {
            let added = self
                .draft
                .add(number as u64, |out| serde_json::to_writer(out, fact));
            if let Err(fault @ (Unwritable::Json(_) | Unwritable::TooLong(_))) = added {
                is_whole = false;
                metrics::counter!("trunkline_journal_refused_facts_total").increment(1);
                tracing::error!(
                    error = &fault as &dyn std::error::Error,
                    "a fact cannot be written down"
                );
            }
        }

        let queue = &self.appender.queue;
        let appended = queue.push(facts, &mut self.draft, is_whole);
        self.draft.clear(ROOM);

        appended
    }
}

impl<T> Journal<T> {
    /// Hands all facts so far to the operating system, so that they survive the end of this process, though not the machine's fall; that
    /// takes a `write` and no sync. Where the disk fails or is slow they stay in memory alone, as nobody may wait for it.
    pub fn hand_over(&mut self, now: Moment) {
        let Appender { queue, shared, .. } = &*self.appender;
        let handed = shared
            .current
            .hand_over(queue, &mut self.lines, &mut self.watch, now);
        self.lines.clear();
        self.lines.shrink_to(ROOM);
        if let Handed::Refused(error) = &handed {
            shared.disk_failed(queue, error);
        }
        if !matches!(handed, Handed::Over) {
            metrics::counter!("trunkline_journal_late_facts_total").increment(1);
        }
    }

    /// Whether there is room for the facts of new calls; if not, what room is left is for those of calls in progress.
    pub fn has_reserve(&self) -> bool {
        self.appender.queue.has_reserve()
    }

    /// Whether facts get where they belong.
    pub fn condition(&self) -> Arc<Condition> {
        Arc::clone(&self.appender.shared.condition)
    }

    /// How many facts wait to be written.
    pub fn depth(&self) -> usize {
        self.appender.queue.depth()
    }

    /// Octets of all segments on disk.
    pub fn spooled_octets(&self) -> u64 {
        self.appender.shared.spooled.load(Ordering::Relaxed)
    }

    /// Waits until the fact at `position` survives the machine's fall: until it may be acknowledged.
    ///
    /// # Errors
    /// The journal has closed without it.
    pub async fn synced(&self, position: Position) -> Result<(), Closed> {
        let mut synced = self.synced.clone();
        synced
            .wait_for(|synced| synced.position >= position)
            .await
            .map(drop)
            .map_err(|_| Closed)
    }

    /// Begins another segment, and waits until everything that was appended before is kept and no segment holds it any more.
    ///
    /// # Errors
    /// The directory can't be read, or the journal has closed.
    pub async fn clear(&self) -> io::Result<()> {
        let Appender {
            queue, directory, ..
        } = &*self.appender;
        let last = queue.last();
        self.synced(last).await.map_err(io::Error::other)?;
        let before = self.synced.borrow().segment;
        while segment::hold_facts(directory, before)? {
            queue.nudge();
            tokio::time::sleep(CLEARING_LOOK).await;
        }
        Ok(())
    }

    /// Takes lines out of what was set aside because it couldn't be read. Gives how many. Reads and writes a file.
    ///
    /// # Errors
    /// The file can't be read or written; it is as it was.
    pub fn forget_set_aside(&self, goes: impl Fn(&[u8]) -> bool) -> io::Result<u64> {
        projector::forget_set_aside(&self.appender.directory, goes)
    }

    /// The last fact that survives the machine's fall, with all before it.
    pub fn synced_to(&self) -> Position {
        self.synced.borrow().position
    }

    /// Follows what survives the machine's fall.
    pub fn syncs(&self) -> Syncs {
        Syncs(self.synced.clone())
    }

    /// The last fact that the store has, with all before it.
    pub fn projected(&self) -> watch::Receiver<Position> {
        self.projected.clone()
    }
}

/// Each further position that survives the machine's fall. It doesn't keep the journal open.
#[derive(Debug)]
pub struct Syncs(watch::Receiver<Synced>);

impl Syncs {
    /// The next one; those that came in between are passed over. `None` once the journal has closed.
    pub async fn next(&mut self) -> Option<Position> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().position)
    }
}

/// Closes the queue with the last handle.
struct Appender<T> {
    queue: Arc<Queue<T>>,
    shared: Arc<Shared<T>>,
    directory: PathBuf,
}

impl<T> Drop for Appender<T> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn describe() {
    use metrics::{describe_counter, describe_gauge};
    describe_counter!(
        "trunkline_journal_errors_total",
        "Writes to the journal that the disk refused"
    );
    describe_counter!(
        "trunkline_journal_refused_facts_total",
        "Facts that could not be written down"
    );
    describe_counter!(
        "trunkline_journal_late_facts_total",
        "Times that calls were answered before their facts were written: the disk fails or is slow"
    );
    describe_counter!(
        "trunkline_journal_project_errors_total",
        "Times that the store did not take facts"
    );
    describe_gauge!(
        "trunkline_journal_unprojected_facts",
        "Synced facts that the store is being handed"
    );

    describe_gauge!("trunkline_journal_octets", "Size of the journal on disk");
}

/// Two processes in one directory would delete each other's facts.
fn lock(directory: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io {
        path: directory.to_owned(),
        source,
    };
    private::directory(directory).map_err(failed)?;
    let file = File::create(directory.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// The segments of earlier starts, and their octets.
fn left_behind(directory: &Path) -> io::Result<(Vec<Segment>, u64)> {
    let segments = segment::list(directory)?;
    let mut octets = 0;
    for segment in &segments {
        octets += segment::cut_torn_tail(&segment.path(directory))?;
    }
    Ok((segments, octets))
}

#[cfg(test)]
mod tests;
