//! Hold and resume by the daemon: a re-INVITE shows each side in turn that the other only sends (RFC 3264 §8.4), and later that it receives
//! again. The agent's side is first: runtimes refuse more often than PBXs, and then nothing has changed for the caller. The agent's answer
//! is the offer to the caller, so that media which the agent changes in it aren't lost. If one side refuses, the call stays as it was, and
//! the other side's change is undone.
//!
//! While a call is held, its peers may change it and refresh their sessions. SDP that crosses during a hold is made `inactive`, whatever
//! the peers offer (`leg::held_media`). When the call is resumed, the caller is asked for its direction again.
//!
//! `HoldMachine` knows neither the call nor its dialogs: it gets descriptions and returns the next step (`HoldProgress`). `Hold` gives it its inputs,
//! and carries its steps out on the bridge. Neither knows transfers or the exchange of media between both ends.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::dialog::compared::is_same_media;
use trunkline_sip::dialog::direction::rewritten;
use trunkline_sip::dialog::sdp::{Audio, Direction};
use trunkline_sip::dialog::{direction, sdp};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;
use uuid::Uuid;

use crate::core::context::{Core, Cx};
use crate::core::live::{HoldRefusal, HoldStatus};
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose, RequestKind};
use crate::leg::{Lost, NewRequest, trunk_sdp};
use crate::media::local_media;
use crate::parts::ids::LegId;
use crate::parts::refusal::Reason;
use crate::parts::reply::{PAUSE, Reply};
use crate::parts::role::LegRole;
use crate::{has_sdp, sdp_of};

/// Time in which a change may begin its re-INVITEs; then it counts as refused. Undoing it, or following the caller's changed media, gets as
/// much again. A re-INVITE that is out is cancelled after 32 s (`requests`).
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why a call is neither held nor resumed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HoldError {
    /// The call is over, was never here, or is no longer with its agent.
    #[error("the call is not up")]
    NotUp,
    /// The call has not been answered yet.
    #[error("the call has not been answered yet")]
    NotAnswered,
    /// The call is being transferred.
    #[error("a transfer of the call is under way")]
    Transferring,
    /// The opposite change is under way.
    #[error("the opposite is under way")]
    Opposite,
    /// The caller's SDP can't be repeated.
    #[error("the caller's media can't be read")]
    NoMedia,
}

/// Step of a change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum HoldStep {
    /// Re-INVITE to the agent's side.
    Agent,
    /// Re-INVITE to the caller.
    Caller,
    /// Re-INVITE to the agent's side with the caller's changed media.
    Follow,
    /// Re-INVITE to the agent's side that undoes the change, after the caller refused it.
    Undo(HoldRefusal),
    /// Nothing is under way.
    Settled,
}

/// The last change of a call.
#[derive(Debug)]
struct HoldChange {
    /// The change that was last requested: true to hold, false to resume.
    wanted: bool,
    step: HoldStep,
    /// True if both sides are held.
    held: bool,
    /// True if the media that cross are switched off.
    closed: bool,
    /// Number of the change.
    number: u32,
    /// Deadline by which the next re-INVITE has to be sent.
    until: Moment,
    /// The agent's answer, which is to be offered to the caller.
    answer: Option<Box<[u8]>>,
}

/// Hold of a call that the API orders.
#[derive(Debug, Default)]
struct HoldMachine {
    change: Option<Box<HoldChange>>,
}

/// Meaning of a request to hold or to resume.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
enum HoldRequest {
    /// The call is in that state, or will be by the change of that number.
    Already(Option<u32>),
    /// The change under way is withdrawn before either side has heard of it.
    Withdrawn(HoldProgress),
    /// A change is to begin.
    New,
}

/// The next step of a hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
enum HoldProgress {
    /// A re-INVITE is to be queued, with that deadline.
    Ask(Moment),
    /// Another re-INVITE is to be queued, with that deadline; the change counts as made, with this status.
    Follow(HoldStatus, Moment),
    /// The change has ended.
    Settled(HoldStatus),
    /// Nothing.
    Nothing,
}

impl HoldChange {
    /// Returns whether neither side has agreed to any of the change so far.
    const fn is_unsaid(&self) -> bool {
        let is_first = matches!(self.step, HoldStep::Agent | HoldStep::Caller);
        is_first && self.answer.is_none() && self.wanted != self.held
    }

    const fn status(&self, refused: Option<HoldRefusal>) -> HoldStatus {
        HoldStatus {
            held: self.held,
            settled: self.number,
            refused,
        }
    }

    fn settle(&mut self, refused: Option<HoldRefusal>) -> HoldProgress {
        self.step = HoldStep::Settled;
        self.closed = self.held;
        self.answer = None;
        HoldProgress::Settled(self.status(refused))
    }

    const fn ask(&mut self, step: HoldStep) -> HoldProgress {
        self.step = step;
        HoldProgress::Ask(self.until)
    }
}

impl HoldMachine {
    /// Returns the meaning of a request. `is_waiting`: the next re-INVITE has not been sent.
    fn request(&mut self, wanted: bool, is_waiting: bool) -> Result<HoldRequest, HoldError> {
        let Some(change) = self.change.as_deref_mut() else {
            return Ok(if wanted {
                HoldRequest::New
            } else {
                HoldRequest::Already(None)
            });
        };

        if change.step == HoldStep::Settled {
            let is_so = change.held == wanted;
            return Ok(if is_so {
                HoldRequest::Already(None)
            } else {
                HoldRequest::New
            });
        }

        if change.wanted == wanted {
            return Ok(HoldRequest::Already(Some(change.number)));
        }

        match change.is_unsaid() && is_waiting {
            true => Ok(HoldRequest::Withdrawn(change.settle(None))),
            false => Err(HoldError::Opposite),
        }
    }

    /// Begins a change. Returns its number.
    fn begin(&mut self, wanted: bool, now: Moment) -> (u32, HoldProgress) {
        let before = self.change.as_deref();
        let number = before.map_or(0, |change| change.number).wrapping_add(1);
        let held = before.is_some_and(|change| change.held);
        let until = now + PATIENCE;
        self.change = Some(Box::new(HoldChange {
            wanted,
            step: HoldStep::Agent,
            held,
            closed: held,
            number,
            until,
            answer: None,
        }));
        (number, HoldProgress::Ask(until))
    }

    /// Sends a side that has accepted an obsolete SDP the other side's current one. If that side is the caller, a re-INVITE first gets the
    /// agent's SDP, which isn't kept.
    fn restore(&mut self, role: LegRole, now: Moment) -> HoldProgress {
        let (_, progress) = self.begin(self.is_held(), now);
        if let Some(change) = self.change.as_deref_mut() {
            change.step = match role {
                LegRole::Trunk => HoldStep::Agent,
                LegRole::Agent | LegRole::Destination => HoldStep::Follow,
            };
        }
        progress
    }

    /// Returns whether both sides are held.
    fn is_held(&self) -> bool {
        self.change.as_deref().is_some_and(|change| change.held)
    }

    /// Returns whether the call is being held or resumed at this moment.
    fn is_turning(&self) -> bool {
        let turns = |change: &HoldChange| change.step != HoldStep::Settled;
        self.change.as_deref().is_some_and(turns)
    }

    /// Returns whether neither side may send.
    fn is_closed(&self) -> bool {
        self.change.as_deref().is_some_and(|change| change.closed)
    }

    /// Deadline of the change under way.
    fn until(&self) -> Option<Moment> {
        self.change.as_deref().map(|change| change.until)
    }

    /// Returns the side of the next re-INVITE.
    fn asked(&self) -> LegRole {
        match self.change.as_deref().map(|change| change.step) {
            Some(HoldStep::Caller) => LegRole::Trunk,
            Some(HoldStep::Agent | HoldStep::Follow | HoldStep::Undo(_) | HoldStep::Settled)
            | None => LegRole::Agent,
        }
    }

    /// Restarts the change at the first side, since a peer's own change has crossed between two re-INVITEs of ours.
    fn disturb(&mut self) {
        if let Some(change) = self.change.as_deref_mut()
            && change.step == HoldStep::Caller
        {
            change.step = HoldStep::Agent;
        }
    }

    /// Ends all holding: the call, or its agent, is gone.
    fn take(&mut self) -> Option<HoldStatus> {
        let change = self.change.take()?;
        let refused = HoldRefusal {
            role: LegRole::Agent,
            status: 487,
        };
        Some(HoldStatus {
            held: false,
            ..change.status(Some(refused))
        })
    }

    /// Returns the next side and its offer. `heard` is the caller's SDP.
    fn next_offer(&self, heard: &[u8]) -> Option<(LegRole, Vec<u8>)> {
        let change = self.change.as_deref()?;
        let offer = match change.step {
            HoldStep::Agent => rewritten(heard, towards(change.wanted)),
            // What both sides have so far. It isn't the opposite of what is wanted where media are only given back (`restore`).
            HoldStep::Undo(_) => rewritten(heard, towards(change.held)),
            HoldStep::Follow if change.held => rewritten(heard, towards(true)),
            HoldStep::Follow => heard.to_vec(),
            HoldStep::Caller if change.wanted => {
                rewritten(change.answer.as_deref()?, towards(true))
            }
            HoldStep::Caller => change.answer.as_deref()?.to_vec(),
            HoldStep::Settled => return None,
        };
        Some((self.asked(), offer))
    }

    /// Returns the offer of media of our own to the caller, which is the only side that gets a re-INVITE then.
    fn own_offer(&mut self, offer: &[u8]) -> Option<(LegRole, Vec<u8>)> {
        let change = self.change.as_deref_mut()?;
        change.step = HoldStep::Caller;
        Some((LegRole::Trunk, rewritten(offer, towards(change.wanted))))
    }

    /// Takes the acceptance of a re-INVITE and its SDP. `heard` is the caller's SDP before; `None` with media of our own.
    fn accepted(
        &mut self,
        answer: Option<&[u8]>,
        heard: Option<&[u8]>,
        now: Moment,
    ) -> HoldProgress {
        let Some(change) = self.change.as_deref_mut() else {
            return HoldProgress::Nothing;
        };

        match (change.step, answer) {
            (HoldStep::Agent, Some(answer)) => {
                // Until the caller has agreed as well the two sides differ, and SDP that crosses is made `inactive`.
                change.closed = true;
                change.answer = Some(answer.into());
                change.ask(HoldStep::Caller)
            }

            // Without an SDP there is no offer for the caller.
            (HoldStep::Agent, None) => change.ask(HoldStep::Undo(HoldRefusal {
                role: LegRole::Agent,
                status: 488,
            })),

            (HoldStep::Caller, answer) => {
                change.held = change.wanted;
                change.closed = change.wanted;
                let is_news = |(answer, heard)| !change.closed && !is_known(heard, answer);
                if !answer.zip(heard).is_some_and(is_news) {
                    return change.settle(None);
                }
                change.step = HoldStep::Follow;
                change.until = now + PATIENCE;
                HoldProgress::Follow(change.status(None), change.until)
            }

            (HoldStep::Follow, _) => change.settle(None),
            (HoldStep::Undo(refused), _) => change.settle(Some(refused)),
            (HoldStep::Settled, _) => HoldProgress::Nothing,
        }
    }

    /// Takes the refusal of a re-INVITE, or its deadline.
    fn refused(&mut self, refused: HoldRefusal, now: Moment) -> HoldProgress {
        let Some(change) = self.change.as_deref_mut() else {
            return HoldProgress::Nothing;
        };
        match change.step {
            // The agent's side has accepted already.
            HoldStep::Caller if change.answer.is_some() => {
                // Time of its own: the refusal may have taken nearly all of the change's.
                change.until = now + PATIENCE;
                change.ask(HoldStep::Undo(refused))
            }
            HoldStep::Agent | HoldStep::Caller => change.settle(Some(refused)),
            // The agent's side keeps the direction that it has agreed to. The client learns of the first refusal.
            HoldStep::Undo(first) => change.settle(Some(first)),
            // The call goes on, with the agent on older media.
            HoldStep::Follow => change.settle(None),
            HoldStep::Settled => HoldProgress::Nothing,
        }
    }
}

const fn towards(held: bool) -> Direction {
    match held {
        true => Direction::SendOnly,
        false => Direction::SendRecv,
    }
}

/// Returns whether the caller answers with the same media that the agent's side was offered on resume.
fn is_known(heard: &[u8], answer: &[u8]) -> bool {
    let [offered, plain] = [heard, answer].map(|sdp| rewritten(sdp, Direction::SendRecv));
    let sends_and_receives = |direction| direction == Direction::SendRecv;
    direction::of(answer).into_iter().all(sends_and_receives) && is_same_media(&offered, &plain)
}

/// Hold of a call: the change that the API has requested, and its outcome.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    machine: HoldMachine,
    /// Outcome of the last change, until it is reported.
    settled: Option<Box<HoldStatus>>,
}

impl Hold {
    /// Returns whether both sides are held.
    pub(crate) fn is_held(&self) -> bool {
        self.machine.is_held()
    }

    /// Returns whether the call is being held or resumed at this moment.
    pub(crate) fn is_turning(&self) -> bool {
        self.machine.is_turning()
    }

    /// Restarts the change at the first side, since a peer's own change has crossed between two re-INVITEs of ours.
    pub(crate) fn disturb(&mut self) {
        self.machine.disturb();
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
        match self.machine.request(wanted, is_waiting)? {
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

        let (number, progress) = self.machine.begin(wanted, cx.now);
        self.go_on(bridge, cx, progress);
        Ok(number)
    }

    /// Sends a side that has accepted an obsolete SDP the other side's current one.
    pub(crate) fn restore(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, id: LegId) {
        let is_with_agent = !bridge.is_with_destination() && !self.machine.is_turning();
        if is_with_agent && bridge.trunk_sdp().is_some() {
            let progress = self.machine.restore(bridge.role(id), cx.now);
            self.go_on(bridge, cx, progress);
        }
    }

    /// Ends all holding: the call, or its agent, is gone.
    pub(crate) fn give_up(&mut self, bridge: &mut Bridge) {
        bridge.requests.withdraw(RequestKind::Hold);
        if let Some(status) = self.machine.take() {
            self.note(bridge, status);
        }
    }

    fn go_on(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, progress: HoldProgress) {
        bridge.held.set_closed(self.machine.is_closed());
        match progress {
            HoldProgress::Ask(until) => ask(bridge, cx, Duration::ZERO, until),
            HoldProgress::Follow(status, until) => {
                self.note(bridge, status);
                ask(bridge, cx, Duration::ZERO, until);
            }
            HoldProgress::Settled(status) => {
                bridge.requests.withdraw(RequestKind::Hold);
                self.note(bridge, status);
            }
            HoldProgress::Nothing => {}
        }
    }

    fn note(&mut self, bridge: &mut Bridge, status: HoldStatus) {
        bridge.held.set_closed(self.machine.is_closed());
        bridge.held.set_by_us(status.held);
        self.settled = Some(Box::new(status));
    }

    /// Reports whether a call is held, by either party, and the outcome of a change, if these are new.
    pub(crate) fn report(&mut self, bridge: &mut Bridge, core: &mut Core, call: Uuid, org: Uuid) {
        // The hold state comes first: the client that waits for the change reads the call then.
        if let Some(held) = bridge.held.take_change() {
            core.fact(Fact::Held { call, org, held });
        }
        if let Some(status) = self.settled.take() {
            core.live.note_hold(call, *status);
        }
    }

    /// Sends the next re-INVITE.
    pub(crate) fn send(&mut self, bridge: &mut Bridge, cx: &mut Cx<'_>) {
        if !self.machine.is_turning() {
            return;
        }

        let is_local = bridge.is_local();
        let offer = match is_local {
            true => {
                let own = local_media::local_offer(bridge);
                own.and_then(|own| self.machine.own_offer(&own))
            }
            false => self
                .machine
                .next_offer(bridge.trunk_sdp().unwrap_or_default()),
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
        if let Some(until) = self.machine.until() {
            ask(bridge, cx, wait, until);
        }
    }

    /// Handles a re-INVITE that couldn't be sent in time.
    pub(crate) fn on_late(&mut self, bridge: &mut Bridge, cx: &Cx<'_>) {
        let role = self.machine.asked();
        self.refused(bridge, cx, HoldRefusal { role, status: 491 });
    }

    fn refused(&mut self, bridge: &mut Bridge, cx: &Cx<'_>, refused: HoldRefusal) {
        let progress = self.machine.refused(refused, cx.now);
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
        let is_of_caller = self.machine.asked() == LegRole::Trunk;
        let is_local = bridge.is_local();
        let heard = bridge
            .trunk()
            .map(|trunk| trunk.remote_sdp.as_deref().unwrap_or_default());
        let heard = heard.filter(|_| !is_local);
        let progress = self.machine.accepted(answer, heard, cx.now);
        bridge.held.set_closed(self.machine.is_closed());

        let answer = answer.filter(|_| is_of_caller);
        let offer = local_media::told_to_trunk(bridge);
        let audio = answer
            .filter(|_| is_local)
            .and_then(|answer| sdp::read_answer(&offer, answer));
        if let Some(answer) = answer.filter(|_| !is_local) {
            trunk_sdp::hear_answer(bridge, answer);
        }
        self.go_on(bridge, cx, progress);
        audio
    }
}

fn ask(bridge: &mut Bridge, cx: &Cx<'_>, wait: Duration, until: Moment) {
    let hold = RequestKind::Hold;
    bridge.requests.ask(cx, hold, wait, Some(until));
}

#[cfg(test)]
mod tests;
