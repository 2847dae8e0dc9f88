//! Connections for INVITEs that no datagram carries whole: opened before the INVITE is sent, so that it can leave by UDP where none comes
//! about. Peers that took none, or said nothing by the one that they took, are remembered for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use trunkline_net::listener::connections::Connections;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;

use super::clock;

/// How long a peer has to take a connection: many firewalls drop the request for one without a word.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a peer that took none isn't asked again.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Peers that are remembered.
const MOST: usize = 4_096;

/// Opens connections, and knows who takes none. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct StreamOpener {
    connections: Connections,
    refusing: Arc<Mutex<RefusingPeers>>,
}

impl StreamOpener {
    pub(crate) fn new(connections: Connections) -> Self {
        Self {
            connections,
            refusing: Arc::default(),
        }
    }

    /// Whether the peer took no connection, or answered nothing on it, within the last ten minutes.
    pub(crate) fn refuses(&self, peer: SocketAddr, now: Moment) -> bool {
        self.refusing().holds(peer, now)
    }

    /// Whether there is a connection to the flow's peer, or one has come about soon.
    pub(crate) async fn opens(&self, flow: &Flow) -> bool {
        let opened = match self.connections.open(flow) {
            Ok(opening) => timeout(PATIENCE, opening.opened()).await.unwrap_or(false),
            Err(_) => false,
        };
        if !opened {
            self.refusing().note(flow.peer, clock::now());
        }
        opened
    }

    /// The peer has left an INVITE without any answer on a connection that it took.
    pub(crate) fn note_silent(&self, peer: SocketAddr, now: Moment) {
        self.refusing().note(peer, now);
    }

    fn refusing(&self) -> MutexGuard<'_, RefusingPeers> {
        self.refusing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Peers that took no connection, and when.
#[derive(Debug, Default)]
struct RefusingPeers(HashMap<SocketAddr, Moment>);

impl RefusingPeers {
    fn holds(&self, peer: SocketAddr, now: Moment) -> bool {
        let at = self.0.get(&peer);
        at.is_some_and(|at| now.since(*at) < REMEMBERED)
    }

    fn note(&mut self, peer: SocketAddr, now: Moment) {
        if self.0.len() >= MOST {
            self.0.retain(|_, at| now.since(*at) < REMEMBERED);
        }
        if self.0.len() < MOST {
            self.0.insert(peer, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_took_none_is_remembered_for_ten_minutes() {
        let mut refusing = RefusingPeers::default();
        let peer = SocketAddr::from(([192, 0, 2, 1], 5060));
        let start = Moment::from_secs(1_800_000_000);
        let later = |seconds| start + Duration::from_secs(seconds);

        assert!(!refusing.holds(peer, start), "nothing is known");
        refusing.note(peer, start);
        assert!(refusing.holds(peer, later(599)));
        assert!(!refusing.holds(peer, later(600)), "it is asked again");
    }
}
