//! Requests that are too large for a datagram (RFC 3261 §18.1.1): printed in their shortest form, and counted where even that is cut on
//! its way. Whether one leaves by another transport is its sender's to decide.

use std::collections::HashSet;
use std::net::SocketAddr;

use crate::flow::Flow;
use crate::slot::Slot;
use crate::wire::compact::{LARGEST_DATAGRAM, compact};
use crate::wire::print;

use super::{Endpoint, Request};

/// Peers that are reported: one entry each for as long as the process lives.
const MOST_PEERS: usize = 1_024;
/// Octets that the endpoint adds to a request at most, without the method, the URI and what Via says of this host: the rest of the start
/// line and of Via, and Content-Length.
const ADDED: usize = 110;

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

    fn note(&mut self, peer: SocketAddr, octets: usize) {
        self.count += 1;
        if self.peers.len() < MOST_PEERS && self.peers.insert(peer) {
            self.unreported.push(LargeRequest { peer, octets });
        }
    }
}

impl Endpoint {
    /// Takes a peer that was sent a request too large for UDP; each peer comes once.
    pub fn poll_large_request(&mut self) -> Option<LargeRequest> {
        self.large.unreported.pop()
    }

    /// Returns true if a request is too large for a datagram on that flow, even in its shortest form.
    pub fn is_too_large(&mut self, flow: &Flow, request: &Request<'_>) -> bool {
        let Request {
            token,
            uri,
            head,
            body,
            ..
        } = *request;
        let sent_by = self.sent_by.get(usize::from(flow.listener));
        let given = token.len() + uri.len() + head.len() + body.len();
        let at_most = given + sent_by.map_or(0, String::len) + ADDED;
        if flow.transport.is_reliable() || at_most <= LARGEST_DATAGRAM {
            return false;
        }

        // All branches are equally long.
        let branch = self.minter.branch_of(Slot::default(), 0);
        self.write_via(flow, &branch);
        let (mut printed, mut shortest) = (Vec::new(), Vec::new());
        print::request(&mut printed, token, uri, &self.via, head, body);
        compact(&printed, &mut shortest);
        shortest.len() > LARGEST_DATAGRAM
    }

    /// Prints the last request in its shortest form.
    pub(super) fn shorten_last(&mut self, flow: &Flow) {
        let shortest = self.shared.outbox.rewrite_last(compact).len();
        if shortest > LARGEST_DATAGRAM {
            self.large.note(flow.peer, shortest);
        }
    }
}
