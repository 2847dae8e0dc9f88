//! Whether the peers that we call answer: what probes have found, with thresholds, so that a call doesn't wait for one that
//! is known to be gone. Shared by all shards; it sends nothing.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use dashmap::DashMap;
use trunkline_sip::flow::Transport;
use uuid::Uuid;

/// A peer: how it is reached, and where.
pub type Peer = (Transport, SocketAddr);

/// What came of a probe.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// An answer that says that somebody is there, whatever else it says.
    Answered,
    /// 503, or a refused connection: not now.
    Refused,
    /// Nothing within the time of a transaction.
    Silent,
}

/// A peer that has changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It doesn't answer any more.
    Down,
    /// It answers again.
    Up,
}

/// What is known of one peer.
#[derive(Copy, Clone, Default, Debug)]
struct Known {
    /// It has answered a probe before, so that its silence means something.
    has_answered: bool,
    /// It has answered a call.
    took_call: bool,
    /// It has done so since it was looked at last.
    is_heard: bool,
    is_down: bool,
    /// Outcomes in a row that speak against its state.
    against: u32,
}

/// What probes have found.
#[derive(Debug)]
pub struct Health {
    peers: DashMap<Peer, Known>,
    trunks: DashMap<Uuid, Vec<Peer>>,
    down_after: u32,
    up_after: u32,
}

impl Default for Health {
    fn default() -> Self {
        Self::new(3, 1)
    }
}

impl Health {
    /// A peer is down after so many failures in a row, and up again after so many answers.
    pub fn new(down_after: u32, up_after: u32) -> Self {
        Self {
            peers: DashMap::new(),
            trunks: DashMap::new(),
            down_after,
            up_after,
        }
    }

    /// The same, to be shared.
    pub fn shared(down_after: u32, up_after: u32) -> Arc<Self> {
        Arc::new(Self::new(down_after, up_after))
    }

    /// Whether a call to that peer would be in vain.
    pub fn is_down(&self, transport: Transport, address: SocketAddr) -> bool {
        let known = self.peers.get(&(transport, address));
        known.is_some_and(|known| known.is_down)
    }

    /// A call was answered there: until the next turn it needn't be asked.
    pub fn heard(&self, transport: Transport, address: SocketAddr) {
        if let Some(mut known) = self.peers.get_mut(&(transport, address)) {
            known.is_heard = true;
            known.took_call = true;
        }
    }

    /// Whether a peer has to be asked in this turn.
    pub fn wants_probe(&self, peer: Peer) -> bool {
        let Some(mut known) = self.peers.get_mut(&peer) else {
            return false;
        };
        let was_heard = std::mem::take(&mut known.is_heard);
        !was_heard || known.is_down
    }

    /// Whether an outbound trunk's peer answers; `None` while nothing is known.
    pub fn trunk(&self, trunk: Uuid) -> Option<bool> {
        let peers = self.trunks.get(&trunk)?;
        let known = peers
            .iter()
            .filter_map(|peer| self.peers.get(peer).map(|known| *known))
            .filter(|known| known.is_down || known.has_answered || known.took_call);
        known
            .map(|known| !known.is_down)
            .reduce(|one, two| one || two)
    }

    /// How many peers answer, how many are down, and of how many nothing is known.
    pub fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for known in &self.peers {
            let state = match (known.is_down, known.has_answered || known.took_call) {
                (false, true) => 0,
                (true, _) => 1,
                (false, false) => 2,
            };
            counts[state] += 1;
        }
        counts
    }

    /// From now on these are the peers, and those of each trunk; the rest is forgotten.
    pub fn watch(&self, peers: &[Peer], trunks: impl IntoIterator<Item = (Uuid, Vec<Peer>)>) {
        let peers: HashSet<&Peer> = peers.iter().collect();
        self.peers.retain(|peer, _| peers.contains(peer));
        for peer in peers {
            self.peers.entry(*peer).or_default();
        }
        let mut named = HashSet::new();
        for (trunk, peers) in trunks {
            named.insert(trunk);
            self.trunks.insert(trunk, peers);
        }
        self.trunks.retain(|trunk, _| named.contains(trunk));
    }

    /// What a probe has found. A peer that has never answered one may not know OPTIONS: its silence is no sign.
    pub fn note(&self, peer: Peer, outcome: Outcome) -> Option<Turn> {
        // Nobody watches it any more.
        let mut known = self.peers.get_mut(&peer)?;
        let is_sign_of_life = outcome == Outcome::Answered;
        known.has_answered |= is_sign_of_life;
        if outcome == Outcome::Silent && !known.has_answered {
            return None;
        }
        if is_sign_of_life != known.is_down {
            known.against = 0;
            return None;
        }
        known.against += 1;
        let (enough, turn) = if known.is_down {
            (self.up_after, Turn::Up)
        } else {
            (self.down_after, Turn::Down)
        };
        if known.against < enough {
            return None;
        }
        known.against = 0;
        known.is_down = turn == Turn::Down;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUNK: Uuid = Uuid::from_u128(1);

    fn peer() -> Peer {
        (Transport::Udp, SocketAddr::from(([192, 0, 2, 1], 5060)))
    }

    #[test]
    fn a_peer_goes_down_and_comes_back_by_the_thresholds() {
        use Outcome::{Answered, Refused, Silent};
        let cases: [(&str, &[Outcome], Option<bool>); 8] = [
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
                "back once",
                &[Refused, Refused, Refused, Answered],
                Some(false),
            ),
        ];
        for (name, outcomes, expected) in cases {
            let health = Health::new(3, 2);
            health.watch(&[peer()], [(TRUNK, vec![peer()])]);
            for outcome in outcomes {
                health.note(peer(), *outcome);
            }
            assert_eq!(health.trunk(TRUNK), expected, "{name}");
            let (transport, address) = peer();
            assert_eq!(
                health.is_down(transport, address),
                expected == Some(false),
                "{name}"
            );
        }
    }

    #[test]
    fn turns_are_told_once_and_what_is_not_watched_is_forgotten() {
        let health = Health::new(2, 1);
        assert_eq!(health.note(peer(), Outcome::Refused), None, "not watched");
        health.watch(&[peer()], [(TRUNK, vec![peer()])]);
        let turns: Vec<_> = [Outcome::Refused; 4]
            .map(|outcome| health.note(peer(), outcome))
            .into();
        assert_eq!(turns, [None, Some(Turn::Down), None, None]);
        assert_eq!(health.counts(), [0, 1, 0]);
        assert_eq!(health.note(peer(), Outcome::Answered), Some(Turn::Up));
        health.watch(&[], []);
        assert_eq!(health.counts(), [0; 3]);
        assert_eq!(health.trunk(TRUNK), None);
    }

    #[test]
    fn who_answers_calls_need_not_be_asked() {
        let health = Health::new(1, 1);
        let (transport, address) = peer();
        health.watch(&[peer()], [(TRUNK, vec![peer()])]);
        assert!(health.wants_probe(peer()));
        health.heard(transport, address);
        assert!(!health.wants_probe(peer()));
        assert_eq!(health.trunk(TRUNK), Some(true));
        assert!(health.wants_probe(peer()), "nothing since");
        health.note(peer(), Outcome::Refused);
        health.heard(transport, address);
        assert!(health.wants_probe(peer()), "it is down until it answers");
    }
}
