//! Projection of synced facts: passes them to the store in order, repeating until it succeeds, and deletes the segments afterwards. A disk
//! that fails to return the facts is asked again like a store that refuses them.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::frame::{Piece, Pieces};
use super::position::{FactPosition, Origin, ReadPosition, SyncedTo};
use super::queue::Queue;
use super::recent::RecentWrite;
use super::segment::Segment;
use super::settings::Settings;
use super::shared::Shared;
use crate::files::{private, whole_file};

/// Most facts of one call of [`Project::project`]: after a backlog a few large transactions cost less than many small ones.
const CHUNK: usize = 4_096;

/// The receiver of facts: the store.
pub trait Project<T>: Sync {
    /// Stores `facts` of a run, oldest first, with their end, all or none. They may have been stored before.
    fn project(
        &self,
        origin: Origin,
        facts: Arc<[T]>,
        end: ReadPosition,
    ) -> impl Future<Output = Result<(), Retry>> + Send;

    /// Returns the last end that [`project`](Self::project) has stored for a run, or zero.
    fn read_to(&self, origin: Origin) -> impl Future<Output = Result<ReadPosition, Retry>> + Send;
}

/// Error: the facts couldn't be stored now, and have to be passed again later.
#[derive(Debug, thiserror::Error)]
#[error("facts can't be stored now")]
pub struct Retry(#[source] pub Box<dyn Error + Send + Sync>);

/// Result of replaying the journal of earlier runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Facts projected.
    pub facts: usize,
    /// Segments, all of which are deleted now.
    pub segments: usize,
    /// Facts set aside because they are damaged or of a kind that this version doesn't know.
    pub set_aside: usize,
}

/// The reading end of a journal.
pub struct Projector<T> {
    directory: PathBuf,
    origin: Origin,
    /// Segments of earlier runs.
    left: Vec<Segment>,
    /// Segment of this run to read next.
    segment: u64,
    octets: u64,
    shared: Arc<Shared<T>>,
    queue: Arc<Queue<T>>,
    settings: Settings,
    synced: watch::Receiver<SyncedTo>,
    projected: watch::Sender<FactPosition>,
}

impl<T> fmt::Debug for Projector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projector")
            .field("segment", &self.segment)
            .field("octets", &self.octets)
            .finish_non_exhaustive()
    }
}

/// Reports a failing projection once the projector has ended, for any reason: no fact is projected any more.
impl<T> Drop for Projector<T> {
    fn drop(&mut self) {
        self.shared.condition.set_projection_fails(true);
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Projector<T> {
    pub(super) fn new(
        directory: PathBuf,
        origin: Origin,
        left: Vec<Segment>,
        (shared, queue): (Arc<Shared<T>>, Arc<Queue<T>>),
        settings: Settings,
        synced: watch::Receiver<SyncedTo>,
        projected: watch::Sender<FactPosition>,
    ) -> Self {
        let segment = synced.borrow().segment;
        Self {
            directory,
            origin,
            left,
            segment,
            octets: 0,
            shared,
            queue,
            settings,
            synced,
            projected,
        }
    }

    /// Projects the facts of earlier runs that the store doesn't have. Must be awaited before the calls of these runs are closed as lost.
    ///
    /// # Errors
    /// A segment can't be read; it stays.
    pub async fn replay(&mut self, into: &impl Project<T>) -> io::Result<Replayed> {
        let mut replayed = Replayed::default();
        while let Some(segment) = self.left.first().cloned() {
            let read_to = self
                .until_done(&STORE_AWAY, || into.read_to(segment.origin))
                .await;
            let stored = read_to.within(segment.number);

            let Reading {
                facts, set_aside, ..
            } = self.read(&segment, 0..u64::MAX, stored).await?;
            replayed.facts += facts.facts.len();
            replayed.set_aside += set_aside;

            self.hand_over(into, &segment, facts).await;
            self.delete(&segment);
            // Removed last: if this future is dropped while the store is away, the next call repeats the same segment.
            self.left.remove(0);
            replayed.segments += 1;
        }
        Ok(replayed)
    }

    /// Projects the facts of this run, until the last handle is dropped and everything is stored.
    ///
    /// # Errors
    /// A segment of an earlier run can't be read; it stays for the next run. Segments of this run are read until that succeeds.
    pub async fn run(mut self, into: impl Project<T>) -> io::Result<()> {
        self.replay(&into).await?;

        let mut next_segment = tokio::time::interval(self.settings.segment_age);
        // After a long wait for the store one tick is enough.
        next_segment.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is due at once.
        next_segment.tick().await;

        loop {
            let is_open = tokio::select! {
                changed = self.synced.changed() => changed.is_ok(),
                _ = next_segment.tick() => {
                    // Without stored facts in the present segment there is nothing that could be deleted.
                    if self.octets > 0 {
                        self.queue.nudge();
                    }
                    continue;
                }
            };
            // A journal that closes has no further facts to wait for.
            if is_open {
                tokio::time::sleep(self.settings.window).await;
            }

            // Read after the pause, so that what was synced meanwhile is projected with it.
            let synced = *self.synced.borrow_and_update();
            self.catch_up(&into, synced).await;

            // Everything is stored, so a clean end leaves no segment, and the next start has nothing to replay.
            if !is_open {
                self.delete(&self.current());
                return Ok(());
            }
        }
    }

    async fn catch_up(&mut self, into: &impl Project<T>, synced: SyncedTo) {
        while self.segment < synced.segment {
            self.hand_over_up_to(into, u64::MAX).await;
            self.delete(&self.current());
            self.segment += 1;
            self.octets = 0;
        }
        self.hand_over_up_to(into, synced.octets).await;
        self.projected.send_replace(synced.position);
        metrics::gauge!("trunkline_journal_unprojected_facts").set(0.0);
        metrics::gauge!("trunkline_journal_octets")
            .set(self.shared.spooled.load(Ordering::Relaxed) as f64);
    }

    async fn hand_over_up_to(&mut self, into: &impl Project<T>, end: u64) {
        while self.octets < end {
            let (facts, read_to) = match self.shared.recent.take(self.segment, self.octets, end) {
                Some(RecentWrite {
                    octets,
                    facts,
                    first,
                    last,
                    ..
                }) => (Consecutive { facts, first, last }, octets.end),
                None => {
                    // Reads up to the first write that is still in memory.
                    let until = self
                        .shared
                        .recent
                        .begins(self.segment)
                        .unwrap_or(end)
                        .min(end);

                    match self.read_current(self.octets..until).await {
                        // The length of a finished segment isn't known here: its end shows by reading.
                        Some(reading) if reading.octets > 0 => {
                            (reading.facts, self.octets + reading.octets)
                        }
                        Some(_) | None => return,
                    }
                }
            };

            let last = facts.last;
            self.hand_over(into, &self.current(), facts).await;
            self.octets = read_to;

            self.projected.send_if_modified(|projected| {
                // `last` is zero where no fact was read, and lines that a failed sync left come twice: the position
                // never falls back.
                let is_news = last > *projected;
                *projected = last.max(*projected);
                is_news
            });
        }
    }

    const fn current(&self) -> Segment {
        Segment {
            number: self.segment,
            origin: self.origin,
        }
    }

    async fn hand_over(&self, into: &impl Project<T>, segment: &Segment, from: Consecutive<T>) {
        let Consecutive {
            mut facts,
            mut first,
            last,
        } = from;

        while !facts.is_empty() {
            metrics::gauge!("trunkline_journal_unprojected_facts").set(facts.len() as f64);
            // Shared, since an attempt that fails is repeated with the same facts.
            let chunk: Arc<[T]> = facts.drain(..facts.len().min(CHUNK)).collect();
            first.0 += chunk.len() as u64;

            // Where facts were set aside, the chunk may end later than the position below, and a restart repeats some facts.
            let end = ReadPosition {
                segment: segment.number,
                fact: if facts.is_empty() {
                    last
                } else {
                    FactPosition(first.0 - 1)
                },
            };
            self.until_done(&STORE_AWAY, || {
                into.project(segment.origin, Arc::clone(&chunk), end)
            })
            .await;
        }
    }

    /// Repeats a request until it succeeds.
    async fn until_done<R, E: Error + 'static, F: Future<Output = Result<R, E>>>(
        &self,
        outage: &Outage,
        ask: impl Fn() -> F,
    ) -> R {
        // No number of attempts ends this: the facts are acknowledged. The journal's largest size on disk is the bound.
        let (mut pause, longest) = self.settings.project_retry;
        let mut failures = 0_u32;
        let answer = loop {
            let error = match ask().await {
                Ok(answer) => break answer,
                Err(error) => error,
            };

            metrics::counter!("trunkline_journal_project_errors_total").increment(1);
            self.shared.condition.set_projection_fails(true);

            // Logged once for each outage, not for each attempt.
            if failures == 0 {
                tracing::warn!(error = &error as &dyn Error, "{}", outage.begins);
            }

            failures += 1;
            tokio::time::sleep(pause).await;

            pause = (pause * 2).min(longest);
        };

        if failures > 0 {
            self.shared.condition.set_projection_fails(false);
            tracing::info!(failures, "{}", outage.ends);
        }

        answer
    }

    /// Reads a piece of the present segment, repeating until it succeeds; `None` if the segment doesn't exist, because the disk refused to
    /// create it.
    async fn read_current(&self, octets: Range<u64>) -> Option<Reading<T>> {
        let segment = self.current();
        self.until_done(&UNREADABLE, || async {
            let reading = self.read(&segment, octets.clone(), FactPosition(0)).await;
            match reading {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                reading => reading.map(Some),
            }
        })
        .await
    }

    /// Reads the facts behind `after` in a piece of a segment, on a blocking thread.
    async fn read(
        &self,
        segment: &Segment,
        octets: Range<u64>,
        after: FactPosition,
    ) -> io::Result<Reading<T>> {
        let path = segment.path(&self.directory);
        tokio::task::spawn_blocking(move || read(&path, octets, after))
            .await
            .map_err(io::Error::other)?
    }

    fn delete(&self, segment: &Segment) {
        let path = segment.path(&self.directory);
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        match fs::remove_file(&path) {
            Ok(()) => {
                // An interrupted write at the end was never counted.
                let subtract = |spooled: u64| Some(spooled.saturating_sub(length));
                let _ = self.shared.spooled.fetch_update(
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                    subtract,
                );
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The next run projects it once more, which is safe.
            Err(error) => {
                tracing::warn!(%error, segment = %path.display(), "a segment cannot be deleted")
            }
        }
    }
}

/// Lines of the log about an outage, during which a request is repeated.
struct Outage {
    /// Logged with the first failure.
    begins: &'static str,
    /// Logged with the success.
    ends: &'static str,
}

const STORE_AWAY: Outage = Outage {
    begins: "the database doesn't take facts of calls: they wait in the journal",
    ends: "the database takes facts of calls again",
};

const UNREADABLE: Outage = Outage {
    begins: "facts of calls can't be read from the journal: they wait there",
    ends: "facts of calls are read from the journal again",
};

/// Content of a piece of a segment.
struct Reading<T> {
    facts: Consecutive<T>,
    /// Length of the piece.
    octets: u64,
    set_aside: usize,
}

/// Facts of one segment, in order. Those of the positions between `first` and `last` that aren't among them were set aside.
struct Consecutive<T> {
    facts: Vec<T>,
    first: FactPosition,
    last: FactPosition,
}

fn read<T: DeserializeOwned>(
    path: &Path,
    place: Range<u64>,
    after: FactPosition,
) -> io::Result<Reading<T>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(place.start))?;
    let mut octets = Vec::new();
    file.take(place.end.saturating_sub(place.start))
        .read_to_end(&mut octets)?;

    let mut facts = Consecutive {
        facts: Vec::new(),
        first: FactPosition(0),
        last: FactPosition(0),
    };
    let mut not_read = 0;
    let mut aside = Vec::new();

    for piece in Pieces::new(&octets) {
        match piece {
            Piece::Fact { position, .. } if position <= after => {}
            Piece::Fact { position, json } => {
                // A fact that can't be read counts as well: `hand_over` derives the positions of chunks from the first
                // one.
                if facts.first == FactPosition(0) {
                    facts.first = position;
                }
                facts.last = position;

                match serde_json::from_slice(json) {
                    Ok(fact) => facts.facts.push(fact),
                    Err(error) => {
                        tracing::error!(%error, "a fact of a kind that this version does not know is set aside");
                        aside.extend_from_slice(json);
                        aside.push(b'\n');
                        not_read += 1;
                    }
                }
            }

            Piece::Damage { octets } => {
                tracing::error!(
                    octets = octets.len(),
                    segment = %path.display(),
                    "damage in the journal is set aside"
                );
                aside.extend_from_slice(octets);
                aside.push(b'\n');
                not_read += 1;
            }
            // Left by a failed write, and written again in a later segment.
            Piece::Torn { .. } => {}
        }
    }

    if !aside.is_empty() {
        set_aside(path, &aside)?;
    }

    Ok(Reading {
        facts,
        octets: octets.len() as u64,
        set_aside: not_read,
    })
}

/// File of unreadable facts.
const SET_ASIDE: &str = "set-aside.jsonl";
/// Lock held while the file is written.
static SETTING_ASIDE: Mutex<()> = Mutex::new(());

/// Deletes lines from the file of unreadable facts by writing a new file that replaces it. Returns their number.
pub(super) fn forget_set_aside(directory: &Path, goes: impl Fn(&[u8]) -> bool) -> io::Result<u64> {
    let _turn = SETTING_ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = directory.join(SET_ASIDE);
    let octets = match fs::read(&path) {
        Ok(octets) => octets,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };

    let mut left = Vec::with_capacity(octets.len());
    let mut gone = 0;
    for line in octets.split_inclusive(|octet| *octet == b'\n') {
        if goes(line) {
            gone += 1;
        } else {
            left.extend_from_slice(line);
        }
    }

    if gone == 0 {
        return Ok(0);
    }

    if left.is_empty() {
        fs::remove_file(&path)?;
        // Without this sync a power failure could bring the file back.
        sync_entries(directory)?;
        return Ok(gone);
    }

    whole_file::write(&path, private::FILE, &left)?;
    Ok(gone)
}

/// Syncs the names in a directory: files that were created, renamed or removed.
fn sync_entries(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Sets unreadable lines aside, all or none: an acknowledged fact is never discarded, as a later version may be able to read it.
fn set_aside(segment: &Path, lines: &[u8]) -> io::Result<()> {
    let _turn = SETTING_ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = segment.with_file_name(SET_ASIDE);
    let mut file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    let before = file.metadata()?.len();

    // Synced before the segment is deleted. If that fails, the segment stays and is read again.
    let written = file
        .write_all(lines)
        .and_then(|()| file.sync_data())
        // The file may be new.
        .and_then(|()| segment.parent().map_or(Ok(()), sync_entries));
    if written.is_err() {
        // Best effort: the next attempt appends the same lines, and a disk that keeps failing must not fill up with them.
        let _ = file.set_len(before);
    }

    written
}
