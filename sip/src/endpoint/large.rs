//! Count of the requests that were too large for a datagram even in their shortest form (RFC 3261 §18.1.1), and the peers that they went to.

use std::collections::HashSet;
use std::net::SocketAddr;

/// Peers that are reported: one entry each for as long as the process lives.
const MOST_PEERS: usize = 1_024;
/// The first request to a peer that was too large.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LargeRequest {
    /// The peer.
    pub peer: SocketAddr,
    /// Its size.
    pub octets: usize,
}

/// Requests that were too large for UDP, and the peers that they went to.
#[derive(Debug, Default)]
pub(super) struct Large {
    count: u64,
    peers: HashSet<SocketAddr>,
    unreported: Vec<LargeRequest>,
}

impl Large {
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn note(&mut self, peer: SocketAddr, octets: usize) {
        self.count += 1;
        if self.peers.len() < MOST_PEERS && self.peers.insert(peer) {
            self.unreported.push(LargeRequest { peer, octets });
        }
    }

    /// Takes a peer that hasn't been reported yet.
    pub(super) fn pop_unreported(&mut self) -> Option<LargeRequest> {
        self.unreported.pop()
    }
}
