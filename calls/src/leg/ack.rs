//! The ACK to a 2xx to an INVITE of ours (RFC 3261 §13.2.2.4).

use trunkline_sip::dialog::sdp;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::Leg;
use crate::core::context::Cx;
use crate::leg::delayed_ack::Delayed;
use crate::leg::own_request::Pending;
use crate::{has_sdp, sdp_of};

/// An ACK to be sent in one dialog of a leg.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ack<'b> {
    pub(crate) client: ClientTx,
    pub(crate) fork: u8,
    /// CSeq number of the INVITE.
    pub(crate) cseq: u32,
    pub(crate) lines: &'b [u8],
    /// The SDP answer, if the 2xx has an offer.
    pub(crate) body: &'b [u8],
}

impl<'b> Ack<'b> {
    /// An ACK without a body.
    pub(crate) const fn bare(client: ClientTx, fork: u8, cseq: u32) -> Self {
        Self {
            client,
            fork,
            cseq,
            lines: b"",
            body: b"",
        }
    }

    /// Adds an SDP answer.
    pub(crate) const fn answering(self, body: &'b [u8]) -> Self {
        Self {
            lines: b"Content-Type: application/sdp\r\n",
            body,
            ..self
        }
    }
}

impl Pending {
    /// The ACK to the 2xx of this INVITE, without a body.
    pub(crate) const fn ack(&self) -> Ack<'static> {
        Ack::bare(self.client, self.fork, self.cseq)
    }

    /// The 2xx to this re-INVITE and the offer in it. Our ACK waits for the other leg's answer.
    pub(crate) fn delayed(&self, offer: &[u8]) -> Delayed {
        Delayed {
            client: self.client,
            fork: self.fork,
            cseq: self.cseq,
            offer: offer.into(),
        }
    }
}

impl Delayed {
    /// The ACK to this 2xx, to which the answer is still to be added.
    pub(crate) const fn ack(&self) -> Ack<'static> {
        Ack::bare(self.client, self.fork, self.cseq)
    }
}

impl Leg {
    /// Sends an ACK.
    pub(crate) fn send_ack(&mut self, cx: &mut Cx<'_>, ack: &Ack<'_>) {
        let Some(peer) = self.sip_mut() else { return };
        let body = &*peer.with_origin(ack.body);
        let before = peer.flow;
        let Some(dialog) = peer.dialog_ref(ack.fork) else {
            return;
        };

        let write = |head: &mut Head<'_>| {
            dialog.ack_head(ack.cseq, head);
            head.raw(ack.lines);
        };
        cx.with_head(write, |cx, head| {
            cx.acknowledge(ack.client, before, dialog, head, body);
        });
    }

    /// Rejects the offer of a 2xx that the other leg will not answer: sends an ACK whose answer has all ports 0.
    pub(crate) fn reject_offer(&mut self, cx: &mut Cx<'_>, delayed: &Delayed) {
        let Some(peer) = self.sip() else { return };
        let body = sdp::reject(&delayed.offer, peer.flow.local);
        self.send_ack(cx, &delayed.ack().answering(&body));
    }

    /// Handles the answer to an obsolete re-INVITE: acknowledges a 2xx, and rejects an offer in it.
    pub(crate) fn settle_late(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if message.status() >= 300 {
            return;
        }
        // A 2xx to an INVITE without an offer brings one, and "the ACK MUST carry an answer" (RFC 3261 §13.2.2.4).
        match pending.had_sdp || !has_sdp(message) {
            true => self.send_ack(cx, &pending.ack()),
            false => self.reject_offer(cx, &pending.delayed(sdp_of(message.body()))),
        }
    }
}
