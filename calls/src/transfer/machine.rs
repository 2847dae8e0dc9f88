//! State of a transfer (RFC 3515, RFC 5589 §6 and §7), and what each event makes of it. The agent is the transferor, its caller the transferee.
//!
//! One transfer at a time. Until its outcome is known the caller stays connected to the agent; a failure changes nothing about that. The
//! outcome is what was said, not a guess: a PBX that hangs up first or says nothing leaves it `unknown`.
//!
//! An accepted REFER that fails may have cost the PBX its caller: Asterisk and FreeSWITCH have taken it into their dialplan by then. They are
//! asked whether they still know the call, and hung up on unless they show that they have the caller. Where the destination couldn't be
//! reached through the PBX at all (404, 484, 604), or Asterisk says that it never began (400, 403, 404, 500), it is called from here.
//!
//! Knows neither the call nor its legs (`transferring` does): it is given events and says which steps are due. `R` is the route by which the
//! destination is called from here.

use std::time::Duration;

use trunkline_model::record::{Ended, HangupBy, Status};
use trunkline_model::transfer::{self as record, Trunk, Way};
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::wheel::TimerId;

use super::event::{
    CallFacts, Event, NewTransfer, Outcome, ReferAnswer, Step, Steps, Subscription,
};
use super::plan::Plan;
use super::sipfrag::next_notify;
use crate::limits::Permit;
use crate::pbx::Pbx;
use crate::proofs::Proofs;
use crate::refusal::Reason;
use crate::unanswered::Failure;

/// REFERs of one transfer: glare, a lost connection and a challenge ask for another one.
const MOST_REFERS: u8 = 5;
/// Longest time from the acceptance of a REFER to its first NOTIFY (Timer N, RFC 6665 §4.1.2.4).
const FIRST_NOTIFY: Duration = Duration::from_secs(32);
/// A 200 that comes so soon after the 202, and without a 18x, says nothing of an answer: FreeSWITCH and Asterisk send it by
/// default as soon as they have begun.
const TOO_SOON: Duration = Duration::from_millis(500);
/// Longest wait for the answer to a probe.
const PROBED: Duration = Duration::from_secs(5);
/// Time that a PBX which may have lost the caller has to show that it hasn't.
const SHOWN: Duration = Duration::from_secs(5);

/// A transfer of a call.
#[derive(Debug)]
pub(super) struct Transfer<R> {
    pub(super) record: record::Transfer,
    pub(super) state: State,
    /// Subscription of the runtime that has asked for it.
    pub(super) subscription: Option<Subscription>,
    /// REFERs of the runtime in this call so far.
    pub(super) referrals: u8,
    pub(super) plan: Plan<R>,
    /// The trunk of the PBX that is asked.
    pub(super) trunk: Option<Trunk>,
    pub(super) refer: Refer,
    /// Limits that the leg of a destination is counted against, from when it is called to the end of the call.
    pub(super) permit: Option<Permit>,
    /// Status that was reported last for the destination.
    pub(super) heard: u16,
    /// Status of the bridge after which the PBX is asked by REFER.
    pub(super) bridge_failure: Option<u16>,
    /// It has failed after the PBX had accepted the REFER.
    pub(super) has_failed_after_refer: bool,
    /// The agent has hung up; the caller waits for the outcome alone.
    pub(super) agent_gone: bool,
    pub(super) timer: Option<TimerId>,
}

/// State of a transfer.
#[derive(Debug)]
pub(super) enum State {
    /// The caller's ACK is awaited, before which nothing else may be asked.
    AwaitingAck,
    /// The REFER is out.
    Referring,
    /// The REFER met another request, and is to be sent again.
    Retrying,
    /// The PBX has accepted the REFER: a NOTIFY is awaited.
    Subscribed,
    /// The PBX can't reach the destination, and is asked whether it still knows the call.
    Probing,
    /// The destination is being called from here.
    Bridging,
    /// The destination has answered: the caller is offered its media.
    Joining,
    /// The PBX has said 2xx: its BYE is awaited.
    AwaitingBye,
    /// A PBX that may have lost the caller is to show that it hasn't.
    Doubting,
    /// The outcome is unknown: it shows once the caller leaves.
    Unresolved,
    /// The caller has left: a NOTIFY or the answer to the REFER may still come, and the end of the call is kept back until then.
    Parting(Box<Ended>),
    /// Nothing is awaited.
    Settled,
}

/// The REFER to the PBX.
#[derive(Debug)]
pub(crate) struct Refer {
    /// The value of Refer-To.
    pub(crate) to: Box<str>,
    /// Answers to the PBX's challenges.
    pub(crate) proofs: Proofs,
    sent: u8,
    /// CSeq of the last one: the id of its subscription.
    pub(super) cseq: u32,
}

impl State {
    /// Returns whether the outcome is to come.
    pub(super) const fn is_open(&self) -> bool {
        match self {
            Self::AwaitingAck
            | Self::Referring
            | Self::Retrying
            | Self::Subscribed
            | Self::Probing
            | Self::Bridging
            | Self::Joining
            | Self::Parting(_) => true,
            Self::AwaitingBye | Self::Doubting | Self::Unresolved | Self::Settled => false,
        }
    }
}

impl<R> Transfer<R> {
    /// A transfer that nothing has been done for yet. `referrals` counts the REFERs of the runtime in this call.
    pub(super) fn new(
        new: NewTransfer<R>,
        subscription: Option<Subscription>,
        referrals: u8,
        timer: Option<TimerId>,
    ) -> Self {
        Self {
            record: new.record,
            state: State::AwaitingAck,
            subscription,
            referrals,
            plan: new.plan,
            trunk: new.trunk,
            refer: Refer {
                to: new.refer_to,
                proofs: Proofs::default(),
                sent: 0,
                cseq: 0,
            },
            permit: None,
            heard: 100,
            bridge_failure: None,
            has_failed_after_refer: false,
            agent_gone: false,
            timer,
        }
    }

    /// Works on an event.
    pub(super) fn handle(&mut self, event: Event, call: CallFacts, steps: &mut Steps<R>) {
        match event {
            Event::Acknowledged => self.on_acknowledged(call, steps),
            Event::ReferSent { cseq } => {
                self.refer.sent += 1;
                self.refer.cseq = cseq;
            }
            Event::ReferUnsent => {
                if matches!(self.state, State::Referring) {
                    self.refer_refused(503, call, steps);
                }
            }
            Event::ReferAnswered { cseq, answer } if cseq == self.refer.cseq => {
                self.on_refer_answered(answer, call, steps);
            }
            Event::ReferUnanswered {
                cseq,
                status,
                was_connected,
            } if cseq == self.refer.cseq => {
                self.on_refer_unanswered(status, was_connected, call, steps);
            }
            // That of a REFER before the last.
            Event::ReferAnswered { .. } | Event::ReferUnanswered { .. } => {}
            Event::Notified {
                id,
                status,
                subscription,
            } => {
                let is_stale = id.is_some_and(|id| id < self.refer.cseq);
                if !is_stale && self.awaits_notify() {
                    self.on_notified(status, subscription, call, steps);
                }
            }
            Event::ProbeUnsent => {
                if matches!(self.state, State::Probing) {
                    self.refer_failed(call, steps);
                }
            }
            Event::ProbeAnswered => self.on_probe_answered(call, steps),
            Event::DialogGone => self.on_dialog_gone(call, steps),
            Event::TimedOut => self.on_timed_out(call, steps),
            Event::DestinationRings => self.on_destination_rings(call, steps),
            Event::DestinationLost(failure) => self.on_destination_lost(&failure, call, steps),
            Event::DestinationRefused(status) => self.on_destination_refused(status, call, steps),
            Event::DestinationAnswered => {
                if matches!(self.state, State::Bridging) {
                    self.state = State::Joining;
                }
            }
            Event::DestinationConnected => self.on_destination_connected(call, steps),
            Event::AgentLeft => self.on_agent_left(steps),
            Event::CallerHeard => self.on_caller_heard(steps),
            Event::CallEnded(ended) => self.on_call_ended(ended, call, steps),
            Event::Stopped => {
                if matches!(self.state, State::Parting(_)) {
                    self.settle(self.unheard(), call, steps);
                }
            }
        }
    }

    const fn awaits_notify(&self) -> bool {
        match self.state {
            State::Referring | State::Retrying | State::Subscribed | State::Parting(_) => true,
            State::AwaitingAck
            | State::Probing
            | State::Bridging
            | State::Joining
            | State::AwaitingBye
            | State::Doubting
            | State::Unresolved
            | State::Settled => false,
        }
    }

    fn on_acknowledged(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if !matches!(self.state, State::AwaitingAck) {
            return;
        }
        if self.plan.first == Way::Bridge && self.bridge(call, steps) {
            return;
        }
        match self.plan.refers {
            // Where it can't be bridged, the PBX is asked all the same.
            true => self.refer(call, steps),
            false => self.fail(Reason::NoCommonMedia.status(), call, steps),
        }
    }

    /// Asks the PBX; with the answers to its challenges, if it has made any.
    fn refer(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if self.refer.sent >= MOST_REFERS {
            return self.refer_refused(503, call, steps);
        }
        self.wait(State::Referring, None, steps);
        steps.push(Step::Refer);
    }

    fn on_refer_answered(&mut self, answer: ReferAnswer, call: CallFacts, steps: &mut Steps<R>) {
        let is_parting = match self.state {
            State::Referring | State::Subscribed => false,
            State::Parting(_) => true,
            // The NOTIFYs have said more. Without its dialog there is no call left.
            State::AwaitingAck
            | State::Retrying
            | State::Probing
            | State::Bridging
            | State::Joining => {
                return match answer {
                    ReferAnswer::Refused(481) => self.on_dialog_refused(call, steps),
                    ReferAnswer::Accepted
                    | ReferAnswer::AcceptedSilently
                    | ReferAnswer::Challenged
                    | ReferAnswer::Refused(_) => {}
                };
            }
            State::AwaitingBye | State::Doubting | State::Unresolved | State::Settled => return,
        };

        match answer {
            ReferAnswer::Accepted => self.accepted(call, steps),
            ReferAnswer::AcceptedSilently => {
                self.accepted(call, steps);
                self.settle(Outcome::Unknown, call, steps);
            }
            // Once the caller has left there is nothing to ask for.
            ReferAnswer::Challenged if is_parting => self.refer_refused(401, call, steps),
            ReferAnswer::Challenged => self.refer(call, steps),
            ReferAnswer::Refused(status) if is_parting => self.refer_refused(status, call, steps),
            ReferAnswer::Refused(491) => {
                self.wait(State::Retrying, None, steps);
                steps.push(Step::WaitOutGlare);
            }
            // Nothing is left of the dialog (RFC 5057 §5.1).
            ReferAnswer::Refused(481) => self.on_dialog_refused(call, steps),
            ReferAnswer::Refused(status) => {
                let may_bridge = status >= 400 && self.plan.bridges_after(status);
                if !may_bridge || !self.bridge(call, steps) {
                    self.refer_refused(status, call, steps);
                }
            }
        }
    }

    fn on_dialog_refused(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        self.refer_refused(481, call, steps);
        steps.push(Step::HangUp(Reason::DialogGone));
    }

    fn on_refer_unanswered(
        &mut self,
        status: u16,
        was_connected: bool,
        call: CallFacts,
        steps: &mut Steps<R>,
    ) {
        if !matches!(self.state, State::Referring) {
            return;
        }
        if status == 503 && was_connected {
            // Over another connection the PBX may challenge it as if it were the first.
            self.refer.proofs = Proofs::default();
            return self.refer(call, steps);
        }
        self.refer_refused(status, call, steps);
    }

    /// The PBX takes no REFER. After a bridge the outcome is that of the bridge: its status says why the destination wasn't reached, the
    /// refusal only that there is no other way.
    fn refer_refused(&mut self, status: u16, call: CallFacts, steps: &mut Steps<R>) {
        if !self.state.is_open() {
            return;
        }
        if self.bridge_failure.is_some() {
            self.record.way = Way::Bridge;
        }
        self.fail(self.bridge_failure.unwrap_or(status), call, steps);
    }

    /// 202, or a NOTIFY that has overtaken it.
    fn accepted(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if self.record.state != record::State::Requested {
            return;
        }
        self.record.state = record::State::Accepted;
        self.record.accepted_at = Some(call.now);
        if !matches!(self.state, State::Parting(_)) {
            self.wait(State::Subscribed, Some(FIRST_NOTIFY), steps);
        }
        self.record(steps);
    }

    fn on_notified(
        &mut self,
        status: Option<u16>,
        subscription: SubscriptionState,
        call: CallFacts,
        steps: &mut Steps<R>,
    ) {
        self.accepted(call, steps);
        let record = &mut self.record;
        match status {
            Some(200..=299) => {
                let since = record.accepted_at.map(|at| call.now.since(at));
                let is_too_soon = since.is_some_and(|since| since < TOO_SOON);
                let has_rung = record.ringing_at.is_some();
                record.answer_confirmed = Some(has_rung || !is_too_soon);
                self.settle(Outcome::Completed, call, steps);
            }
            Some(status @ 300..) => self.on_refer_failed(status, call, steps),
            Some(status @ 180..=189) if record.state == record::State::Accepted => {
                self.rings(status, call, steps);
                self.await_notify(subscription, call, steps);
            }
            Some(_) | None => self.await_notify(subscription, call, steps),
        }
    }

    /// More is to come, unless this was the last word.
    fn await_notify(
        &mut self,
        subscription: SubscriptionState,
        call: CallFacts,
        steps: &mut Steps<R>,
    ) {
        match subscription {
            SubscriptionState::Terminated => self.settle(Outcome::Unknown, call, steps),
            SubscriptionState::Open { .. } if matches!(self.state, State::Parting(_)) => {}
            SubscriptionState::Open { expires } => {
                self.wait(State::Subscribed, Some(next_notify(expires)), steps);
            }
        }
    }

    fn rings(&mut self, status: u16, call: CallFacts, steps: &mut Steps<R>) {
        self.heard = status;
        self.record.state = record::State::Ringing;
        self.record.ringing_at = Some(call.now);
        self.record(steps);
        self.notify(status, false, steps);
    }

    /// NOTIFY says that the destination wasn't reached.
    fn on_refer_failed(&mut self, status: u16, call: CallFacts, steps: &mut Steps<R>) {
        self.heard = status;
        let is_parting = matches!(self.state, State::Parting(_));
        let may_bridge = !is_parting && self.plan.bridges_after(status);
        let is_unknown_there = matches!(status, 404 | 484 | 604);
        if may_bridge && (is_unknown_there || call.never_began(status)) {
            self.wait(State::Probing, Some(PROBED), steps);
            return steps.push(Step::Probe);
        }
        self.refer_failed(call, steps);
    }

    /// The transfer has failed with what was heard last.
    fn refer_failed(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        let status = self.heard;
        let is_parting = matches!(self.state, State::Parting(_));
        let loses = !is_parting && self.loses_caller(call) && !call.never_began(status);
        self.record.caller_may_be_gone = loses;
        self.has_failed_after_refer = !is_parting && has_surely_begun(status);

        self.fail(status, call, steps);
        if loses && !self.agent_gone && call.is_up {
            self.wait(State::Doubting, Some(SHOWN), steps);
            steps.push(Step::Probe);
        }
    }

    /// Returns whether the PBX loses the caller when a REFER that it has accepted fails.
    fn loses_caller(&self, call: CallFacts) -> bool {
        !self.plan.keeps_caller && call.pbx.is_some_and(Pbx::loses_caller)
    }

    fn on_probe_answered(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if matches!(self.state, State::Probing) && !self.bridge(call, steps) {
            self.fail(self.heard, call, steps);
        }
    }

    fn on_dialog_gone(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if matches!(self.state, State::Probing) {
            self.fail(self.heard, call, steps);
        }
        steps.push(Step::HangUp(Reason::DialogGone));
    }

    fn on_timed_out(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        self.timer = None;
        match self.state {
            State::Retrying => self.refer(call, steps),
            State::Subscribed => self.settle(Outcome::Unknown, call, steps),
            State::Probing => self.refer_failed(call, steps),
            State::AwaitingBye => self.leave_handed_over(steps),
            State::Doubting => steps.push(Step::HangUp(Reason::CallerLost)),
            State::Unresolved => {
                self.wait(State::Settled, None, steps);
                steps.push(Step::Leave(Status::Completed, HangupBy::Agent));
            }
            State::Parting(_) => self.settle(self.unheard(), call, steps),
            State::AwaitingAck
            | State::Referring
            | State::Bridging
            | State::Joining
            | State::Settled => {}
        }
    }

    /// Calls the destination, if it can be called from here.
    fn bridge(&mut self, call: CallFacts, steps: &mut Steps<R>) -> bool {
        let Some(route) = self.plan.route.take_if(|_| call.can_dial) else {
            return false;
        };
        self.record.way = Way::Bridge;
        self.record.state = record::State::Accepted;
        self.record.accepted_at = Some(call.now);
        self.record.ringing_at = None;
        // Once is enough, whichever way was first.
        self.plan.refers_after_bridge &= self.refer.sent == 0;

        self.wait(State::Bridging, None, steps);
        self.record(steps);
        steps.push(Step::Dial(route));
        true
    }

    fn on_destination_rings(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if matches!(self.state, State::Bridging) {
            self.rings(180, call, steps);
        }
    }

    /// Before anything has rung the PBX may know a way.
    fn on_destination_lost(&mut self, failure: &Failure, call: CallFacts, steps: &mut Steps<R>) {
        if !self.refers_instead(failure, call) {
            return self.on_destination_refused(failure.sip_code, call, steps);
        }
        self.plan.refers_after_bridge = false;
        self.bridge_failure = Some(failure.sip_code);
        self.permit = None;
        self.record.way = Way::Refer;
        self.record.state = record::State::Requested;
        self.record.accepted_at = None;
        self.record(steps);
        self.refer(call, steps);
    }

    fn refers_instead(&self, failure: &Failure, call: CallFacts) -> bool {
        // A REFER would take the caller into the same dialplan.
        let has_run = |pbx: Pbx| pbx.has_run_dialplan(failure.sip_code, failure.cause);
        let is_in_vain =
            failure.is_answer && self.loses_caller(call) && call.pbx.is_some_and(has_run);
        let is_out_of_reach =
            !is_in_vain && matches!(failure.sip_code, 401 | 403 | 404 | 407 | 408 | 503);
        let has_rung = self.record.ringing_at.is_some();
        let is_bridging = matches!(self.state, State::Bridging);
        is_bridging && self.plan.refers_after_bridge && !has_rung && is_out_of_reach
    }

    fn on_destination_refused(&mut self, status: u16, call: CallFacts, steps: &mut Steps<R>) {
        if matches!(self.state, State::Bridging | State::Joining) {
            self.fail(status, call, steps);
        }
    }

    fn on_destination_connected(&mut self, call: CallFacts, steps: &mut Steps<R>) {
        if !matches!(self.state, State::Joining) {
            return;
        }
        self.record.state = record::State::Completed;
        self.record.ended_at = Some(call.now);
        self.record.handed_over = true;
        self.record.answer_confirmed = Some(true);
        self.record(steps);
        self.notify(200, true, steps);
        self.wait(State::Settled, None, steps);
    }

    /// Waits for something, at most so long.
    pub(super) fn wait(&mut self, state: State, at_most: Option<Duration>, steps: &mut Steps<R>) {
        self.state = state;
        steps.push(Step::Wait(at_most));
    }

    /// Keeps the transfer as it is now.
    pub(super) fn record(&mut self, steps: &mut Steps<R>) {
        self.record.step = self.record.step.saturating_add(1);
        steps.push(Step::Record(Box::new(self.record.clone())));
    }

    /// Tells a runtime that has referred what was heard of the destination.
    pub(super) fn notify(&self, status: u16, is_last: bool, steps: &mut Steps<R>) {
        // With the agent's dialog its subscription is over.
        if let Some(subscription) = self.subscription.filter(|_| !self.agent_gone) {
            steps.push(Step::Notify {
                subscription,
                status,
                is_last,
            });
        }
    }
}

/// Returns whether a transfer that ended with this status had begun. Only then does a PBX that still has its caller show that it keeps
/// callers: where the transfer never began, one that loses them has the caller as well.
const fn has_surely_begun(status: u16) -> bool {
    !matches!(status, 400 | 403 | 404 | 484 | 500 | 604)
}
