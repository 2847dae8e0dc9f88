//! Sending of ACKs to 2xx (RFC 3261 §13.2.2.4), and of those again whose way was uncertain (`uncertain_acks`).

use std::net::SocketAddr;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::Method;

use crate::core::context::Cx;
use crate::core::uncertain_acks::{UncertainAck, WaitsFor};
use crate::parts::target::UnresolvedTarget;

impl Cx<'_> {
    /// Sends the ACK to a 2xx of a dialog, with these lines, or holds it until its next hop is known.
    pub(crate) fn acknowledge(
        &mut self,
        client: ClientTx,
        leg: Flow,
        dialog: &Dialog,
        head: &[u8],
        body: &[u8],
    ) {
        let flow = self.next_flow(dialog, leg);
        let is_new = flow.connection == 0 && leg.connection != 0 && flow.transport.is_reliable();
        let waits_for = match self.awaited_hop(dialog, leg) {
            Some(wanted) => Some(WaitsFor::Name(wanted)),
            None => is_new.then_some(WaitsFor::Connection(flow.peer)),
        };

        if !matches!(waits_for, Some(WaitsFor::Name(_))) {
            self.send_ack(client, dialog, flow, head, body);
        }
        let Some(waits_for) = waits_for else { return };
        let oldest = self.core.uncertain_acks.keep(UncertainAck {
            waits_for,
            since: self.now,
            client,
            dialog: dialog.clone(),
            leg,
            head: head.into(),
            body: body.into(),
        });
        self.release(oldest);
    }

    /// Sends the ACK that waits for a name, if there is one, since its 2xx is repeated; false if none waits.
    pub(crate) fn release_ack(&mut self, client: ClientTx, to_tag: &[u8]) -> bool {
        let waiting = self.core.uncertain_acks.take_held(client, to_tag);
        let was_held = !waiting.is_empty();
        self.release(waiting);
        was_held
    }

    /// Sends the ACKs that wait for a name that was looked up.
    pub(crate) fn release_acks_to(&mut self, name: &UnresolvedTarget) {
        let waiting = self.core.uncertain_acks.take_named(name);
        self.release(waiting);
    }

    /// Notes an address that can't be connected to, and sends the ACKs that went there by their dialogs' connections.
    pub(crate) fn note_unreachable(&mut self, address: SocketAddr) {
        let acks = &mut self.core.uncertain_acks;
        let lost = acks.take_unreachable(address, self.now);
        self.release(lost);
    }

    fn release(&mut self, acks: impl IntoIterator<Item = UncertainAck>) {
        for ack in acks {
            let flow = self.next_flow(&ack.dialog, ack.leg);
            self.send_ack(ack.client, &ack.dialog, flow, &ack.head, &ack.body);
        }
    }

    fn send_ack(
        &mut self,
        client: ClientTx,
        dialog: &Dialog,
        flow: Flow,
        head: &[u8],
        body: &[u8],
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
