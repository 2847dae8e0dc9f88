//! Re-INVITE and UPDATE: one offer/answer exchange at a time crosses the bridge (RFC 3261 §14, RFC 3311). Also the ACK of every 2xx, with the SDP
//! answer of a delayed offer.

use trunkline_sip::dialog::session_timer::{SessionTimer, Unacceptable};
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::allow::own_lines;
use super::bridge::CallStatus;
use super::call::Call;
use super::context::Cx;
use super::crossing::Place;
use super::dial::Dialing;
use super::exchange::Exchange;
use super::ids::LegId;
use super::leg::{Ack, AwaitedAck, Delayed};
use super::own_request::{Pending, Purpose};
use super::refusal::Reason;
use super::request_origin::RequestOrigin;
use super::unanswered::refusal_lines;
use super::{families, has_sdp, sdp_of};

impl Call {
    /// Handles a re-INVITE.
    pub(crate) fn on_reinvite(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        self.bridge.requests.note_theirs(server);
        if self.bridge.status() == CallStatus::SettingUp {
            // RFC 3261 §14.2: 500 while the caller's own first INVITE has no final answer, 491 while ours hasn't.
            let status = match self.bridge.is_trunk(id) && self.outbound.is_none() {
                true => 500,
                false => 491,
            };
            return refuse_for_now(cx, server, status);
        }
        if !self.may_offer(cx, id, fork, server) {
            return;
        }

        let Some(renewal) = self.asked_session(cx, server, message) else {
            return;
        };

        self.note_proposal(id, message);
        if self.bridge.is_local() {
            return self.local_reinvite(cx, renewal, server, message);
        }

        self.relay_change(cx, id, fork, server, message, renewal);
    }

    /// Handles an UPDATE. Without a body it only refreshes this leg's session and target.
    pub(crate) fn on_update(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let offers = has_sdp(message);
        if offers && !self.may_offer(cx, id, fork, server) {
            return;
        }

        let Some(renewal) = self.asked_session(cx, server, message) else {
            return;
        };

        if !offers {
            if let Some(dialog) = self
                .bridge
                .legs
                .sip_mut(id)
                .and_then(|leg| leg.dialog(fork))
            {
                dialog.refresh_target(message);
            }
            if let Some(mut leg) = self.bridge.at(id) {
                leg.take_renewal(cx, renewal);
            }
            return self.accept_refresh(cx, id, server);
        }

        self.note_proposal(id, message);
        if self.bridge.is_local() {
            return self.local_update(cx, renewal, server, message);
        }

        self.relay_change(cx, id, fork, server, message, renewal);
    }

    /// Relays an offer to the other leg. A new session timer and target of this leg count once the offer is accepted (RFC 3261 §8.2).
    pub(crate) fn relay_change(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
        renewal: Option<SessionTimer>,
    ) {
        if self.bridge.is_trunk(id) && self.has_agent_left() {
            // The destination's own exchange comes first; the caller may retry after it.
            return refuse_for_now(cx, server, 491);
        }

        // The peer moves its media to an IP family that the other side lacks, by the last SDP that this peer got. A side with both families shows
        // that in its SDP (RFC 6157 §4).
        let theirs = self.bridge.legs.sip(id).and_then(|peer| peer.told(fork));
        let moves_apart = |theirs: &[u8]| families::differ(sdp_of(message.body()), theirs);
        if has_sdp(message) && theirs.is_some_and(moves_apart) {
            self.bridge.legs.fail_successor(server);
            let why = Reason::MediaFamilies;
            let lines = |head: &mut Head<'_>| refusal_lines(head, why);
            return cx.respond(server, why.status(), None, lines, b"");
        }
        self.hold.disturb();

        let (method, purpose) = (message.method(), Purpose::Relay(server));
        let dialog = self
            .bridge
            .legs
            .sip_mut(id)
            .and_then(|leg| leg.dialog_ref(fork));
        let target = dialog.and_then(|dialog| dialog.moves_to(message));
        let target = target.map(Box::from);
        let sent = self.send_in_dialog(
            cx,
            self.bridge.other(id),
            fork,
            method,
            purpose,
            Some(message),
            |_| {},
        );
        match sent {
            Some(pending) => (pending.renewal, pending.target) = (renewal, target),
            None => {
                self.bridge.legs.fail_successor(server);
                cx.respond(server, 503, None, |_| {}, b"");
            }
        }
    }

    fn accept_refresh(&mut self, cx: &mut Cx<'_>, id: LegId, server: ServerTx) {
        let methods = self.bridge.methods(id);
        let timer = self.bridge.legs.session_timer(id);
        let Some(leg) = self.bridge.legs.sip_mut(id) else {
            return;
        };
        let contact = cx.contact(&leg.flow, leg.is_sips);
        let write = |head: &mut Head<'_>| {
            own_lines(head, &contact, methods);
            if let Some(timer) = &timer {
                timer.response_lines(head);
            }
        };
        cx.respond(server, 200, None, write, b"");
    }

    /// Returns whether an offer from `side` may begin now; otherwise refuses it.
    fn may_offer(&mut self, cx: &mut Cx<'_>, id: LegId, fork: u8, server: ServerTx) -> bool {
        let Some(status) = self.untimely(id, fork) else {
            return true;
        };
        refuse_for_now(cx, server, status);
        false
    }

    /// Returns the status that refuses an offer from `side` now; `None` if it may begin.
    fn untimely(&self, id: LegId, fork: u8) -> Option<u16> {
        let first = self.first_offerer(fork).map(Exchange::Offered);
        let joining = self.join_phase();
        first
            .unwrap_or_else(|| self.bridge.exchange(joining))
            .refusal(id)
    }

    /// Returns the side whose offer, the call's first in that fork, is unanswered.
    fn first_offerer(&self, fork: u8) -> Option<LegId> {
        match self.bridge.incoming() {
            Some(incoming) if incoming.relay.is_agreed(fork) => None,
            Some(incoming) if has_sdp(incoming.invite()) => Some(self.bridge.trunk_id()),
            Some(_) => Some(self.bridge.agent_id()),
            // The runtime is offered the callee's SDP.
            None => {
                let offers = self.bridge.dialing().is_some_and(Dialing::is_runtime);
                offers.then_some(self.bridge.trunk_id())
            }
        }
    }

    /// Returns the session interval that a refresh requests; `None` if it was refused as too brief or unreadable. Before the call is answered there
    /// is no session to refresh.
    fn asked_session(
        &mut self,
        cx: &mut Cx<'_>,
        server: ServerTx,
        message: &Message<'_>,
    ) -> Option<Option<SessionTimer>> {
        if self.bridge.status() == CallStatus::SettingUp {
            return Some(None);
        }

        let (min_se, ours) = (cx.core.config.min_se, cx.core.config.session_expires);
        match SessionTimer::for_uas(message, min_se, ours) {
            Ok(session) => Some(session),
            Err(Unacceptable::TooBrief { min_se }) => {
                let least = |head: &mut Head<'_>| head.number("Min-SE", u64::from(min_se));
                cx.respond(server, 422, None, least, b"");
                None
            }
            Err(Unacceptable::Unreadable) => {
                cx.respond(server, 400, None, |_| {}, b"");
                None
            }
        }
    }

    /// Handles the final answer to a relayed re-INVITE.
    pub(crate) fn on_reinvite_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        let RequestOrigin::Relayed { cseq: asked, .. } = pending.origin else {
            return;
        };

        if message.status() >= 300 {
            self.bridge.legs.fail_successor(server);
            self.relay_answer(cx, pending, server, message);
            return self.mind_gone(cx, pending.leg, message);
        }
        if let Some(leg) = self.bridge.legs.sip_mut(pending.leg) {
            leg.flow = flow;
        }

        if let Some(mut leg) = self.bridge.at(pending.leg) {
            leg.note_refresh(cx, pending, message);
        }
        self.hear(pending.leg, message);

        let is_delayed = !pending.had_sdp && has_sdp(message);
        let delayed = is_delayed.then(|| pending.delayed(sdp_of(message.body())));
        if let (None, Some(leg)) = (&delayed, self.bridge.legs.get_mut(pending.leg)) {
            leg.send_ack(cx, &pending.ack());
        }
        self.succeed(cx, server);

        let requester = self.bridge.other(pending.leg);
        self.move_target(requester, pending);
        if self.bridge.is_trunk(requester) && self.arriving().is_none() {
            // The callee's own re-INVITE has brought it the runtime's media.
            self.join_by_change(cx);
        }
        if let Some(mut leg) = self.bridge.at(requester) {
            leg.take_renewal(cx, pending.renewal);
        }

        let prefix = cx.core.config.header_prefix.clone();
        let crossing = self.crossing(pending.leg, Place::Response, &prefix);
        let crosses = crossing.body(message);
        let body = &*self.hold.crossing_sdp(&crosses);
        self.remember_sdp(requester, pending.fork, body);

        let more = |head: &mut Head<'_>| crossing.copy(head, message);
        self.accept_reinvite(cx, requester, (server, asked), body, delayed, more);
    }

    /// Updates a requester's target to the Contact of its change, which was accepted.
    pub(crate) fn move_target(&mut self, requester: LegId, pending: &Pending) {
        let dialog = self
            .bridge
            .legs
            .sip_mut(requester)
            .and_then(|leg| leg.dialog(pending.fork));
        if let Some((dialog, target)) = dialog.zip(pending.target.as_deref()) {
            dialog.move_to(target);
        }
    }

    /// Sends 200 to a re-INVITE and awaits its ACK.
    pub(crate) fn accept_reinvite(
        &mut self,
        cx: &mut Cx<'_>,
        requester: LegId,
        (server, cseq): (ServerTx, u32),
        body: &[u8],
        delayed: Option<Delayed>,
        more: impl FnOnce(&mut Head<'_>),
    ) {
        let body = &*self.bridge.legs.with_origin(requester, body);
        self.hear_proposed(requester);

        let methods = self.bridge.methods(requester);
        let timer = self.bridge.legs.session_timer(requester);
        let Some(leg) = self.bridge.legs.sip_mut(requester) else {
            return;
        };

        let contact = cx.contact(&leg.flow, leg.is_sips);
        let write = |head: &mut Head<'_>| {
            own_lines(head, &contact, methods);
            if let Some(timer) = &timer {
                timer.response_lines(head);
            }
            more(head);
        };

        cx.respond(server, 200, None, write, body);
        if let Some(session) = self.bridge.legs.session_mut(requester) {
            session.await_ack(AwaitedAck {
                cseq,
                server,
                delayed,
            });
        }
    }

    /// Handles the ACK to a 2xx of ours.
    pub(crate) fn on_ack(&mut self, cx: &mut Cx<'_>, id: LegId, message: &Message<'_>) {
        let cseq = message.cseq().number;
        let session = self.bridge.legs.session_mut(id);
        let Some(ack) = session.and_then(|session| session.take_acknowledged(cseq)) else {
            return;
        };

        cx.endpoint.acknowledged(ack.server);
        self.bridge.legs.hear(id, cx.now);
        self.hear(id, message);
        match ack.delayed {
            Some(delayed) if has_sdp(message) => {
                let mut lines = Vec::new();
                let prefix = cx.core.config.header_prefix.clone();
                let crossing = self.crossing(id, Place::InDialog, &prefix);
                crossing.copy(&mut Head::new(&mut lines), message);
                let crosses = crossing.body(message);
                let body = &*self.hold.crossing_sdp(&crosses);
                let other = self.bridge.other(id);
                self.remember_sdp(other, delayed.fork, body);
                let ack = Ack {
                    lines: &lines,
                    body,
                    ..delayed.ack()
                };
                if let Some(leg) = self.bridge.legs.get_mut(other) {
                    leg.send_ack(cx, &ack);
                }
            }
            // Without an answer the call has no media (RFC 3261 §13.2.2.4).
            Some(delayed) => {
                let other = self.bridge.other(id);
                if let Some(leg) = self.bridge.legs.get_mut(other) {
                    leg.reject_offer(cx, &delayed);
                }
                self.confirmed(cx, id, ack.server);
                return self.hang_up(cx, Reason::NoCommonMedia);
            }
            None => self.local_acknowledged(cx, message),
        }

        self.confirmed(cx, id, ack.server);
    }

    /// Continues what has waited for the ACK of the leg's first INVITE, if this was that ACK.
    fn confirmed(&mut self, cx: &mut Cx<'_>, id: LegId, server: ServerTx) {
        let Some(leg) = self.bridge.legs.get_mut(id) else {
            return;
        };
        let session = leg.session_mut();
        if !session.is_some_and(|session| session.confirm(server)) {
            return;
        }
        if let Some(content) = leg.take_owed_bye() {
            return self.bridge.send_bye(cx, id, content);
        }
        if self.bridge.is_trunk(id) {
            self.start_bot(cx);
            self.transfer_may_begin(cx);
        }
    }

    /// Cancels a re-INVITE that has had no final answer in time; its answer then goes to the requester.
    pub(crate) fn on_exchange_late(&mut self, cx: &mut Cx<'_>) {
        self.bridge.requests.on_exchange_late(cx);
        self.give_up_successor(cx, 408);
    }
}

/// Refuses an offer that can't begin now; a 500 gets a random Retry-After from 0 to 10 s (RFC 3261 §14.2, RFC 3311 §5.2).
fn refuse_for_now(cx: &mut Cx<'_>, server: ServerTx, status: u16) {
    let seconds = cx.endpoint.chance().bits64() % 11;
    let later = |head: &mut Head<'_>| {
        if status == 500 {
            head.number("Retry-After", seconds);
        }
    };
    cx.respond(server, status, None, later, b"");
}
