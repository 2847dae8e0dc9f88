//! Our 2xx to a peer's re-INVITE or UPDATE (RFC 3261 §14.2, RFC 3311 §5.2).

use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::wire::print::Head;

use super::{AwaitedAck, Leg, SipPeer};
use crate::core::context::Cx;
use crate::leg::delayed_ack::Delayed;
use crate::leg::own_request::Pending;
use crate::parts::allow::{own_lines, to_peer};

impl Leg {
    /// Sends 200 to the peer's re-INVITE or UPDATE.
    pub(crate) fn accept_change(
        &mut self,
        cx: &mut Cx<'_>,
        server: ServerTx,
        body: &[u8],
        more: impl FnOnce(&mut Head<'_>),
    ) {
        let methods = to_peer(self.role);
        let timer = self.session().and_then(|session| session.timer);
        let Some(peer) = self.sip_mut() else { return };

        let body = &*peer.with_origin(body);
        let contact = cx.contact(&peer.flow, peer.is_sips);
        let write = |head: &mut Head<'_>| {
            own_lines(head, &contact, methods);
            if let Some(timer) = &timer {
                timer.response_lines(head);
            }
            more(head);
        };
        cx.respond(server, 200, None, write, body);
    }

    /// Sends 200 to a re-INVITE and awaits its ACK. If none comes within 64*T1, the endpoint says so (`reoffer::on_no_ack`).
    pub(crate) fn accept_reinvite(
        &mut self,
        cx: &mut Cx<'_>,
        server: ServerTx,
        cseq: u32,
        body: &[u8],
        delayed: Option<Delayed>,
        more: impl FnOnce(&mut Head<'_>),
    ) {
        self.accept_change(cx, server, body, more);
        if let Some(session) = self.session_mut() {
            session.await_ack(AwaitedAck {
                cseq,
                server,
                delayed,
            });
        }
    }
}

impl SipPeer {
    /// Moves the dialog's target to the new Contact in the peer's re-INVITE or UPDATE, which was accepted.
    pub(crate) fn move_target(&mut self, pending: &Pending) {
        let dialog = self.dialog(pending.fork);
        if let Some((dialog, target)) = dialog.zip(pending.target.as_deref()) {
            dialog.move_to(target);
        }
    }
}
