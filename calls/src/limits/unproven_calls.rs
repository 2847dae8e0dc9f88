//! Calls that weren't proven in time after their answer or a reliable 18x (`dialog_proof`), by source and by org, and the calls of a source that were
//! acknowledged. Shared by all shards.

use std::net::IpAddr;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use trunkline_bounds::SharedIdTable;
use trunkline_sip::flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Unproven calls that every source may have.
const LEAST: u32 = 3;
/// Part of a source's acknowledged calls that its unproven calls may be.
const PART_OF_ACKNOWLEDGED: u32 = 10;
/// Part of an org's share of the node that its unproven calls may be.
const PART_OF_SHARE: u32 = 5;
/// Minutes for which acknowledged calls count.
const MINUTES: usize = 10;
/// Bound on sources. An address comes here only if an org lists it. A further one has the least.
const SOURCES: usize = 65_536;

/// Calls of one source.
#[derive(Debug, Default)]
struct SourceCalls {
    unproven: u32,
    /// Acknowledged calls by minute, the minute of `latest` at its number modulo the length.
    acknowledged: [u32; MINUTES],
    /// Minute of the last acknowledged call.
    latest: u64,
}

impl SourceCalls {
    /// Clears the minutes that have begun since the last acknowledged call.
    fn turn(&mut self, now: Moment) {
        let minute = minute(now);
        let passed = usize::try_from(minute.saturating_sub(self.latest)).unwrap_or(MINUTES);
        for back in 0..passed.min(MINUTES) {
            self.acknowledged[place(minute - back as u64)] = 0;
        }
        self.latest = self.latest.max(minute);
    }

    fn most(&self) -> u32 {
        let acknowledged: u32 = self.acknowledged.iter().sum();
        LEAST.max(acknowledged / PART_OF_ACKNOWLEDGED)
    }
}

fn minute(now: Moment) -> u64 {
    now.as_millis() / 60_000
}

fn place(minute: u64) -> usize {
    (minute % MINUTES as u64) as usize
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct UnprovenCalls {
    sources: DashMap<IpAddr, SourceCalls>,
    orgs: SharedIdTable<Uuid, u32>,
}

impl UnprovenCalls {
    /// Counts a call that was acknowledged.
    pub(crate) fn acknowledge(&self, source: IpAddr, now: Moment) {
        let source = flow::source(source);
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&source) {
            let oldest = minute(now).saturating_sub(MINUTES as u64);
            self.sources
                .retain(|_, calls| calls.unproven > 0 || calls.latest > oldest);
            if self.sources.len() >= SOURCES {
                return;
            }
        }
        let mut calls = self.sources.entry(source).or_default();
        calls.turn(now);
        calls.acknowledged[place(minute(now))] += 1;
    }

    /// Returns whether a source has as many unproven calls as it may have.
    pub(crate) fn is_crowded(&self, source: IpAddr, now: Moment) -> bool {
        let Some(mut calls) = self.sources.get_mut(&flow::source(source)) else {
            return false;
        };
        calls.turn(now);
        calls.unproven >= calls.most()
    }

    /// Counts an unproven call, for its source as well if that is given; false, without counting, if they are a fifth of the org's `share` already.
    pub(crate) fn take(&self, org: Uuid, source: Option<IpAddr>, share: u32) -> bool {
        let mut of_org = self.orgs.entry(org).or_default();
        if *of_org >= LEAST.max(share / PART_OF_SHARE) {
            return false;
        }
        *of_org += 1;
        drop(of_org);
        if let Some(source) = source {
            let mut calls = self.sources.entry(flow::source(source)).or_default();
            calls.unproven += 1;
        }
        true
    }

    /// Takes a call back that was counted.
    pub(crate) fn release(&self, org: Uuid, source: Option<IpAddr>) {
        if let Entry::Occupied(mut entry) = self.orgs.entry(org) {
            match *entry.get() {
                ..=1 => drop(entry.remove()),
                count => *entry.get_mut() = count - 1,
            }
        }
        let source = source.map(|source| self.sources.entry(flow::source(source)));
        if let Some(Entry::Occupied(mut entry)) = source {
            let calls = entry.get_mut();
            calls.unproven = calls.unproven.saturating_sub(1);
            // A source without calls keeps no entry: forged ones would fill the table.
            if calls.unproven == 0 && calls.acknowledged == [0; MINUTES] {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ORG: Uuid = Uuid::from_u128(1);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_secs(1_750_000_000) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_source_may_have_three_unproven_calls_or_a_tenth_of_its_acknowledged_ones() {
        for (acknowledged, most) in [(0, 3), (29, 3), (40, 4), (1_000, 100)] {
            let calls = UnprovenCalls::default();
            let source = ip("192.0.2.1");
            for _ in 0..acknowledged {
                calls.acknowledge(source, at(0));
            }
            for count in 0..most {
                assert!(!calls.is_crowded(source, at(1)), "{acknowledged}: {count}");
                assert!(calls.take(ORG, Some(source), 10_000));
            }
            assert!(calls.is_crowded(source, at(1)), "{acknowledged}");
            assert!(!calls.is_crowded(ip("192.0.2.2"), at(1)), "another source");

            calls.release(ORG, Some(source));
            assert!(!calls.is_crowded(source, at(1)), "{acknowledged}: released");
        }
    }

    #[test]
    fn acknowledged_calls_count_for_ten_minutes() {
        let calls = UnprovenCalls::default();
        let source = ip("2001:db8::1");
        for minute in 0..10 {
            for _ in 0..10 {
                calls.acknowledge(source, at(minute * 60));
            }
        }
        for _ in 0..5 {
            assert!(calls.take(ORG, Some(source), 10_000));
        }
        // The whole /64 is one source.
        let neighbour = ip("2001:db8::2");
        let crowded = |after: u64| calls.is_crowded(neighbour, at(9 * 60 + after));
        assert!(!crowded(0), "5 of 10 that it may have");
        assert!(!crowded(4 * 60), "5 of 6");
        assert!(crowded(5 * 60), "5 of 5");
        assert!(crowded(20 * 60), "5 of 3");
    }

    #[test]
    fn an_org_may_have_a_fifth_of_its_share() {
        let calls = UnprovenCalls::default();
        let sources = (0..50).map(|last| ip(&format!("192.0.2.{last}")));
        let taken = sources.filter(|source| calls.take(ORG, Some(*source), 100));
        assert_eq!(taken.count(), 20);
        assert!(
            calls.take(Uuid::from_u128(2), Some(ip("192.0.2.1")), 100),
            "another org"
        );
        for last in 0..20 {
            calls.release(ORG, Some(ip(&format!("192.0.2.{last}"))));
        }
        calls.release(Uuid::from_u128(2), Some(ip("192.0.2.1")));
        assert!(calls.sources.is_empty() && calls.orgs.is_empty());
    }
}
