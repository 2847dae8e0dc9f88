//! Opens connections for INVITEs that are too large for a datagram (RFC 3261 §18.1.1).
//!
//! The connection is opened before the INVITE is sent, so that the INVITE can fall back to UDP if the peer takes none.
//! Peers that refused a connection, or never answered on it, are remembered for a while.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;
use trunkline_net::listener::connections::Connections;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;

use super::clock;

/// Time that a peer has to accept a connection; many firewalls drop SYNs silently.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Time during which a peer that refused a connection, or was silent on it, isn't tried again.
const REFUSAL_TTL: Duration = Duration::from_secs(600);
/// Peers remembered.
const MAX_REMEMBERED: usize = 4_096;

/// Opens connections and remembers the peers that refuse them. Clones share that memory.
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

    /// Returns true if the peer refused a connection, or was silent on it, within the last ten minutes.
    pub(crate) fn refuses(&self, peer: SocketAddr, now: Moment) -> bool {
        self.refusing().holds(peer, now)
    }

    /// Returns true if a connection to the flow's peer exists or could be opened in time.
    pub(crate) async fn opens(&self, flow: &Flow) -> bool {
        let opened = match self.connections.open(flow) {
            Ok(opening) => timeout(TIMEOUT, opening.opened()).await.unwrap_or(false),
            Err(_) => false,
        };
        if !opened {
            self.refusing().note(flow.peer, clock::now());
        }
        opened
    }

    /// Notes that the peer accepted a connection but left an INVITE on it without any answer.
    pub(crate) fn note_silent(&self, peer: SocketAddr, now: Moment) {
        self.refusing().note(peer, now);
    }

    fn refusing(&self) -> MutexGuard<'_, RefusingPeers> {
        self.refusing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Peers that refused a connection or were silent on it, and when.
#[derive(Debug, Default)]
struct RefusingPeers(HashMap<SocketAddr, Moment>);

impl RefusingPeers {
    fn holds(&self, peer: SocketAddr, now: Moment) -> bool {
        let at = self.0.get(&peer);
        at.is_some_and(|at| now.since(*at) < REFUSAL_TTL)
    }

    fn note(&mut self, peer: SocketAddr, now: Moment) {
        if self.0.len() >= MAX_REMEMBERED {
            self.0.retain(|_, at| now.since(*at) < REFUSAL_TTL);
        }
        // Beyond the bound a peer isn't remembered, and each call to it tries a connection again.
        if self.0.len() < MAX_REMEMBERED {
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
