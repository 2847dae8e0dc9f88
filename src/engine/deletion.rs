//! Deletes, in the background, orgs that were removed and data older than its org's retention.
//!
//! Each node ends the calls of removed orgs that are up on it. One node deletes the rows, in small transactions with
//! pauses, so that calls and requests don't notice.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::task::JoinHandle;
use tokio::time::Interval;
use trunkline_calls::HangUpRequester;
use trunkline_calls::core::live::LiveCalls;
use trunkline_sip::moment::Moment;
use trunkline_store::{Retained, RetentionDays, Store, aged, deleted_orgs, nodes, purge};
use uuid::Uuid;

use super::{Handle, clock};
use crate::jobs;

/// Pause between two transactions, which leaves the database to others.
const PAUSE: Duration = Duration::from_millis(20);
/// Checks between two deletions of facts that arrived late for purged orgs, and of data past its retention.
const MINUTE: u32 = 60;
/// Checks between two deletions of contacts past their retention. Finding contacts that no call names reads all calls
/// of an org.
const HOUR: u32 = 60 * MINUTE;
/// Counter of deleted rows, by `why`.
const DELETED: &str = "trunkline_rows_deleted_total";

/// Handle of the task; dropping it stops the task.
#[derive(Debug)]
pub struct Deletion(JoinHandle<()>);

impl Deletion {
    /// Starts the task that deletes.
    ///
    /// `retention` holds the days of orgs that have none of their own.
    pub fn start(
        store: Store,
        live: Arc<LiveCalls>,
        engine: Handle,
        retention: RetentionDays,
    ) -> Self {
        metrics::describe_counter!(DELETED, "Rows deleted, by why (`purge`, `retention`)");
        let worker = DeletionWorker {
            retention,
            store,
            live,
            engine,
        };
        let runtime = runtime::Handle::current();
        Self(jobs::DELETION.spawn(&runtime, worker.run()))
    }
}

impl Drop for Deletion {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct DeletionWorker {
    store: Store,
    live: Arc<LiveCalls>,
    engine: Handle,
    retention: RetentionDays,
}

/// Checks of a task, and whether the last one failed.
struct Checks {
    ticks: Interval,
    fails: bool,
}

impl Checks {
    fn new() -> Self {
        Self {
            ticks: jobs::DELETION.ticks(),
            fails: false,
        }
    }

    /// Waits for the next check, and logs the first failure in a row.
    async fn next(&mut self, last: Result<(), trunkline_store::Error>) {
        match last {
            Ok(()) => self.fails = false,
            Err(error) if !self.fails => {
                self.fails = true;
                tracing::warn!(%error, "a deletion failed; the next check tries again");
            }
            Err(_) => {}
        }
        self.ticks.tick().await;
    }
}

impl DeletionWorker {
    /// Ends calls and deletes rows beside each other, since a large deletion takes hours.
    async fn run(self) {
        tokio::join!(self.end_calls(), self.delete());
    }

    async fn end_calls(&self) {
        let mut checks = Checks::new();
        let mut last = Ok(());
        loop {
            checks.next(last).await;
            last = self.end_calls_of_deleted().await;
        }
    }

    async fn delete(&self) {
        let mut checks = Checks::new();
        let mut last = Ok(());
        for turn in 0_u32.. {
            checks.next(last).await;
            last = self.delete_due(turn).await;
        }
    }

    async fn to_purge(&self) -> Result<Vec<Uuid>, trunkline_store::Error> {
        self.store
            .read(move |tx| deleted_orgs::to_purge(tx, clock::wall_time()))
            .await
    }

    /// Ends this node's calls of orgs that are to be purged.
    async fn end_calls_of_deleted(&self) -> Result<(), trunkline_store::Error> {
        for org in self.to_purge().await? {
            for call in self.live.of_org(org) {
                if !call.is_over() {
                    // If the shard doesn't answer, the next check asks again.
                    let _ = self
                        .engine
                        .hang_up(call.started.call, HangUpRequester::Operator)
                        .await;
                }
            }
        }
        Ok(())
    }

    async fn delete_due(&self, turn: u32) -> Result<(), trunkline_store::Error> {
        let to_purge = self.to_purge().await?;
        let is_due = turn.is_multiple_of(MINUTE);
        if (to_purge.is_empty() && !is_due) || !self.is_first().await? {
            return Ok(());
        }

        // An org whose rows can't be deleted holds up neither the other orgs nor their retention. The first failure is logged.
        let mut result = Ok(());
        for org in to_purge {
            result = result.and(self.purge_wholly(org).await);
        }

        if is_due {
            result = result.and(self.purge_late().await);
            result = result.and(self.delete_old(turn).await);
        }
        result
    }

    /// Purges an org, and what remains of it once no call of it is up.
    async fn purge_wholly(&self, org: Uuid) -> Result<(), trunkline_store::Error> {
        self.purge(org).await?;
        if self
            .store
            // Does nothing while a call of the org is up; the next check tries again.
            .write(move |tx| deleted_orgs::finish_purge(tx, org, clock::wall_time()))
            .await?
        {
            tracing::info!(org.id = %org, "a deleted org is purged");
        }
        Ok(())
    }

    /// Purges orgs again: facts that waited in a journal may have become rows of an org that was purged already.
    async fn purge_late(&self) -> Result<(), trunkline_store::Error> {
        let purged = self
            .store
            .read(move |tx| deleted_orgs::purged(tx, clock::wall_time()));
        let mut result = Ok(());
        for org in purged.await? {
            result = result.and(self.purge(org).await);
        }
        result
    }

    /// Deletes data older than its org's days of retention, or the operator's where the org has none.
    async fn delete_old(&self, turn: u32) -> Result<(), trunkline_store::Error> {
        let mut result = Ok(());
        for kind in Retained::ALL {
            if kind == Retained::Contacts && !turn.is_multiple_of(HOUR) {
                continue;
            }

            let now = clock::wall_time();
            let default_days = self.retention.of(kind);

            let over = self
                .store
                .read(move |tx| aged::over(tx, kind, default_days, now));
            for (org, before) in over.await? {
                result = result.and(self.delete_before(org, kind, before).await);
            }
        }
        result
    }

    /// Deletes an org's data of this kind from before a time.
    async fn delete_before(
        &self,
        org: Uuid,
        kind: Retained,
        before: Moment,
    ) -> Result<(), trunkline_store::Error> {
        let now = clock::wall_time();
        loop {
            let rows = self.store.delete_before(org, kind, before, now).await?;
            if rows == 0 {
                return Ok(());
            }
            metrics::counter!(DELETED, "why" => "retention").increment(rows);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns true on the one node that deletes for all.
    async fn is_first(&self) -> Result<bool, trunkline_store::Error> {
        if !self.store.is_shared() {
            return Ok(true);
        }
        let serving = self.store.read(nodes::serving).await?;
        let first = serving.first().map(|first| first.run.node);
        Ok(first.is_none_or(|first| first == self.engine.node()))
    }

    async fn purge(&self, org: Uuid) -> Result<(), trunkline_store::Error> {
        loop {
            let rows = self
                .store
                .write(move |tx| purge::delete_some(tx, org))
                .await?;
            if rows == 0 {
                return Ok(());
            }
            metrics::counter!(DELETED, "why" => "purge").increment(rows);
            tokio::time::sleep(PAUSE).await;
        }
    }
}
