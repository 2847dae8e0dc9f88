//! Resolves the names in `sip.reserved_peers`, before the first call and periodically.
//!
//! A name that no server answers for keeps its known addresses. An address missing from an answer is kept for an hour,
//! because many names have more addresses than one answer carries.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use trunkline_model::reserved::ReservedPeers;
use trunkline_sip::moment::Moment;

use super::clock;
use super::resolve::Resolver;
use crate::config::Config;
use crate::jobs;

/// Interval while a name has no address at all.
const SHORT_INTERVAL: Duration = Duration::from_secs(5);
/// Names resolved at the same time.
const CONCURRENT: usize = 16;
/// Time that an address is kept after the last answer that contained it.
const KEPT_FOR: Duration = Duration::from_secs(3_600);
/// Addresses kept of one name; the most recent ones win.
const MAX_ADDRESSES: usize = 256;

/// Reserved names with the addresses seen for each.
#[derive(Clone, Debug)]
pub(crate) struct ReservedNames {
    peers: ReservedPeers,
    names: Vec<ReservedName>,
}

impl ReservedNames {
    /// Resolves the configured names once. Takes seconds at most, even if no server answers.
    pub(crate) async fn find(config: &Config, resolver: &Resolver) -> Self {
        let peers = ReservedPeers::new(config.sip.reserved_peers.clone());
        let names = peers.names().map(ReservedName::new).collect();
        let mut found = Self { peers, names };
        found.look_up(resolver).await;
        found
    }

    /// Reserved peers; [`Self::follow`] keeps their addresses current.
    pub(crate) fn peers(&self) -> ReservedPeers {
        self.peers.clone()
    }

    /// Names without a known address.
    pub(crate) fn without_address(&self) -> impl Iterator<Item = &str> {
        let empty = self.names.iter().filter(|name| name.seen.is_empty());
        empty.map(|name| &*name.name)
    }

    /// Resolves the names periodically, for as long as the process runs. Returns at once if there are none.
    pub(super) async fn follow(mut self, resolver: Resolver) {
        if self.names.is_empty() {
            return;
        }
        loop {
            let is_complete = self.without_address().next().is_none();
            tokio::time::sleep(if is_complete {
                jobs::RESERVED_NAMES.period()
            } else {
                SHORT_INTERVAL
            })
            .await;
            self.look_up(&resolver).await;
        }
    }

    async fn look_up(&mut self, resolver: &Resolver) {
        let names: Vec<_> = self.names.iter().map(|name| name.name.clone()).collect();
        let looking = names.into_iter().map(|name| {
            let resolver = resolver.clone();
            async move { resolver.every_address(&name).await }
        });
        // In order, since the results are matched with the names by position.
        let looking = futures_util::stream::iter(looking).buffered(CONCURRENT);
        let found: Vec<Vec<IpAddr>> = looking.collect().await;

        let now = clock::now();
        for (name, found) in self.names.iter_mut().zip(found) {
            name.learn(found, now);
        }
        let all = self.names.iter().flat_map(|name| &name.seen);
        self.peers.learn(all.map(|(address, _)| *address));
    }
}

/// One name, with the time of the last answer that contained each address.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ReservedName {
    name: Box<str>,
    seen: Vec<(IpAddr, Moment)>,
    /// True once the log has reported that no address is known.
    is_reported: bool,
}

impl ReservedName {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            seen: Vec::new(),
            is_reported: false,
        }
    }

    /// Takes the result of a look-up; an empty one changes nothing.
    fn learn(&mut self, found: Vec<IpAddr>, now: Moment) {
        if !found.is_empty() {
            self.seen
                .retain(|(address, seen)| now.since(*seen) < KEPT_FOR && !found.contains(address));
            let found = found.into_iter().map(|address| (address, now));
            // In front, so that `truncate` drops the addresses that were seen longest ago.
            self.seen.splice(..0, found);
            self.seen.truncate(MAX_ADDRESSES);
        }
        if self.seen.is_empty() && !self.is_reported {
            tracing::warn!(host = %self.name, "a name in sip.reserved_peers has no address: until it has one, tenants may name its addresses");
        }
        self.is_reported = self.seen.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_answers_and_outlive_silence() {
        let start = Moment::from_secs(1_000);
        let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
        let mut name = ReservedName::new("carrier.example");

        for (case, after, found, expected) in [
            ("nothing yet", 0, &[][..], &[][..]),
            ("an answer", 1, &[1, 2], &[1, 2]),
            ("silence for a day", 86_400, &[], &[1, 2]),
            ("a new address, long after", 86_401, &[3], &[3]),
            ("another one of many", 86_402, &[4], &[4, 3]),
            ("the first again", 90_000, &[3], &[3, 4]),
            ("the other one is gone", 90_003, &[3], &[3]),
        ] {
            let found = found.iter().copied().map(ip).collect();
            name.learn(found, start + Duration::from_secs(after));
            let known: Vec<_> = name.seen.iter().map(|(address, _)| *address).collect();
            let expected: Vec<_> = expected.iter().copied().map(ip).collect();
            assert_eq!(known, expected, "{case}");
        }
    }

    #[test]
    fn a_name_has_so_many_addresses() {
        let mut name = ReservedName::new("carrier.example");
        let found = (0..2 * MAX_ADDRESSES)
            .map(|number| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes()));
        name.learn(found.collect(), Moment::from_secs(1));
        assert_eq!(name.seen.len(), MAX_ADDRESSES);
    }
}
