//! Hold and resume of a call: gives the state machine (`hold`) its inputs, and carries out its steps.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::dialog::sdp;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use super::bridge::CallStatus;
use super::call::Call;
use super::context::Cx;
use super::hold::{Asked, HoldStatus, Progress, Refused, Unable};
use super::ids::LegId;
use super::leg::{LocalMedia, NewRequest};
use super::own_request::{Pending, Purpose, QueuedRequest};
use super::reply::{PAUSE, Reply};
use super::role::LegRole;
use super::{Calls, has_sdp, sdp_of};

impl Calls {
    /// Holds a call, or resumes it. Returns the number of the change that has begun; `None` if the call is in that state already.
    ///
    /// # Errors
    /// Nothing was done.
    pub fn hold(
        &mut self,
        endpoint: &mut Endpoint,
        id: Uuid,
        wanted: bool,
        now: Moment,
    ) -> Result<Option<u32>, Unable> {
        let (key, _) = self.place_of_call(id).ok_or(Unable::NotUp)?;
        let mut outcome = Err(Unable::NotUp);
        self.with(key, endpoint, now, |call, cx| {
            outcome = call.hold(cx, wanted);
        });
        outcome
    }
}

impl Call {
    fn hold(&mut self, cx: &mut Cx<'_>, wanted: bool) -> Result<Option<u32>, Unable> {
        match self.bridge.status() {
            CallStatus::SettingUp => return Err(Unable::NotAnswered),
            CallStatus::Over => return Err(Unable::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        if self.bridge.is_with_destination() {
            return Err(Unable::NotUp);
        }

        let is_waiting = self.bridge.requests.is_queued(QueuedRequest::Hold);
        match self.hold.request(wanted, is_waiting)? {
            Asked::Already(number) => return Ok(number),
            Asked::Withdrawn(progress) => {
                self.go_on_holding(cx, progress);
                return Ok(None);
            }
            Asked::New => {}
        }
        if self.transfer.is_under_way() {
            return Err(Unable::Transferring);
        }

        let is_readable = |sdp: &[u8]| sdp.starts_with(b"v=");
        let is_readable = self.bridge.heard().is_some_and(is_readable);
        if !self.bridge.is_local() && !is_readable {
            return Err(Unable::NoMedia);
        }

        let (number, progress) = self.hold.begin(wanted, cx.now);
        self.go_on_holding(cx, progress);
        Ok(Some(number))
    }

    /// Resumes the call after a failed transfer: the caller stays with the agent.
    pub(crate) fn resume_after_transfer(&mut self, cx: &mut Cx<'_>) {
        if self.hold.is_held() {
            // A call that can't be resumed now stays held until the API or the PBX resumes it.
            let _ = self.hold(cx, false);
        }
    }

    /// Sends a side that has accepted an obsolete SDP the other side's current one.
    pub(crate) fn restore(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let is_with_agent = !self.bridge.is_with_destination() && !self.hold.is_turning();
        if is_with_agent && self.bridge.heard().is_some() {
            let progress = self.hold.restore(self.bridge.role(id), cx.now);
            self.go_on_holding(cx, progress);
        }
    }

    /// Ends all holding: the call, or its agent, is gone.
    pub(crate) fn drop_hold(&mut self, cx: &mut Cx<'_>) {
        self.bridge.requests.withdraw(QueuedRequest::Hold);
        if let Some(status) = self.hold.take() {
            self.note_hold(cx, status);
        }
    }

    fn go_on_holding(&mut self, cx: &mut Cx<'_>, progress: Progress) {
        match progress {
            Progress::Ask(until) => {
                self.bridge
                    .requests
                    .ask(cx, QueuedRequest::Hold, Duration::ZERO, Some(until));
            }
            Progress::Follow(status, until) => {
                self.note_hold(cx, status);
                self.bridge
                    .requests
                    .ask(cx, QueuedRequest::Hold, Duration::ZERO, Some(until));
            }
            Progress::Settled(status) => {
                self.bridge.requests.withdraw(QueuedRequest::Hold);
                self.note_hold(cx, status);
            }
            Progress::Nothing => {}
        }
    }

    fn note_hold(&mut self, cx: &mut Cx<'_>, status: HoldStatus) {
        self.held.set_by_us(status.held);
        // The hold state comes first: the client that waits for the change reads the call then.
        self.tell_held(cx);
        cx.core.live.note_hold(self.id, status);
    }

    /// Reports whether the call is held, by either party, if that has changed.
    pub(crate) fn tell_held(&mut self, cx: &mut Cx<'_>) {
        if let Some(held) = self.held.take_change() {
            cx.core.fact(Fact::Held {
                call: self.id,
                org: self.org,
                held,
            });
        }
    }

    /// Sends the next re-INVITE.
    pub(crate) fn send_hold(&mut self, cx: &mut Cx<'_>) {
        if !self.hold.is_turning() {
            return;
        }

        let is_local = self.bridge.is_local();
        let offer = match is_local {
            true => {
                let own = self.bridge.local_mut().and_then(LocalMedia::offer);
                own.and_then(|own| self.hold.own_offer(&own))
            }
            false => self
                .hold
                .next_offer(self.bridge.heard().unwrap_or_default()),
        };
        let (Some(fork), Some((role, body))) = (self.bridge.fork(), offer) else {
            let (role, status) = (LegRole::Agent, 488);
            return self.hold_refused(cx, Refused { role, status });
        };

        let id = match role {
            LegRole::Trunk => self.bridge.trunk_id(),
            LegRole::Agent | LegRole::Destination => self.bridge.agent_id(),
        };
        if !is_local {
            self.bridge.legs.keep_origin(id);
        }

        let lines = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
        let invite = NewRequest::offer(fork, Purpose::Hold, &body);
        if self.bridge.send(cx, id, &invite, lines).is_none() {
            self.hold_later(cx, PAUSE);
        }
    }

    fn hold_later(&mut self, cx: &mut Cx<'_>, wait: Duration) {
        if let Some(until) = self.hold.until() {
            self.bridge
                .requests
                .ask(cx, QueuedRequest::Hold, wait, Some(until));
        }
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn hold_is_late(&mut self, cx: &mut Cx<'_>) {
        let role = self.hold.asked();
        self.hold_refused(cx, Refused { role, status: 491 });
    }

    fn hold_refused(&mut self, cx: &mut Cx<'_>, refused: Refused) {
        let progress = self.hold.refused(refused, cx.now);
        self.go_on_holding(cx, progress);
    }

    /// Handles the final answer to a re-INVITE that holds or resumes.
    pub(crate) fn on_hold_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let reply = self.reply_to(cx, pending, message);
        if reply != Reply::Accepted {
            return self.hold_unaccepted(cx, pending.leg, reply);
        }
        if let Some(mut leg) = self.bridge.at(pending.leg) {
            leg.take_accepted(cx, flow, pending, message);
        }
        self.hold_accepted(cx, message);
    }

    /// Handles a re-INVITE without an answer.
    pub(crate) fn on_hold_unanswered(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let reply = self.reply_of_none(cx, pending, status);
        self.hold_unaccepted(cx, pending.leg, reply);
    }

    fn hold_unaccepted(&mut self, cx: &mut Cx<'_>, id: LegId, reply: Reply) {
        let status = match reply {
            Reply::Again(wait) => return self.hold_later(cx, wait),
            Reply::Unheard => 408,
            Reply::Refused(status) => status,
            Reply::Accepted | Reply::TooBrief | Reply::Gone => return,
        };
        let role = self.bridge.role(id);
        self.hold_refused(cx, Refused { role, status });
    }

    fn hold_accepted(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) {
        let answer = has_sdp(message).then(|| sdp_of(message.body()));
        let answer = answer.filter(|sdp| sdp.starts_with(b"v="));
        let is_of_caller = self.hold.asked() == LegRole::Trunk;
        let is_local = self.bridge.is_local();
        let heard = self.bridge.legs.sip(self.bridge.trunk_id());
        let heard = heard.map(|trunk| trunk.heard.as_deref().unwrap_or_default());
        let heard = heard.filter(|_| !is_local);
        let progress = self.hold.accepted(answer, heard, cx.now);

        match answer.filter(|_| is_of_caller) {
            Some(answer) if is_local => self.tell_media(cx, sdp::read_answer(answer)),
            Some(answer) => {
                self.held.take_answer(answer);
                let heard = self.hold.heard_sdp(answer);
                self.bridge.set_heard(&heard);
            }
            None => {}
        }
        self.go_on_holding(cx, progress);
    }
}
