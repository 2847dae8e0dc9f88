//! This node's part of erasures of contacts: what its journal and its traces hold, and the rows that all nodes share.
//!
//! The journal goes first: a fact that it still holds would be projected into rows that are erased already. Then the rows, which say what
//! calls there were, and then the traces of those calls. A part that is cut off begins anew; it finds what is left.

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

/// Time between two looks for erasures.
const LOOK: Duration = Duration::from_secs(1);
/// Looks after which it is seen whether an erasure waits for nodes that are gone.
const MINUTE: u32 = 60;
/// How often, and after which time, the log of an embedded database is tried that a reader is in the way of.
const TRUNCATIONS: u32 = 200;
const READERS: Duration = Duration::from_millis(25);

/// Why a part isn't done yet.
#[derive(Debug, thiserror::Error)]
enum ErasureFault {
    #[error("{0}")]
    Store(#[from] trunkline_store::Error),
    #[error("journal or traces: {0}")]
    Files(#[from] io::Error),
    #[error("readers keep the database's log in use")]
    InUse,
}

/// Erases for as long as it is held.
#[derive(Debug)]
pub struct Erasing(JoinHandle<()>);

impl Erasing {
    /// Starts the task that erases.
    pub fn start(store: Store, engine: Handle, journal: Journal<Fact>) -> Self {
        let worker = Worker {
            store,
            engine,
            journal,
        };
        Self(tokio::spawn(worker.run()))
    }
}

impl Drop for Erasing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Worker {
    store: Store,
    engine: Handle,
    journal: Journal<Fact>,
}

impl Worker {
    async fn run(self) {
        let mut turns = tokio::time::interval(LOOK);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut fails = false;
        for turn in 0_u32.. {
            turns.tick().await;
            match self.turn(turn).await {
                Ok(()) => fails = false,
                Err(error) if !fails => {
                    fails = true;
                    tracing::warn!(%error, "erasures of contacts wait");
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

    /// Does this node's part of one; without an end while a call that it is about is up.
    async fn erase(&self, erasure: &OpenErasure) -> Result<(), ErasureFault> {
        self.journal.clear().await?;
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

        // What was looked for may have gone just now.
        self.truncate_log().await?;
        tracing::info!(org.id = %erasure.org_id, erasure.id = %erasure.id, "a contact is erased on this node");
        Ok(())
    }

    /// Lines of the org that couldn't be read, and those that name no org.
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
                call_ids: legs.call_ids,
                session: legs.session.map(|session| session.to_string()),
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
            tokio::time::sleep(READERS).await;
        }
        Err(ErasureFault::InUse)
    }
}

/// The org that a line of the journal is about, if it says so.
fn org_of(line: &[u8]) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct OfOrg {
        org: Uuid,
    }
    serde_json::from_slice::<OfOrg>(line).ok().map(|of| of.org)
}
