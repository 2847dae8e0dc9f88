//! Count of the requests that were too large for a datagram even in their shortest form (RFC 3261 §18.1.1), and their peers.

use std::collections::HashSet;
use std::net::SocketAddr;

/// Most peers that are reported. Each keeps an entry for the life of the process. Requests to further peers are only counted.
const MOST_PEERS: usize = 1_024;

/// The first too large request to a peer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LargeRequest {
    /// The peer.
    pub peer: SocketAddr,
    /// Size of the request in octets.
    pub octets: usize,
}

/// Requests that were too large for UDP, and their peers.
#[derive(Debug, Default)]
pub(super) struct LargeRequests {
    count: u64,
    peers: HashSet<SocketAddr>,
    unreported: Vec<LargeRequest>,
}

impl LargeRequests {
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
