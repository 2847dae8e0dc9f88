//! The journal: facts of calls, appended and synced to disk, then projected into the store. Knows nothing of a fact's content.
//!
//! Shards append without waiting. One thread writes and syncs in batches; facts that must leave this process at once are written by the
//! shards themselves ([`Journal::hand_over`]). A projector passes synced facts to the store, repeating until it succeeds, and then deletes
//! them. Facts that are no longer in memory are read back from disk, so the journal is also the spool while the database is away. A
//! position that [`Journal::synced`] has passed survives kill -9 and a crash of the machine.
//!
//! No existing log is used, because a shard appends without waiting and learns later how far the disk has come. A log whose commit blocks
//! until the sync would hold up all calls of the shard.
//!
//! The store keeps how far it has read ([`ReadPosition`]) in the transaction that stores the facts, and a restart goes on from there: by then
//! retention may have deleted the rows of earlier facts, which must not come back. Within a run a fact may be projected more than once, after
//! an error of the disk or of the database: projecting must be idempotent.

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
use std::fs::{self, File, TryLockError};
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
pub use position::{FactPosition, Full, Origin, ReadPosition};
pub use projector::{Project, Projector, Replayed, Retry};
pub use settings::Settings;

use current::{Current, HandOver, Watch};
use frame::{Draft, Unwritable};
use position::SyncedTo;
use queue::Queue;
use recent::Recent;
use segment::{Directory, Disk as _, Segment};
use shared::Shared;
use writer::Writer;

use crate::files::private;

/// Error: the journal has closed before the fact was synced.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal has closed")]
pub struct Closed;

/// Reason why a journal can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses the directory.
    #[error("{} is used by another process", .0.display())]
    InUse(PathBuf),
    /// The directory can't be read or written.
    #[error("the journal in {} cannot be opened ({source}): it must be a directory that this user can write to, on a disk with free space", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A segment holds facts in a format that this build doesn't read.
    #[error("{} holds facts of calls in a format that this version doesn't read: {remedy}", path.display())]
    OtherFormat {
        /// The segment.
        path: PathBuf,
        /// The advice for the operator.
        remedy: &'static str,
    },
}

/// Checks that the journal in `directory`, if there is one, holds no facts in a format that this build doesn't read. Changes nothing.
///
/// # Errors
/// [`OpenError::OtherFormat`]. A directory that can't be read is left to [`Journal::open`].
pub fn check_format(directory: &Path) -> Result<(), OpenError> {
    match replaced(directory) {
        Err(fault @ OpenError::OtherFormat { .. }) => Err(fault),
        Ok(_) | Err(OpenError::Io { .. } | OpenError::InUse(_)) => Ok(()),
    }
}

/// Interval at which [`Journal::clear`] checks whether the segments are gone.
const CLEAR_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Capacity in octets that a handle keeps from one append to the next.
const ROOM: usize = 64 << 10;

/// Handle for appending; clones share the journal. When the last one is dropped, the journal finishes its work and closes.
pub struct Journal<T> {
    appender: Arc<Appender<T>>,
    /// Lines of the facts being appended.
    draft: Draft,
    /// Lines being written.
    lines: Vec<u8>,
    watch: Watch,
    synced: watch::Receiver<SyncedTo>,
    projected: watch::Receiver<FactPosition>,
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
    /// Opens the journal in `directory`, creating it if necessary, cuts off interrupted writes of earlier runs, and starts the writer.
    /// Facts reach the store only if the projector is run.
    ///
    /// # Errors
    /// The directory can't be used, another process uses it, or a segment of another format holds facts.
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
        // Looked at under the lock: the process before may have filled one until it ended.
        for empty in replaced(directory)? {
            fs::remove_file(empty).map_err(failed)?;
        }
        let (left, spooled) = left_behind(directory).map_err(failed)?;
        // Above the numbers of all segments that remain: they order the segments of all runs, and the oldest is replayed first.
        let number = left.last().map_or(1, |last| last.number + 1);
        let disk = Directory(directory.to_owned());
        let first = Segment { number, origin };
        // Created at once, so that an unwritable directory shows at startup.
        // No segment of an earlier run is continued: its name says whose calls the facts are about.
        let tail = disk.create(&first).map_err(failed)?;
        let shared = Arc::new(Shared {
            spooled: AtomicU64::new(spooled),
            condition: Arc::default(),
            recent: Recent::new(),
            current: Current::new(Arc::clone(&tail)),
            _lock: lock,
        });

        let queue = Arc::new(Queue::new(settings.queue_facts, settings.queue_octets));
        let (synced_to, synced) = watch::channel(SyncedTo {
            segment: number,
            octets: 0,
            position: FactPosition(0),
        });
        let (projected_to, projected) = watch::channel(FactPosition(0));

        let writer = Writer::new(
            disk,
            first,
            tail,
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
            (shared.clone(), Arc::clone(&queue)),
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
    /// Appends all of `facts`, in order, and returns the position of the last. Never waits for the disk.
    ///
    /// # Errors
    /// [`Full`]: the queue has no room; the facts stay in the vector, to be tried again.
    pub fn append(&mut self, facts: &mut Vec<T>) -> Result<FactPosition, Full> {
        let mut is_whole = true;

        for (number, fact) in facts.iter().enumerate() {
            let added = self
                .draft
                .add(number as u64, |out| serde_json::to_writer(out, fact));
            if let Err(fault @ (Unwritable::Json(_) | Unwritable::TooLong(_))) = added {
                // The fact still takes a position: the other facts of the vector must not wait for one that never fits.
                is_whole = false;
                metrics::counter!("trunkline_journal_refused_facts_total").increment(1);
                tracing::error!(
                    error = &fault as &dyn std::error::Error,
                    "a fact of a call can't be written to the journal"
                );
            }
        }

        let queue = &self.appender.queue;
        let appended = queue.push(facts, &mut self.draft, is_whole);
        // Cleared even if the queue was full: the facts are still in the vector, and are serialised again with the next
        // attempt.
        self.draft.clear(ROOM);

        appended
    }
}

impl<T> Journal<T> {
    /// Writes all queued facts to the operating system, so that they survive the end of this process, though not a crash of the machine.
    /// Takes a `write` and no sync. If the disk fails or is slow, the facts stay in memory: a shard must not wait for it.
    pub fn hand_over(&mut self, now: Moment) {
        let Appender { queue, shared, .. } = &*self.appender;
        let handed = shared
            .current
            .hand_over(queue, &mut self.lines, &mut self.watch, now);
        self.lines.clear();
        self.lines.shrink_to(ROOM);
        if let HandOver::Refused(error) = &handed {
            shared.disk_failed(queue, error);
        }
        // The 200 leaves all the same: a call isn't held up by a disk. If the process ends before the writer has written
        // these facts, they are lost.
        if !matches!(handed, HandOver::Over) {
            metrics::counter!("trunkline_journal_late_facts_total").increment(1);
        }
    }

    /// Returns whether the queue has room for the facts of new calls. If not, the remaining room is reserved for calls in progress.
    pub fn has_reserve(&self) -> bool {
        self.appender.queue.has_reserve()
    }

    /// Returns the health of the journal.
    pub fn condition(&self) -> Arc<Condition> {
        Arc::clone(&self.appender.shared.condition)
    }

    /// Returns the number of facts that wait to be written.
    pub fn depth(&self) -> usize {
        self.appender.queue.depth()
    }

    /// Returns the octets of all segments on disk.
    pub fn spooled_octets(&self) -> u64 {
        self.appender.shared.spooled.load(Ordering::Relaxed)
    }

    /// Waits until the fact at `position` is synced, and may be acknowledged.
    ///
    /// # Errors
    /// [`Closed`]: the journal has closed before.
    pub async fn synced(&self, position: FactPosition) -> Result<(), Closed> {
        let mut synced = self.synced.clone();
        if synced.borrow().position < position {
            self.appender.queue.hurry();
        }
        synced
            .wait_for(|synced| synced.position >= position)
            .await
            .map(drop)
            .map_err(|_| Closed)
    }

    /// Starts a new segment, and waits until all facts appended before are projected and their segments deleted.
    ///
    /// # Errors
    /// The directory can't be read, the journal has closed, or the facts have waited for the store as long as `at_most`.
    pub async fn clear(&self, at_most: Duration) -> io::Result<()> {
        let is_late = |_| {
            let seconds = at_most.as_secs();
            let cause = format!("facts have waited for the database for {seconds} s");
            io::Error::new(io::ErrorKind::TimedOut, cause)
        };
        let cleared = tokio::time::timeout(at_most, self.cleared());
        cleared.await.map_err(is_late)?
    }

    async fn cleared(&self) -> io::Result<()> {
        let Appender {
            queue, directory, ..
        } = &*self.appender;
        let last = queue.last();
        self.synced(last).await.map_err(io::Error::other)?;
        // Read after the sync: the last fact is in this segment or in an earlier one.
        let before = self.synced.borrow().segment;
        while segment::hold_facts(directory, before)? {
            // Repeated: a nudge is used up even if the disk then refuses the next segment.
            queue.nudge();
            tokio::time::sleep(CLEAR_CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// Deletes the lines for which `goes` returns true from the file of unreadable facts. Returns their number. Reads and writes a file.
    ///
    /// # Errors
    /// The file can't be read or written; it is as it was.
    pub fn forget_set_aside(&self, goes: impl Fn(&[u8]) -> bool) -> io::Result<u64> {
        projector::forget_set_aside(&self.appender.directory, goes)
    }

    /// Returns the position of the last synced fact.
    pub fn synced_to(&self) -> FactPosition {
        self.synced.borrow().position
    }

    /// Follows the synced position.
    pub fn syncs(&self) -> Syncs {
        Syncs(self.synced.clone())
    }

    /// Follows the position of the last projected fact.
    pub fn projected(&self) -> watch::Receiver<FactPosition> {
        self.projected.clone()
    }
}

/// Each further synced position. Doesn't keep the journal open.
#[derive(Debug)]
pub struct Syncs(watch::Receiver<SyncedTo>);

impl Syncs {
    /// Returns the next position, skipping those in between; `None` once the journal has closed.
    pub async fn next(&mut self) -> Option<FactPosition> {
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
        "Facts that could not be stored"
    );
    describe_counter!(
        "trunkline_journal_late_facts_total",
        "Times that calls were answered before their facts were written: the disk fails or is slow"
    );
    describe_counter!(
        "trunkline_journal_project_errors_total",
        "Times that the store did not take facts, or that they could not be read back"
    );
    describe_gauge!(
        "trunkline_journal_unprojected_facts",
        "Synced facts that the store is being handed"
    );

    describe_gauge!("trunkline_journal_octets", "Size of the journal on disk");
}

/// Locks the directory: two processes in one would delete each other's facts.
fn lock(directory: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io {
        path: directory.to_owned(),
        source,
    };
    private::directory(directory).map_err(failed)?;
    // The lock belongs to the open file, so it ends with the process, however that ends. The file itself stays.
    let file = File::create(directory.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Returns the empty segments of other formats.
fn replaced(directory: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let unreadable = segment::unreadable(directory).map_err(|source| OpenError::Io {
        path: directory.to_owned(),
        source,
    })?;
    let empty = unreadable.into_iter().map(|segment| {
        if segment.is_empty {
            return Ok(segment.path);
        }
        Err(OpenError::OtherFormat {
            path: segment.path,
            remedy: match segment.is_unnumbered {
                true => {
                    "start build c486631c once with the database reachable and stop it, which stores them; if the database is upgraded already, move \
                     the file away: calls that only it tells of have no record"
                }
                false => {
                    "start the version that wrote it once with the database reachable and stop it, which stores them"
                }
            },
        })
    });
    empty.collect()
}

/// Returns the segments of earlier runs, and their octets.
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
