//! Both ends of a call get each other's media: gives the state machine (`join`) its inputs, and carries out its steps. `Joining` works on the
//! bridge alone; where a step ends a leg, the transfer or the call, `Call` carries it out.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::bridge::{Bridge, CallStatus};
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

/// Exchange of media between both ends of a call by us, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Joining(Option<Box<Join<Delayed>>>);

impl Joining {
    /// Waits for the answer of the agent's side, with what it was offered.
    pub(crate) fn wait_with(&mut self, join: Join<Delayed>) {
        self.0 = Some(Box::new(join));
    }

    /// Forgets it: both ends have each other's media, or keep what they have.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    /// Takes the caller's open offer at the end of the call, to reject it.
    fn abandon(&mut self) -> Option<Delayed> {
        self.0.take()?.abandon()
    }

    /// Its progress, as other requests see it.
    pub(crate) fn phase(&self) -> JoinPhase {
        self.0.as_deref().map_or(JoinPhase::Idle, Join::phase)
    }

    /// Returns whether this is the transaction of a 2xx whose ACK waits for the other's answer.
    pub(crate) fn waits_by(&self, client: ClientTx) -> bool {
        let delayed = self.0.as_deref().and_then(Join::delayed);
        delayed.is_some_and(|delayed| delayed.client == client)
    }

    /// The destination that replaces the agent and isn't connected with the caller yet.
    pub(crate) fn arriving(&self) -> Option<LegId> {
        self.0.as_deref()?.destination()
    }

    /// The caller's SDP as the agent's side knows it.
    pub(crate) fn heard(&self) -> Option<&[u8]> {
        self.0.as_deref().map(Join::heard)
    }

    /// The agent's side has answered with that SDP, which the caller is to get.
    pub(crate) fn begin(&mut self, sdp: &[u8], now: Moment) -> Progress<Delayed> {
        self.step(|join| join.begin(sdp, now))
    }

    /// A change of the caller was accepted, which gives both each other's media.
    pub(crate) fn on_crossed(&mut self) -> Progress<Delayed> {
        self.step(Join::crossed)
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn on_late(&mut self) -> Progress<Delayed> {
        let why = (Reason::JoinRefused, 408);
        self.step(|join| match join.due().map(|(round, _)| round) {
            Some(round) => join.refused(round, why),
            None => Progress::Nothing,
        })
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Join<Delayed>) -> Progress<Delayed>,
    ) -> Progress<Delayed> {
        self.0.as_deref_mut().map_or(Progress::Nothing, step)
    }

    /// Queues the next re-INVITE.
    fn later(&self, bridge: &mut Bridge, cx: &Cx<'_>, wait: Duration) {
        if let Some(join) = self.0.as_deref() {
            let until = Some(join.until());
            bridge.requests.ask(cx, QueuedRequest::Join, wait, until);
        }
    }

    /// Sends the next re-INVITE.
    pub(crate) fn send(&self, bridge: &mut Bridge, cx: &mut Cx<'_>) {
        let due = self.0.as_deref().and_then(Join::due);
        let (Some((round, sdp)), Some(fork)) = (due, bridge.fork()) else {
            return;
        };
        let id = match round {
            Round::Join | Round::AskOffer => bridge.trunk_id(),
            Round::Follow | Round::AnswerOffer => bridge.agent_id(),
        };

        let lines = |head: &mut Head<'_>| {
            if matches!(round, Round::AskOffer | Round::AnswerOffer) {
                head.fmt("Reason", format_args!("SIP;cause=200;text=\"{UNSETTLED}\""));
            }
            if !sdp.is_empty() {
                head.line("Content-Type", b"application/sdp");
            }
        };

        let invite = NewRequest::offer(fork, Purpose::Join(round), sdp);
        if bridge.send(cx, id, &invite, lines).is_none() {
            self.later(bridge, cx, PAUSE);
        }
    }

    /// Handles the final answer to a re-INVITE that joins the two.
    ///
    /// # Errors
    /// The peer is gone.
    pub(crate) fn on_answer(
        &mut self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) -> Result<Progress<Delayed>, Lost> {
        let (Purpose::Join(round), Some(mut leg)) = (pending.purpose, bridge.at(pending.leg))
        else {
            return Ok(Progress::Nothing);
        };
        let sdp = has_sdp(message).then(|| sdp_of(message.body()));
        if let Some(offer) = sdp
            && round == Round::AskOffer
            && message.status() < 300
        {
            // The caller's 2xx is acknowledged once the other side has answered its offer.
            if let Some(peer) = leg.leg.sip_mut() {
                peer.flow = flow;
            }
            leg.note_refresh(cx, pending, message);
            let delayed = pending.delayed(offer);
            return Ok(match self.0.as_deref_mut() {
                Some(join) => join.offered(delayed, offer, cx.now),
                None => Progress::Reject(delayed),
            });
        }

        let (reply, lost) = leg.reply_to(cx, pending, message);
        if let Some(lost) = lost {
            return Err(lost);
        }
        if reply != Reply::Accepted {
            return Ok(self.unaccepted(bridge, cx, round, reply));
        }
        leg.take_accepted(cx, flow, pending, message);
        Ok(self.step(|join| join.accepted(round, sdp, cx.now)))
    }

    /// Handles a re-INVITE without an answer.
    ///
    /// # Errors
    /// The peer is gone.
    pub(crate) fn on_unanswered(
        &mut self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        pending: &Pending,
        status: u16,
    ) -> Result<Progress<Delayed>, Lost> {
        let (Purpose::Join(round), Some(mut leg)) = (pending.purpose, bridge.at(pending.leg))
        else {
            return Ok(Progress::Nothing);
        };
        let (reply, lost) = leg.reply_of_none(cx, pending, status);
        if let Some(lost) = lost {
            return Err(lost);
        }
        if matches!(reply, Reply::Refused(_)) {
            // Another flow to the peer may exist soon, and without this re-INVITE there is no call.
            self.later(bridge, cx, PAUSE);
            return Ok(Progress::Nothing);
        }
        Ok(self.unaccepted(bridge, cx, round, reply))
    }

    fn unaccepted(
        &mut self,
        bridge: &mut Bridge,
        cx: &Cx<'_>,
        round: Round,
        reply: Reply,
    ) -> Progress<Delayed> {
        let why = match reply {
            Reply::Again(wait) => {
                self.later(bridge, cx, wait);
                return Progress::Nothing;
            }
            Reply::Unheard if bridge.status() != CallStatus::Over => (Reason::DialogGone, 408),
            Reply::Refused(status) => (Reason::JoinRefused, status),
            Reply::Unheard | Reply::Accepted | Reply::TooBrief | Reply::Gone => {
                return Progress::Nothing;
            }
        };
        self.step(|join| join.refused(round, why))
    }
}

impl Call {
    /// Hangs up on a destination that won't replace the agent, and abandons the caller's re-INVITE for it.
    pub(crate) fn send_away(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(destination) = self.joining.arriving() else {
            return false;
        };
        self.leave_destination(cx, destination);
        true
    }

    fn leave_destination(&mut self, cx: &mut Cx<'_>, destination: LegId) {
        self.joining.end();
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
        if self.joining.arriving() == Some(id) && self.send_away(cx) {
            self.on_transfer(cx, Event::DestinationRefused(487));
        }
    }

    /// Ends a leg whose peer is gone, and the call with it if the leg is one of the two connected ones.
    pub(crate) fn lose_leg(&mut self, cx: &mut Cx<'_>, id: LegId, lost: Lost) {
        if !self.bridge.has_left(id) {
            return self.hang_up(cx, lost.reason);
        }
        if self.joining.arriving() == Some(id) && self.send_away(cx) {
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
        if let Some(delayed) = self.joining.abandon() {
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
        let heard: Box<[u8]> = self.joining.heard().unwrap_or_default().into();
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
            Some(sdp) => {
                let progress = self.joining.begin(&sdp, cx.now);
                self.go_on_joining(cx, progress, None);
            }
            None => self.hang_up(cx, Reason::NoCommonMedia),
        }
    }

    /// Carries out the machine's step. `answer`: the SDP of the 2xx that led to it.
    pub(crate) fn go_on_joining(
        &mut self,
        cx: &mut Cx<'_>,
        progress: Progress<Delayed>,
        answer: Option<&[u8]>,
    ) {
        match progress {
            Progress::Nothing => {}
            Progress::Ask(_) => self.joining.later(&mut self.bridge, cx, Duration::ZERO),
            Progress::Joined { arrived, asks } => {
                self.connect_media(cx, arrived);
                if let Some(answer) = answer {
                    self.holding.held.take_answer(answer);
                    self.bridge.set_heard(answer);
                }
                match asks {
                    Some(_) => self.joining.later(&mut self.bridge, cx, Duration::ZERO),
                    None => self.joining.end(),
                }
            }
            Progress::Acknowledge { delayed, answer } => {
                self.joining.end();
                let trunk = self.bridge.trunk_id();
                self.bridge.legs.remember_sdp(trunk, delayed.fork, &answer);
                if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                    leg.send_ack(cx, &delayed.ack().answering(&answer));
                }
                self.holding.held.take_offer(&delayed.offer);
                self.bridge.set_heard(&delayed.offer);
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
            Progress::Settled => self.joining.end(),
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
}
