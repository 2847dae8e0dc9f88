//! Requests inside a call: each is checked against its dialog, answered here or relayed to the other leg
//! (RFC 3261 §12.2).

use std::borrow::Cow;
use std::net::IpAddr;

use trunkline_model::view::OrgView;
use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::endpoint::{Response, ServerTx};
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::allow::{capabilities, own_lines};
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;
use super::credentials::{ChallengedRequest, Unanswerable};
use super::crossing::{self, CrossingKind, lacking_options};
use super::effect::{ChallengeOutcome, Challenger};
use super::ids::LegId;
use super::ids::owner_of;
use super::leg::{Lost, NewRequest};
use super::own_request::{Pending, Purpose};
use super::pbx::Pbx;

use super::request_origin::RequestOrigin;
use super::transfer::TransferEvent;
use super::{has_sdp, sdp_of};

/// Answers of one call that may wait for their ACK at once.
const MAX_AWAITED: usize = 8;

impl Call {
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
        let is_full = self.bridge.requests.is_full()
            || (method == Method::Invite && self.bridge.awaited().count() >= MAX_AWAITED);

        // A BYE needs no room: it ends the call.
        if is_full && method != Method::Bye {
            return busy(cx, flow, message);
        }
        let Ok(server) = cx
            .endpoint
            .accept(message, flow, owner_of(Some(self.bridge.key)), cx.now)
        else {
            return busy(cx, flow, message);
        };
        let Some(leg) = self.bridge.legs.sip_mut(id) else {
            return;
        };
        let in_order = leg
            .dialog(fork)
            .is_some_and(|dialog| dialog.receive_request(message).is_ok());
        if !in_order {
            return cx.respond(server, 500, None, |head| head.number("Retry-After", 0), b"");
        }

        // Only a request in order moves the flow: an old one that was captured may be sent again from any address.
        leg.flow = flow;
        self.bridge.legs.hear(id, cx.now);
        if self.bridge.has_left(id) {
            return self.answer_apart(cx, id, server, message);
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

        let is_over = self.bridge.status() == CallStatus::Over;
        if is_over && !matches!(message.method(), Method::Bye | Method::Notify) {
            return cx.respond(server, 481, None, |_| {}, b"");
        }

        if self.bridge.is_trunk(id) && self.shows_caller(method) {
            self.on_transfer(cx, TransferEvent::CallerHeard);
        }

        let methods = self.bridge.methods(id);
        match message.method() {
            Method::Bye => self.on_bye(cx, id, fork, server, message),
            Method::Invite => self.on_reinvite(cx, id, fork, server, message),
            Method::Update => self.on_update(cx, id, fork, server, message),
            Method::Prack if self.bridge.is_trunk(id) => self.on_prack(cx, fork, server, message),
            Method::Info | Method::Message => {
                self.relay(cx, id, fork, server, message);
                self.on_key(cx, org, message);
            }
            Method::Options => {
                cx.respond(server, 200, None, |head| capabilities(head, methods), b"");
            }
            Method::Prack | Method::Cancel | Method::Ack => {
                cx.respond(server, 481, None, |_| {}, b"")
            }
            Method::Notify => self.on_notify(cx, id, server, message),
            Method::Refer => self.on_refer(cx, (id, fork), server, org, message),
            Method::Subscribe | Method::Publish | Method::Register => {
                cx.respond(server, 405, None, |head| head.line("Allow", methods), b"");
            }
            Method::Other => {
                cx.respond(server, 501, None, |head| head.line("Allow", methods), b"");
            }
        }
    }

    /// Returns whether a request of the PBX with this method shows that it still has the caller.
    fn shows_caller(&self, method: Method) -> bool {
        let pbx = self.bridge.trunk().and_then(|trunk| trunk.abilities.pbx);
        let offers_anyway = pbx.is_some_and(Pbx::offers_without_caller);
        let may_be_offer = matches!(method, Method::Invite | Method::Update);

        // BYE and NOTIFY are also accepted without a caller.
        let is_accepted_anyway = matches!(method, Method::Bye | Method::Notify);
        !(is_accepted_anyway || may_be_offer && offers_anyway)
    }

    /// Answers a request of a leg that isn't connected with another: it was replaced, or doesn't replace one yet.
    fn answer_apart(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let method = message.method();
        if method == Method::Bye {
            cx.respond(server, 200, None, |_| {}, b"");
            return self.on_apart_bye(cx, id);
        }
        if self.joining.arriving() != Some(id) {
            return cx.respond(server, 481, None, |_| {}, b"");
        }

        // A destination whose media the caller doesn't have yet: its dialog exists, and a 481 would end it.
        if let Some(lacking) = lacking_options(message) {
            return refuse_options(cx, server, &lacking);
        }
        let methods = self.bridge.methods(id);
        match method {
            Method::Options => {
                cx.respond(server, 200, None, |head| capabilities(head, methods), b"");
            }
            Method::Info => cx.respond(server, 200, None, |_| {}, b""),
            Method::Message => cx.respond(server, 480, None, |_| {}, b""),
            Method::Invite
            | Method::Ack
            | Method::Bye
            | Method::Cancel
            | Method::Register
            | Method::Prack
            | Method::Update
            | Method::Refer
            | Method::Notify
            | Method::Subscribe
            | Method::Publish
            | Method::Other => cx.respond(server, 491, None, |_| {}, b""),
        }
    }

    /// Relays a request to the other leg; the built-in agent accepts every request.
    fn relay(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        if self.bridge.is_local() {
            return cx.respond(server, 200, None, |_| {}, b"");
        }
        // The trunk's leg has answered or been answered, and its agent is still being called.
        let is_early =
            self.bridge.status() == CallStatus::SettingUp && self.bridge.legs.session(id).is_some();
        if self.bridge.is_trunk(id) && (is_early || self.has_agent_left()) {
            // A 481 would end the peer's dialog (RFC 3261 §12.2.1.2) before its agent or its transfer is through.
            let is_taken = message.method() == Method::Info;
            let status = if is_taken { 200 } else { 480 };
            return cx.respond(server, status, None, |_| {}, b"");
        }

        let (method, purpose) = (message.method(), Purpose::Relay(server));
        let other = self.bridge.other(id);
        let sent = self.send_in_dialog(cx, other, fork, method, purpose, Some(message), |_| {});
        if sent.is_none() {
            cx.respond(server, 481, None, |_| {}, b"");
        }
    }

    /// Sends a request on one leg, with what crosses of `content`. `None` if there is no such dialog or no room.
    #[expect(clippy::too_many_arguments, reason = "what a request is made of")]
    pub(crate) fn send_in_dialog(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        method: Method,
        purpose: Purpose,
        content: Option<&Message<'_>>,
        extra: impl FnOnce(&mut Head<'_>),
    ) -> Option<&mut Pending> {
        let offers = content.is_some_and(has_sdp);
        let config = std::sync::Arc::clone(&cx.core.config);
        let crossing = self.crossing(
            self.bridge.other(id),
            CrossingKind::InDialog,
            &config.header_prefix,
        );
        let body = content.map_or(Cow::Borrowed(&b""[..]), |content| crossing.body(content));
        let body = &*match offers {
            true => self.holding.hold.crossing_sdp(&body),
            false => Cow::Borrowed(&*body),
        };
        let lines = |head: &mut Head<'_>| {
            extra(head);
            if let Some(content) = content {
                crossing.copy(head, content);
            }
        };

        // A PRACK refers to our own response, so it is no relayed request.
        let relayed = content.filter(|_| method != Method::Prack);
        let origin = relayed.map_or(RequestOrigin::Ours, RequestOrigin::of);
        let request = NewRequest {
            fork,
            method,
            purpose,
            offers,
            origin,
            body,
        };
        self.bridge.send(cx, id, &request, lines)
    }

    /// Handles the final answer to a request of ours inside the call.
    pub(crate) fn on_in_dialog_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: Pending,
        message: &Message<'_>,
    ) {
        let may_stay =
            !self.bridge.has_left(pending.leg) || self.joining.arriving() == Some(pending.leg);
        let is_life = !matches!(message.status(), 408 | 481) && may_stay;
        if is_life {
            self.bridge.legs.hear(pending.leg, cx.now);
        }

        let Some(pending) = self.prove(cx, pending, message) else {
            return;
        };

        match (pending.purpose, pending.method) {
            (Purpose::Own, Method::Invite) => {
                if let Some(leg) = self.bridge.legs.get_mut(pending.leg) {
                    leg.settle_late(cx, &pending, message);
                }
            }
            // The 481 to a NOTIFY ends its subscription (RFC 6665 §4.2.2), not the call.
            (Purpose::Own, Method::Notify) if message.status() == 481 => {
                self.on_transfer(cx, TransferEvent::Unsubscribed);
            }
            (Purpose::Own | Purpose::SecondBye, _) => {}
            (Purpose::Stale, method) => {
                if let Some(mut leg) = self.bridge.at(pending.leg) {
                    if method == Method::Invite {
                        leg.leg.settle_late(cx, &pending, message);
                    }
                    if message.status() < 300 {
                        leg.note_refresh(cx, &pending, message);
                    }
                }
                if message.status() < 300 {
                    self.holding.restore(&mut self.bridge, cx, pending.leg);
                }
                self.end_if_gone(cx, &pending, message.status());
            }
            (Purpose::Join(_), _) => {
                let sdp = has_sdp(message).then(|| sdp_of(message.body()));
                let bridge = &mut self.bridge;
                match self.joining.on_answer(bridge, cx, flow, &pending, message) {
                    Ok(progress) => self.apply_join_progress(cx, progress, sdp),
                    Err(lost) => self.lose_leg(cx, pending.leg, lost),
                }
            }
            (Purpose::Hold, _) => {
                let bridge = &mut self.bridge;
                match self.holding.on_answer(bridge, cx, flow, &pending, message) {
                    Ok(audio) => {
                        let hold = &self.holding.hold;
                        self.bridge.update_media(cx, &self.ids, hold, audio);
                    }
                    Err(lost) => self.lose_leg(cx, pending.leg, lost),
                }
            }
            (Purpose::Transfer, _) => self.on_refer_answer(cx, &pending, message),
            (Purpose::Probe, _) => self.on_probe_answer(cx, &pending, message),
            (Purpose::Refresh, _) => {
                let leg = self.bridge.at(pending.leg);
                let lost =
                    leg.and_then(|mut leg| leg.on_refresh_answer(cx, flow, &pending, message));
                self.end_if_lost(cx, pending.leg, lost);
            }
            (Purpose::Relay(server), Method::Invite) => {
                self.on_reinvite_answer(cx, flow, &pending, server, message)
            }
            (Purpose::Relay(server), _) => {
                self.relay_answer(cx, &pending, server, message);
                self.end_if_gone(cx, &pending, message.status());
            }
        }
    }

    /// Sends a request again with credentials for its challenge; else returns it.
    fn prove(
        &mut self,
        cx: &mut Cx<'_>,
        mut pending: Pending,
        message: &Message<'_>,
    ) -> Option<Pending> {
        // The transfer repeats its REFER itself, and after the call only the BYE is repeated.
        let asks = self.bridge.status() != CallStatus::Over || pending.method == Method::Bye;
        let is_own = pending.purpose != Purpose::Transfer;
        // The requester has taken a cancelled request back: sent again, it would take effect all the same.
        let is_wanted = asks && is_own && !pending.is_canceled;
        if !matches!(message.status(), 401 | 407) || !is_wanted {
            return Some(pending);
        }

        let method = pending.method;
        let leg = self.bridge.legs.get(pending.leg);
        let Some(destination) = leg.and_then(|leg| leg.next_hop(cx, pending.fork)) else {
            return Some(pending);
        };
        let Some(mut repeatable) = pending.repeatable.take() else {
            self.unanswered(
                cx,
                pending.leg,
                (Unanswerable::NoPair, destination),
                message,
            );
            return Some(pending);
        };

        let answered =
            self.bridge
                .legs
                .sip_mut(pending.leg)
                .map_or(Err(Unanswerable::NoPair), |leg| {
                    let dialog = leg.dialog_ref(pending.fork);
                    let known = leg.credentials.as_ref().zip(dialog);
                    let (credentials, dialog) = known.ok_or(Unanswerable::NoPair)?;
                    let challenged = ChallengedMessage {
                        method: method.as_str(),
                        uri: dialog.request_uri(),
                        body: &repeatable.body,
                    };
                    let at = (ChallengedRequest::InDialog(dialog), destination);
                    credentials.answer(cx, &mut repeatable.digest_answers, message, &challenged, at)
                });
        if let Err(why) = answered {
            self.unanswered(cx, pending.leg, (why, destination), message);
            return Some(pending);
        }

        let request = NewRequest {
            fork: pending.fork,
            method,
            purpose: pending.purpose,
            offers: pending.offers,
            origin: pending.origin,
            body: &repeatable.body,
        };
        let lines = |head: &mut Head<'_>| {
            head.raw(&repeatable.lines);
            repeatable.digest_answers.lines(head);
        };
        let Some(sent) = self.bridge.send(cx, pending.leg, &request, lines) else {
            return Some(pending);
        };
        (sent.renewal, sent.target) = (pending.renewal, pending.target);
        sent.repeatable = Some(repeatable);

        None
    }

    /// Reports a request to `destination` whose challenge isn't answered. The peer may be a PBX or a trunk's host; challenges of runtimes and
    /// destinations aren't reported.
    pub(crate) fn unanswered(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        (why, destination): (Unanswerable, IpAddr),
        message: &Message<'_>,
    ) {
        let is_inbound = self.outbound.is_none();
        let org = self.ids.org;
        let credentials = self
            .bridge
            .legs
            .sip_mut(id)
            .and_then(|leg| leg.credentials.as_deref());
        let challenger = match credentials {
            Some(held) if held.is_runtimes() => None,
            Some(held) => Some(Challenger {
                org,
                trunk: held.trunk(),
            }),
            None => (is_inbound && self.bridge.is_trunk(id)).then_some(Challenger::pbx(org)),
        };
        cx.report(challenger, || {
            ChallengeOutcome::unanswered(why, message, destination)
        });
    }

    /// Relays the answer of one leg to the other.
    pub(crate) fn relay_answer(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let status = match message.status() {
            // The challenge has crossed the CANCEL, and the requester gets what a CANCEL leads to (RFC 3261 §9.2).
            401 | 407 if pending.is_canceled => 487,
            status => crossing::in_dialog_refusal(status),
        };
        let refreshed = pending.method == Method::Update && status < 300;
        let requester = self.bridge.other(pending.leg);

        // The answer to an offer in a reliable 18x, or the next offer (RFC 3262 §5).
        if pending.method == Method::Prack
            && status < 300
            && let Some(sdp) = &pending.sdp
        {
            self.bridge
                .legs
                .remember_sdp(pending.leg, pending.fork, sdp);
        }

        if refreshed {
            if let Some(mut leg) = self.bridge.at(pending.leg) {
                leg.note_refresh(cx, pending, message);
            }
            if let Some(mut leg) = self.bridge.at(requester) {
                leg.take_renewal(cx, pending.renewal);
            }
            if let Some(peer) = self.bridge.legs.sip_mut(requester) {
                peer.move_target(pending);
            }
            let body = self.holding.hold.crossing_sdp(message.body());
            self.bridge
                .legs
                .remember_sdp(requester, pending.fork, &body);
            self.holding.hear_proposed(&mut self.bridge, requester);
            self.holding.hear(&mut self.bridge, pending.leg, message);
        }

        let prefix = cx.core.config.header_prefix.clone();
        let crossing = self.crossing(pending.leg, CrossingKind::Response, &prefix);
        let crosses = crossing.body(message);
        let body = match message.status() {
            200..=299 => self.holding.hold.crossing_sdp(&crosses),
            _ => Cow::Borrowed(&*crosses),
        };
        let body = self.bridge.legs.with_origin(requester, &body);
        let methods = self.bridge.methods(requester);
        let timer = self
            .bridge
            .legs
            .session_timer(requester)
            .filter(|_| refreshed);
        let Some(leg) = self.bridge.legs.sip_mut(requester) else {
            return;
        };

        let contact = cx.contact(&leg.flow, leg.is_sips);
        let write = |head: &mut Head<'_>| {
            if refreshed {
                own_lines(head, &contact, methods);
            }
            if let Some(timer) = &timer {
                timer.response_lines(head);
            }
            if status == 405 {
                message
                    .headers()
                    .filter(|header| header.name == HeaderName::Allow)
                    .for_each(|allow| head.line("Allow", &allow.unfolded()));
            }
            crossing.copy(head, message);
        };

        let phrase = String::from_utf8_lossy(message.reason());
        let phrase = (status == message.status() && !phrase.is_empty()).then_some(&*phrase);
        cx.respond_as(server, (status, phrase), None, write, &body);
    }

    /// Ends a leg whose peer has lost the dialog of a request, as 481, 408 and silence say (RFC 3261 §12.2.1.2). Only the dialog that the call goes
    /// by ends it: an early one, or that of a fork that has lost, may be gone while its INVITE goes on (§13.2.2.4).
    pub(crate) fn end_if_gone(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let is_gone = matches!(status, 408 | 481) && pending.method != Method::Prack;
        let is_up = self.bridge.status() != CallStatus::SettingUp;
        if is_gone && is_up && self.bridge.has_fork(pending.leg, pending.fork) {
            self.lose_leg(cx, pending.leg, Lost::of(status));
        }
    }
}

/// Refuses a request whose `Require` names options that aren't known here (RFC 3261 §8.2.2.3).
fn refuse_options(cx: &mut Cx<'_>, server: ServerTx, lacking: &[u8]) {
    cx.respond(
        server,
        420,
        None,
        |head| head.line("Unsupported", lacking),
        b"",
    );
}

/// Refuses a request for lack of room: the peer may retry.
fn busy(cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) {
    cx.endpoint
        .respond_stateless(message, &flow, &Response::bare(503));
}
