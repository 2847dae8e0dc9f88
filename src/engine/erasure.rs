//! Erases contacts on this node: in its journal, in its traces, and in the rows that all nodes share.
//!
//! The journal goes first, because a fact left in it would be projected into rows that are already erased. The rows
//! follow; they name the contact's calls. The traces of those calls go last. An interrupted erasure starts over with
//! what is left.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::task::JoinHandle;
use trunkline_model::record::Fact;
use trunkline_store::journal::Journal;
use trunkline_store::{Erased, OpenErasure, RowsErased, Store, erasing, erasures};
use uuid::Uuid;

use super::{Handle, clock};
use crate::traces::CallLegs;

/// Interval between checks for erasures.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks between two looks for erasures that wait for nodes which are gone.
const MINUTE: u32 = 60;
/// Number of attempts to truncate the write-ahead log of an embedded database while a reader blocks it, and the time
/// between them.
const TRUNCATIONS: u32 = 200;
const TRUNCATION_INTERVAL: Duration = Duration::from_millis(25);

/// Longest wait for the journal's facts in one turn: an erasure that waits longer is logged, and tried again.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why this node's part of an erasure isn't done.
#[derive(Debug, thiserror::Error)]
enum ErasureFault {
    #[error("{0}")]
    Store(#[from] trunkline_store::Error),
    #[error("journal or traces: {0}")]
    Files(#[from] io::Error),
    #[error("readers keep the database's log in use")]
    InUse,
}

/// Handle of the task; dropping it stops the task.
#[derive(Debug)]
pub struct ErasureTask(JoinHandle<()>);

impl ErasureTask {
    /// Starts the task that erases.
    ///
    /// `session_header` names the session in our INVITEs.
    pub fn start(
        store: Store,
        engine: Handle,
        journal: Journal<Fact>,
        session_header: String,
    ) -> Self {
        let worker = ErasureWorker {
            session_header,
            store,
            engine,
            journal,
        };
        Self(tokio::spawn(worker.run()))
    }
}

impl Drop for ErasureTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct ErasureWorker {
    session_header: String,
    store: Store,
    engine: Handle,
    journal: Journal<Fact>,
}

impl ErasureWorker {
    async fn run(self) {
        let mut turns = tokio::time::interval(CHECK_INTERVAL);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut fails = false;
        for turn in 0_u32.. {
            turns.tick().await;
            match self.turn(turn).await {
                Ok(()) => fails = false,
                Err(error) if !fails => {
                    fails = true;
                    tracing::warn!(%error, "erasing contacts failed; retrying");
                }
                Err(_) => {}
            }
        }
    }

    async fn turn(&self, turn: u32) -> Result<(), ErasureFault> {
        let node = self.engine.node();
        let open = self.store.read(move |tx| erasures::open(tx, node));
        for erasure in open.await? {
            self.erase(&erasure).await?;
        }
        if turn.is_multiple_of(MINUTE) {
            erasures::settle(&self.store, clock::wall_time()).await?;
        }
        Ok(())
    }

    /// Does this node's part of one erasure. Leaves it open while a call of the contact is up.
    async fn erase(&self, erasure: &OpenErasure) -> Result<(), ErasureFault> {
        self.journal.clear(JOURNAL_TIMEOUT).await?;
        let journal_lines = self.forget_set_aside(erasure).await?;
        let rows = erasing::erase_rows(&self.store, erasure, clock::wall_time()).await?;
        if rows == RowsErased::CallIsUp {
            return Ok(());
        }

        let trace_messages = self.forget_traces(erasure).await?;
        self.truncate_log().await?;
        let erased = Erased {
            trace_messages,
            journal_lines,
            ..Erased::default()
        };
        let node = self.engine.node();
        let id = erasure.id;
        self.store
            .write(move |tx| erasures::done(tx, id, node, &erased, clock::wall_time()))
            .await?;

        // Rows that the journal search relied on may have been erased a moment ago.
        self.truncate_log().await?;
        tracing::info!(org.id = %erasure.org_id, erasure.id = %erasure.id, "a contact is erased on this node");
        Ok(())
    }

    /// Removes unreadable journal lines that were set aside: those of the org, and those that name no org.
    async fn forget_set_aside(&self, erasure: &OpenErasure) -> Result<u64, ErasureFault> {
        let (journal, erasure) = (self.journal.clone(), erasure.clone());
        let forgotten = tokio::task::spawn_blocking(move || {
            journal.forget_set_aside(|line| {
                let text = String::from_utf8_lossy(line);
                erasure.subject.mentioned_in(&text)
                    && org_of(line).is_none_or(|org| org == erasure.org_id)
            })
        });
        Ok(forgotten.await.map_err(io::Error::other)??)
    }

    async fn forget_traces(&self, erasure: &OpenErasure) -> Result<u64, ErasureFault> {
        let id = erasure.id;
        let legs = self.store.read(move |tx| erasures::legs(tx, id)).await?;

        let legs: Vec<CallLegs> = legs
            .into_iter()
            .map(|legs| CallLegs {
                peer_call_id: legs.peer_call_id,
                began: legs.began.unwrap_or(legs.from),
                call_ids: legs.call_ids,
                session_line: legs
                    .session
                    .map(|session| format!("{}: {session}", self.session_header)),
                from: legs.from,
                until: legs.until,
            })
            .collect();

        let traces = Arc::clone(self.engine.traces());
        let forgotten = tokio::task::spawn_blocking(move || traces.forget(&legs));
        Ok(forgotten.await.map_err(io::Error::other)??)
    }

    async fn truncate_log(&self) -> Result<(), ErasureFault> {
        for _ in 0..TRUNCATIONS {
            if self.store.truncate_log().await? {
                return Ok(());
            }
            tokio::time::sleep(TRUNCATION_INTERVAL).await;
        }
        Err(ErasureFault::InUse)
    }
}

/// Returns the org that a journal line names, if it names one.
fn org_of(line: &[u8]) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct OfOrg {
        org: Uuid,
    }
    serde_json::from_slice::<OfOrg>(line).ok().map(|of| of.org)
}
