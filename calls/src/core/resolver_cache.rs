//! Addresses of a dialog's next hop when its route or Contact is a name (RFC 3261 §8.1.2, RFC 3263 §4). A request inside a call doesn't wait: until
//! the name is resolved it goes to the peer's last source. Names are looked up as soon as they are seen.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;

use super::effect::Effect;
use crate::parts::target::{Target, UnresolvedTarget};

/// Age after which an address is looked up again; the resolver observes the TTL.
const FRESH: Duration = Duration::from_secs(30);
/// Longest wait for the first answer. After it a name that has no answer counts as one without addresses.
const AWAITED: Duration = Duration::from_secs(5);
/// Names that are remembered. For a further one those older than [`FRESH`] are forgotten, then the oldest.
const MOST: usize = 1_024;

type Name = (Box<str>, Option<u16>, Option<Transport>);

/// Resolved next hops of one shard.
#[derive(Debug, Default)]
pub(crate) struct ResolverCache(HashMap<Name, CachedName>);

#[derive(Debug)]
struct CachedName {
    /// Time of the last lookup, or of the last answer that had addresses.
    asked: Moment,
    /// No answer has come yet.
    is_awaited: bool,
    targets: Vec<Target>,
}

impl ResolverCache {
    /// Returns the address of `wanted`, if it is known: `heard`, the peer's last source, if that is one of its addresses. Starts a lookup if the
    /// address isn't known or is old.
    pub(crate) fn find(
        &mut self,
        wanted: UnresolvedTarget,
        heard: SocketAddr,
        effects: &mut VecDeque<Effect>,
        now: Moment,
    ) -> Option<Target> {
        let Self(cache) = self;
        let name = name(&wanted);
        let known = cache.get_mut(&name);
        let target = known.as_ref().and_then(|hop| {
            let near = hop.targets.iter().find(|target| target.address == heard);
            near.or(hop.targets.first()).cloned()
        });

        let is_fresh = known
            .as_ref()
            .is_some_and(|hop| now.since(hop.asked) < FRESH);
        if is_fresh {
            return target;
        }

        match known {
            // Noted before the answer comes, so that one lookup at a time is out.
            Some(hop) => hop.asked = now,
            None => {
                if cache.len() >= MOST {
                    cache.retain(|_, hop| now.since(hop.asked) < FRESH);
                }

                // The oldest name is removed, so that many names of one tenant can't block another's.
                while cache.len() >= MOST
                    && let Some(oldest) = cache.iter().min_by_key(|(_, hop)| hop.asked)
                {
                    let oldest = oldest.0.clone();
                    cache.remove(&oldest);
                }

                let targets = Vec::new();
                cache.insert(
                    name,
                    CachedName {
                        asked: now,
                        is_awaited: true,
                        targets,
                    },
                );
            }
        }

        effects.push_back(Effect::ResolveHop { wanted });
        target
    }

    /// Returns whether `ip` is one of the addresses of `wanted`; `None` while a first answer may still come.
    pub(crate) fn leads_to(
        &mut self,
        wanted: UnresolvedTarget,
        ip: IpAddr,
        effects: &mut VecDeque<Effect>,
        now: Moment,
    ) -> Option<bool> {
        let name = name(&wanted);
        // For its lookup alone: no address has port 0.
        self.find(wanted, SocketAddr::new(ip, 0), effects, now);
        let hop = self.0.get(&name)?;
        let is_there = |target: &Target| target.address.ip().to_canonical() == ip;
        let is_awaited = hop.targets.is_empty() && now.since(hop.asked) < AWAITED;
        (!is_awaited).then(|| hop.targets.iter().any(is_there))
    }

    /// Returns whether the first answer for `wanted` may still come.
    pub(crate) fn is_awaited(&self, wanted: &UnresolvedTarget, now: Moment) -> bool {
        let hop = self.0.get(&name(wanted));
        hop.is_some_and(|hop| {
            hop.is_awaited && hop.targets.is_empty() && now.since(hop.asked) < AWAITED
        })
    }

    /// Takes the resolver's answer; an empty one keeps the known addresses.
    pub(crate) fn learn(&mut self, wanted: &UnresolvedTarget, targets: Vec<Target>, now: Moment) {
        let Some(hop) = self.0.get_mut(&name(wanted)) else {
            return;
        };
        hop.is_awaited = false;
        if !targets.is_empty() {
            hop.asked = now;
            hop.targets = targets;
        }
    }
}

fn name(wanted: &UnresolvedTarget) -> Name {
    (wanted.host.clone(), wanted.port, wanted.transport)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(1_790_000_000);

    fn wanted() -> UnresolvedTarget {
        UnresolvedTarget {
            uri: "sip:edge.example.com".into(),
            host: "edge.example.com".into(),
            port: None,
            transport: None,
            route: None,
            named: Default::default(),
        }
    }

    fn target(address: &str) -> Target {
        Target {
            uri: "sip:edge.example.com".into(),
            transport: Transport::Udp,
            by: None,
            route: None,
            named: Default::default(),
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn a_name_is_asked_for_once_and_again_when_it_is_old() {
        let (mut cache, mut asked) = (ResolverCache::default(), VecDeque::new());
        let heard = "192.0.2.9:5060".parse().unwrap();
        assert_eq!(cache.find(wanted(), heard, &mut asked, NOW), None);
        assert_eq!(cache.find(wanted(), heard, &mut asked, NOW), None);
        assert_eq!(asked.len(), 1);
        let both = vec![target("192.0.2.1:5060"), target("192.0.2.2:5060")];
        cache.learn(&wanted(), both, NOW);
        let found = cache.find(wanted(), heard, &mut asked, NOW);
        assert_eq!(found, Some(target("192.0.2.1:5060")));
        let second = "192.0.2.2:5060".parse().unwrap();
        let later = NOW + FRESH;
        let found = cache.find(wanted(), second, &mut asked, later);
        assert_eq!((found, asked.len()), (Some(target("192.0.2.2:5060")), 2));
        cache.learn(&wanted(), Vec::new(), later);
        assert!(cache.find(wanted(), heard, &mut asked, later).is_some());
    }

    #[test]
    fn a_name_leads_to_each_of_its_addresses_once_they_are_known() {
        let (mut cache, mut asked) = (ResolverCache::default(), VecDeque::new());
        let [first, second, other] =
            ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|ip| ip.parse().unwrap());
        assert_eq!(cache.leads_to(wanted(), first, &mut asked, NOW), None);
        let late = NOW + AWAITED;
        assert_eq!(
            cache.leads_to(wanted(), first, &mut asked, late),
            Some(false)
        );

        let both = vec![target("192.0.2.1:5060"), target("192.0.2.2:5060")];
        cache.learn(&wanted(), both, NOW);
        for (ip, is_there) in [(first, true), (second, true), (other, false)] {
            let found = cache.leads_to(wanted(), ip, &mut asked, NOW);
            assert_eq!(found, Some(is_there), "{ip}");
        }

        assert_eq!(asked.len(), 1);
    }
    #[test]
    fn the_name_that_was_asked_for_longest_ago_gives_way() {
        let (mut cache, mut asked) = (ResolverCache::default(), VecDeque::new());
        let heard = "192.0.2.9:5060".parse().unwrap();
        let named = |number: usize| UnresolvedTarget {
            host: format!("{number}.example.com").into(),
            ..wanted()
        };
        for number in 0..=MOST {
            let at = NOW + Duration::from_millis(number as u64);
            cache.find(named(number), heard, &mut asked, at);
            cache.learn(&named(number), vec![target("192.0.2.1:5060")], at);
        }

        let now = NOW + Duration::from_secs(2);
        assert!(cache.find(named(MOST), heard, &mut asked, now).is_some());
        assert!(cache.find(named(1), heard, &mut asked, now).is_some());
        assert!(cache.find(named(0), heard, &mut asked, now).is_none());
        assert_eq!(asked.len(), MOST + 2);
    }
}
