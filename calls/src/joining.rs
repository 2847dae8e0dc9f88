//! Both ends of a call get each other's media: gives the state machine (`join`) its inputs, and carries out its steps.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::bridge::CallStatus;
use super::bye::ByeContent;
use super::call::Call;
use super::context::Cx;
use super::ids::LegId;
use super::invite_client::Accepted;
use super::join::{Join, JoinPhase, Progress};
use super::leg::{Ack, Delayed, ForkDialog, LegState, Lost, NewRequest, Session};
use super::own_request::{Pending, Purpose, QueuedRequest, Round};
use super::refusal::Reason;
use super::reply::{PAUSE, Reply};
use super::transfer::Event;
use super::{has_sdp, sdp_of};

/// `Reason` of the two re-INVITEs of the last round, by which the trace recognises them.
pub const UNSETTLED: &str = "Both ends answer with another SDP each time";

impl Call {
    /// Progress of a join, as other requests see it.
    pub(crate) fn join_phase(&self) -> JoinPhase {
        self.joining.as_deref().map_or(JoinPhase::Idle, Join::phase)
    }

    /// Returns whether this is the transaction of a 2xx whose ACK waits for the other's answer.
    pub(crate) fn asks_by(&self, client: ClientTx) -> bool {
        let delayed = self.joining.as_deref().and_then(Join::delayed);
        delayed.is_some_and(|delayed| delayed.client == client)
    }

    /// The destination that replaces the agent and isn't connected with the caller yet.
    pub(crate) fn arriving(&self) -> Option<LegId> {
        self.joining.as_deref()?.destination()
    }

    /// Hangs up on a destination that won't replace the agent, and abandons the caller's re-INVITE for it.
    pub(crate) fn send_away(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(destination) = self.arriving() else {
            return false;
        };
        self.leave_destination(cx, destination);
        true
    }

    fn leave_destination(&mut self, cx: &mut Cx<'_>, destination: LegId) {
        self.joining = None;
        self.bridge.requests.withdraw(QueuedRequest::Join);
        self.bridge
            .requests
            .withdraw(QueuedRequest::Refresh(destination));
        self.bridge.requests.cancel_join(cx);
        self.bridge.legs.stop_timers(cx, destination);
        self.bridge.send_bye(cx, destination, ByeContent::default());
        self.forget_left(destination);
    }

    /// Handles BYE from a leg that isn't connected with another.
    pub(crate) fn on_apart_bye(&mut self, cx: &mut Cx<'_>, id: LegId) {
        self.bridge.legs.stop_timers(cx, id);
        self.bridge.legs.set_state(id, LegState::Gone);
        if let Some(peer) = self.bridge.legs.sip_mut(id) {
            peer.dialogs.clear();
        }
        if self.arriving() == Some(id) && self.send_away(cx) {
            self.on_transfer(cx, Event::DestinationRefused(487));
        }
    }

    /// Ends a leg whose peer is gone, and the call with it if the leg is one of the two connected ones.
    pub(crate) fn lose_leg(&mut self, cx: &mut Cx<'_>, id: LegId, lost: Lost) {
        if !self.bridge.has_left(id) {
            return self.hang_up(cx, lost.reason);
        }
        if self.arriving() == Some(id) && self.send_away(cx) {
            self.on_transfer(cx, Event::DestinationRefused(lost.status));
        }
    }

    /// The same, if it is.
    pub(crate) fn mind_lost(&mut self, cx: &mut Cx<'_>, id: LegId, lost: Option<Lost>) {
        if let Some(lost) = lost {
            self.lose_leg(cx, id, lost);
        }
    }

    /// Ends pending joins with the call: BYE to a destination that isn't connected, and an answer with port 0 to an open offer.
    pub(crate) fn abandon_joining(&mut self, cx: &mut Cx<'_>) {
        if self.send_away(cx) {
            return;
        }
        let join = self.joining.take();
        if let Some(delayed) = join.and_then(|join| join.abandon()) {
            let other = self.bridge.trunk_id();
            if let Some(leg) = self.bridge.legs.get_mut(other) {
                leg.reject_offer(cx, &delayed);
            }
        }
    }

    /// Offers the callee the SDP of the runtime's answer.
    pub(crate) fn on_runtime_joins(&mut self, cx: &mut Cx<'_>, accepted: Accepted<'_>) {
        let message = accepted.message;
        let sdp: Option<Box<[u8]>> = accepted.sdp().map(Into::into);
        let heard = self.joining.as_deref().map(Join::heard);
        let heard: Box<[u8]> = heard.unwrap_or_default().into();
        if let Some(leg) = self.bridge.agent_mut() {
            leg.dialogs
                .push(ForkDialog::new(0, accepted.dialog, Some((&*heard).into())));
            leg.credentials = accepted.credentials;
        }

        let (trunk, agent) = (self.bridge.trunk_id(), self.bridge.agent_id());
        self.bridge
            .legs
            .set_state(agent, LegState::Ready(Session::default()));
        let agent = self.bridge.agent_id();
        if let Some(mut leg) = self.bridge.at(agent) {
            leg.open(cx, accepted.flow, message);
        }

        let ack = Ack {
            client: accepted.client,
            fork: 0,
            cseq: accepted.cseq,
            lines: &accepted.ack_lines,
            body: b"",
        };
        if let Some(leg) = self.bridge.legs.get_mut(agent) {
            leg.send_ack(cx, &ack);
        }
        self.bridge.legs.connect(trunk, agent);
        self.limit_duration(cx);
        if let Some(mut leg) = self.bridge.at(self.bridge.agent_id()) {
            leg.start_session(cx);
        }
        cx.core.fact(Fact::Joined {
            call: self.id,
            org: self.org,
            runtime_call_id: String::from_utf8_lossy(message.call_id()).into(),
        });

        self.bridge.legs.with_origin(self.bridge.agent_id(), &heard);
        match sdp {
            Some(sdp) => self.join(cx, &sdp),
            None => self.hang_up(cx, Reason::NoCommonMedia),
        }
    }

    /// Offers the caller `sdp` of the agent's side.
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, sdp: &[u8]) {
        if let Some(join) = self.joining.as_deref_mut() {
            let progress = join.begin(sdp, cx.now);
            self.go_on_joining(cx, progress, None);
        }
    }

    /// Carries out the machine's step. `answer`: the SDP of the 2xx that led to it.
    fn go_on_joining(
        &mut self,
        cx: &mut Cx<'_>,
        progress: Progress<Delayed>,
        answer: Option<&[u8]>,
    ) {
        match progress {
            Progress::Nothing => {}
            Progress::Ask(_) => self.join_later(cx, Duration::ZERO),
            Progress::Joined { arrived, asks } => {
                self.connect_media(cx, arrived);
                if let Some(answer) = answer {
                    self.held.take_answer(answer);
                    self.bridge.set_heard(answer);
                }
                match asks {
                    Some(_) => self.join_later(cx, Duration::ZERO),
                    None => self.joining = None,
                }
            }
            Progress::Acknowledge { delayed, answer } => {
                self.joining = None;
                self.acknowledge_offer(cx, &delayed, &answer);
            }
            Progress::Reject(delayed) => {
                let trunk = self.bridge.trunk_id();
                if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                    leg.reject_offer(cx, &delayed);
                }
            }
            Progress::SendAway {
                destination,
                status,
            } => {
                self.leave_destination(cx, destination);
                self.on_transfer(cx, Event::DestinationRefused(status));
            }
            Progress::Refused(reason) => self.hang_up(cx, reason),
            Progress::Settled => self.joining = None,
        }
    }

    /// Closes our own media: both ends have each other's.
    fn connect_media(&mut self, cx: &mut Cx<'_>, arrived: Option<LegId>) {
        self.bridge.requests.withdraw(QueuedRequest::Join);
        if let Some(destination) = arrived {
            self.hand_over(cx, destination);
        }

        let outbound = self.outbound.as_deref_mut();
        if outbound
            .and_then(|outbound| outbound.media.take())
            .is_some()
        {
            cx.core.effects.push_back(self.closed_media());
        }
    }

    /// Completes the join by a change of the caller that was accepted.
    pub(crate) fn join_by_change(&mut self, cx: &mut Cx<'_>) {
        let progress = match self.joining.as_deref_mut() {
            Some(join) => join.crossed(),
            None => Progress::Nothing,
        };
        self.go_on_joining(cx, progress, None);
    }

    fn join_later(&mut self, cx: &mut Cx<'_>, wait: Duration) {
        if let Some(join) = self.joining.as_deref() {
            let until = join.until();
            self.bridge
                .requests
                .ask(cx, QueuedRequest::Join, wait, Some(until));
        }
    }

    /// Sends the next re-INVITE.
    pub(crate) fn send_join(&mut self, cx: &mut Cx<'_>) {
        let due = self.joining.as_deref().and_then(Join::due);
        let (Some((round, sdp)), Some(fork)) = (due, self.bridge.fork()) else {
            return;
        };
        let body = sdp.to_vec();
        let id = match round {
            Round::Join | Round::AskOffer => self.bridge.trunk_id(),
            Round::Follow | Round::AnswerOffer => self.bridge.agent_id(),
        };

        let lines = |head: &mut Head<'_>| {
            if matches!(round, Round::AskOffer | Round::AnswerOffer) {
                head.fmt("Reason", format_args!("SIP;cause=200;text=\"{UNSETTLED}\""));
            }
            if !body.is_empty() {
                head.line("Content-Type", b"application/sdp");
            }
        };

        let invite = NewRequest::offer(fork, Purpose::Join(round), &body);
        if self.bridge.send(cx, id, &invite, lines).is_none() {
            self.join_later(cx, PAUSE);
        }
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn join_is_late(&mut self, cx: &mut Cx<'_>) {
        let due = self.joining.as_deref().and_then(Join::due);
        if let Some((round, _)) = due {
            self.give_up_joining(cx, round, (Reason::JoinRefused, 408));
        }
    }

    /// Handles the refusal of a re-INVITE.
    fn give_up_joining(&mut self, cx: &mut Cx<'_>, round: Round, why: (Reason, u16)) {
        let progress = match self.joining.as_deref_mut() {
            Some(join) => join.refused(round, why),
            None => Progress::Nothing,
        };
        self.go_on_joining(cx, progress, None);
    }

    fn acknowledge_offer(&mut self, cx: &mut Cx<'_>, delayed: &Delayed, answer: &[u8]) {
        let trunk = self.bridge.trunk_id();
        self.bridge.legs.remember_sdp(trunk, delayed.fork, answer);
        if let Some(leg) = self.bridge.legs.get_mut(trunk) {
            leg.send_ack(cx, &delayed.ack().answering(answer));
        }
        self.held.take_offer(&delayed.offer);
        self.bridge.set_heard(&delayed.offer);
    }

    /// Handles the final answer to a re-INVITE that joins the two.
    pub(crate) fn on_join_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        round: Round,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let sdp = has_sdp(message).then(|| sdp_of(message.body()));
        let offer = sdp.filter(|_| round == Round::AskOffer && message.status() < 300);
        if let Some(offer) = offer {
            return self.take_asked_offer(cx, flow, pending, message, offer);
        }

        let reply = self.reply_to(cx, pending, message);
        if reply != Reply::Accepted {
            return self.join_unaccepted(cx, round, reply);
        }
        if let Some(mut leg) = self.bridge.at(pending.leg) {
            leg.take_accepted(cx, flow, pending, message);
        }
        let progress = match self.joining.as_deref_mut() {
            Some(join) => join.accepted(round, sdp, cx.now),
            None => Progress::Nothing,
        };
        self.go_on_joining(cx, progress, sdp);
    }

    /// Keeps the caller's 2xx with the requested offer; it is acknowledged once the other side has answered.
    fn take_asked_offer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
        offer: &[u8],
    ) {
        if let Some(trunk) = self.bridge.trunk_mut() {
            trunk.flow = flow;
        }
        if let Some(mut leg) = self.bridge.at(pending.leg) {
            leg.note_refresh(cx, pending, message);
        }

        let delayed = pending.delayed(offer);
        let progress = match self.joining.as_deref_mut() {
            Some(join) => join.offered(delayed, offer, cx.now),
            None => Progress::Reject(delayed),
        };
        self.go_on_joining(cx, progress, None);
    }

    /// Handles a re-INVITE without an answer.
    pub(crate) fn on_join_unanswered(
        &mut self,
        cx: &mut Cx<'_>,
        round: Round,
        pending: &Pending,
        status: u16,
    ) {
        let reply = self.reply_of_none(cx, pending, status);
        if matches!(reply, Reply::Refused(_)) {
            // Another flow to the peer may exist soon, and without this re-INVITE there is no call.
            return self.join_later(cx, PAUSE);
        }
        self.join_unaccepted(cx, round, reply);
    }

    fn join_unaccepted(&mut self, cx: &mut Cx<'_>, round: Round, reply: Reply) {
        match reply {
            Reply::Again(wait) => self.join_later(cx, wait),
            Reply::Unheard if self.bridge.status() == CallStatus::Over => {}
            Reply::Unheard => self.give_up_joining(cx, round, (Reason::DialogGone, 408)),
            Reply::Refused(status) => {
                self.give_up_joining(cx, round, (Reason::JoinRefused, status));
            }
            Reply::Accepted | Reply::TooBrief | Reply::Gone => {}
        }
    }
}
