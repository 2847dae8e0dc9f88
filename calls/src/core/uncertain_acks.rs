//! ACKs to 2xx whose next hop isn't certain yet (RFC 3261 §13.2.2.4, §12.2.1.1): the Contact is a name that is being looked up, or another host than
//! the peer of the dialog's connection, which may refuse a new one.
//!
//! An ACK to a name waits for its address, at the latest until the 2xx is repeated. An ACK over a new connection is sent again by the dialog's
//! own connection if the new one can't be opened.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;

use crate::parts::target::UnresolvedTarget;

/// Most ACKs that are kept by one shard. A further one takes the place of the oldest, which then goes by the dialog's connection.
const MOST: usize = 1_024;
/// Time after which a peer has given its 2xx up (RFC 3261 §13.3.1.4).
const KEPT: Duration = Duration::from_secs(32);
/// Addresses that could not be connected to, and the time for which none is tried again.
const MOST_UNREACHABLE: usize = 1_024;
const UNREACHABLE: Duration = Duration::from_secs(300);

/// Event that decides the way of an ACK.
#[derive(Debug)]
pub(crate) enum WaitsFor {
    /// The addresses of a name. The ACK hasn't been sent.
    Name(UnresolvedTarget),
    /// A new connection to this address. The ACK is on its way.
    Connection(SocketAddr),
}

/// An ACK whose way isn't certain.
#[derive(Debug)]
pub(crate) struct UncertainAck {
    pub(crate) waits_for: WaitsFor,
    pub(crate) since: Moment,
    pub(crate) client: ClientTx,
    pub(crate) dialog: Dialog,
    /// Flow of the leg.
    pub(crate) leg: Flow,
    pub(crate) head: Box<[u8]>,
    pub(crate) body: Box<[u8]>,
}

/// ACKs of one shard whose way isn't certain, and addresses that can't be connected to.
#[derive(Debug, Default)]
pub(crate) struct UncertainAcks {
    acks: VecDeque<UncertainAck>,
    unreachable: VecDeque<(SocketAddr, Moment)>,
}

impl UncertainAcks {
    /// Returns whether a connection to that address could not be opened lately.
    pub(crate) fn is_unreachable(&self, address: SocketAddr, now: Moment) -> bool {
        let mut known = self.unreachable.iter();
        known.any(|(known, since)| *known == address && now.since(*since) < UNREACHABLE)
    }

    /// Keeps an ACK; returns one that loses its place before it was sent.
    pub(crate) fn keep(&mut self, ack: UncertainAck) -> Option<UncertainAck> {
        let now = ack.since;
        while self
            .acks
            .front()
            .is_some_and(|oldest| now.since(oldest.since) >= KEPT)
        {
            self.acks.pop_front();
        }
        let oldest = match self.acks.len() >= MOST {
            true => self.acks.pop_front(),
            false => None,
        };
        self.acks.push_back(ack);
        oldest.filter(UncertainAck::is_held)
    }

    /// Takes the ACK to the 2xx with this To-tag, if it waits for a name.
    pub(crate) fn take_held(&mut self, client: ClientTx, to_tag: &[u8]) -> Vec<UncertainAck> {
        self.take(|ack| ack.client == client && ack.dialog.remote_tag() == to_tag && ack.is_held())
    }

    /// Takes the ACKs that wait for this name.
    pub(crate) fn take_named(&mut self, name: &UnresolvedTarget) -> Vec<UncertainAck> {
        self.take(|ack| match &ack.waits_for {
            WaitsFor::Name(wanted) => wanted.is_same_name(name),
            WaitsFor::Connection(_) => false,
        })
    }

    /// Notes an address that can't be connected to; takes the ACKs that went there.
    pub(crate) fn take_unreachable(
        &mut self,
        address: SocketAddr,
        now: Moment,
    ) -> Vec<UncertainAck> {
        self.unreachable
            .retain(|(known, since)| *known != address && now.since(*since) < UNREACHABLE);
        if self.unreachable.len() >= MOST_UNREACHABLE {
            self.unreachable.pop_front();
        }
        self.unreachable.push_back((address, now));
        self.take(|ack| match &ack.waits_for {
            WaitsFor::Name(_) => false,
            WaitsFor::Connection(to) => *to == address,
        })
    }

    /// Takes all ACKs that match.
    fn take(&mut self, is_meant: impl Fn(&UncertainAck) -> bool) -> Vec<UncertainAck> {
        // Most events concern none of them.
        if !self.acks.iter().any(&is_meant) {
            return Vec::new();
        }
        let (taken, kept) = std::mem::take(&mut self.acks)
            .into_iter()
            .partition(|ack| is_meant(ack));
        self.acks = kept;
        Vec::from_iter::<VecDeque<_>>(taken)
    }
}

impl UncertainAck {
    /// Returns whether it hasn't been sent.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.waits_for, WaitsFor::Name(_))
    }
}
