//! Lease of this run in the database, and the leases of other nodes.
//!
//! The lease is renewed while the process lives. This file also notices when the lease had expired, closes the calls of
//! nodes whose lease has expired, and compares this machine's clock with the database's, by which leases expire.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use trunkline_calls::core::live::LiveCalls;
use trunkline_store::journal::Origin;
use trunkline_store::{Renewal, Store, lost, nodes};

use super::clock;
use super::skew::Skew;
use crate::jobs;

/// Renewals within the length of one lease.
const RENEWALS: u32 = 3;
/// Time to wait for a node whose lease has expired before the end of its calls is published: a number of leases, and a
/// minimum.
const GRACE: (u32, Duration) = (2, Duration::from_secs(30));

/// Handle of the tasks that renew the lease and note that the run is alive.
#[derive(Debug)]
pub(super) struct Lease {
    keeping: JoinHandle<()>,
    living: JoinHandle<()>,
    lapses: watch::Receiver<u64>,
}

impl Lease {
    /// Starts to renew the lease of `run`, whose calls are `live`.
    pub(super) fn keep(store: Store, run: Origin, live: Arc<LiveCalls>, length: Duration) -> Self {
        let (lapsed, lapses) = watch::channel(0);
        let runtime = runtime::Handle::current();
        let living = jobs::SIGN_OF_LIFE.spawn(&runtime, show_life(store.clone(), run, live));
        let keeper = LeaseKeeper {
            store,
            run,
            length,
            lapsed,
        };
        Self {
            keeping: jobs::LEASE.spawn(&runtime, keeper.keep()),
            living,
            lapses,
        }
    }

    /// Count of the times that the lease was found expired. Other nodes may have considered this one dead then.
    pub(super) fn lapses(&self) -> watch::Receiver<u64> {
        self.lapses.clone()
    }

    /// Stops renewing the lease.
    pub(super) fn end(&self) {
        self.keeping.abort();
        self.living.abort();
    }
}

/// Notes the time of the clock of timers while calls are up. A wall clock would bill a step of that clock to calls that die with this process.
async fn show_life(store: Store, run: Origin, live: Arc<LiveCalls>) {
    let mut turns = jobs::SIGN_OF_LIFE.ticks();
    loop {
        turns.tick().await;
        if live.is_empty() {
            continue;
        }
        let now = clock::now();
        // If the database fails, the next renewal of the lease reports it.
        let _ = store.write(move |tx| nodes::note_alive(tx, run, now)).await;
    }
}

struct LeaseKeeper {
    store: Store,
    run: Origin,
    length: Duration,
    lapsed: watch::Sender<u64>,
}

impl LeaseKeeper {
    async fn keep(self) {
        let mut renewals = jobs::LEASE.ticks_every(self.length / RENEWALS);
        let mut skew = Skew::default();
        loop {
            renewals.tick().await;
            if let Err(error) = self.renew().await {
                tracing::warn!(%error, "this node's lease was not renewed");
                continue;
            }
            // If the database fails here, the next renewal reports it.
            let _ = skew.look(&self.store).await;
            self.close_others().await;
        }
    }

    async fn renew(&self) -> Result<(), trunkline_store::Error> {
        let run = self.run;
        let length = self.length;
        match self
            .store
            .write(move |tx| nodes::renew(tx, run, length))
            .await?
        {
            Renewal::Held => {}
            Renewal::Lapsed => {
                tracing::warn!(
                    "this node's lease had expired: it was held up, or couldn't reach the database; accounts are registered anew"
                );
                self.lapsed.send_modify(|lapses| *lapses += 1);
            }
            Renewal::Replaced => {
                tracing::error!(
                    node = self.run.node,
                    "another process serves as this node: give one of them another number with sip.node"
                );
                return Ok(());
            }
        }

        // Even if the lease was held now, another node may have read it as expired just before.
        let run = self.run;
        let reopened = self.store.write(move |tx| lost::reopen(tx, run)).await?;
        if reopened > 0 {
            tracing::info!(
                calls = reopened,
                "reopened calls that other nodes had closed as lost"
            );
        }

        Ok(())
    }

    /// Closes the calls of nodes whose lease has expired, and publishes their end once such a node is given up.
    async fn close_others(&self) {
        let (leases, least) = GRACE;
        let grace = (self.length * leases).max(least);

        // Calls of earlier runs of that node are open as well: close everything up to its last run.
        for dead in self.others(self.store.read(nodes::expired).await) {
            let now = clock::wall_time();
            let closed = self.store.write(move |tx| {
                // Calls of which no sign of life is known ended with the lease at the latest: until then the node may have had them. If our
                // clock is behind the database's, that time is still to come here, but no call may end in the future.
                let gone = nodes::trusted_until(tx, dead.node)?.map_or(now, |until| until.min(now));
                lost::close(tx, dead.node, dead.boot + 1, gone)
            });

            match closed.await {
                Ok(0) => {}
                Ok(calls) => {
                    tracing::warn!(
                        node = dead.node,
                        calls,
                        "closed the calls of a node that is gone"
                    );
                }
                Err(error) => {
                    tracing::warn!(%error, node = dead.node, "closing the calls of a lost node failed; retrying later");
                }
            }
        }

        // Published later than closed: a node that was only held up reopens its calls with its next renewal, and an
        // event can't be taken back.
        for dead in self.others(self.store.read(move |tx| nodes::given_up(tx, grace)).await) {
            if let Err(error) = self
                .store
                .write(move |tx| lost::record_ends(tx, dead.node, dead.boot + 1))
                .await
            {
                tracing::warn!(%error, node = dead.node, "publishing the end of calls of a lost node failed; retrying later");
            }
        }
    }

    /// Runs of other nodes; none if the query failed, because the next renewal asks again and logs the failure.
    fn others(
        &self,
        runs: Result<Vec<Origin>, trunkline_store::Error>,
    ) -> impl Iterator<Item = Origin> {
        let own = self.run;
        let runs = runs.unwrap_or_default().into_iter();
        runs.filter(move |run| *run != own)
    }
}
