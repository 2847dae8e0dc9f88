//! Reachability of the peers that we call: results of probes, with thresholds, so that no call waits for a peer that is known to be down. Shared by
//! all shards; sends nothing.
//!
//! A verdict is about a peer *as its URI names it*. Two names with one address are two peers: if a certificate doesn't prove one name, or a server
//! doesn't answer to it, that says nothing about the other. So a tenant whose name leads to another's runtime affects only its own name. Tenants that
//! name the same peer share one verdict, which none of them can influence: the probe has only scheme, host, port and transport of the URI.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::{DashMap, DashSet};
use trunkline_model::address::NamedBy;
use trunkline_sip::flow::Transport;
use trunkline_sip::header::uri::{Scheme, Uri, push_host_and_port};
use uuid::Uuid;

use crate::parts::target::Target;

/// A peer: its URI, and the address that it resolved to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProbedPeer {
    /// Scheme, host and port of the URI, as a URI. The host is also the name that a peer on TLS has to prove.
    pub uri: Box<str>,
    /// The transport.
    pub transport: Transport,
    /// Its address.
    pub address: SocketAddr,
    /// Source of the name: peers that the operator names are judged apart from those that tenants name.
    pub named: NamedBy,
}

impl ProbedPeer {
    /// Returns the peer that a target names; `None` for a target with a flow of its own, which isn't probed.
    pub fn of(target: &Target) -> Option<Self> {
        if target.by.is_some() {
            return None;
        }
        Some(Self {
            uri: named(&Uri::parse(target.uri.as_bytes()).ok()?)?.into(),
            transport: target.transport,
            address: target.address,
            named: target.named,
        })
    }
}

/// Scheme, host and port of a URI, the host in lower case; `None` if it isn't a SIP URI.
fn named(uri: &Uri<'_>) -> Option<String> {
    let scheme = match uri.scheme {
        Scheme::Sip => "sip:",
        Scheme::Sips => "sips:",
        Scheme::Tel | Scheme::Other => return None,
    };
    let mut named = String::from(scheme);
    push_host_and_port(&mut named, &uri.host, uri.port);
    named.make_ascii_lowercase();
    Some(named)
}

/// Returns the Request-URI of a probe: scheme, host, port and transport of `uri`, without anything else that a tenant may write there.
pub fn probe_uri(uri: &str) -> Option<Box<str>> {
    let uri = Uri::parse(uri.as_bytes()).ok()?;
    let mut probe = named(&uri)?;
    // A SIPS URI means TLS by itself (RFC 3261 §26.2.2).
    if let Some(transport) = uri.transport().filter(|_| uri.scheme == Scheme::Sip) {
        probe.push_str(";transport=");
        probe.push_str(transport.uri_name());
    }
    Some(probe.into())
}

/// Result of a probe.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    /// Any answer but 503.
    Answered,
    /// 503, or a refused connection: not now.
    Refused,
    /// Nothing within the time of a transaction.
    Silent,
}

/// Change of a peer's state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HealthChange {
    /// It no longer answers.
    Down,
    /// It answers again.
    Up,
}

/// Health of one peer.
#[derive(Copy, Clone, Default, Debug)]
struct PeerHealth {
    /// It has answered a probe before, so that its silence means something.
    has_answered: bool,
    /// It has answered a call.
    took_call: bool,
    /// It has answered a call since the last turn of probes (`wants_probe`).
    is_heard: bool,
    is_down: bool,
    /// Failures in a row, while it isn't down.
    failures: u32,
}

impl PeerHealth {
    /// True if it answers; `None` while nothing is known.
    fn answers(self) -> Option<bool> {
        (self.is_down || self.has_answered || self.took_call).then_some(!self.is_down)
    }
}

/// Counts the peers that answer, that are down, and that nothing is known of.
fn count(peers: impl Iterator<Item = Option<bool>>) -> [usize; 3] {
    let mut counts = [0; 3];
    for answers in peers {
        let state = match answers {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        };
        counts[state] += 1;
    }
    counts
}

/// Failures in a row after which a peer is down. One answer brings it up again.
const DOWN_AFTER: u32 = 3;

/// Results of probes, by peer.
#[derive(Debug, Default)]
pub struct Health {
    peers: DashMap<ProbedPeer, PeerHealth>,
    trunks: DashMap<Uuid, Vec<ProbedPeer>>,
    /// Number of peers that are down: while it is zero, calls skip the lookup.
    down: AtomicUsize,
    /// Addresses of peers that were found down. An OPTIONS from there removes one; all go once no peer is down.
    down_at: DashSet<SocketAddr>,
    /// Addresses of down peers that have sent an OPTIONS since: the engine probes them without waiting for the next turn.
    back_at: DashSet<SocketAddr>,
}

impl Health {
    /// Makes an empty table to be shared.
    pub fn shared() -> Arc<Self> {
        Arc::default()
    }

    /// Returns whether the target is down.
    pub fn is_down(&self, target: &Target) -> bool {
        if self.down.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let known = ProbedPeer::of(target).and_then(|peer| self.peers.get(&peer));
        known.is_some_and(|known| known.is_down)
    }

    /// Notes that a call was answered there: the next probe may be skipped.
    pub fn heard(&self, target: &Target) {
        if let Some(mut known) = ProbedPeer::of(target).and_then(|peer| self.peers.get_mut(&peer)) {
            known.is_heard = true;
            known.took_call = true;
        }
    }

    /// Notes an OPTIONS from that address. The source may be forged, so the OPTIONS doesn't bring a down peer up. It has the peer probed,
    /// once each time that the peer has been found down.
    pub fn came_from(&self, source: SocketAddr) {
        if self.down.load(Ordering::Relaxed) > 0 && self.down_at.remove(&source).is_some() {
            self.back_at.insert(source);
        }
    }

    /// Takes the addresses to probe at once.
    pub fn take_back(&self) -> HashSet<SocketAddr> {
        if self.back_at.is_empty() {
            return HashSet::new();
        }
        let back: HashSet<SocketAddr> = self.back_at.iter().map(|at| *at).collect();
        // Not cleared: another shard may have added an address meanwhile.
        self.back_at.retain(|at| !back.contains(at));
        back
    }

    /// Returns whether a peer has to be probed in this turn.
    pub fn wants_probe(&self, peer: &ProbedPeer) -> bool {
        let Some(mut known) = self.peers.get_mut(peer) else {
            return false;
        };
        let was_heard = std::mem::take(&mut known.is_heard);
        !was_heard || known.is_down
    }

    /// Returns whether an outbound trunk's peer answers; `None` while nothing is known.
    pub fn trunk(&self, trunk: Uuid) -> Option<bool> {
        let peers = self.trunks.get(&trunk)?;
        let known = peers
            .iter()
            .filter_map(|peer| self.peers.get(peer)?.answers());
        known.reduce(|one, two| one || two)
    }

    /// Counts the peers that answer, that are down, and of which nothing is known.
    pub fn counts(&self) -> [usize; 3] {
        count(self.peers.iter().map(|known| known.answers()))
    }

    /// Counts the addresses of runtimes, which are the peers that no outbound trunk has, by the same states.
    pub fn runtimes(&self) -> [usize; 3] {
        let of_trunks: HashSet<ProbedPeer> = self
            .trunks
            .iter()
            .flat_map(|peers| peers.value().clone())
            .collect();
        let runtimes = self
            .peers
            .iter()
            .filter(|known| !of_trunks.contains(known.key()));
        count(runtimes.map(|known| known.answers()))
    }

    /// Counts the outbound trunks that answer, that are down, and of which nothing is known.
    pub fn trunks(&self) -> [usize; 3] {
        // Collected first: `trunk` looks into the same map.
        let trunks: Vec<Uuid> = self.trunks.iter().map(|trunk| *trunk.key()).collect();
        count(trunks.into_iter().map(|trunk| self.trunk(trunk)))
    }

    /// Replaces the watched peers, and those of each trunk; others are forgotten.
    pub fn watch<'p>(
        &self,
        peers: impl IntoIterator<Item = &'p ProbedPeer>,
        trunks: impl IntoIterator<Item = (Uuid, Vec<ProbedPeer>)>,
    ) {
        let peers: HashSet<&ProbedPeer> = peers.into_iter().collect();
        self.peers.retain(|peer, _| peers.contains(peer));
        for peer in peers {
            // `entry` would need a copy of a known peer.
            if !self.peers.contains_key(peer) {
                self.peers.insert(peer.clone(), PeerHealth::default());
            }
        }

        // Counted anew, since a peer that is forgotten may have been down.
        let down = self.peers.iter().filter(|known| known.is_down).count();
        self.down.store(down, Ordering::Relaxed);
        if down == 0 {
            self.down_at.clear();
        }

        let mut named = HashSet::new();
        for (trunk, peers) in trunks {
            named.insert(trunk);
            self.trunks.insert(trunk, peers);
        }

        self.trunks.retain(|trunk, _| named.contains(trunk));
    }

    /// Takes the result of a probe. A peer that has never answered may not support OPTIONS: its silence never takes it down, and brings it
    /// up again after refusals.
    pub fn note(&self, peer: &ProbedPeer, outcome: ProbeOutcome) -> Option<HealthChange> {
        // The peer is no longer watched.
        let mut known = self.peers.get_mut(peer)?;
        let turn = self.judge(&mut known, outcome);
        if known.is_down {
            self.down_at.insert(peer.address);
        }
        turn
    }

    /// Counts an outcome. Returns the change if it turns the peer's state.
    fn judge(&self, known: &mut PeerHealth, outcome: ProbeOutcome) -> Option<HealthChange> {
        known.has_answered |= outcome == ProbeOutcome::Answered;
        let speaks_for_it = match outcome {
            ProbeOutcome::Answered => true,
            // A peer that has never answered may not know OPTIONS. If it refused probes before, silence says that it no longer does.
            ProbeOutcome::Silent => !known.has_answered,
            ProbeOutcome::Refused => false,
        };
        // It agrees with the peer's state, and ends a row of outcomes that don't.
        if speaks_for_it != known.is_down {
            known.failures = 0;
            return None;
        }

        let turn = if known.is_down {
            HealthChange::Up
        } else {
            known.failures += 1;
            if known.failures < DOWN_AFTER {
                return None;
            }
            HealthChange::Down
        };

        known.failures = 0;
        known.is_down = turn == HealthChange::Down;
        match turn {
            HealthChange::Down => self.down.fetch_add(1, Ordering::Relaxed),
            // The concurrent watch may have counted it meanwhile.
            HealthChange::Up => {
                let less = |down: usize| Some(down.saturating_sub(1));
                self.down
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                    .unwrap_or_default()
            }
        };

        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUNK: Uuid = Uuid::from_u128(1);

    fn target_of(uri: &str) -> Target {
        Target {
            uri: uri.into(),
            transport: Transport::Udp,
            address: SocketAddr::from(([192, 0, 2, 1], 5060)),
            by: None,
            route: None,
            named: NamedBy::Tenant,
        }
    }

    fn target() -> Target {
        target_of("sip:agent@runtime.example")
    }

    fn peer() -> ProbedPeer {
        ProbedPeer::of(&target()).unwrap()
    }

    /// Takes a peer down by as many refusals as that needs.
    fn take_down(health: &Health, peer: &ProbedPeer) {
        for _ in 0..DOWN_AFTER {
            health.note(peer, ProbeOutcome::Refused);
        }
    }

    #[test]
    fn names_that_lead_to_one_address_are_judged_apart() {
        let health = Health::default();
        let other = target_of("sip:agent@attacker.example");
        health.watch(&[peer(), ProbedPeer::of(&other).unwrap()], []);
        take_down(&health, &ProbedPeer::of(&other).unwrap());
        assert!(health.is_down(&other));
        assert!(!health.is_down(&target()));
        // Other parts of a tenant's URI don't make another peer.
        let same = target_of("sip:someone@Runtime.EXAMPLE;x=y");
        take_down(&health, &peer());
        assert!(health.is_down(&same));
        health.note(&peer(), ProbeOutcome::Answered);
        assert!(!health.is_down(&same));
        assert!(health.is_down(&other));
    }

    #[test]
    fn a_probe_holds_scheme_host_port_and_transport() {
        for (uri, probe) in [
            ("sip:a@H.example", Some("sip:h.example")),
            (
                "sip:a@h:5070;x=y;transport=TCP?X-H=1",
                Some("sip:h:5070;transport=tcp"),
            ),
            ("sips:[2001:DB8::1]:5061", Some("sips:[2001:db8::1]:5061")),
            ("sip:192.0.2.1", Some("sip:192.0.2.1")),
            ("tel:+4420", None),
        ] {
            assert_eq!(probe_uri(uri).as_deref(), probe, "{uri}");
        }
    }

    #[test]
    fn a_peer_goes_down_after_three_failures_and_comes_back_by_one_answer() {
        use ProbeOutcome::{Answered, Refused, Silent};

        let cases: [(&str, &[ProbeOutcome], Option<bool>); 10] = [
            ("nothing is known", &[], None),
            ("silent from the beginning", &[Silent; 9], None),
            ("answers", &[Answered], Some(true)),
            ("silent twice", &[Answered, Silent, Silent], Some(true)),
            (
                "silent three times",
                &[Answered, Silent, Silent, Silent],
                Some(false),
            ),
            (
                "with an answer between",
                &[Answered, Silent, Silent, Answered, Silent, Silent],
                Some(true),
            ),
            ("refuses from the beginning", &[Refused; 3], Some(false)),
            (
                "refuses, then is silent: it never answers OPTIONS",
                &[Refused, Refused, Refused, Silent],
                None,
            ),
            (
                "answered, refuses, then is silent",
                &[Answered, Refused, Refused, Refused, Silent, Silent],
                Some(false),
            ),
            ("back", &[Refused, Refused, Refused, Answered], Some(true)),
        ];
        for (name, outcomes, expected) in cases {
            let health = Health::default();
            health.watch(&[peer()], [(TRUNK, vec![peer()])]);
            for outcome in outcomes {
                health.note(&peer(), *outcome);
            }
            assert_eq!(health.trunk(TRUNK), expected, "{name}");
            assert_eq!(health.is_down(&target()), expected == Some(false), "{name}");
        }
    }

    #[test]
    fn changes_are_reported_once_and_unwatched_peers_are_forgotten() {
        let health = Health::default();
        assert_eq!(
            health.note(&peer(), ProbeOutcome::Refused),
            None,
            "not watched"
        );
        health.watch(&[peer()], [(TRUNK, vec![peer()])]);
        let turns: Vec<_> = [ProbeOutcome::Refused; 4]
            .map(|outcome| health.note(&peer(), outcome))
            .into();
        assert_eq!(turns, [None, None, Some(HealthChange::Down), None]);
        assert_eq!(health.counts(), [0, 1, 0]);
        assert_eq!(
            health.note(&peer(), ProbeOutcome::Answered),
            Some(HealthChange::Up)
        );
        health.watch(&[], []);
        assert_eq!(health.counts(), [0; 3]);
        assert_eq!(health.trunk(TRUNK), None);
    }

    #[test]
    fn a_peer_that_is_down_is_asked_once_when_something_comes_from_it() {
        let health = Health::default();
        let at = peer().address;
        health.watch(&[peer()], []);
        health.came_from(at);
        assert!(health.take_back().is_empty(), "it isn't down");

        for _ in 0..2 {
            take_down(&health, &peer());
            for _ in 0..3 {
                health.came_from(at);
            }
            health.came_from(([192, 0, 2, 9], 5060).into());
            assert_eq!(health.take_back(), HashSet::from([at]));
            health.came_from(at);
            assert!(health.take_back().is_empty(), "it is being asked");
            assert!(
                health.is_down(&target()),
                "whoever said so may have been another"
            );
        }
    }

    #[test]
    fn a_peer_that_answers_calls_need_not_be_probed() {
        let health = Health::default();
        health.watch(&[peer()], [(TRUNK, vec![peer()])]);
        assert!(health.wants_probe(&peer()));
        health.heard(&target());
        assert!(!health.wants_probe(&peer()));
        assert_eq!(health.trunk(TRUNK), Some(true));
        assert!(health.wants_probe(&peer()), "nothing since");
        take_down(&health, &peer());
        health.heard(&target());
        assert!(health.wants_probe(&peer()), "it is down until it answers");
    }
}
