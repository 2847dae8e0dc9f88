//! Hold and resume of a call: gives the state machine (`hold`) its inputs, and carries out its steps on the bridge. Knows neither transfers nor
//! the exchange of media between both ends (`joining`).

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::dialog::sdp::{self, Audio};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use super::hold::{Hold, HoldError, HoldProgress, HoldRefusal, HoldRequest, HoldStatus};
use super::hold_state::HoldState;
use crate::core::context::{Core, Cx};
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose, RequestKind};
use crate::leg::{Lost, NewRequest};
use crate::parts::ids::LegId;
use crate::parts::refusal::Reason;
use crate::parts::reply::{PAUSE, Reply};
use crate::parts::role::LegRole;
use crate::{has_sdp, sdp_of};

/// Hold of a call: what the API has requested, and what the SDP of the trunk's peer says.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    /// Hold that the API has requested.
    pub(crate) hold: Hold,
    /// Hold of the call, by us and by its phone system.
    pub(crate) hold_state: HoldState,
    /// The caller's offer that has no answer yet.
    proposed: Option<Box<[u8]>>,
    /// Outcome of the last change, until it is reported.
    settled: Option<Box<HoldStatus>>,
}

impl Holding {
    /// Takes the SDP of the trunk's peer from a message that completes an exchange.
    pub(crate) fn hear(&mut self, bridge: &mut Bridge, id: LegId, message: &Message<'_>) {
        if bridge.is_trunk(id) && has_sdp(message) {
            self.hear_answer(bridge, sdp_of(message.body()));
        }
    }

    fn hear_answer(&mut self, bridge: &mut Bridge, sdp: &[u8]) {
        self.hold_state.take_answer(sdp);
        bridge.set_trunk_sdp(&self.hold.heard_sdp(sdp));
    }

    /// Notes the offer in a re-INVITE or UPDATE of the trunk's peer; none if it asks for an offer.
    pub(crate) fn note_proposal(&mut self, bridge: &Bridge, id: LegId, message: &Message<'_>) {
        if bridge.is_trunk(id) {
            self.proposed = has_sdp(message).then(|| sdp_of(message.body()).into());
        }
    }

    /// Takes the noted offer of the trunk's peer, which was accepted.
    pub(crate) fn hear_proposed(&mut self, bridge: &mut Bridge, id: LegId) {
        if bridge.is_trunk(id)
            && let Some(sdp) = self.proposed.take()
        {
            self.hold_state.take_offer(&sdp);
            bridge.set_trunk_sdp(&self.hold.heard_sdp(&sdp));
        }
    }

    /// Forgets what the caller has offered: another leg has taken its place.
    pub(crate) fn forget_proposal(&mut self) {
        self.proposed = None;
    }

    /// Takes a request to hold or to resume. Returns the number of the change that leads there; `None` if none is needed.
    ///
    /// # Errors
    /// No change may begin now. `hindrance` is the reason outside of the hold, if there is one.
    pub(crate) fn request(
        &mut self,
        bridge: &mut Bridge,
        cx: &Cx<'_>,
        wanted: bool,
        hindrance: Option<HoldError>,
    ) -> Result<Option<u32>, HoldError> {
        match bridge.status() {
            CallStatus::SettingUp => return Err(HoldError::NotAnswered),
            CallStatus::Over => return Err(HoldError::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        if bridge.is_with_destination() {
            return Err(HoldError::NotUp);
        }

        let is_waiting = bridge.requests.is_queued(RequestKind::Hold);
        match self.hold.request(wanted, is_waiting)? {
            HoldRequest::Already(number) => Ok(number),
            HoldRequest::Withdrawn(progress) => {
                self.go_on(bridge, cx, progress);
                Ok(None)
            }
            // Only a new change is hindered: an order that changes nothing succeeds during a transfer too.
            HoldRequest::New => match hindrance {
                Some(hindrance) => Err(hindrance),
                None => self.begin(bridge, cx, wanted).map(Some),
            },
        }
    }

    /// Begins to hold or to resume. Returns the number of the change.
    fn begin(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, wanted: bool) -> Result<u32, HoldError> {
        // The agent's side is offered the caller's SDP in another direction, so it has to be a bare SDP.
        let is_readable = |sdp: &[u8]| sdp.starts_with(b"v=");
        let is_readable = bridge.trunk_sdp().is_some_and(is_readable);
        if !bridge.is_local() && !is_readable {
            return Err(HoldError::NoMedia);
        }

        let (number, progress) = self.hold.begin(wanted, cx.now);
        self.go_on(bridge, cx, progress);
        Ok(number)
    }

    /// Sends a side that has accepted an obsolete SDP the other side's current one.
    pub(crate) fn restore(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, id: LegId) {
        let is_with_agent = !bridge.is_with_destination() && !self.hold.is_turning();
        if is_with_agent && bridge.trunk_sdp().is_some() {
            let progress = self.hold.restore(bridge.role(id), cx.now);
            self.go_on(bridge, cx, progress);
        }
    }

    /// Ends all holding: the call, or its agent, is gone.
    pub(crate) fn give_up(&mut self, bridge: &mut Bridge) {
        bridge.requests.withdraw(RequestKind::Hold);
        if let Some(status) = self.hold.take() {
            self.note(status);
        }
    }

    fn go_on(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, progress: HoldProgress) {
        match progress {
            HoldProgress::Ask(until) => ask(bridge, cx, Duration::ZERO, until),
            HoldProgress::Follow(status, until) => {
                self.note(status);
                ask(bridge, cx, Duration::ZERO, until);
            }
            HoldProgress::Settled(status) => {
                bridge.requests.withdraw(RequestKind::Hold);
                self.note(status);
            }
            HoldProgress::Nothing => {}
        }
    }

    fn note(&mut self, status: HoldStatus) {
        self.hold_state.set_by_us(status.held);
        self.settled = Some(Box::new(status));
    }

    /// Reports whether a call is held, by either party, and the outcome of a change, if these are new.
    pub(crate) fn report(&mut self, core: &mut Core, call: Uuid, org: Uuid) {
        // The hold state comes first: the client that waits for the change reads the call then.
        if let Some(held) = self.hold_state.take_change() {
            core.fact(Fact::Held { call, org, held });
        }
        if let Some(status) = self.settled.take() {
            core.live.note_hold(call, *status);
        }
    }

    /// Sends the next re-INVITE.
    pub(crate) fn send(&mut self, bridge: &mut Bridge, cx: &mut Cx<'_>) {
        if !self.hold.is_turning() {
            return;
        }

        let is_local = bridge.is_local();
        let offer = match is_local {
            true => {
                let own = bridge.local_offer();
                own.and_then(|own| self.hold.own_offer(&own))
            }
            false => self.hold.next_offer(bridge.trunk_sdp().unwrap_or_default()),
        };
        let (Some(fork), Some((role, body))) = (bridge.fork(), offer) else {
            let (role, status) = (LegRole::Agent, 488);
            return self.refused(bridge, cx, HoldRefusal { role, status });
        };

        let id = match role {
            LegRole::Trunk => bridge.trunk_id(),
            LegRole::Agent | LegRole::Destination => bridge.agent_id(),
        };
        // Another party's SDP follows in the session that the peer knows (RFC 3264 §8). Media of ours keep an origin of their own.
        if !is_local {
            bridge.legs.keep_origin(id);
        }

        let lines = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
        let invite = NewRequest::offer(fork, Purpose::Hold, &body);
        if bridge.send(cx, id, &invite, lines).is_none() {
            self.later(bridge, cx, PAUSE);
        }
    }

    fn later(&self, bridge: &mut Bridge, cx: &Cx<'_>, wait: Duration) {
        if let Some(until) = self.hold.until() {
            ask(bridge, cx, wait, until);
        }
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn on_late(&mut self, bridge: &mut Bridge, cx: &Cx<'_>) {
        let role = self.hold.asked();
        self.refused(bridge, cx, HoldRefusal { role, status: 491 });
    }

    fn refused(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, refused: HoldRefusal) {
        let progress = self.hold.refused(refused, cx.now);
        self.go_on(bridge, cx, progress);
    }

    /// Handles the final answer to a re-INVITE that holds or resumes. Returns the audio that was agreed on, if the media are our own.
    ///
    /// # Errors
    /// The peer is gone, and the call with it.
    pub(crate) fn on_answer(
        &mut self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) -> Result<Option<Audio>, Lost> {
        let Some(mut leg) = bridge.at(pending.leg) else {
            return Ok(None);
        };
        let (reply, lost) = leg.reply_to(cx, pending, message);
        if let Some(lost) = lost {
            return Err(lost);
        }
        if reply != Reply::Accepted {
            self.unaccepted(bridge, cx, pending.leg, reply);
            return Ok(None);
        }
        leg.take_accepted(cx, flow, pending, message);
        if pending.is_misanswered(message) {
            let status = Reason::NoCommonMedia.status();
            self.unaccepted(bridge, cx, pending.leg, Reply::Refused(status));
            return Ok(None);
        }
        Ok(self.accepted(bridge, cx, message))
    }

    /// Handles a re-INVITE without an answer.
    #[must_use]
    pub(crate) fn on_unanswered(
        &mut self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        pending: &Pending,
        status: u16,
    ) -> Option<Lost> {
        let mut leg = bridge.at(pending.leg)?;
        let (reply, lost) = leg.reply_of_none(cx, pending, status);
        if lost.is_none() {
            self.unaccepted(bridge, cx, pending.leg, reply);
        }
        lost
    }

    fn unaccepted(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, id: LegId, reply: Reply) {
        let status = match reply {
            Reply::RetryAfter(wait) => return self.later(bridge, cx, wait),
            Reply::Unheard => 408,
            Reply::Refused(status) => status,
            // `reply_to` turns a 422 into `RetryAfter` or `Refused`, and a dialog that is gone into `Lost`.
            Reply::Accepted | Reply::TooBrief | Reply::Gone => return,
        };
        let role = bridge.role(id);
        self.refused(bridge, cx, HoldRefusal { role, status });
    }

    /// Takes the SDP of an accepted re-INVITE. Returns the agreed audio if the media are our own.
    fn accepted(
        &mut self,
        bridge: &mut Bridge,
        cx: &Cx<'_>,
        message: &Message<'_>,
    ) -> Option<Audio> {
        let answer = has_sdp(message).then(|| sdp_of(message.body()));
        let answer = answer.filter(|sdp| sdp.starts_with(b"v="));
        // Asked before the machine moves on to its next side.
        let is_of_caller = self.hold.asked() == LegRole::Trunk;
        let is_local = bridge.is_local();
        let heard = bridge
            .trunk()
            .map(|trunk| trunk.remote_sdp.as_deref().unwrap_or_default());
        let heard = heard.filter(|_| !is_local);
        let progress = self.hold.accepted(answer, heard, cx.now);

        let answer = answer.filter(|_| is_of_caller);
        let offer = bridge.told_to_trunk();
        let audio = answer
            .filter(|_| is_local)
            .and_then(|answer| sdp::read_answer(&offer, answer));
        if let Some(answer) = answer.filter(|_| !is_local) {
            self.hear_answer(bridge, answer);
        }
        self.go_on(bridge, cx, progress);
        audio
    }
}

fn ask(bridge: &mut Bridge, cx: &Cx<'_>, wait: Duration, until: Moment) {
    let hold = RequestKind::Hold;
    bridge.requests.ask(cx, hold, wait, Some(until));
}
