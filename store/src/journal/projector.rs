//! What is synced goes to whoever keeps it, in order, as often as it takes; what is kept is deleted here.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::frame::{Piece, Pieces};
use super::position::{Origin, Position, Synced};
use super::segment::Segment;
use super::settings::Settings;
use super::shared::Shared;

/// Facts handed over at once at most: when many wait, a few large transactions cost less than many.
const CHUNK: usize = 4_096;

/// Keeps facts: the store.
pub trait Project<T>: Sync {
    /// Keeps `facts`, oldest first, all or none. They may have been kept before.
    fn project(
        &self,
        origin: Origin,
        facts: Arc<[T]>,
    ) -> impl Future<Output = Result<(), Retry>> + Send;
}

/// Facts couldn't be kept now: they are to be handed over again, later.
#[derive(Debug, thiserror::Error)]
#[error("facts cannot be kept for now")]
pub struct Retry(#[source] pub Box<dyn Error + Send + Sync>);

/// What a start found in the journal of earlier ones.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// Facts handed over.
    pub facts: usize,
    /// Segments, all of them deleted now.
    pub segments: usize,
    /// Facts put aside because they are damaged or of a kind that this version doesn't know.
    pub set_aside: usize,
}

/// The reading end of a journal.
pub struct Projector<T> {
    directory: PathBuf,
    origin: Origin,
    /// Segments of earlier starts.
    left: Vec<Segment>,
    /// Where in this start's segments it reads next.
    segment: u64,
    octets: u64,
    shared: Arc<Shared<T>>,
    settings: Settings,
    synced: watch::Receiver<Synced>,
    projected: watch::Sender<Position>,
}

impl<T> fmt::Debug for Projector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projector")
            .field("segment", &self.segment)
            .field("octets", &self.octets)
            .finish_non_exhaustive()
    }
}

/// A projector that is gone, whatever ended it, hands nothing over.
impl<T> Drop for Projector<T> {
    fn drop(&mut self) {
        self.shared.condition.set_store_refuses(true);
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static> Projector<T> {
    pub(super) fn new(
        directory: PathBuf,
        origin: Origin,
        left: Vec<Segment>,
        shared: Arc<Shared<T>>,
        settings: Settings,
        synced: watch::Receiver<Synced>,
        projected: watch::Sender<Position>,
    ) -> Self {
        let segment = synced.borrow().segment;
        Self {
            directory,
            origin,
            left,
            segment,
            octets: 0,
            shared,
            settings,
            synced,
            projected,
        }
    }

    /// Hands over what earlier starts left behind. To be awaited before their calls are closed as lost.
    ///
    /// # Errors
    /// A segment can't be read; it is kept.
    pub async fn replay(&mut self, into: &impl Project<T>) -> io::Result<Replayed> {
        let mut replayed = Replayed::default();
        while let Some(segment) = self.left.first().cloned() {
            let Reading {
                facts, set_aside, ..
            } = self.read(&segment, 0, u64::MAX).await?;
            replayed.facts += facts.len();
            replayed.set_aside += set_aside;
            self.hand_over(into, segment.origin, facts).await;
            self.delete(&segment);
            self.left.remove(0);
            replayed.segments += 1;
        }
        Ok(replayed)
    }

    /// Hands over what this start appends, until the last handle is dropped and everything is kept.
    ///
    /// # Errors
    /// A segment can't be read; it is kept for the next start.
    pub async fn run(mut self, into: impl Project<T>) -> io::Result<()> {
        self.replay(&into).await?;
        loop {
            let is_open = self.synced.changed().await.is_ok();
            if is_open {
                tokio::time::sleep(self.settings.window).await;
            }
            let synced = *self.synced.borrow_and_update();
            self.catch_up(&into, synced).await?;
            if !is_open {
                self.delete(&self.current());
                return Ok(());
            }
        }
    }

    async fn catch_up(&mut self, into: &impl Project<T>, synced: Synced) -> io::Result<()> {
        while self.segment < synced.segment {
            self.hand_over_up_to(into, u64::MAX).await?;
            self.delete(&self.current());
            self.segment += 1;
            self.octets = 0;
        }
        self.hand_over_up_to(into, synced.octets).await?;
        self.projected.send_replace(synced.position);
        metrics::gauge!("trunkline_journal_unprojected_facts").set(0.0);
        metrics::gauge!("trunkline_journal_octets")
            .set(self.shared.spooled.load(Ordering::Relaxed) as f64);
        Ok(())
    }

    async fn hand_over_up_to(&mut self, into: &impl Project<T>, end: u64) -> io::Result<()> {
        while self.octets < end {
            let (facts, read_to, last) =
                match self.shared.recent.take(self.segment, self.octets, end) {
                    Some(written) => (written.facts, written.octets.end, written.last),
                    None => {
                        // Up to where memory knows on.
                        let until = self
                            .shared
                            .recent
                            .begins(self.segment)
                            .unwrap_or(end)
                            .min(end);

                        let reading = match self.read(&self.current(), self.octets, until).await {
                            // A segment that the disk refused to make.
                            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                            reading => reading?,
                        };
                        if reading.octets == 0 {
                            return Ok(());
                        }

                        (reading.facts, self.octets + reading.octets, reading.last)
                    }
                };

            self.hand_over(into, self.origin, facts).await;
            self.octets = read_to;

            self.projected.send_if_modified(|projected| {
                let is_news = last > *projected;
                *projected = last.max(*projected);
                is_news
            });
        }

        Ok(())
    }

    const fn current(&self) -> Segment {
        Segment {
            number: self.segment,
            origin: self.origin,
        }
    }

    async fn hand_over(&self, into: &impl Project<T>, origin: Origin, mut facts: Vec<T>) {
        while !facts.is_empty() {
            metrics::gauge!("trunkline_journal_unprojected_facts").set(facts.len() as f64);
            let chunk = facts.drain(..facts.len().min(CHUNK)).collect();
            self.insist(into, origin, chunk).await;
        }
    }

    async fn insist(&self, into: &impl Project<T>, origin: Origin, facts: Arc<[T]>) {
        let (mut pause, longest) = self.settings.project_retry;
        let mut failures = 0_u32;
        while let Err(error) = into.project(origin, Arc::clone(&facts)).await {
            metrics::counter!("trunkline_journal_project_errors_total").increment(1);
            self.shared.condition.set_store_refuses(true);

            if failures == 0 {
                tracing::warn!(
                    error = &error as &dyn Error,
                    "facts of calls wait in the journal"
                );
            }

            failures += 1;
            tokio::time::sleep(pause).await;

            pause = (pause * 2).min(longest);
        }

        if failures > 0 {
            self.shared.condition.set_store_refuses(false);
            tracing::info!(failures, "facts of calls are kept again");
        }
    }

    /// Reads a piece of a segment off the executor.
    async fn read(&self, segment: &Segment, from: u64, end: u64) -> io::Result<Reading<T>> {
        let path = segment.path(&self.directory);
        tokio::task::spawn_blocking(move || read(&path, from, end))
            .await
            .map_err(io::Error::other)?
    }

    fn delete(&self, segment: &Segment) {
        let path = segment.path(&self.directory);
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        match fs::remove_file(&path) {
            Ok(()) => {
                // A torn end was never counted.
                let subtract = |spooled: u64| Some(spooled.saturating_sub(length));
                let _ = self.shared.spooled.fetch_update(
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                    subtract,
                );
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The next start hands it over once more, which does no harm.
            Err(error) => {
                tracing::warn!(%error, segment = %path.display(), "a segment cannot be deleted")
            }
        }
    }
}

/// What a piece of a segment holds.
struct Reading<T> {
    facts: Vec<T>,
    /// How long the piece was.
    octets: u64,
    last: Position,
    set_aside: usize,
}

fn read<T: DeserializeOwned>(path: &Path, from: u64, end: u64) -> io::Result<Reading<T>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut octets = Vec::new();
    file.take(end.saturating_sub(from))
        .read_to_end(&mut octets)?;

    let mut reading = Reading {
        facts: Vec::new(),
        octets: octets.len() as u64,
        last: Position(0),
        set_aside: 0,
    };
    for piece in Pieces::new(&octets) {
        match piece {
            Piece::Fact { position, json } => {
                reading.last = position;
                match serde_json::from_slice(json) {
                    Ok(fact) => reading.facts.push(fact),
                    Err(error) => {
                        tracing::error!(%error, "a fact of a kind that this version does not know is set aside");
                        set_aside(path, json)?;
                        reading.set_aside += 1;
                    }
                }
            }
            Piece::Damage { octets } => {
                tracing::error!(
                    octets = octets.len(),
                    segment = %path.display(),
                    "damage in the journal is set aside"
                );
                set_aside(path, octets)?;
                reading.set_aside += 1;
            }
            // Left by a write that failed, and written again whole elsewhere.
            Piece::Torn { .. } => {}
        }
    }

    Ok(reading)
}

/// The file of what can't be read.
const SET_ASIDE: &str = "set-aside.jsonl";
/// Held while the file is written.
static SETTING_ASIDE: Mutex<()> = Mutex::new(());

/// Takes lines out of what was set aside, by way of a file that replaces it. Gives how many.
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
        return Ok(gone);
    }

    let new = directory.join("set-aside.new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;

    file.write_all(&left)?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(directory)?.sync_all()?;

    Ok(gone)
}

/// Nothing that was acknowledged is thrown away: what can't be read is kept for a version that can.
fn set_aside(segment: &Path, octets: &[u8]) -> io::Result<()> {
    let _turn = SETTING_ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = segment.with_file_name(SET_ASIDE);
    let mut file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(&[octets, b"\n"].concat())?;
    file.sync_data()
}
