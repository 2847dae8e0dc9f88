//! Re-INVITE and UPDATE: one offer/answer exchange at a time crosses the bridge (RFC 3261 §14, RFC 3311). Also the ACK of every 2xx, with the SDP
//! answer of a delayed offer.

use trunkline_sip::dialog::sdp;
use trunkline_sip::dialog::session_timer::{SessionTimer, Unacceptable};
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::allow::own_lines;
use super::call::{Call, CallStatus};
use super::context::Cx;
use super::crossing::Place;
use super::dial::Dialing;
use super::exchange::Exchange;
use super::ids::LegId;
use super::leg::{AwaitedAck, Delayed};
use super::own_request::{Pending, Purpose};
use super::refusal::Reason;
use super::request_origin::RequestOrigin;
use super::unanswered::reasons;
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
        self.theirs = Some(server);
        if self.status() == CallStatus::SettingUp {
            // RFC 3261 §14.2: 500 while the caller's own first INVITE has no final answer, 491 while ours hasn't.
            let status = match self.is_trunk(id) && self.outbound.is_none() {
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
        if self.is_local() {
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
            if let Some(dialog) = self.leg(id).and_then(|leg| leg.dialog(fork)) {
                dialog.refresh_target(message);
            }
            self.take_renewal(cx, id, renewal);
            return self.accept_refresh(cx, id, server);
        }

        self.note_proposal(id, message);
        if self.is_local() {
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
        if self.is_trunk(id) && self.has_agent_left() {
            // The destination's own exchange comes first; the caller may retry after it.
            return refuse_for_now(cx, server, 491);
        }

        // The peer moves its media to an IP family that the other side lacks, by the last SDP that this peer got. A side with both families shows
        // that in its SDP (RFC 6157 §4).
        let theirs = self.legs.sip(id).and_then(|peer| peer.told(fork));
        let moves_apart = |theirs: &[u8]| families::differ(sdp_of(message.body()), theirs);
        if has_sdp(message) && theirs.is_some_and(moves_apart) {
            self.legs.fail_successor(server);
            let why = Reason::MediaFamilies;
            let lines = |head: &mut Head<'_>| refusal_lines(head, why);
            return cx.respond(server, why.status(), None, lines, b"");
        }
        self.hold.disturb();

        let (method, purpose) = (message.method(), Purpose::Relay(server));
        let dialog = self.leg(id).and_then(|leg| leg.dialog_ref(fork));
        let target = dialog.and_then(|dialog| dialog.moves_to(message));
        let target = target.map(Box::from);
        let sent = self.send_in_dialog(
            cx,
            self.other(id),
            fork,
            (method, method.as_str()),
            purpose,
            Some(message),
            |_| {},
        );
        match self.pending.last_mut().filter(|_| sent) {
            Some(pending) => (pending.renewal, pending.target) = (renewal, target),
            None => {
                self.legs.fail_successor(server);
                cx.respond(server, 503, None, |_| {}, b"");
            }
        }
    }

    fn accept_refresh(&mut self, cx: &mut Cx<'_>, id: LegId, server: ServerTx) {
        let methods = self.methods(id);
        let timer = self.legs.session_timer(id);
        let Some(leg) = self.leg(id) else { return };
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
        first.unwrap_or_else(|| self.exchange()).refusal(id)
    }

    /// Returns the side whose offer, the call's first in that fork, is unanswered.
    fn first_offerer(&self, fork: u8) -> Option<LegId> {
        match self.incoming() {
            Some(incoming) if incoming.relay.is_agreed(fork) => None,
            Some(incoming) if has_sdp(incoming.invite()) => Some(self.trunk_id()),
            Some(_) => Some(self.agent_id()),
            // The runtime is offered the callee's SDP.
            None => {
                let offers = self.dialing().is_some_and(Dialing::is_runtime);
                offers.then_some(self.trunk_id())
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
        if self.status() == CallStatus::SettingUp {
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

    /// Restarts the peer's session after its refresh was accepted.
    pub(crate) fn take_renewal(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        renewal: Option<SessionTimer>,
    ) {
        if self.status() == CallStatus::SettingUp {
            return;
        }
        if let Some(session) = self.legs.session_mut(id) {
            session.timer = renewal;
        }
        self.start_session(cx, id);
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
            self.legs.fail_successor(server);
            self.relay_answer(cx, pending, server, message);
            return self.mind_gone(cx, pending.leg, message);
        }
        if let Some(leg) = self.leg(pending.leg) {
            leg.flow = flow;
        }

        self.note_refresh(cx, pending, message);
        self.hear(pending.leg, message);

        let delayed = (!pending.had_sdp && has_sdp(message)).then(|| Delayed {
            client: pending.client,
            fork: pending.fork,
            cseq: pending.cseq,
            offer: sdp_of(message.body()).into(),
        });
        if delayed.is_none() {
            self.send_ack(
                cx,
                pending.leg,
                pending.fork,
                pending.client,
                pending.cseq,
                None,
            );
        }
        self.succeed(cx, server);

        let requester = self.other(pending.leg);
        self.move_target(requester, pending);
        if self.is_trunk(requester) && self.arriving().is_none() {
            // The callee's own re-INVITE has brought it the runtime's media.
            self.join_by_change(cx);
        }
        self.take_renewal(cx, requester, pending.renewal);

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
        let dialog = self.leg(requester).and_then(|leg| leg.dialog(pending.fork));
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
        let body = &*self.legs.with_origin(requester, body);
        self.hear_proposed(requester);

        let methods = self.methods(requester);
        let timer = self.legs.session_timer(requester);
        let Some(leg) = self.leg(requester) else {
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
        if let Some(session) = self.legs.session_mut(requester) {
            session.await_ack(AwaitedAck {
                cseq,
                server,
                delayed,
            });
        }
    }

    /// Takes target and session of a leg from a 2xx to our re-INVITE or UPDATE. Other 2xx affect neither (RFC 3261 §12.2, RFC 4028 §7.2).
    pub(crate) fn note_refresh(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if !matches!(pending.method, Method::Invite | Method::Update) {
            return;
        }
        let asked = cx.core.config.session_expires;
        let early = self.status() == CallStatus::SettingUp;
        let before = self.legs.session_timer(pending.leg);
        let asked = before.map(|timer| timer.asked(asked));
        let peer = self.leg(pending.leg);
        if let Some(dialog) = peer.and_then(|peer| peer.dialog(pending.fork)) {
            dialog.refresh_target(message);
        }
        if let Some(sdp) = &pending.sdp {
            self.remember_sdp(pending.leg, pending.fork, sdp);
        }
        if early {
            return;
        }

        let agreed = SessionTimer::for_uac(message, asked);
        if let Some(session) = self.legs.session_mut(pending.leg) {
            session.timer =
                agreed.map(|agreed| before.map_or(agreed, |before| agreed.after(&before)));
        }
        self.start_session(cx, pending.leg);
    }

    /// Acknowledges the 2xx to our own re-INVITE or UPDATE, and takes flow and refresh from it.
    pub(crate) fn take_accepted(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let (id, fork) = (pending.leg, pending.fork);
        if let Some(leg) = self.leg(id) {
            leg.flow = flow;
        }
        if pending.method == Method::Invite {
            self.send_ack(cx, id, fork, pending.client, pending.cseq, None);
        }
        self.note_refresh(cx, pending, message);
    }

    /// Handles the ACK to a 2xx of ours.
    pub(crate) fn on_ack(&mut self, cx: &mut Cx<'_>, id: LegId, message: &Message<'_>) {
        let cseq = message.cseq().number;
        let session = self.legs.session_mut(id);
        let Some(ack) = session.and_then(|session| session.take_acknowledged(cseq)) else {
            return;
        };

        cx.endpoint.acknowledged(ack.server);
        self.legs.hear(id, cx.now);
        self.hear(id, message);
        match ack.delayed {
            Some(delayed) if has_sdp(message) => {
                let mut lines = Vec::new();
                let prefix = cx.core.config.header_prefix.clone();
                let crossing = self.crossing(id, Place::InDialog, &prefix);
                crossing.copy(&mut Head::new(&mut lines), message);
                let crosses = crossing.body(message);
                let body = &*self.hold.crossing_sdp(&crosses);
                self.remember_sdp(self.other(id), delayed.fork, body);
                let content = Some((&lines[..], body));
                self.send_ack(
                    cx,
                    self.other(id),
                    delayed.fork,
                    delayed.client,
                    delayed.cseq,
                    content,
                );
            }
            // Without an answer the call has no media (RFC 3261 §13.2.2.4).
            Some(delayed) => {
                self.reject_offer(cx, self.other(id), &delayed);
                self.confirmed(cx, id, ack.server);
                return self.hang_up(cx, Reason::NoCommonMedia);
            }
            None => self.local_acknowledged(cx, message),
        }

        self.confirmed(cx, id, ack.server);
    }

    /// Continues what has waited for the ACK of the leg's first INVITE, if this was that ACK.
    fn confirmed(&mut self, cx: &mut Cx<'_>, id: LegId, server: ServerTx) {
        let Some(leg) = self.legs.get_mut(id) else {
            return;
        };
        let session = leg.session_mut();
        if !session.is_some_and(|session| session.confirm(server)) {
            return;
        }
        if let Some(content) = leg.take_owed_bye() {
            return self.send_bye(cx, id, content);
        }
        if self.is_trunk(id) {
            self.start_bot(cx);
            self.transfer_may_begin(cx);
        }
    }

    /// Sends an ACK with all ports 0: it answers an offer that nobody else will answer.
    pub(crate) fn reject_offer(&mut self, cx: &mut Cx<'_>, id: LegId, delayed: &Delayed) {
        let Some(leg) = self.leg(id) else { return };
        let body = sdp::reject(&delayed.offer, leg.flow.local);
        let content = Some((&b"Content-Type: application/sdp\r\n"[..], &body[..]));
        self.send_ack(cx, id, delayed.fork, delayed.client, delayed.cseq, content);
    }

    /// Handles the answer to an obsolete re-INVITE: acknowledges a 2xx, and rejects an offer in it.
    pub(crate) fn settle_late(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let (id, fork, client, cseq) = (pending.leg, pending.fork, pending.client, pending.cseq);
        if message.status() >= 300 {
            return;
        }
        if pending.had_sdp || !has_sdp(message) {
            return self.send_ack(cx, id, fork, client, cseq, None);
        }
        let offer = sdp_of(message.body()).into();
        let delayed = Delayed {
            client,
            fork,
            cseq,
            offer,
        };
        self.reject_offer(cx, id, &delayed);
    }

    /// Cancels a re-INVITE that has had no final answer in time; its answer then goes to the requester.
    pub(crate) fn on_exchange_late(&mut self, cx: &mut Cx<'_>) {
        self.exchange = None;
        for pending in &self.pending {
            if pending.method == Method::Invite {
                cx.endpoint.cancel(pending.client, b"", cx.now);
            }
        }
        self.give_up_successor(cx, 408);
    }

    pub(crate) fn end_exchange(&mut self, cx: &mut Cx<'_>, pending: &Pending) {
        if pending.method == Method::Invite {
            cx.cancel_timer(&mut self.exchange);
        }
    }

    /// Cancels a relayed re-INVITE whose requester has sent CANCEL.
    pub(crate) fn cancel_reinvite(
        &mut self,
        cx: &mut Cx<'_>,
        invite: ServerTx,
        message: &Message<'_>,
    ) {
        let relayed = self
            .pending
            .iter()
            .find(|pending| pending.purpose == Purpose::Relay(invite));
        let Some(client) = relayed.map(|pending| pending.client) else {
            return;
        };
        let mut lines = Vec::new();
        reasons(&mut Head::new(&mut lines), message);
        cx.endpoint.cancel(client, &lines, cx.now);
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
