//! Hold and resume from outside: both sides are told by re-INVITE, one after the other, that the other one only sends
//! (RFC 3264 §8.4), and later that it listens again. The agent's side is asked first: runtimes refuse more often than PBXs do, and then
//! nothing has changed for the caller. Its answer is what the caller is offered next, so that a change of media on the way is not
//! lost. Whoever refuses leaves the call as it was; what the other side has agreed to by then is taken back.
//!
//! While a call is held its peers may go on changing it, and refresh their sessions: what crosses then is switched off, whatever
//! they offer, and what the caller means to do is asked anew when the call is resumed.

use std::borrow::Cow;
use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::dialog::direction::{self, rewritten};
use trunkline_sip::dialog::sdp::{self, Direction};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};
use uuid::Uuid;

use super::call::{Call, CallStatus, Pending, Purpose, QueuedRequest};
use super::context::Cx;
use super::leg::{LegId, LegRole};
use super::reply::{PAUSE, Reply};
use super::request_origin::RequestOrigin;
use super::{Calls, has_sdp, origin, sdp_of};

/// Longest time of a change, each way, before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a call is neither held nor resumed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unable {
    /// The call is over, was never here, or is no longer with its agent.
    #[error("the call is not up")]
    NotUp,
    /// Nobody has answered it yet.
    #[error("the call has not been answered yet")]
    NotAnswered,
    /// Where it leads is just being changed.
    #[error("a transfer of the call is under way")]
    Transferring,
    /// It is being resumed, or held, at this moment.
    #[error("the opposite is under way")]
    Opposite,
    /// The caller's SDP can't be repeated.
    #[error("the caller's media can't be read")]
    NoMedia,
}

/// Hold of a call, as the client that asked for a change sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HoldStatus {
    /// Whether both sides are held.
    pub held: bool,
    /// The last change that has come to its end, and who refused it.
    pub settled: u32,
    /// Refusal of that change.
    pub refused: Option<Refused>,
}

/// A side that wants no change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Whose.
    pub role: LegRole,
    /// The SIP status.
    pub status: u16,
}

/// Progress of a change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Step {
    /// The agent's side is asked.
    Agent,
    /// The caller is asked.
    Caller,
    /// The agent's side is told what the caller has changed.
    Follow,
    /// The agent's side gets back what it had, since there won't be a change.
    Undo(Refused),
    /// Nothing is under way.
    Settled,
}

/// Hold that was asked of a call, and its progress.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Wish of the last request: held, or not.
    wanted: bool,
    step: Step,
    /// Whether both sides are held.
    held: bool,
    /// Whether what crosses is switched off.
    closed: bool,
    /// Counts the changes.
    number: u32,
    until: Moment,
    /// SDP to offer the caller.
    answer: Option<Box<[u8]>>,
}

impl Hold {
    /// Returns whether neither side has agreed to any of the change so far.
    const fn is_unsaid(&self) -> bool {
        let is_first = matches!(self.step, Step::Agent | Step::Caller);
        is_first && self.answer.is_none() && self.wanted != self.held
    }
}

impl Calls {
    /// Holds a call, or resumes it. The number of the change that is under way then; `None` if it stands so already.
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
        match self.status() {
            CallStatus::SettingUp => return Err(Unable::NotAnswered),
            CallStatus::Over => return Err(Unable::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        if self.is_with_destination() {
            return Err(Unable::NotUp);
        }
        let before = self.hold.as_deref();
        match before.filter(|hold| hold.step != Step::Settled) {
            Some(hold) if hold.wanted == wanted => return Ok(Some(hold.number)),
            Some(hold) if hold.is_unsaid() && self.queue.has(QueuedRequest::Hold) => {
                self.settle_hold(cx, None);
                return Ok(None);
            }
            Some(_) => return Err(Unable::Opposite),
            None if before.is_some_and(|hold| hold.held) == wanted => return Ok(None),
            None => {}
        }
        if self.is_transferring() {
            return Err(Unable::Transferring);
        }
        let is_readable = |sdp: &[u8]| sdp.starts_with(b"v=");
        let is_readable = self.heard().is_some_and(is_readable);
        if !self.is_local() && !is_readable {
            return Err(Unable::NoMedia);
        }
        let number = self.begin_change(cx, wanted);
        self.ask_to_hold(cx, Duration::ZERO);
        Ok(Some(number))
    }

    fn begin_change(&mut self, cx: &Cx<'_>, wanted: bool) -> u32 {
        let before = self.hold.as_deref();
        let number = before.map_or(0, |hold| hold.number).wrapping_add(1);
        let held = before.is_some_and(|hold| hold.held);
        self.hold = Some(Box::new(Hold {
            wanted,
            step: Step::Agent,
            held,
            closed: held,
            number,
            until: cx.now + PATIENCE,
            answer: None,
        }));
        number
    }

    /// Whether the call is being held or resumed at this moment.
    pub(crate) fn is_turning(&self) -> bool {
        let turns = |hold: &Hold| hold.step != Step::Settled;
        self.hold.as_deref().is_some_and(turns)
    }

    /// Whether nobody is to send anything.
    pub(crate) fn is_closed(&self) -> bool {
        self.hold.as_deref().is_some_and(|hold| hold.closed)
    }

    /// Returns an SDP as it crosses: `inactive` while the call is held. An answer may have less than was offered (RFC 3264 §6.1).
    pub(crate) fn crossing_sdp<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        if self.is_closed() && body.starts_with(b"v=") {
            rewritten(body, Direction::Inactive).into()
        } else {
            body.into()
        }
    }

    /// Returns the caller's SDP as it is kept: `sendrecv` while the call is held, since its direction then isn't its wish.
    pub(crate) fn heard_sdp(&self, body: &[u8]) -> Box<[u8]> {
        if self.is_closed() && body.starts_with(b"v=") {
            rewritten(body, Direction::SendRecv).into()
        } else {
            body.into()
        }
    }

    /// A peer's own change crosses between two re-INVITEs of ours: both sides are asked anew.
    pub(crate) fn disturb_hold(&mut self) {
        if let Some(hold) = self.hold.as_deref_mut()
            && hold.step == Step::Caller
        {
            hold.step = Step::Agent;
        }
    }

    /// The call, or its agent, is gone: nothing is held any more.
    pub(crate) fn drop_hold(&mut self, cx: &mut Cx<'_>) {
        self.queue.withdraw(QueuedRequest::Hold);
        let Some(hold) = self.hold.take() else {
            return;
        };
        let refused = Refused {
            role: LegRole::Agent,
            status: 487,
        };
        let status = HoldStatus {
            held: false,
            settled: hold.number,
            refused: Some(refused),
        };
        self.held.set_by_us(false);
        self.tell_held(cx);
        cx.core.live.note_hold(self.id, status);
    }

    /// Tells whether the call is held, by whomever, where that has changed.
    pub(crate) fn tell_held(&mut self, cx: &mut Cx<'_>) {
        if let Some(held) = self.held.take_change() {
            cx.core.fact(Fact::Held {
                call: self.id,
                org: self.org,
                held,
            });
        }
    }

    /// The caller stays with the agent after all, and hears it.
    pub(crate) fn resume_after_transfer(&mut self, cx: &mut Cx<'_>) {
        if self.hold.as_deref().is_some_and(|hold| hold.held) {
            // Where it can't be, it is for whoever held the call to try again.
            let _ = self.hold(cx, false);
        }
    }

    /// A side has taken media that nobody wants it to have any more: it gets those of the other side again. The agent's aren't kept: it is
    /// asked for them.
    pub(crate) fn restore(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let is_with_agent = !self.is_with_destination() && !self.is_turning();
        if !is_with_agent || self.heard().is_none() {
            return;
        }
        let is_trunk = self.is_trunk(id);
        let held = self.hold.as_deref().is_some_and(|hold| hold.held);
        self.begin_change(cx, held);
        if let Some(hold) = self.hold.as_deref_mut() {
            hold.step = match is_trunk {
                true => Step::Agent,
                false => Step::Follow,
            };
        }
        self.ask_to_hold(cx, Duration::ZERO);
    }

    /// Has the re-INVITE that is due sent in its turn, after a pause.
    fn ask_to_hold(&mut self, cx: &mut Cx<'_>, wait: Duration) {
        if let Some(hold) = self.hold.as_deref() {
            let until = hold.until;
            self.ask(cx, QueuedRequest::Hold, wait, Some(until));
        }
    }

    /// Sends the re-INVITE that is due.
    pub(crate) fn send_hold(&mut self, cx: &mut Cx<'_>) {
        if !self.is_turning() {
            return;
        }
        let fork = self.fork();
        let (Some(fork), Some((id, body))) = (fork, self.next_offer()) else {
            let refused = Refused {
                role: LegRole::Agent,
                status: 488,
            };
            return self.settle_hold(cx, Some(refused));
        };
        if !self.is_local() {
            self.keep_origin(id);
        }
        let lines = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
        let invite = (Method::Invite, "INVITE");
        let purpose = (Purpose::Hold, true, RequestOrigin::Ours);
        if !self.send_on_leg(cx, id, fork, invite, purpose, &body, lines) {
            self.ask_to_hold(cx, PAUSE);
        }
    }

    /// Leg that is asked next, and the offer.
    fn next_offer(&mut self) -> Option<(LegId, Vec<u8>)> {
        let is_echo = self.is_local();
        let (trunk, agent) = (self.trunk_id(), self.agent_id());
        let heard = self.legs.sip(trunk).and_then(|peer| peer.heard.as_deref());
        let heard = heard.unwrap_or_default();
        let hold = self.hold.as_deref_mut()?;
        let towards = |held| match held {
            true => Direction::SendOnly,
            false => Direction::SendRecv,
        };
        if is_echo {
            hold.step = Step::Caller;
        }
        let (wanted, step) = (hold.wanted, hold.step);
        match step {
            Step::Agent => Some((agent, rewritten(heard, towards(wanted)))),
            Step::Undo(_) => Some((agent, rewritten(heard, towards(!wanted)))),
            Step::Follow if hold.held => Some((agent, rewritten(heard, towards(true)))),
            Step::Follow => Some((agent, heard.to_vec())),
            Step::Caller if is_echo => {
                let offer = self.echo_offer()?;
                Some((trunk, rewritten(&offer, towards(wanted))))
            }
            Step::Caller => {
                let answer = hold.answer.as_deref()?;
                let offer = match wanted {
                    true => rewritten(answer, Direction::SendOnly),
                    false => answer.to_vec(),
                };
                Some((trunk, offer))
            }
            Step::Settled => None,
        }
    }

    /// The re-INVITE that is due couldn't be sent in time.
    pub(crate) fn hold_is_late(&mut self, cx: &mut Cx<'_>) {
        let Some(hold) = self.hold.as_deref() else {
            return;
        };
        let role = match hold.step {
            Step::Caller => LegRole::Trunk,
            Step::Agent | Step::Follow | Step::Undo(_) | Step::Settled => LegRole::Agent,
        };
        self.hold_refused(cx, Refused { role, status: 491 });
    }

    /// The final answer to a re-INVITE that holds or resumes.
    pub(crate) fn on_hold_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let (id, fork) = (pending.leg, pending.fork);
        let reply = self.reply_to(cx, pending, message);
        if reply != Reply::Accepted {
            return self.hold_unaccepted(cx, id, reply);
        }
        if let Some(leg) = self.leg(id) {
            leg.flow = flow;
        }
        self.send_ack(cx, id, fork, pending.client, pending.cseq, None);
        self.note_refresh(cx, pending, message);
        self.hold_accepted(cx, message);
    }

    /// The re-INVITE has no answer.
    pub(crate) fn on_hold_unanswered(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let reply = self.reply_of_none(cx, pending, status);
        self.hold_unaccepted(cx, pending.leg, reply);
    }

    fn hold_unaccepted(&mut self, cx: &mut Cx<'_>, id: LegId, reply: Reply) {
        let status = match reply {
            Reply::Again(wait) => return self.ask_to_hold(cx, wait),
            Reply::Unheard => 408,
            Reply::Refused(status) => status,
            Reply::Accepted | Reply::TooBrief | Reply::Gone => return,
        };
        let role = self.role(id);
        self.hold_refused(cx, Refused { role, status });
    }

    fn hold_accepted(&mut self, cx: &mut Cx<'_>, message: &Message<'_>) {
        let answer =
            Some(sdp_of(message.body())).filter(|sdp| has_sdp(message) && sdp.starts_with(b"v="));
        let Some(hold) = self.hold.as_deref_mut() else {
            return;
        };
        match (hold.step, answer) {
            (Step::Agent, Some(answer)) => {
                hold.closed = true;
                hold.answer = Some(answer.into());
                hold.step = Step::Caller;
                self.ask_to_hold(cx, Duration::ZERO);
            }
            // There is nothing to offer the caller.
            (Step::Agent, None) => {
                let refused = Refused {
                    role: LegRole::Agent,
                    status: 488,
                };
                hold.step = Step::Undo(refused);
                self.ask_to_hold(cx, Duration::ZERO);
            }
            (Step::Caller, answer) => {
                hold.held = hold.wanted;
                hold.closed = hold.wanted;
                self.caller_turned(cx, answer);
            }
            (Step::Follow, _) => self.settle_hold(cx, None),
            (Step::Undo(refused), _) => self.settle_hold(cx, Some(refused)),
            (Step::Settled, _) => {}
        }
    }

    /// The caller has taken the change, and with it the call is held, or goes on.
    fn caller_turned(&mut self, cx: &mut Cx<'_>, answer: Option<&[u8]>) {
        let Some(answer) = answer else {
            return self.settle_hold(cx, None);
        };
        if self.is_local() {
            self.tell_media(cx, sdp::read_answer(answer));
            return self.settle_hold(cx, None);
        }
        let is_news = !self.is_closed() && !self.is_known(answer);
        self.held.take_answer(answer);
        let heard = self.heard_sdp(answer);
        self.set_heard(heard);
        if is_news {
            self.note_hold_status(cx, None);
            if let Some(hold) = self.hold.as_deref_mut() {
                hold.step = Step::Follow;
                hold.until = cx.now + PATIENCE;
            }
            return self.ask_to_hold(cx, Duration::ZERO);
        }
        self.settle_hold(cx, None);
    }

    /// Whether the caller's SDP is the one that the agent's side was offered when the call was resumed.
    fn is_known(&self, answer: &[u8]) -> bool {
        let heard = self.heard().unwrap_or_default();
        let [offered, plain] = [heard, answer].map(|sdp| rewritten(sdp, Direction::SendRecv));
        let sends_and_receives = |direction| direction == Direction::SendRecv;
        direction::of(answer).into_iter().all(sends_and_receives)
            && origin::is_same_media(&offered, &plain)
    }

    fn hold_refused(&mut self, cx: &mut Cx<'_>, refused: Refused) {
        let is_echo = self.is_local();
        let Some(hold) = self.hold.as_deref_mut() else {
            return;
        };
        match hold.step {
            Step::Caller if !is_echo => {
                hold.step = Step::Undo(refused);
                hold.until = cx.now + PATIENCE;
                self.ask_to_hold(cx, Duration::ZERO);
            }
            Step::Agent | Step::Caller => self.settle_hold(cx, Some(refused)),
            Step::Undo(first) => self.settle_hold(cx, Some(first)),
            // The call goes on, if not as well as it might.
            Step::Follow => self.settle_hold(cx, None),
            Step::Settled => {}
        }
    }

    fn settle_hold(&mut self, cx: &mut Cx<'_>, refused: Option<Refused>) {
        if let Some(hold) = self.hold.as_deref_mut() {
            hold.step = Step::Settled;
            hold.closed = hold.held;
            hold.answer = None;
        }
        self.queue.withdraw(QueuedRequest::Hold);
        self.note_hold_status(cx, refused);
    }

    fn note_hold_status(&mut self, cx: &mut Cx<'_>, refused: Option<Refused>) {
        let Some(hold) = self.hold.as_deref() else {
            return;
        };
        let status = HoldStatus {
            held: hold.held,
            settled: hold.number,
            refused,
        };
        self.held.set_by_us(hold.held);
        // First: who waits for the end of the change looks at the call then.
        self.tell_held(cx);
        cx.core.live.note_hold(self.id, status);
    }
}
