//! ACKs to 2xx whose next hop isn't certain yet (RFC 3261 §13.2.2.4, §12.2.1.1): the Contact is a name that is being looked up, or another host than
//! the peer of the dialog's connection, which may refuse a new one.
//!
//! An ACK to a name waits for its address, at the latest until the 2xx is repeated. An ACK over a new connection is sent again by the dialog's
//! own connection if the new one can't be opened.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;

use super::context::Cx;
use super::target::UnresolvedTarget;

/// Most ACKs that are kept by one shard. A further one takes the place of the oldest, which then goes by the dialog's connection.
const MOST: usize = 1_024;
/// Time after which a peer has given its 2xx up (RFC 3261 §13.3.1.4).
const KEPT: Duration = Duration::from_secs(32);
/// Addresses that could not be connected to, and the time for which none is tried again.
const MOST_UNREACHABLE: usize = 1_024;
const UNREACHABLE: Duration = Duration::from_secs(300);

/// Event that decides the way of an ACK.
#[derive(Debug)]
enum WaitsFor {
    /// The addresses of a name. The ACK hasn't been sent.
    Name(UnresolvedTarget),
    /// A new connection to this address. The ACK is on its way.
    Connection(SocketAddr),
}

/// An ACK whose way isn't certain.
#[derive(Debug)]
struct UncertainAck {
    waits_for: WaitsFor,
    since: Moment,
    client: ClientTx,
    dialog: Dialog,
    /// Flow of the leg.
    leg: Flow,
    head: Box<[u8]>,
    body: Box<[u8]>,
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

    fn note_unreachable(&mut self, address: SocketAddr, now: Moment) {
        self.unreachable
            .retain(|(known, since)| *known != address && now.since(*since) < UNREACHABLE);
        if self.unreachable.len() >= MOST_UNREACHABLE {
            self.unreachable.pop_front();
        }
        self.unreachable.push_back((address, now));
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

impl Cx<'_> {
    /// Sends the ACK to a 2xx of a dialog, with these lines, or holds it until its next hop is known.
    pub(crate) fn acknowledge(
        &mut self,
        (client, leg): (ClientTx, Flow),
        dialog: &Dialog,
        head: &[u8],
        body: &[u8],
    ) {
        let flow = self.next_flow(dialog, leg);
        let waits_for = match self.awaited_hop(dialog, leg) {
            Some(wanted) => Some(WaitsFor::Name(wanted)),
            None => (flow.connection == 0 && leg.connection != 0 && flow.transport.is_reliable())
                .then_some(WaitsFor::Connection(flow.peer)),
        };
        let is_held = matches!(waits_for, Some(WaitsFor::Name(_)));
        if !is_held {
            self.send_ack(client, dialog, flow, (head, body));
        }

        let Some(waits_for) = waits_for else { return };
        let oldest = self.keep_ack(UncertainAck {
            waits_for,
            since: self.now,
            client,
            dialog: dialog.clone(),
            leg,
            head: head.into(),
            body: body.into(),
        });
        if let Some(oldest) = oldest {
            self.release(&oldest);
        }
    }

    /// Keeps an ACK; returns the one that loses its place.
    fn keep_ack(&mut self, ack: UncertainAck) -> Option<UncertainAck> {
        let now = self.now;
        let acks = &mut self.core.uncertain_acks.acks;
        while acks.front().is_some_and(|ack| now.since(ack.since) >= KEPT) {
            acks.pop_front();
        }
        let oldest = match acks.len() >= MOST {
            true => acks.pop_front(),
            false => None,
        };
        acks.push_back(ack);
        oldest.filter(|ack| matches!(ack.waits_for, WaitsFor::Name(_)))
    }

    /// Sends the ACK that waits for a name, if there is one, since its 2xx is repeated; false if none waits.
    pub(crate) fn release_ack(&mut self, client: ClientTx, to_tag: &[u8]) -> bool {
        if self.core.uncertain_acks.acks.is_empty() {
            return false;
        }
        let is_meant = |ack: &UncertainAck| {
            ack.client == client
                && ack.dialog.remote_tag() == to_tag
                && matches!(ack.waits_for, WaitsFor::Name(_))
        };
        let waiting = self.core.uncertain_acks.take(is_meant);
        for ack in &waiting {
            self.release(ack);
        }
        !waiting.is_empty()
    }

    /// Sends the ACKs that wait for a name that was looked up.
    pub(crate) fn release_acks_to(&mut self, name: &UnresolvedTarget) {
        let is_meant = |ack: &UncertainAck| match &ack.waits_for {
            WaitsFor::Name(wanted) => wanted.is_same_name(name),
            WaitsFor::Connection(_) => false,
        };
        for ack in self.core.uncertain_acks.take(is_meant) {
            self.release(&ack);
        }
    }

    /// Notes an address that can't be connected to, and sends the ACKs that went there by their dialogs' connections.
    pub(crate) fn note_unreachable(&mut self, address: SocketAddr) {
        let now = self.now;
        self.core.uncertain_acks.note_unreachable(address, now);
        let is_meant = |ack: &UncertainAck| match &ack.waits_for {
            WaitsFor::Name(_) => false,
            WaitsFor::Connection(to) => *to == address,
        };
        for ack in self.core.uncertain_acks.take(is_meant) {
            self.release(&ack);
        }
    }

    fn release(&mut self, ack: &UncertainAck) {
        let flow = self.next_flow(&ack.dialog, ack.leg);
        self.send_ack(ack.client, &ack.dialog, flow, (&ack.head, &ack.body));
    }

    fn send_ack(
        &mut self,
        client: ClientTx,
        dialog: &Dialog,
        flow: Flow,
        (head, body): (&[u8], &[u8]),
    ) {
        let request = Request {
            method: Method::Ack,
            token: "ACK",
            uri: dialog.request_uri(),
            head,
            body,
        };
        // The transaction keeps the ACK, and repeats it for each retransmission of the 2xx.
        self.endpoint
            .ack(client, dialog.remote_tag(), flow, &request, self.now);
    }
}
