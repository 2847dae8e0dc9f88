//! Peers behind NAT over UDP: while a call with one is up, it gets OPTIONS at intervals. Its answers keep the NAT's mapping for a BYE, a re-INVITE or
//! a REFER of ours.
//!
//! The Via of a peer that has called shows the NAT. A peer that we have called, callee or runtime, sends no Via of its own: there a private address
//! in its Contact, different from the source of its answer, shows the NAT. Behind a Record-Route the proxy keeps the path open.

use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::{Endpoint, Request};
use trunkline_sip::flow::{Flow, is_private};
use trunkline_sip::slot::{Slot, Tag};
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use crate::core::context::{Core, Cx};
use crate::leg::ActiveLeg;
use crate::leg::call_status::CallStatus;
use crate::parts::ids::{CallKey, CallTimer, LegId};
use crate::parts::target;
use crate::parts::target::DialTarget;

/// Returns whether a NAT changes the addresses of this INVITE's sender.
pub(crate) fn sent_through_nat(flow: &Flow, invite: &Message<'_>) -> bool {
    !flow.transport.is_reliable() && !invite.top_via().is_at(flow.peer)
}

/// Returns whether a NAT changes the addresses of the peer that has answered by this flow.
fn answered_through_nat(flow: &Flow, dialog: &Dialog) -> bool {
    let contact = std::str::from_utf8(dialog.remote_target()).ok();
    let Some(DialTarget::Resolved(contact)) = contact.and_then(target::dial_target) else {
        return false;
    };
    let ip = contact.address.ip().to_canonical();
    let differs = is_private(ip) && ip != flow.peer.ip().to_canonical();
    !flow.transport.is_reliable() && !dialog.has_route() && differs
}

/// Interval, varied by a fifth, so that calls begun together aren't due together.
pub(crate) fn schedule(cx: &mut Cx<'_>, call: CallKey, id: LegId) -> TimerId {
    let interval = cx.core.config.keep_alive;
    let spread = u32::try_from(cx.endpoint.chance().bits64() % 400).unwrap_or_default();
    let after: Duration = interval * (800 + spread) / 1_000;
    cx.schedule(call, after, CallTimer::KeepAlive(id))
}

impl ActiveLeg<'_> {
    /// Starts keep-alives for a peer that has answered, if it is behind NAT.
    pub(crate) fn start_keep_alives(&mut self, cx: &mut Cx<'_>) {
        let (call, id) = (self.call, self.leg.id);
        let Some(peer) = self.leg.sip_mut() else {
            return;
        };
        let flow = peer.flow;
        let mut dialogs = peer.dialogs.iter();
        let is_behind_nat = dialogs.any(|held| answered_through_nat(&flow, &held.dialog));
        if peer.keep_alive.is_none() && is_behind_nat {
            peer.keep_alive = Some(schedule(cx, call, id));
        }
    }

    /// Sends the next OPTIONS. Only the NAT needs its answer.
    pub(crate) fn on_keep_alive(&mut self, cx: &mut Cx<'_>, slot: Slot) {
        let (call, id) = (self.call, self.leg.id);
        let Some(peer) = self.leg.sip_mut() else {
            return;
        };
        // The leg may have been replaced meanwhile, with another flow.
        if peer.keep_alive.take().is_none() || self.status == CallStatus::Over {
            return;
        }
        send_options(cx.core, cx.endpoint, peer.flow, slot);
        peer.keep_alive = Some(schedule(cx, call, id));
    }
}

/// Sends one OPTIONS statelessly; returns its From-tag, which the answer repeats.
pub(crate) fn send_options(core: &Core, endpoint: &mut Endpoint, flow: Flow, slot: Slot) -> Tag {
    let tag = core.minter.tag(slot, endpoint.entropy());
    let call_id = core.minter.call_id(slot, endpoint.entropy());
    let host = endpoint.sent_by(&flow).into_owned();
    let uri = format!("sip:{}", flow.peer);
    let mut lines = Vec::new();
    let mut head = Head::new(&mut lines);
    head.number("Max-Forwards", 70);
    head.fmt("From", format_args!("<sip:{host}>;tag={tag}"));
    head.fmt("To", format_args!("<{uri}>"));
    head.line("Call-ID", call_id.as_bytes());
    head.line("CSeq", b"1 OPTIONS");

    let request = Request {
        method: Method::Options,
        token: "OPTIONS",
        uri: uri.as_bytes(),
        head: &lines,
        body: b"",
    };
    endpoint.request_once(flow, &request);
    tag
}
