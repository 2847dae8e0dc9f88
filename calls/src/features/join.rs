//! Both ends get each other's media after we have called one of them, the agent's side. The caller (of an outbound call: the callee) is
//! re-INVITEd with the SDP of the agent's side. If it answers with other media than the agent's side has of it, that side is re-INVITEd
//! with them (RFC 3725 §4.4). If the agent's side then changes its own media again, this might never end. So the caller is asked for an
//! offer, the agent's side gets that offer, and its answer goes to the caller in our ACK (§4.3).
//!
//! A destination replaces the agent the same way: the caller stays connected with the agent until the caller has accepted the destination's
//! media, and also if it refuses them.
//!
//! `Join` knows neither the call nor its dialogs: it gets descriptions and returns the next step (`JoinProgress`). `Joining` gives it its inputs, and
//! carries out its steps on the bridge; where a step ends a leg, the transfer or the call, `call` carries it out.

use std::time::Duration;

use trunkline_sip::dialog::compared::{is_same_media, moves_audio};
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use crate::core::context::Cx;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::delayed_ack::Delayed;
use crate::leg::own_request::{JoinPhase, JoinRound, Pending, Purpose, RequestKind};
use crate::leg::{Lost, NewRequest};
use crate::parts::bye::ByeContent;
use crate::parts::ids::LegId;
use crate::parts::refusal::Reason;
use crate::parts::reply::{PAUSE, Reply};
use crate::{has_sdp, sdp_of};

/// Time that one re-INVITE may wait for its turn, with all refusals that postpone it; then it counts as refused. A person who hears nothing
/// would have hung up by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// State of the two ends.
#[derive(PartialEq, Eq, Debug)]
enum JoinStep {
    /// The agent's side has not answered our INVITE yet. That INVITE's own timers end this (`dialing`).
    Waiting,
    /// The caller gets this SDP of the agent's side.
    Join(Box<[u8]>),
    /// The agent's side gets this SDP of the caller; `local_sdp` is the agent's SDP as the caller has it.
    Follow {
        follow: Box<[u8]>,
        local_sdp: Box<[u8]>,
    },
    /// The caller is asked for an offer. `answer` answers it if the agent's side refuses that offer.
    AskOffer { answer: Box<[u8]> },
    /// The agent's side gets the caller's offer, whose ACK waits for the answer.
    AnswerOffer { delayed: Delayed, answer: Box<[u8]> },
    /// Both have each other's media.
    Settled,
}

/// Exchange of media between both ends.
#[derive(Debug)]
pub(crate) struct Join {
    /// The caller's SDP as the agent's side knows it.
    heard: Box<[u8]>,
    step: JoinStep,
    /// The destination that replaces the agent once the caller has its media.
    arriving: Option<LegId>,
    /// Both had each other's media before, and keep them if the caller refuses.
    was_joined: bool,
    /// Deadline of the next re-INVITE.
    until: Moment,
}

/// Consequence of an event.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum JoinProgress {
    /// Nothing.
    Nothing,
    /// A re-INVITE is due, with this deadline.
    Ask(Moment),
    /// The caller has the media of the other side.
    Joined {
        /// The destination that replaces the agent.
        arrived: Option<LegId>,
        /// Another re-INVITE is due, with this deadline.
        asks: Option<Moment>,
    },
    /// The caller's offer is acknowledged with that answer; both have each other's media.
    Acknowledge { delayed: Delayed, answer: Box<[u8]> },
    /// The offer came too late and is rejected.
    Reject(Delayed),
    /// The destination is hung up on; the caller stays with its agent.
    SendAway {
        destination: LegId,
        /// The SIP status of the refusal.
        status: u16,
    },
    /// The caller refuses the agent's media, and there is no other side.
    Refused(Reason),
    /// The join has ended, and both ends keep the SDPs that they have.
    Settled,
}

impl Join {
    /// A join that waits for the agent's side, which is being invited with the caller's SDP.
    pub(crate) const fn with(heard: Box<[u8]>) -> Self {
        Self {
            heard,
            step: JoinStep::Waiting,
            arriving: None,
            was_joined: false,
            until: Moment::from_secs(0),
        }
    }

    /// A join after the agent's side has moved its media. It has the caller's media already.
    pub(crate) fn moved(heard: Box<[u8]>) -> Self {
        Self {
            was_joined: true,
            ..Self::with(heard)
        }
    }

    /// A join after the caller has moved its media; `local_sdp` is the agent's SDP as the caller has it.
    pub(crate) fn caller_moved(heard: Box<[u8]>, local_sdp: Box<[u8]>) -> Self {
        Self {
            step: JoinStep::Join(local_sdp),
            ..Self::moved(heard)
        }
    }

    /// A join with a destination that was offered the caller's SDP, and is to take the agent's place.
    pub(crate) fn arriving(heard: Box<[u8]>, destination: LegId) -> Self {
        Self {
            arriving: Some(destination),
            ..Self::with(heard)
        }
    }

    /// The caller's SDP as the agent's side knows it.
    pub(crate) const fn heard(&self) -> &[u8] {
        &self.heard
    }

    /// The destination that the caller isn't connected with yet.
    pub(crate) const fn destination(&self) -> Option<LegId> {
        self.arriving
    }

    /// Deadline of the next re-INVITE.
    pub(crate) const fn until(&self) -> Moment {
        self.until
    }

    /// The caller's 2xx whose ACK waits for the answer of the agent's side.
    pub(crate) const fn delayed(&self) -> Option<&Delayed> {
        match &self.step {
            JoinStep::AnswerOffer { delayed, .. } => Some(delayed),
            JoinStep::Waiting
            | JoinStep::Join(_)
            | JoinStep::Follow { .. }
            | JoinStep::AskOffer { .. }
            | JoinStep::Settled => None,
        }
    }

    /// Returns how far the join has come, for the requests that wait for it.
    pub(crate) const fn phase(&self) -> JoinPhase {
        match &self.step {
            JoinStep::Waiting | JoinStep::Settled => JoinPhase::Idle,
            JoinStep::Join(_) | JoinStep::Follow { .. } | JoinStep::AskOffer { .. } => {
                JoinPhase::Due
            }
            JoinStep::AnswerOffer { .. } => JoinPhase::Asking,
        }
    }

    /// Returns the next re-INVITE and its SDP, which is empty if it asks for an offer.
    pub(crate) const fn due(&self) -> Option<(JoinRound, &[u8])> {
        match &self.step {
            JoinStep::Join(sdp) => Some((JoinRound::Join, sdp)),
            JoinStep::Follow { follow, .. } => Some((JoinRound::Follow, follow)),
            JoinStep::AskOffer { .. } => Some((JoinRound::AskOffer, b"")),
            JoinStep::AnswerOffer { .. } => Some((JoinRound::AnswerOffer, &self.heard)),
            JoinStep::Waiting | JoinStep::Settled => None,
        }
    }

    fn ask(&mut self, step: JoinStep, now: Moment) -> Moment {
        self.step = step;
        self.until = now + PATIENCE;
        self.until
    }

    /// Takes the answer of the agent's side.
    pub(crate) fn begin(&mut self, sdp: &[u8], now: Moment) -> JoinProgress {
        JoinProgress::Ask(self.ask(JoinStep::Join(sdp.into()), now))
    }

    fn is_due(&self, round: JoinRound) -> bool {
        self.due().is_some_and(|(due, _)| due == round)
    }

    /// Takes the acceptance of that re-INVITE and its SDP. A requested offer comes by [`Self::offered`].
    pub(crate) fn accepted(
        &mut self,
        round: JoinRound,
        sdp: Option<&[u8]>,
        now: Moment,
    ) -> JoinProgress {
        if !self.is_due(round) {
            // The join was abandoned, or went on, after this re-INVITE was sent.
            return JoinProgress::Nothing;
        }

        match std::mem::replace(&mut self.step, JoinStep::Settled) {
            JoinStep::Join(local_sdp) => {
                // The caller may answer these media with another SDP than the one that the agent's side has.
                let changed = sdp.filter(|sdp| !is_same_media(&self.heard, sdp));
                let asks = changed.map(|sdp| {
                    self.heard = sdp.into();
                    let follow = sdp.into();
                    self.ask(JoinStep::Follow { follow, local_sdp }, now)
                });

                // From here on the destination has the agent's place: a refusal of `Follow` no longer sends it away.
                let arrived = self.arriving.take();
                JoinProgress::Joined { arrived, asks }
            }

            JoinStep::Follow { local_sdp, .. } => {
                // The agent's side changes its SDP with each answer, so offering SDP back and forth might never end (RFC 3725 §4.3).
                match sdp.filter(|sdp| !is_same_media(&local_sdp, sdp)) {
                    Some(answer) => {
                        let answer = answer.into();
                        JoinProgress::Ask(self.ask(JoinStep::AskOffer { answer }, now))
                    }
                    None => JoinProgress::Settled,
                }
            }

            // Without an offer there is nothing to answer.
            JoinStep::AskOffer { .. } => JoinProgress::Settled,

            JoinStep::AnswerOffer { delayed, answer } => {
                // RFC 3261 §13.2.1: the answer "MUST be in the acknowledgement", also if this 2xx has no SDP.
                // Then the agent's last SDP is it.
                let answer = sdp.map_or(answer, Into::into);
                JoinProgress::Acknowledge { delayed, answer }
            }

            step @ (JoinStep::Waiting | JoinStep::Settled) => {
                self.step = step;
                JoinProgress::Nothing
            }
        }
    }

    /// Takes the offer that the caller was asked for, from a 2xx whose ACK waits.
    pub(crate) fn offered(&mut self, delayed: Delayed, offer: &[u8], now: Moment) -> JoinProgress {
        match std::mem::replace(&mut self.step, JoinStep::Settled) {
            JoinStep::AskOffer { answer } => {
                self.heard = offer.into();
                JoinProgress::Ask(self.ask(JoinStep::AnswerOffer { delayed, answer }, now))
            }
            step @ (JoinStep::Waiting
            | JoinStep::Join(_)
            | JoinStep::Follow { .. }
            | JoinStep::AnswerOffer { .. }
            | JoinStep::Settled) => {
                self.step = step;
                // The re-INVITE that asked for this offer was given up meanwhile, but its 2xx still needs an ACK with
                // an answer.
                JoinProgress::Reject(delayed)
            }
        }
    }

    /// Takes a change of the caller that crossed: it gives both each other's media.
    pub(crate) fn crossed(&mut self) -> JoinProgress {
        match self.step {
            JoinStep::Join(_) | JoinStep::Follow { .. } | JoinStep::AskOffer { .. } => {
                // The relayed change carried each side's newest SDP to the other, so our own rounds would only repeat
                // it.
                self.step = JoinStep::Settled;
                let arrived = self.arriving.take();
                JoinProgress::Joined {
                    arrived,
                    asks: None,
                }
            }
            JoinStep::Waiting | JoinStep::AnswerOffer { .. } | JoinStep::Settled => {
                JoinProgress::Nothing
            }
        }
    }

    /// Takes the refusal of that re-INVITE, or its deadline. After both are joined, a refusal leaves them with their current media.
    pub(crate) fn refused(
        &mut self,
        round: JoinRound,
        reason: Reason,
        status: u16,
    ) -> JoinProgress {
        if !self.is_due(round) {
            return JoinProgress::Nothing;
        }

        match std::mem::replace(&mut self.step, JoinStep::Settled) {
            JoinStep::Join(_) => match self.arriving.take() {
                Some(destination) => JoinProgress::SendAway {
                    destination,
                    status,
                },
                None if self.was_joined => JoinProgress::Settled,
                None => JoinProgress::Refused(reason),
            },
            JoinStep::Follow { .. } | JoinStep::AskOffer { .. } => JoinProgress::Settled,
            JoinStep::AnswerOffer { delayed, answer } => {
                // The caller's 2xx with its offer is out, and only an ACK with an answer ends that exchange: the
                // agent's last SDP is it.
                JoinProgress::Acknowledge { delayed, answer }
            }
            step @ (JoinStep::Waiting | JoinStep::Settled) => {
                self.step = step;
                JoinProgress::Nothing
            }
        }
    }

    /// Takes the caller's open offer at the end of the call, to reject it.
    pub(crate) fn abandon(self) -> Option<Delayed> {
        match self.step {
            JoinStep::AnswerOffer { delayed, .. } => Some(delayed),
            JoinStep::Waiting
            | JoinStep::Join(_)
            | JoinStep::Follow { .. }
            | JoinStep::AskOffer { .. }
            | JoinStep::Settled => None,
        }
    }
}

/// `Reason` of the two re-INVITEs of the last round, by which the trace recognises them.
pub const UNSETTLED: &str = "Both ends answer with another SDP each time";

/// Exchange of media between both ends of a call by us, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Joining(Option<Box<Join>>);

impl Joining {
    /// Keeps a join, in the state that it has been made in.
    pub(crate) fn wait_with(&mut self, join: Join) {
        self.0 = Some(Box::new(join));
    }

    /// Forgets the join: both ends have each other's media, or keep what they have.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    /// Ends with the call: BYE to a destination that isn't connected, and an answer with port 0 to an open offer of the caller.
    pub(crate) fn abandon(&mut self, bridge: &mut Bridge, cx: &mut Cx<'_>) {
        // While a destination is arriving, the caller has only been offered SDP, so no offer of its own is open.
        if self.reject(bridge, cx) {
            return;
        }
        let delayed = self.0.take().and_then(|join| join.abandon());
        let trunk = bridge.trunk_id();
        if let (Some(delayed), Some(leg)) = (delayed, bridge.legs.get_mut(trunk)) {
            leg.reject_offer(cx, &delayed);
        }
    }

    /// Hangs up on a destination that won't replace the agent, and abandons the caller's re-INVITE for it. False if there is none.
    pub(crate) fn reject(&mut self, bridge: &mut Bridge, cx: &mut Cx<'_>) -> bool {
        let Some(destination) = self.arriving() else {
            return false;
        };
        self.leave(bridge, cx, destination);
        true
    }

    /// Hangs up on that destination.
    pub(crate) fn leave(&mut self, bridge: &mut Bridge, cx: &mut Cx<'_>, destination: LegId) {
        self.end();
        bridge.requests.withdraw(RequestKind::Join);
        bridge.requests.withdraw(RequestKind::Refresh(destination));
        // A 2xx that crosses this CANCEL is still acknowledged: its purpose is `Stale` by then.
        bridge.requests.cancel_join(cx);
        bridge.legs.stop_timers(cx, destination);
        bridge.send_bye(cx, destination, ByeContent::default());
        bridge.forget_left(destination, None);
    }

    /// Progress of the join, as other requests see it.
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

    /// Handles the answer of one end to a refresh by re-INVITE. If that end moves its media in the answer, the other end is offered the new
    /// ones (RFC 3264 §8).
    pub(crate) fn on_refreshed(
        &mut self,
        bridge: &Bridge,
        id: LegId,
        sdp: Option<&[u8]>,
        now: Moment,
    ) -> JoinProgress {
        // If the media end here (`is_local`), no other end has to learn of the change.
        let is_idle = self.0.is_none() && bridge.status() == CallStatus::Up && !bridge.is_local();
        let known = |id| bridge.legs.sip(id)?.first_local_sdp();
        let (Some(theirs), Some(ours), Some(sdp)) = (known(bridge.other(id)), known(id), sdp)
        else {
            return JoinProgress::Nothing;
        };
        // A leg that isn't connected has no other end that its media could reach.
        if !is_idle || bridge.has_left(id) || !moves_audio(theirs, sdp) {
            return JoinProgress::Nothing;
        }

        match bridge.is_trunk(id) {
            true => {
                self.wait_with(Join::caller_moved(theirs.into(), ours.into()));
                self.step(|join| join.accepted(JoinRound::Join, Some(sdp), now))
            }
            false => {
                self.wait_with(Join::moved(ours.into()));
                self.begin(sdp, now)
            }
        }
    }

    /// Begins: the agent's side has answered with that SDP, which the caller gets next.
    pub(crate) fn begin(&mut self, sdp: &[u8], now: Moment) -> JoinProgress {
        self.step(|join| join.begin(sdp, now))
    }

    /// Handles a change of the caller that was accepted and gives both each other's media.
    pub(crate) fn on_crossed(&mut self) -> JoinProgress {
        self.step(Join::crossed)
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn on_late(&mut self) -> JoinProgress {
        self.step(|join| match join.due().map(|(round, _)| round) {
            Some(round) => join.refused(round, Reason::JoinRefused, 408),
            None => JoinProgress::Nothing,
        })
    }

    fn step(&mut self, step: impl FnOnce(&mut Join) -> JoinProgress) -> JoinProgress {
        self.0.as_deref_mut().map_or(JoinProgress::Nothing, step)
    }

    /// Queues the next re-INVITE.
    pub(crate) fn later(&self, bridge: &mut Bridge, cx: &Cx<'_>, wait: Duration) {
        if let Some(join) = self.0.as_deref() {
            let until = Some(join.until());
            bridge.requests.ask(cx, RequestKind::Join, wait, until);
        }
    }

    /// Sends the next re-INVITE.
    pub(crate) fn send(&self, bridge: &mut Bridge, cx: &mut Cx<'_>) {
        let due = self.0.as_deref().and_then(Join::due);
        let (Some((round, sdp)), Some(fork)) = (due, bridge.fork()) else {
            return;
        };
        let id = match round {
            JoinRound::Join | JoinRound::AskOffer => bridge.trunk_id(),
            JoinRound::Follow | JoinRound::AnswerOffer => bridge.agent_id(),
        };

        let lines = |head: &mut Head<'_>| {
            if matches!(round, JoinRound::AskOffer | JoinRound::AnswerOffer) {
                head.fmt("Reason", format_args!("SIP;cause=200;text=\"{UNSETTLED}\""));
            }
            if !sdp.is_empty() {
                head.line("Content-Type", b"application/sdp");
            }
        };

        let invite = NewRequest::offer(fork, Purpose::Join(round), sdp);
        if bridge.send(cx, id, &invite, lines).is_none() {
            // There was no dialog or no room; the deadline of the queued request bounds the repetitions.
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
    ) -> Result<JoinProgress, Lost> {
        let (Purpose::Join(round), Some(mut leg)) = (pending.purpose, bridge.at(pending.leg))
        else {
            return Ok(JoinProgress::Nothing);
        };

        let sdp = has_sdp(message).then(|| sdp_of(message.body()));
        if let Some(offer) = sdp
            && round == JoinRound::AskOffer
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
                None => JoinProgress::Reject(delayed),
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
        let why = Reason::NoCommonMedia;
        Ok(self.step(|join| match pending.is_misanswered(message) {
            true => join.refused(round, why, why.status()),
            false => join.accepted(round, sdp, cx.now),
        }))
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
    ) -> Result<JoinProgress, Lost> {
        let (Purpose::Join(round), Some(mut leg)) = (pending.purpose, bridge.at(pending.leg))
        else {
            return Ok(JoinProgress::Nothing);
        };
        let (reply, lost) = leg.reply_of_none(cx, pending, status);
        if let Some(lost) = lost {
            return Err(lost);
        }
        if matches!(reply, Reply::Refused(_)) {
            // Another flow to the peer may exist soon, and without this re-INVITE there is no call.
            self.later(bridge, cx, PAUSE);
            return Ok(JoinProgress::Nothing);
        }
        Ok(self.unaccepted(bridge, cx, round, reply))
    }

    fn unaccepted(
        &mut self,
        bridge: &mut Bridge,
        cx: &Cx<'_>,
        round: JoinRound,
        reply: Reply,
    ) -> JoinProgress {
        let (reason, status) = match reply {
            Reply::RetryAfter(wait) => {
                self.later(bridge, cx, wait);
                return JoinProgress::Nothing;
            }
            Reply::Unheard if bridge.status() != CallStatus::Over => (Reason::DialogGone, 408),
            Reply::Refused(status) => (Reason::JoinRefused, status),
            // `Gone` has come back as `Lost`, and 422 as a retry with a longer interval.
            Reply::Unheard | Reply::Accepted | Reply::TooBrief | Reply::Gone => {
                return JoinProgress::Nothing;
            }
        };
        self.step(|join| join.refused(round, reason, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg::delayed_ack::tests::delayed;

    const NOW: Moment = Moment::from_secs(1_790_000_000);
    const CALLER: &[u8] = b"v=0\r\no=c 1 1 IN IP4 h\r\nm=audio 1 RTP/AVP 0\r\n";
    const AGENT: &[u8] = b"v=0\r\no=a 1 1 IN IP4 h\r\nm=audio 2 RTP/AVP 0\r\n";
    const OTHER: &[u8] = b"v=0\r\no=x 1 2 IN IP4 h\r\nm=audio 3 RTP/AVP 0\r\n";
    const LAST: &[u8] = b"v=0\r\no=a 1 3 IN IP4 h\r\nm=audio 4 RTP/AVP 0\r\n";

    /// Returns a state by its name.
    fn at(state: &str) -> Join {
        let step = match state {
            "waiting" => JoinStep::Waiting,
            "join" | "arriving" => JoinStep::Join(AGENT.into()),
            "follow" => JoinStep::Follow {
                follow: OTHER.into(),
                local_sdp: AGENT.into(),
            },
            "ask" => JoinStep::AskOffer {
                answer: LAST.into(),
            },
            "answer" => JoinStep::AnswerOffer {
                delayed: delayed(),
                answer: LAST.into(),
            },
            "settled" => JoinStep::Settled,
            other => panic!("no state {other}"),
        };

        Join {
            heard: CALLER.into(),
            step,
            arriving: (state == "arriving").then_some(LegId::SECOND),
            was_joined: false,
            until: NOW,
        }
    }

    fn name_of(join: &Join) -> &'static str {
        match &join.step {
            JoinStep::Waiting => "waiting",
            JoinStep::Join(_) => "join",
            JoinStep::Follow { .. } => "follow",
            JoinStep::AskOffer { .. } => "ask",
            JoinStep::AnswerOffer { .. } => "answer",
            JoinStep::Settled => "settled",
        }
    }

    /// Name of a consequence in the table.
    fn said(progress: &JoinProgress) -> &'static str {
        match progress {
            JoinProgress::Nothing => "-",
            JoinProgress::Ask(_) => "asks",
            JoinProgress::Joined { arrived, asks } => match (arrived, asks) {
                (None, None) => "joined",
                (None, Some(_)) => "joined, asks",
                (Some(_), None) => "arrived",
                (Some(_), Some(_)) => "arrived, asks",
            },
            JoinProgress::Acknowledge { answer, .. } if **answer == *LAST => {
                "acknowledges the last"
            }
            JoinProgress::Acknowledge { .. } => "acknowledges",
            JoinProgress::Reject(_) => "rejects",
            JoinProgress::SendAway { .. } => "sends away",
            JoinProgress::Refused(_) => "refused",
            JoinProgress::Settled => "settles",
        }
    }

    const WHY: Reason = Reason::JoinRefused;

    const EVENTS: [&str; 8] = [
        "begins",
        "accepted with what is known",
        "accepted with a change",
        "accepted without SDP",
        "offered",
        "crossed",
        "refused",
        "a round that was given up",
    ];

    fn happen(join: &mut Join, event: &str) -> JoinProgress {
        let round = join.due().map(|(round, _)| round);
        let known = match round {
            Some(JoinRound::Join) => CALLER,
            Some(JoinRound::Follow | JoinRound::AskOffer | JoinRound::AnswerOffer) | None => AGENT,
        };
        let round_or_join = round.unwrap_or(JoinRound::Join);

        match event {
            "begins" => join.begin(AGENT, NOW),
            "accepted with what is known" => join.accepted(round_or_join, Some(known), NOW),
            "accepted with a change" => join.accepted(round_or_join, Some(OTHER), NOW),
            "accepted without SDP" => join.accepted(round_or_join, None, NOW),
            "offered" => join.offered(delayed(), OTHER, NOW),
            "crossed" => join.crossed(),
            "refused" => join.refused(round_or_join, WHY, 488),
            "a round that was given up" => {
                let other = match round {
                    Some(JoinRound::Join) => JoinRound::Follow,
                    Some(JoinRound::Follow | JoinRound::AskOffer | JoinRound::AnswerOffer)
                    | None => JoinRound::Join,
                };
                let _ = join.refused(other, WHY, 488);
                join.accepted(other, Some(OTHER), NOW)
            }
            other => panic!("no event {other}"),
        }
    }

    /// Each state with each event: the consequence, and the state after it.
    #[test]
    fn each_state_answers_each_event() {
        let rows: [(&str, [(&str, &str); 8]); 7] = [
            (
                "waiting",
                [
                    ("asks", "join"),
                    ("-", "waiting"),
                    ("-", "waiting"),
                    ("-", "waiting"),
                    ("rejects", "waiting"),
                    ("-", "waiting"),
                    ("-", "waiting"),
                    ("-", "waiting"),
                ],
            ),
            (
                "join",
                [
                    ("asks", "join"),
                    ("joined", "settled"),
                    ("joined, asks", "follow"),
                    ("joined", "settled"),
                    ("rejects", "join"),
                    ("joined", "settled"),
                    ("refused", "settled"),
                    ("-", "join"),
                ],
            ),
            (
                "arriving",
                [
                    ("asks", "join"),
                    ("arrived", "settled"),
                    ("arrived, asks", "follow"),
                    ("arrived", "settled"),
                    ("rejects", "join"),
                    ("arrived", "settled"),
                    ("sends away", "settled"),
                    ("-", "join"),
                ],
            ),
            (
                "follow",
                [
                    ("asks", "join"),
                    ("settles", "settled"),
                    ("asks", "ask"),
                    ("settles", "settled"),
                    ("rejects", "follow"),
                    ("joined", "settled"),
                    ("settles", "settled"),
                    ("-", "follow"),
                ],
            ),
            (
                "ask",
                [
                    ("asks", "join"),
                    ("settles", "settled"),
                    ("settles", "settled"),
                    ("settles", "settled"),
                    ("asks", "answer"),
                    ("joined", "settled"),
                    ("settles", "settled"),
                    ("-", "ask"),
                ],
            ),
            (
                "answer",
                [
                    ("asks", "join"),
                    ("acknowledges", "settled"),
                    ("acknowledges", "settled"),
                    ("acknowledges the last", "settled"),
                    ("rejects", "answer"),
                    ("-", "answer"),
                    ("acknowledges the last", "settled"),
                    ("-", "answer"),
                ],
            ),
            (
                "settled",
                [
                    ("asks", "join"),
                    ("-", "settled"),
                    ("-", "settled"),
                    ("-", "settled"),
                    ("rejects", "settled"),
                    ("-", "settled"),
                    ("-", "settled"),
                    ("-", "settled"),
                ],
            ),
        ];

        for (state, cells) in rows {
            for (event, (consequence, after)) in EVENTS.iter().zip(cells) {
                let mut join = at(state);
                let progress = happen(&mut join, event);
                assert_eq!(said(&progress), consequence, "{state}: {event}");
                assert_eq!(name_of(&join), after, "{state}: {event}");
            }
        }
    }

    #[test]
    fn a_join_names_its_destination_its_deadline_and_the_answer_that_waits() {
        let mut arriving = Join::arriving(CALLER.into(), LegId::SECOND);
        assert_eq!(arriving.destination(), Some(LegId::SECOND));
        assert_eq!(arriving.heard(), CALLER);
        assert_eq!(
            arriving.begin(AGENT, NOW),
            JoinProgress::Ask(NOW + PATIENCE)
        );
        assert_eq!(arriving.until(), NOW + PATIENCE);
        assert_eq!(Join::with(CALLER.into()).destination(), None);

        for state in ["waiting", "join", "follow", "ask", "settled"] {
            assert_eq!(at(state).delayed(), None, "{state}");
            assert_eq!(at(state).abandon(), None, "{state}");
        }
        assert_eq!(at("answer").delayed(), Some(&delayed()));
        assert_eq!(at("answer").abandon(), Some(delayed()));
    }

    #[test]
    fn ends_that_were_joined_before_keep_their_media_where_one_refuses() {
        let mut agent_moved = Join::moved(CALLER.into());
        assert_eq!(said(&agent_moved.begin(OTHER, NOW)), "asks");
        assert_eq!(agent_moved.due(), Some((JoinRound::Join, OTHER)));
        let refused = agent_moved.refused(JoinRound::Join, WHY, 488);
        assert_eq!(refused, JoinProgress::Settled);

        let mut caller_moved = Join::caller_moved(CALLER.into(), AGENT.into());
        let moved = caller_moved.accepted(JoinRound::Join, Some(OTHER), NOW);
        assert_eq!(said(&moved), "joined, asks");
        assert_eq!(caller_moved.due(), Some((JoinRound::Follow, OTHER)));
        let refused = caller_moved.refused(JoinRound::Follow, WHY, 488);
        assert_eq!(refused, JoinProgress::Settled);
    }

    #[test]
    fn each_round_offers_what_the_other_side_has_said() {
        for (state, due) in [
            ("waiting", None),
            ("join", Some((JoinRound::Join, AGENT))),
            ("follow", Some((JoinRound::Follow, OTHER))),
            ("ask", Some((JoinRound::AskOffer, &b""[..]))),
            ("answer", Some((JoinRound::AnswerOffer, CALLER))),
            ("settled", None),
        ] {
            assert_eq!(at(state).due(), due, "{state}");
        }
    }
}
