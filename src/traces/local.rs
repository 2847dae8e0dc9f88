//! Local addresses of messages that left by a listener on every address: the system chooses one for each peer, and only messages that come
//! back name it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use trunkline_sip::flow::Flow;

/// Most peers whose addresses are remembered; then all are looked up again.
const MOST: usize = 1_024;

/// Addresses that packets leave from, by the peer's.
#[derive(Debug)]
pub(super) struct LocalAddresses {
    known: HashMap<IpAddr, Option<IpAddr>>,
    look_up: fn(IpAddr) -> Option<IpAddr>,
}

impl LocalAddresses {
    pub(super) fn new(look_up: fn(IpAddr) -> Option<IpAddr>) -> Self {
        Self {
            known: HashMap::new(),
            look_up,
        }
    }

    /// Returns the flow with the address of this machine that its messages have on the wire.
    pub(super) fn named(&mut self, flow: Flow) -> Flow {
        if !flow.local.ip().is_unspecified() {
            return flow;
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let peer = flow.peer.ip();
        let source = *self
            .known
            .entry(peer)
            .or_insert_with(|| (self.look_up)(peer));
        match source {
            Some(source) => Flow {
                local: SocketAddr::new(source, flow.local.port()),
                ..flow
            },
            None => flow,
        }
    }

    /// Forgets all, since a machine's addresses may change.
    pub(super) fn forget(&mut self) {
        self.known = HashMap::new();
    }
}
