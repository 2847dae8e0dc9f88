//! Turns facts into rows: the journal of this run, what earlier runs left in their journals, and the calls that died
//! with a run.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use trunkline_calls::core::live::LiveCalls;
use trunkline_model::record::Fact;
use trunkline_store::journal::{Journal, OpenError, Origin, Projector, Settings};
use trunkline_store::{Conflict, Store, idempotency, lost, nodes};

use super::clock;
use super::lease::Lease;
use super::skew::{self, Off};
use crate::memory;
use crate::telemetry::metrics;

/// Interval at which an ending run checks whether its last facts reach the database. If they don't, they stay in the journal.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason why recording can't start.
#[derive(Debug, thiserror::Error)]
pub enum RecordingFault {
    /// The journal can't be opened.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// Another daemon uses the same data directory.
    #[error("another trunkline serves from {}: stop it, or set data_dir to another directory", .0.display())]
    Served(PathBuf),
    /// The data directory, or the journal of an earlier run, can't be read.
    #[error("the data directory can't be used: {0}")]
    Replay(#[from] io::Error),
    /// The number of this node is taken.
    #[error(transparent)]
    Conflict(Conflict),
    /// The clock of this machine is too far from the database's.
    #[error(
        "this machine's clock is {0} the database's, and nodes that share a database need the same time: set both by NTP (timedatectl shows whether it runs), then start again"
    )]
    Clock(Off),
    /// The database failed.
    #[error(
        "the database can't record this start ({0}): check whether its disk is full and whether this user may write to it"
    )]
    Store(#[source] trunkline_store::Error),
}

impl From<trunkline_store::Error> for RecordingFault {
    fn from(error: trunkline_store::Error) -> Self {
        match error {
            trunkline_store::Error::Conflict(refused) => Self::Conflict(refused),
            trunkline_store::Error::Wrong(_) | trunkline_store::Error::Broke(_) => {
                Self::Store(error)
            }
        }
    }
}

/// Record keeping of this run.
#[derive(Debug)]
pub struct Recording {
    /// Journal that takes facts.
    pub journal: Journal<Fact>,
    /// Node number and boot number of this run.
    pub run: Origin,
    projecting: JoinHandle<io::Result<()>>,
    store: Store,
    /// Lock of the data directory, held while this run lives.
    _lock: File,
    lease: Lease,
}

impl Recording {
    /// Begins a run: registers it, projects what earlier runs left in the journal, and closes their calls as lost.
    /// `live` are the calls of this run. After `lease` without a renewal, another node considers this one dead.
    ///
    /// # Errors
    /// The journal or the database can't be used.
    pub async fn begin(
        store: &Store,
        data_dir: &Path,
        live: Arc<LiveCalls>,
        node: u8,
        lease: Duration,
    ) -> Result<Self, RecordingFault> {
        let lock = lock(data_dir)?;
        if let Some(off) = Off::measure(store).await?
            && off.by() > skew::REFUSED
        {
            return Err(RecordingFault::Clock(off));
        }

        let host = host(data_dir);
        let begun = store.write(move |tx| {
            // Read before `begin` overwrites the lease.
            let before = nodes::trusted_until(tx, node)?;
            Ok((before, nodes::begin(tx, node, &host, lease)?))
        });
        let (before, run) = begun.await?;

        // Free keys before the API serves, which claims new ones.
        let freed = store.write(move |tx| idempotency::free(tx, run.node));
        let claims = freed.await?;
        if claims > 0 {
            tracing::info!(
                claims,
                "freed the keys of requests that an earlier run left without an answer"
            );
        }

        let settings = Settings {
            on_idle: memory::give_back,
            on_depth: |facts| metrics::queue_depth("journal").set(facts as f64),
            ..Settings::default()
        };
        let (journal, mut projector) = Journal::open(&data_dir.join("journal"), run, settings)?;
        // Replayed before calls are closed: the ends that are still in the journal must not become `lost`.
        let replayed = projector.replay(store).await?;
        let now = clock::wall_time();
        // A call that was up when the process died ended at the process's last sign of life. Where that isn't known, it ended with the lease at
        // the latest: it must not last, and be billed, until this start. After a quick restart the lease still runs.
        let gone = before.map_or(now, |until| until.min(now));
        let lost = store.write(move |tx| {
            lost::close(tx, run.node, run.boot, gone)?;
            lost::record_ends(tx, run.node, run.boot)
        });

        let lost = lost.await?;
        if replayed.facts > 0 || lost > 0 {
            tracing::info!(
                facts = replayed.facts,
                lost_calls = lost,
                "stored what an earlier run had left"
            );
        }

        let projecting = tokio::spawn(project(projector, store.clone()));
        let lease = Lease::keep(store.clone(), run, live, lease);
        Ok(Self {
            journal,
            run,
            projecting,
            store: store.clone(),
            _lock: lock,
            lease,
        })
    }

    /// Count of the times that other nodes may have considered this run dead.
    pub fn lapses(&self) -> watch::Receiver<u64> {
        self.lease.lapses()
    }

    /// Hands the work that one node does for all to another node, because the calls of this one may last long.
    pub async fn drain(&self) {
        let run = self.run;
        let drained = self.store.write(move |tx| nodes::drain(tx, run)).await;
        if let Err(error) = drained {
            tracing::warn!(%error, "announcing the drain to other nodes failed");
        }
    }

    /// Waits until every fact is a row, and then tells the other nodes that this one is gone. Facts that can't be read
    /// from the journal, or that the database doesn't take, stay there for the next start, and the lease expires by
    /// itself; so it is when `insisted` completes. All other handles of the journal must be dropped.
    pub async fn end(mut self, insisted: impl Future<Output = ()>) {
        // A renewal must not follow the release below.
        self.lease.end();
        let condition = self.journal.condition();
        // Closes the journal: the projector ends once it has stored the rest.
        drop(self.journal);
        let refused = async {
            loop {
                tokio::time::sleep(FLUSH_TIMEOUT).await;
                if condition.projection_fails() {
                    return;
                }
            }
        };

        let why = tokio::select! {
            projected = &mut self.projecting => match projected {
                Ok(Ok(())) => return release(&self.store, self.run).await,
                Ok(Err(_)) => "the journal can't be read",
                Err(_) => "the projector had panicked",
            },
            () = refused => "the database or the disk refuses them",
            () = insisted => "a further signal came",
        };

        self.projecting.abort();
        tracing::warn!(
            why,
            "ended with facts of calls in the journal: the next start stores them"
        );
    }
}

/// Releases the lease. Only once every end is a row: other nodes close what a released node has left open as lost.
async fn release(store: &Store, run: Origin) {
    let gone = store.write(move |tx| nodes::renew(tx, run, Duration::ZERO));
    if let Err(error) = gone.await {
        tracing::warn!(%error, "releasing the lease failed: other nodes wait until it expires");
    }
}

/// Locks the data directory before the run is registered: a second daemon must not cost the first one its lease.
fn lock(data_dir: &Path) -> Result<File, RecordingFault> {
    // With PostgreSQL, nothing else has created the directory.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data_dir)?;

    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(data_dir.join("serving.lock"))?;

    // The system releases the lock however the process ends, so none is left behind.
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RecordingFault::Served(data_dir.to_owned())),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

async fn project(projector: Projector<Fact>, store: Store) -> io::Result<()> {
    let projected = projector.run(store).await;
    if let Err(error) = &projected {
        // Logged here, since the run may only end much later.
        tracing::error!(%error, "facts stay in the journal until the next start");
    }
    projected
}

/// Name of the place that this process runs at: one data directory on one machine.
fn host(data_dir: &Path) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let directory = data_dir
        .canonicalize()
        .unwrap_or_else(|_| data_dir.to_owned());
    format!("{}:{}", machine.trim(), directory.display())
}
