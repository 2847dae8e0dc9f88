//! Both ends of a call get each other's media: gives the state machine (`join`) its inputs, and carries out its steps. `Joining` works on the
//! bridge alone; where a step ends a leg, the transfer or the call, `Call` carries it out.

use std::time::Duration;

use trunkline_sip::dialog::compared::moves_audio;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::join::{Join, JoinProgress};
use crate::core::context::Cx;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::delayed_ack::Delayed;
use crate::leg::own_request::JoinPhase;
use crate::leg::own_request::{JoinRound, Pending, Purpose, RequestKind};
use crate::leg::{Lost, NewRequest};
use crate::parts::bye::ByeContent;
use crate::parts::ids::LegId;
use crate::parts::refusal::Reason;
use crate::parts::reply::{PAUSE, Reply};
use crate::{has_sdp, sdp_of};

/// `Reason` of the two re-INVITEs of the last round, by which the trace recognises them.
pub const UNSETTLED: &str = "Both ends answer with another SDP each time";

/// Exchange of media between both ends of a call by us, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Joining(Option<Box<Join<Delayed>>>);

impl Joining {
    /// Keeps a join, in the state that it has been made in.
    pub(crate) fn wait_with(&mut self, join: Join<Delayed>) {
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
    ) -> JoinProgress<Delayed> {
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
    pub(crate) fn begin(&mut self, sdp: &[u8], now: Moment) -> JoinProgress<Delayed> {
        self.step(|join| join.begin(sdp, now))
    }

    /// Handles a change of the caller that was accepted and gives both each other's media.
    pub(crate) fn on_crossed(&mut self) -> JoinProgress<Delayed> {
        self.step(Join::crossed)
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn on_late(&mut self) -> JoinProgress<Delayed> {
        let why = (Reason::JoinRefused, 408);
        self.step(|join| match join.due().map(|(round, _)| round) {
            Some(round) => join.refused(round, why),
            None => JoinProgress::Nothing,
        })
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Join<Delayed>) -> JoinProgress<Delayed>,
    ) -> JoinProgress<Delayed> {
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
    ) -> Result<JoinProgress<Delayed>, Lost> {
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
            true => join.refused(round, (why, why.status())),
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
    ) -> Result<JoinProgress<Delayed>, Lost> {
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
    ) -> JoinProgress<Delayed> {
        let why = match reply {
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
        self.step(|join| join.refused(round, why))
    }
}
