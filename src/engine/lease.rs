//! This run's lease in the database, and those of other nodes: renewed while the run lives, noticed when it had expired, and when others
//! have. All of it goes by the database's clock, against which this machine's is compared.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use trunkline_store::journal::Origin;
use trunkline_store::{Renewal, Store, lost, nodes};

use super::clock;
use super::skew::Skew;

/// How often a lease is renewed while it lasts.
const RENEWALS: u32 = 3;
/// How many leases' time, and how long at least, a node whose lease has expired is waited for before the end of its calls is told.
const GRACE: (u32, Duration) = (2, Duration::from_secs(30));

/// Keeps a lease until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    keeping: JoinHandle<()>,
    lapses: watch::Receiver<u64>,
}

impl Lease {
    /// Keeps the lease of `run` for as long as it is held.
    pub(super) fn keep(store: Store, run: Origin, length: Duration) -> Self {
        let (lapsed, lapses) = watch::channel(0);
        let keeper = Keeper {
            store,
            run,
            length,
            lapsed,
        };
        Self {
            keeping: tokio::spawn(keeper.keep()),
            lapses,
        }
    }

    /// How often the lease was found expired: other nodes may have taken this one for dead meanwhile.
    pub(super) fn lapses(&self) -> watch::Receiver<u64> {
        self.lapses.clone()
    }

    /// Renews it no more.
    pub(super) fn end(&self) {
        self.keeping.abort();
    }
}

struct Keeper {
    store: Store,
    run: Origin,
    length: Duration,
    lapsed: watch::Sender<u64>,
}

impl Keeper {
    async fn keep(self) {
        let mut renewals = tokio::time::interval(self.length / RENEWALS);
        let mut skew = Skew::default();
        loop {
            renewals.tick().await;
            if let Err(error) = self.renew().await {
                tracing::warn!(%error, "this node's lease was not renewed");
                continue;
            }
            // A database that doesn't tell the time is noticed by the renewal.
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

        // Also when the lease was held: somebody may have read that it wasn't a moment before.
        let run = self.run;
        let reopened = self.store.write(move |tx| lost::reopen(tx, run)).await?;
        if reopened > 0 {
            tracing::info!(
                calls = reopened,
                "calls that others had closed as lost go on"
            );
        }

        Ok(())
    }

    /// Closes the calls of nodes whose lease has expired, and tells the end of those that are gone for good.
    async fn close_others(&self) {
        let (leases, least) = GRACE;
        let grace = (self.length * leases).max(least);

        // The last run's calls are open as well: up to and with that one.
        for dead in self.others(self.store.read(nodes::expired).await) {
            let now = clock::wall_time();
            let closed = self.store.write(move |tx| {
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
                    tracing::warn!(%error, node = dead.node, "calls of a node that is gone stay open");
                }
            }
        }

        for dead in self.others(self.store.read(move |tx| nodes::given_up(tx, grace)).await) {
            if let Err(error) = self
                .store
                .write(move |tx| lost::tell(tx, dead.node, dead.boot + 1))
                .await
            {
                tracing::warn!(%error, node = dead.node, "the end of calls of a node that is gone isn't told yet");
            }
        }
    }

    fn others(
        &self,
        runs: Result<Vec<Origin>, trunkline_store::Error>,
    ) -> impl Iterator<Item = Origin> {
        let own = self.run;
        let runs = runs.unwrap_or_default().into_iter();
        runs.filter(move |run| *run != own)
    }
}
