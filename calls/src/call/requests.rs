//! Requests of the peers inside the call: each is checked against its dialog, then answered here, relayed to the other leg, or given to its feature (RFC 3261
//! §12.2).

use trunkline_model::view::OrgView;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::Call;
use crate::core::context::Cx;
use crate::dialog::in_dialog::{answer_alone, busy, refuse_options};
use crate::dialog::reoffer::Reoffer;
use crate::dialog::{in_dialog, reoffer};
use crate::features::transfer::{ReferRequest, TransferEvent, digit};
use crate::has_sdp;
use crate::inbound::provisional::PrackProgress;
use crate::inbound::{answer, provisional};
use crate::leg::Lost;
use crate::leg::call_status::CallStatus;
use crate::leg::provisional_relay::HeldAnswer;
use crate::media::{bot, local_media};
use crate::parts::allow::capabilities;
use crate::parts::crossing::lacking_options;
use crate::parts::ids::{LegId, owner_of};
use crate::parts::refusal::Reason;

/// Answers of one call that may wait for their ACK at once. At this number a further re-INVITE gets 503.
const MAX_AWAITED: usize = 8;

impl Call {
    /// Handles the ACK to a 2xx of ours.
    pub(crate) fn on_ack(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        flow: &Flow,
        message: &Message<'_>,
    ) {
        // Before the bot starts, so that its first audio is sent.
        local_media::prove_media(&mut self.bridge, cx, id, flow);
        let progress = reoffer::on_ack(&mut self.relay(), cx, id, message);
        if progress.begins {
            self.with_bot(cx, bot::start);
            self.on_transfer(cx, TransferEvent::Acknowledged);
        }
        // Without an answer to a delayed offer the call has no media (RFC 3261 §13.2.2.4).
        if progress.lacks_answer {
            self.hang_up(cx, Reason::NoCommonMedia);
        }
    }

    /// Handles a request with the tags of this call. `org` is given if the request may ask for a transfer.
    pub(crate) fn on_request(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        flow: Flow,
        message: &Message<'_>,
        org: Option<&OrgView>,
    ) {
        let method = message.method();
        // Each 2xx without an ACK is retransmitted for 64*T1: a peer that acknowledges none may not pile them up.
        let is_full = self.bridge.requests.is_full()
            || (method == Method::Invite && self.bridge.awaited().count() >= MAX_AWAITED);

        // A BYE needs no room: it ends the call.
        if is_full && method != Method::Bye {
            return busy(cx, flow, message);
        }

        let leg = self.bridge.legs.get_mut(id);
        // Counted before a transaction is made, whose answer would stay in a table that all calls share.
        if !leg.is_some_and(|leg| leg.allowance.take(method, cx.now)) {
            return busy(cx, flow, message);
        }

        let Ok(server) = cx
            .endpoint
            .accept(message, flow, owner_of(Some(self.bridge.key)), cx.now)
        else {
            return busy(cx, flow, message);
        };

        // `dialog_of` has found the dialog on this leg.
        let Some(leg) = self.bridge.legs.sip_mut(id) else {
            return;
        };
        let in_order = leg
            .dialog(fork)
            .is_some_and(|dialog| dialog.receive_request(message).is_ok());
        // RFC 3261 §12.2.2: a lower CSeq is "out of order and MUST be rejected with a 500".
        if !in_order {
            return cx.respond(server, 500, None, |head| head.number("Retry-After", 0), b"");
        }

        // Only a request in order moves the flow: an old one that was captured may be sent again from any address.
        leg.flow = flow;
        self.bridge.legs.hear(id, cx.now);
        local_media::prove_media(&mut self.bridge, cx, id, &flow);

        if self.bridge.has_left(id) {
            if method != Method::Bye {
                let arriving = self.joining.arriving();
                return in_dialog::answer_apart(
                    &mut self.bridge,
                    cx,
                    id,
                    server,
                    message,
                    arriving,
                );
            }
            cx.respond(server, 200, None, |_| {}, b"");
            in_dialog::on_apart_bye(&mut self.bridge, cx, id);
            return self.end_if_lost(cx, id, Some(Lost::of(487)));
        }

        // RFC 3261 §16.3: Max-Forwards isn't checked for requests that end here.
        let is_relayed = matches!(method, Method::Invite | Method::Info | Method::Message)
            || (method == Method::Update && has_sdp(message));
        let crosses = is_relayed && !self.bridge.is_local();
        if crosses && message.number(HeaderName::MaxForwards) == Some(0) {
            return cx.respond(server, 483, None, |_| {}, b"");
        }

        if let Some(lacking) = lacking_options(message) {
            return refuse_options(cx, server, &lacking);
        }

        // Once the call is over, a BYE may have crossed ours, and a NOTIFY may bring the outcome of a transfer.
        let is_over = self.bridge.status() == CallStatus::Over;
        if is_over && !matches!(message.method(), Method::Bye | Method::Notify) {
            return cx.respond(server, 481, None, |_| {}, b"");
        }

        // A PBX whose REFER has failed may have dropped its caller, and gets a BYE unless it shows that it hasn't.
        if self.bridge.is_trunk(id) && in_dialog::shows_caller(&self.bridge, method) {
            self.on_transfer(cx, TransferEvent::CallerHeard);
        }

        let methods = self.bridge.methods(id);
        match message.method() {
            Method::Bye => self.on_bye(cx, id, fork, server, message),

            Method::Invite | Method::Update => {
                let reoffer = Reoffer {
                    leg: id,
                    fork,
                    server,
                    message,
                    joining: self.joining.phase(),
                    has_agent_left: self.transfer.has_agent_left(&self.bridge),
                };
                let crosses = match method == Method::Invite {
                    true => reoffer::on_reinvite(&mut self.relay(), cx, &reoffer),
                    false => reoffer::on_update(&mut self.relay(), cx, &reoffer),
                };
                // A hold between its two re-INVITEs begins again, with the SDP of this change.
                if crosses {
                    self.hold.disturb();
                }
            }

            Method::Prack if self.bridge.is_trunk(id) => {
                match provisional::on_prack(&mut self.relay(), cx, fork, server, message) {
                    PrackProgress::Nothing => {}
                    PrackProgress::Answered(HeldAnswer { won, answer }) => {
                        let progress =
                            answer::pass_answer(&mut self.relay(), cx, won, answer.message());
                        self.apply_answer(cx, progress);
                    }
                    PrackProgress::Unusable => self.refuse(cx, Reason::NoCommonMedia),
                }
            }

            Method::Info | Method::Message => {
                match self.bridge.is_trunk(id) && self.transfer.has_agent_left(&self.bridge) {
                    true => answer_alone(cx, server, message.method()),
                    false => in_dialog::request(&mut self.relay(), cx, id, fork, server, message),
                }

                if let Some(digit) = digit::take_key(&self.bridge, cx, message) {
                    self.press(cx, org, digit);
                }
            }

            Method::Options => {
                cx.respond(server, 200, None, |head| capabilities(head, methods), b"");
            }
            // We send nothing reliably on other legs. RFC 3262 §3: a PRACK that matches no response gets 481.
            Method::Prack | Method::Cancel | Method::Ack => {
                cx.respond(server, 481, None, |_| {}, b"")
            }

            Method::Notify => {
                let news = self
                    .transfer
                    .on_notify(&self.bridge, cx, id, server, message);
                if let Some(event) = news {
                    self.on_transfer(cx, event);
                }
            }

            Method::Refer => {
                let refer = ReferRequest {
                    leg: id,
                    fork,
                    server,
                    message,
                    org,
                };
                let (bridge, of) = (&self.bridge, self.transferee());
                if let Some(new) = self.transfer.on_refer(bridge, cx, &of, &refer) {
                    self.begin_transfer(cx, new);
                }
            }

            Method::Subscribe | Method::Publish | Method::Register => {
                cx.respond(server, 405, None, |head| head.line("Allow", methods), b"");
            }
            Method::Other => {
                cx.respond(server, 501, None, |head| head.line("Allow", methods), b"");
            }
        }
    }
}
