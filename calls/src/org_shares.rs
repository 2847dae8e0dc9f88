//! Shares of the node: one org can't use up the calls and set-ups that others need.
//!
//! An org that alone has calls leaves a tenth of the node free. Once others have calls it may have a quarter, or twenty calls if that is more. Calls
//! that are up are never ended for this.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Calls, and set-ups a second, that every org may have on any node.
const LEAST: u32 = 20;

/// Seconds in which an org may fill its share of calls by set-ups.
const FILL: u32 = 20;

/// Number of orgs kept before those without calls are removed.
const SWEEP: usize = 1_024;

const SECOND: Duration = Duration::from_secs(1);

/// Calls and set-ups of every org that has any, over all shards.
#[derive(Debug)]
pub(super) struct OrgShares {
    of: DashMap<Uuid, Share>,
    calls: AtomicU32,
    /// Limit on calls of an org that alone has any.
    alone: u32,
    /// Limit on calls of an org beside others.
    beside: u32,
    /// Limit on its set-ups a second, beside others.
    setups: u32,
    swept_at: Mutex<Moment>,
}

/// Kind of what is counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ShareUse {
    /// A new call.
    SetUp,
    /// One more leg of a call that is up.
    Leg,
}

#[derive(Debug, Default)]
struct Share {
    calls: u32,
    /// Set-ups in the second that began at `since`.
    setups: u32,
    since: Moment,
}

impl OrgShares {
    pub(super) fn new(max_calls: usize) -> Self {
        let max = u32::try_from(max_calls).unwrap_or(u32::MAX);
        let alone = max - max / 10;
        let beside = LEAST.max(max / 4).min(alone);
        Self {
            of: DashMap::new(),
            calls: AtomicU32::new(0),
            alone,
            beside,
            setups: LEAST.max(beside / FILL),
            swept_at: Mutex::default(),
        }
    }

    /// Counts a call of an org; false, without counting, if its share is used up.
    pub(super) fn take(&self, org: Uuid, taking: ShareUse, now: Moment) -> bool {
        // Before the entry is locked: `retain` locks the same table.
        self.sweep(now);
        let mut share = self.of.entry(org).or_default();
        let has_company = self.calls.load(Ordering::Relaxed) > share.calls;
        let most = if has_company { self.beside } else { self.alone };

        if share.calls >= most {
            return false;
        }

        if taking == ShareUse::SetUp {
            if now.since(share.since) >= SECOND {
                share.since = now;
                share.setups = 0;
            }
            if has_company && share.setups >= self.setups {
                return false;
            }
            share.setups += 1;
        }

        share.calls += 1;
        self.calls.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(super) fn release(&self, org: Uuid) {
        // The total first: in between an org may look alone, but never in the company of its own call.
        self.calls.fetch_sub(1, Ordering::Relaxed);
        if let Some(mut share) = self.of.get_mut(&org) {
            share.calls = share.calls.saturating_sub(1);
        }
    }

    /// Removes orgs without calls once their last set-up is a second old, so that short calls don't restart that second. Runs at most once a second,
    /// in any shard.
    fn sweep(&self, now: Moment) {
        if self.of.len() <= SWEEP {
            return;
        }
        // Another shard is sweeping.
        let Ok(mut swept_at) = self.swept_at.try_lock() else {
            return;
        };
        if now.since(*swept_at) >= SECOND {
            *swept_at = now;
            self.of
                .retain(|_, share| share.calls > 0 || now.since(share.since) < SECOND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn org(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    /// Returns the number of these calls that an org gets, each ten minutes after the one before.
    fn taken(shares: &OrgShares, of: u128, calls: u64) -> usize {
        (0..calls)
            .filter(|turn| shares.take(org(of), ShareUse::SetUp, at(turn * 600_000)))
            .count()
    }

    #[test]
    fn an_org_has_most_of_the_node_alone_and_a_quarter_beside_others() {
        for (max, alone, beside) in [
            (1, 1, 1),
            (10, 9, 9),
            (40, 36, 20),
            (100, 90, 25),
            (50_000, 45_000, 12_500),
        ] {
            let shares = OrgShares::new(max);
            assert_eq!(taken(&shares, 1, 60_000), alone, "{max}, alone");
            assert!(
                shares.take(org(2), ShareUse::SetUp, at(0)),
                "{max}, others get in"
            );
            assert!(
                !shares.take(org(1), ShareUse::Leg, at(0)),
                "{max}, and it doesn't"
            );
            let shares = OrgShares::new(max);
            assert!(shares.take(org(2), ShareUse::SetUp, at(0)));
            assert_eq!(taken(&shares, 1, 60_000), beside, "{max}, beside others");
            shares.release(org(2));
            assert_eq!(
                taken(&shares, 1, 60_000),
                alone - beside,
                "{max}, alone again"
            );
        }
    }

    #[test]
    fn an_org_sets_up_so_many_calls_a_second_beside_others() {
        let shares = OrgShares::new(10_000);
        let in_a_second = |from: u64| {
            (from..from + 1_000)
                .filter(|time| {
                    let taken = shares.take(org(1), ShareUse::SetUp, at(*time));
                    if taken {
                        shares.release(org(1));
                    }
                    taken
                })
                .count()
        };

        assert_eq!(in_a_second(0), 1_000, "alone");
        assert!(shares.take(org(2), ShareUse::SetUp, at(0)));
        assert_eq!(in_a_second(2_000), 125);
        assert_eq!(in_a_second(3_000), 125, "in each second");
    }

    #[test]
    fn quiet_orgs_are_forgotten() {
        let shares = OrgShares::new(100);
        for number in 0..10_000_u32 {
            let now = at(u64::from(number) * 10);
            assert!(shares.take(org(number.into()), ShareUse::SetUp, now));
            shares.release(org(number.into()));
        }
        assert!(shares.of.len() <= SWEEP + 200, "{}", shares.of.len());
    }
}
