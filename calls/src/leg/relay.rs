//! Requests and answers that cross between the two connected legs of a call. `crossing` says what crosses of each, and a hold changes the
//! SDP in it. Media of our own answer in place of the agent's leg (`local_media`).

use std::borrow::Cow;
use std::sync::Arc;

use trunkline_sip::dialog::streams;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use crate::core::context::Cx;
use crate::leg::bridge::Bridge;
use crate::leg::delayed_ack::Delayed;
use crate::leg::own_request::{Pending, Purpose};
use crate::leg::uas_invite::UasInvite;
use crate::leg::{AwaitedAck, LegState, NewRequest, Session, trunk_sdp};
use crate::parts::allow::own_lines;
use crate::parts::crossing;
use crate::parts::crossing::{Crossing, CrossingKind, Identity};
use crate::parts::ids::{CallRef, LegId};
use crate::parts::privacy::CallerIdentity;
use crate::parts::request_origin::RequestOrigin;
use crate::{has_sdp, sdp_of};

/// The legs of a call, and what changes a message that crosses between them or is answered by media of our own.
pub(crate) struct Relay<'c> {
    pub(crate) ids: &'c CallRef,
    pub(crate) bridge: &'c mut Bridge,
    pub(crate) identity: &'c CallerIdentity,
}

impl Relay<'_> {
    /// Crossing of a message that came on this leg.
    pub(crate) fn crossing<'p>(
        &self,
        sender: LegId,
        kind: CrossingKind,
        prefix: &'p str,
    ) -> Crossing<'p> {
        let identity = match self.bridge.is_trunk(sender) {
            true => self.identity.rule(),
            false => Identity::Crosses,
        };
        Crossing {
            kind,
            identity,
            prefix,
        }
    }

    /// Sends a request on one leg, with what crosses of `content`. `None` if there is no such dialog or no room.
    #[expect(clippy::too_many_arguments, reason = "what a request is made of")]
    pub(crate) fn send(
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
        let config = Arc::clone(&cx.core.config);
        let crossing = self.crossing(
            self.bridge.other(id),
            CrossingKind::InDialog,
            &config.header_prefix,
        );

        let body = content.map_or(Cow::Borrowed(&b""[..]), |content| crossing.body(content));
        let body = &*match offers {
            true => self.bridge.held.crossing_sdp(&body),
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

    /// Relays the answer of one leg to the other.
    pub(crate) fn answer(
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

        // The SDP of a PRACK answers the offer in a reliable 18x, or is a new offer (RFC 3262 §5).
        if pending.method == Method::Prack
            && status < 300
            && let Some(sdp) = &pending.sdp
        {
            self.bridge
                .legs
                .remember_sdp(pending.leg, pending.fork, sdp);
            if has_sdp(message) {
                trunk_sdp::hear_proposed(self.bridge, requester);
            }
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
            let body = self.bridge.held.crossing_sdp(message.body());
            let body = streams::without_last(&body, pending.added_streams);
            self.bridge.legs.remember_sdp(requester, pending.fork, body);
            trunk_sdp::hear_proposed(self.bridge, requester);
            trunk_sdp::hear(self.bridge, pending.leg, message);
        }

        let prefix = cx.core.config.header_prefix.clone();
        let crossing = self.crossing(pending.leg, CrossingKind::Response, &prefix);
        let crosses = crossing.body(message);
        let body = match message.status() {
            200..=299 => self.bridge.held.crossing_sdp(&crosses),
            _ => Cow::Borrowed(&*crosses),
        };
        let body = streams::without_last(&body, pending.added_streams);
        let body = self.bridge.legs.with_origin(requester, body);
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
            // RFC 3261 §21.4.6: a 405 "MUST include an Allow header field"; the peer that refused knows its methods.
            if status == 405 {
                message
                    .headers()
                    .filter(|header| header.name == HeaderName::Allow)
                    .for_each(|allow| head.line("Allow", &allow.unfolded()));
            }
            crossing.copy(head, message);
        };

        let phrase = String::from_utf8_lossy(message.reason());
        // A mapped status gets its own phrase instead of the peer's.
        let phrase = (status == message.status() && !phrase.is_empty()).then_some(&*phrase);
        cx.respond_as(server, status, phrase, None, write, &body);
    }

    /// Sends 200 to the caller's INVITE, for a runtime or for media of our own; false if there is no such dialog.
    pub(crate) fn accept_caller(
        &mut self,
        cx: &mut Cx<'_>,
        fork: u8,
        incoming: &UasInvite,
        body: &[u8],
        delayed: Option<Delayed>,
        more: impl FnOnce(&mut Head<'_>, &str),
    ) -> bool {
        let (config, invite) = (Arc::clone(&cx.core.config), incoming.invite());
        let (id, agent) = (self.bridge.trunk_id(), self.bridge.agent_id());
        let Some(trunk) = self.bridge.legs.sip_mut(id) else {
            return false;
        };

        let contact = cx.contact(&trunk.flow, trunk.is_sips);
        let server = incoming.server();
        let mut session = Session::begun_by(server);
        session.timer = incoming.session_timer();
        trunk.remember_sdp(fork, body);
        // A PRACK or an UPDATE may have changed the caller's media since its INVITE.
        if self.bridge.trunk_sdp().is_none() {
            self.bridge.held.take_offer(sdp_of(invite.body()));
            trunk_sdp::hear(self.bridge, id, invite);
        }

        let body = &*self.bridge.legs.with_origin(id, body);
        let methods = self.bridge.methods(id);
        let Some(trunk) = self.bridge.legs.sip_mut(id) else {
            return false;
        };

        let flow = trunk.flow;
        let Some(dialog) = trunk.dialog(fork) else {
            return false;
        };
        dialog.confirm();

        let dialog = &*dialog;
        cx.look_up(dialog, flow);

        let write = |head: &mut Head<'_>| {
            own_lines(head, &contact, methods);
            if let Some(timer) = &session.timer {
                timer.response_lines(head);
            }
            more(head, &config.header_prefix);
        };

        cx.respond(server, 200, Some(dialog.local_tag()), write, body);
        session.late_prack = incoming.relay.late_prack(fork);
        session.await_ack(AwaitedAck {
            cseq: invite.cseq().number,
            server,
            delayed,
        });

        self.bridge.legs.set_state(id, LegState::Ready(session));
        // Last: until its legs are connected, the call counts as being set up (`Bridge::status`).
        self.bridge.legs.connect(id, agent);
        true
    }
}
