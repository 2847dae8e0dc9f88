//! Jobs: what runs beside calls and requests. Each is a task that looks once per period, or waits for a queue. This table says which there are, how often each looks,
//! and what holds while one fails; `docs/operating.md` has it for operators. Knows the work of none.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

/// Times at which a job looks for work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Looks {
    /// Once per period.
    Every(Duration),
    /// Once per period, which a key of the configuration sets.
    AsConfigured,
    /// As soon as there is something: a queue, or the change feed, wakes it.
    AsItHappens,
}

/// A job of the node.
#[derive(Debug)]
pub(crate) struct Job {
    /// Name in the log and in the documentation.
    name: &'static str,
    looks: Looks,
    /// Consequence for users while its looks fail, and after it has panicked.
    while_it_fails: &'static str,
}

/// Gauges of the database, its change feed, the backlog of webhooks, and the certificates.
pub(crate) const GAUGES: Job = Job {
    name: "gauges",
    looks: Looks::Every(Duration::from_secs(5)),
    while_it_fails: "the gauges keep their last values",
};

/// Follows the wall clock.
pub(crate) const WALL_CLOCK: Job = Job {
    name: "wall clock",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "calls are recorded by the clock as it was",
};

/// Forgets used nonces, and returns memory after a load.
pub(crate) const MEMORY: Job = Job {
    name: "memory",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "memory of a load isn't returned",
};

/// Deletes removed orgs, and data older than its org's retention.
pub(crate) const DELETION: Job = Job {
    name: "deletion",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "data stays, and each look tries again",
};

/// Erases contacts on this node.
pub(crate) const ERASURE: Job = Job {
    name: "erasure",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "the erasure stays open, and each look tries again",
};

/// Renews the lease of this node, and ends the calls of nodes whose lease has expired.
pub(crate) const LEASE: Job = Job {
    name: "lease",
    looks: Looks::AsConfigured,
    while_it_fails: "other nodes take this one for dead once its lease has expired",
};

/// Notes that calls are up.
pub(crate) const SIGN_OF_LIFE: Job = Job {
    name: "sign of life",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "calls that die with this node end earlier in their records",
};

/// Removes expired registrations of PBXs, and has those behind NAT probed.
pub(crate) const REGISTRATIONS: Job = Job {
    name: "registrations",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "an expired registration stays until it is used",
};

/// Stores registrations of PBXs, and follows those of other nodes.
pub(crate) const STORED_REGISTRATIONS: Job = Job {
    name: "stored registrations",
    looks: Looks::Every(Duration::from_millis(200)),
    while_it_fails: "registrations of this node count here alone, and are lost if it ends",
};

/// Shares registrations with carriers out among nodes.
pub(crate) const CARRIERS: Job = Job {
    name: "carriers",
    looks: Looks::Every(Duration::from_secs(1)),
    while_it_fails: "each node keeps the registrations that it has",
};

/// Probes peers by OPTIONS.
pub(crate) const PROBES: Job = Job {
    name: "probes",
    looks: Looks::AsConfigured,
    while_it_fails: "the last health of each peer counts",
};

/// Looks up the host names of reserved peers.
pub(crate) const RESERVED_NAMES: Job = Job {
    name: "reserved names",
    looks: Looks::Every(Duration::from_secs(30)),
    while_it_fails: "the last addresses count",
};

/// Delivers webhooks that are due.
pub(crate) const WEBHOOKS: Job = Job {
    name: "webhooks",
    looks: Looks::Every(Duration::from_millis(500)),
    while_it_fails: "deliveries wait, and are made in order later",
};

/// Stores when keys were used, and drops stored answers that have expired.
pub(crate) const KEY_USES: Job = Job {
    name: "key uses",
    looks: Looks::Every(Duration::from_secs(30)),
    while_it_fails: "the time of a key's last use is older than it was",
};

/// Finds the contacts of callers, and follows their changes.
pub(crate) const CONTACTS: Job = Job {
    name: "contacts",
    looks: Looks::AsItHappens,
    while_it_fails: "calls go on without a contact",
};

/// Logs and stores failed log-ins.
pub(crate) const FAILED_LOG_INS: Job = Job {
    name: "failed log-ins",
    looks: Looks::AsItHappens,
    while_it_fails: "failed log-ins are counted, and neither logged nor stored",
};

/// Stores what the challenges of peers have shown.
pub(crate) const CHALLENGES: Job = Job {
    name: "challenges",
    looks: Looks::AsItHappens,
    while_it_fails: "the doctor knows less of peers that challenge",
};

/// Stores events that belong to no call, such as a registration that is gone.
pub(crate) const EVENTS: Job = Job {
    name: "events",
    looks: Looks::AsItHappens,
    while_it_fails: "such events are lost once their queue is full",
};

/// Follows changes of credentials, and reads new signing keys.
pub(crate) const CREDENTIALS: Job = Job {
    name: "credentials",
    looks: Looks::AsItHappens,
    while_it_fails: "a changed credential counts for up to a minute as it was",
};

/// Wakes streams that wait for events, and deletes old events and audit entries.
pub(crate) const EVENT_FEED: Job = Job {
    name: "event feed",
    looks: Looks::AsItHappens,
    while_it_fails: "streams bring events late",
};

/// Carries out what other nodes ask of this one.
pub(crate) const OTHER_NODES: Job = Job {
    name: "other nodes",
    looks: Looks::AsItHappens,
    while_it_fails: "what other nodes ask for calls of this one gets 503",
};

impl Job {
    /// Starts the task of the job. A panic ends the task and nothing else: it is logged, and counted.
    pub(crate) fn spawn(
        &'static self,
        runtime: &runtime::Handle,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        runtime.spawn(async move {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                metrics::counter!("trunkline_panics_total").increment(1);
                tracing::error!(
                    job = self.name,
                    "a job has panicked and does nothing until the daemon is restarted: {}",
                    self.while_it_fails
                );
            }
        })
    }

    /// Time between two looks, of a job whose period is in the table.
    pub(crate) fn period(&self) -> Duration {
        match self.looks {
            Looks::Every(period) => period,
            Looks::AsConfigured | Looks::AsItHappens => panic!("{} has no fixed period", self.name),
        }
    }

    /// The looks of the job, the first at once.
    pub(crate) fn ticks(&self) -> Interval {
        ticks(self.period())
    }

    /// The looks of a job whose period is configured.
    pub(crate) fn ticks_every(&self, period: Duration) -> Interval {
        debug_assert_eq!(self.looks, Looks::AsConfigured, "{}", self.name);
        ticks(period)
    }
}

/// Looks that were missed, while the database was away or the last one took long, aren't made up for in a burst.
fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_that_panics_ends_alone() {
        let runtime = runtime::Handle::current();
        let broken = GAUGES.spawn(&runtime, async { panic!("on purpose") });
        assert!(broken.await.is_ok(), "the panic is caught");
        let other = DELETION.spawn(&runtime, async {});
        assert!(other.await.is_ok());
    }
}
