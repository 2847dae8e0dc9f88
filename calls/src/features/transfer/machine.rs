//! State machine of a transfer (RFC 3515, RFC 5589 §6 and §7). The agent is the transferor, its caller the transferee.
//!
//! One transfer at a time. Until its outcome is known the caller stays connected to the agent, also after a failure. The outcome is what the PBX has
//! reported, not a guess: if it hangs up first or stays silent, the outcome is `unknown`.
//!
//! An accepted REFER that fails may have lost the caller: Asterisk has taken it into its dialplan by then. Asterisk is probed for the call,
//! and hung up on unless it shows that it has the caller (FreeSWITCH has given it back). If the PBX couldn't reach the destination at all
//! (404, 484, 604), or Asterisk says that the transfer never began (400, 403, 404, 500), the daemon calls the destination itself.
//!
//! Knows neither the call nor its legs (the modules beside it do): it gets events and returns steps.

use std::time::Duration;

use trunkline_model::record::Ended;
use trunkline_model::transfer as record;
use trunkline_model::transfer::{TransferMethod, Trunk};
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;

use super::event::{
    AgentEnd, CallFacts, NewTransfer, ReferAnswer, Requester, Steps, Subscription, TransferEvent,
    TransferOutcome, TransferStep, has_surely_begun,
};
use super::plan::Plan;
use super::sent_refers::SentRefers;
use super::sipfrag::next_notify;
use crate::limits::Permit;
use crate::parts::dial_failure::DialFailure;
use crate::parts::pbx::Pbx;
use crate::parts::refusal::Reason;
use crate::trust::digest_answers::DigestAnswers;

/// REFERs of one transfer: glare, a lost connection and a challenge each cause another one. One more fails the transfer.
const MOST_REFERS: u8 = 5;
/// Longest time from the acceptance of a REFER to its first NOTIFY (Timer N, RFC 6665 §4.1.2.4).
const FIRST_NOTIFY: Duration = Duration::from_secs(32);
/// Longest wait for the answer to a probe. Without one the transfer fails.
const PROBED: Duration = Duration::from_secs(5);
/// Time for a PBX that may have lost the caller to show that it hasn't. Otherwise we hang up then.
const SHOWN: Duration = Duration::from_secs(5);

/// A transfer of a call.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) record: record::Transfer,
    pub(super) state: State,
    /// Subscription of the runtime that requested it.
    pub(super) subscription: Option<Subscription>,
    /// REFERs of the runtime in this call so far.
    pub(super) referrals: u8,
    pub(super) plan: Plan,
    /// Trunk of the PBX that gets REFER.
    pub(super) trunk: Option<Trunk>,
    pub(super) refer: Refer,
    /// REFERs of this transfer and earlier ones whose subscriptions are open.
    pub(super) sent: SentRefers,
    /// Permit of a destination's leg, from its dialling to the end of the call.
    pub(super) permit: Option<Permit>,
    /// Last status reported for the destination.
    pub(super) heard: u16,
    /// Time of the last NOTIFY of progress (1xx).
    pub(super) progress_at: Option<Moment>,
    /// Status of the failed bridge before REFER.
    pub(super) bridge_failure: Option<u16>,
    /// It has failed after the PBX had surely begun it: only then does a caller who is heard afterwards prove that the PBX keeps callers.
    pub(super) has_failed_after_refer: bool,
    /// End of the agent's leg; only the caller is left then, until the outcome.
    pub(super) agent_end: Option<AgentEnd>,
    pub(super) timer: Option<TimerId>,
}

/// State of a transfer. Each ends without the peer as well, as its variant says.
#[derive(Debug)]
pub(super) enum State {
    /// The caller's ACK is missing; no other request may be sent before it. The call ends after 64*T1 without it.
    AwaitingAck,
    /// The REFER is out. Its transaction ends after 64*T1 without an answer.
    Referring,
    /// The REFER met another request, and will be sent again after the wait for glare.
    Retrying,
    /// The PBX has accepted the REFER: a NOTIFY will follow. Without one the outcome is unknown (`FIRST_NOTIFY`, then `next_notify`).
    Subscribed,
    /// The PBX can't reach the destination, and is probed for the call, for 5 s.
    Probing,
    /// The daemon is calling the destination, which may ring for 45 s.
    Bridging,
    /// The destination has answered: the caller is offered its media. The deadline of the join ends this (`join`).
    Joining,
    /// The PBX has reported 2xx: its BYE will follow. After 2 s we hang up.
    AwaitingBye,
    /// The PBX may have lost the caller, and has 5 s to show that it hasn't.
    Doubting,
    /// The outcome is unknown. The caller may talk on with its agent; without one we hang up after 5 s.
    Unresolved,
    /// The caller has left: a NOTIFY or the answer to the REFER may still come, and the end of the call waits for that, 1 s at most.
    Parting(Box<Ended>),
    /// The transfer is over.
    Settled,
}

/// The REFER to the PBX.
#[derive(Debug)]
pub(crate) struct Refer {
    /// The value of Refer-To.
    pub(crate) to: Box<str>,
    /// Answers to the PBX's challenges.
    pub(crate) digest_answers: DigestAnswers,
    sent: u8,
    /// CSeq of the last REFER: the id of its subscription.
    pub(super) cseq: u32,
}

impl State {
    /// Returns whether the outcome is open.
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

impl Transfer {
    /// Makes a transfer in its first state; `before` is the call's last one.
    pub(super) fn new(new: NewTransfer, before: Option<Self>) -> Self {
        let (subscription, referral) = match new.requester {
            Requester::Api => (None, 0),
            Requester::Runtime(subscription) => (subscription, 1),
        };
        let (referrals, sent, timer) = match before {
            Some(before) => (before.referrals, before.sent, before.timer),
            None => (0, SentRefers::default(), None),
        };

        Self {
            record: new.record,
            state: State::AwaitingAck,
            subscription,
            referrals: referrals.saturating_add(referral),
            plan: new.plan,
            trunk: new.trunk,
            refer: Refer {
                to: new.refer_to,
                digest_answers: DigestAnswers::default(),
                sent: 0,
                cseq: 0,
            },
            sent,
            permit: None,
            heard: 100,
            progress_at: None,
            bridge_failure: None,
            has_failed_after_refer: false,
            agent_end: None,
            timer,
        }
    }

    /// Handles an event.
    pub(super) fn handle(&mut self, event: TransferEvent, call: CallFacts, steps: &mut Steps) {
        self.sent.follow(&event);
        match event {
            TransferEvent::Acknowledged => self.on_acknowledged(call, steps),
            TransferEvent::ReferSent { cseq, .. } => {
                self.refer.sent += 1;
                self.refer.cseq = cseq;
            }
            TransferEvent::ReferUnsent => {
                if matches!(self.state, State::Referring) {
                    self.refer_refused(503, call, steps);
                }
            }
            TransferEvent::ReferAnswered { cseq, answer } if cseq == self.refer.cseq => {
                self.on_refer_answered(answer, call, steps);
            }
            TransferEvent::ReferUnanswered {
                cseq,
                status,
                was_connected,
            } if cseq == self.refer.cseq => {
                self.on_refer_unanswered(status, was_connected, call, steps);
            }
            // This answer belongs to an earlier REFER.
            TransferEvent::ReferAnswered { .. } | TransferEvent::ReferUnanswered { .. } => {}
            TransferEvent::Notified {
                cseq,
                status,
                subscription,
            } => {
                if cseq == self.refer.cseq && self.awaits_notify() {
                    self.on_notified(status, subscription, call, steps);
                }
            }
            TransferEvent::ProbeUnsent => {
                if matches!(self.state, State::Probing) {
                    self.refer_failed(call, steps);
                }
            }
            TransferEvent::ProbeAnswered => self.on_probe_answered(call, steps),
            TransferEvent::DialogGone => self.on_dialog_gone(call, steps),
            TransferEvent::TimedOut => self.on_timed_out(call, steps),
            TransferEvent::DestinationRings => self.on_destination_rings(call, steps),
            TransferEvent::DestinationLost(failure) => {
                self.on_destination_lost(&failure, call, steps)
            }
            TransferEvent::DestinationRefused(status) => {
                self.on_destination_refused(status, call, steps)
            }
            TransferEvent::DestinationAnswered => {
                if matches!(self.state, State::Bridging) {
                    self.state = State::Joining;
                }
            }
            TransferEvent::DestinationConnected => self.on_destination_connected(call, steps),
            TransferEvent::Unsubscribed => self.subscription = None,
            TransferEvent::AgentLeft(end) => self.on_agent_left(end, steps),
            TransferEvent::CallerHeard => self.on_caller_heard(steps),
            TransferEvent::CallEnded(ended) => self.on_call_ended(ended, call, steps),
            TransferEvent::Stopped => {
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

    fn on_acknowledged(&mut self, call: CallFacts, steps: &mut Steps) {
        if !matches!(self.state, State::AwaitingAck) {
            return;
        }
        if self.plan.first == TransferMethod::Bridge && self.bridge(call, steps) {
            return;
        }
        match self.plan.refers {
            // If it can't be bridged, the PBX gets REFER all the same.
            true => {
                self.record.way = TransferMethod::Refer;
                self.refer(call, steps);
            }
            false => self.fail(Reason::NoCommonMedia.status(), call, steps),
        }
    }

    /// Sends REFER, with answers to the PBX's challenges if there are any.
    fn refer(&mut self, call: CallFacts, steps: &mut Steps) {
        if self.refer.sent >= MOST_REFERS {
            return self.refer_refused(503, call, steps);
        }
        self.wait(State::Referring, None, steps);
        steps.push(TransferStep::Refer);
    }

    fn on_refer_answered(&mut self, answer: ReferAnswer, call: CallFacts, steps: &mut Steps) {
        let is_parting = match self.state {
            State::Referring | State::Subscribed => false,
            State::Parting(_) => true,
            // A NOTIFY has moved the transfer on, so this late answer is ignored, except a 481: the call's dialog is gone.
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
                self.settle(TransferOutcome::Unknown, call, steps);
            }
            // Once the caller has left, REFER is of no use.
            ReferAnswer::Challenged if is_parting => self.refer_refused(401, call, steps),
            ReferAnswer::Challenged => self.refer(call, steps),
            ReferAnswer::Refused(status) if is_parting => self.refer_refused(status, call, steps),
            ReferAnswer::Refused(491) => {
                self.wait(State::Retrying, None, steps);
                steps.push(TransferStep::WaitOutGlare);
            }
            // The dialog is gone (RFC 5057 §5.1).
            ReferAnswer::Refused(481) => self.on_dialog_refused(call, steps),
            ReferAnswer::Refused(status) => {
                let may_bridge = status >= 400 && self.plan.bridges_after(status);
                if !may_bridge || !self.bridge(call, steps) {
                    self.refer_refused(status, call, steps);
                }
            }
        }
    }

    fn on_dialog_refused(&mut self, call: CallFacts, steps: &mut Steps) {
        self.refer_refused(481, call, steps);
        steps.push(TransferStep::HangUp(Reason::DialogGone));
    }

    fn on_refer_unanswered(
        &mut self,
        status: u16,
        was_connected: bool,
        call: CallFacts,
        steps: &mut Steps,
    ) {
        if !matches!(self.state, State::Referring) {
            return;
        }
        if status == 503 && was_connected {
            // Over another connection the PBX may challenge the REFER anew.
            self.refer.digest_answers = DigestAnswers::default();
            return self.refer(call, steps);
        }
        self.refer_refused(status, call, steps);
    }

    /// Handles a refused REFER. After a bridge the outcome stays that of the bridge: its status says why the destination wasn't reached.
    fn refer_refused(&mut self, status: u16, call: CallFacts, steps: &mut Steps) {
        if !self.state.is_open() {
            return;
        }
        if self.bridge_failure.is_some() {
            self.record.way = TransferMethod::Bridge;
        }
        self.fail(self.bridge_failure.unwrap_or(status), call, steps);
    }

    /// Handles a 202, or a NOTIFY that has overtaken it.
    fn accepted(&mut self, call: CallFacts, steps: &mut Steps) {
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
        steps: &mut Steps,
    ) {
        self.accepted(call, steps);

        match status {
            Some(200..=299) => {
                self.record.answer_confirmed = Some(self.proves_answer(call));
                self.settle(TransferOutcome::Completed, call, steps);
            }
            Some(status @ 300..) => self.on_refer_failed(status, call, steps),
            Some(status) => {
                self.progress_at = Some(call.now);
                let is_ringing = matches!(status, 180..=189);
                if is_ringing && self.record.state == record::State::Accepted {
                    self.rings(status, call, steps);
                }
                self.await_notify(subscription, call, steps);
            }
            None => self.await_notify(subscription, call, steps),
        }
    }

    /// Waits for the next NOTIFY, unless this was the last one.
    fn await_notify(
        &mut self,
        subscription: SubscriptionState,
        call: CallFacts,
        steps: &mut Steps,
    ) {
        match subscription {
            SubscriptionState::Terminated => self.settle(TransferOutcome::Unknown, call, steps),
            SubscriptionState::Open { .. } if matches!(self.state, State::Parting(_)) => {}
            SubscriptionState::Open { expires } => {
                self.wait(State::Subscribed, Some(next_notify(expires)), steps);
            }
        }
    }

    fn rings(&mut self, status: u16, call: CallFacts, steps: &mut Steps) {
        self.heard = status;
        self.record.state = record::State::Ringing;
        self.record.ringing_at = Some(call.now);
        self.record(steps);
        self.notify(status, false, steps);
    }

    /// Handles a NOTIFY that the destination wasn't reached.
    fn on_refer_failed(&mut self, status: u16, call: CallFacts, steps: &mut Steps) {
        self.heard = status;
        let is_parting = matches!(self.state, State::Parting(_));
        let may_bridge = !is_parting && self.plan.bridges_after(status);
        let is_unknown_there = matches!(status, 404 | 484 | 604);
        if may_bridge && (is_unknown_there || call.never_began(status)) {
            self.wait(State::Probing, Some(PROBED), steps);
            return steps.push(TransferStep::Probe);
        }
        self.refer_failed(call, steps);
    }

    /// Fails the transfer with the last status.
    fn refer_failed(&mut self, call: CallFacts, steps: &mut Steps) {
        let status = self.heard;
        let is_parting = matches!(self.state, State::Parting(_));
        let reports_loss = call.pbx.is_some_and(Pbx::reports_lost_caller);
        let loses =
            !is_parting && self.loses_caller(call) && reports_loss && !call.never_began(status);
        self.record.caller_may_be_gone = loses;
        self.has_failed_after_refer = !is_parting && has_surely_begun(status);

        self.fail(status, call, steps);
        if loses && self.agent_end.is_none() && call.is_up {
            self.wait(State::Doubting, Some(SHOWN), steps);
            steps.push(TransferStep::Probe);
        }
    }

    /// Returns whether the PBX loses the caller when a REFER that it has accepted fails.
    fn loses_caller(&self, call: CallFacts) -> bool {
        !self.plan.keeps_caller && call.pbx.is_some_and(Pbx::loses_caller)
    }

    fn on_probe_answered(&mut self, call: CallFacts, steps: &mut Steps) {
        if matches!(self.state, State::Probing) && !self.bridge(call, steps) {
            self.fail(self.heard, call, steps);
        }
    }

    fn on_dialog_gone(&mut self, call: CallFacts, steps: &mut Steps) {
        if matches!(self.state, State::Probing) {
            self.fail(self.heard, call, steps);
        }
        steps.push(TransferStep::HangUp(Reason::DialogGone));
    }

    fn on_timed_out(&mut self, call: CallFacts, steps: &mut Steps) {
        self.timer = None;

        match self.state {
            State::Retrying => self.refer(call, steps),
            // RFC 6665 §4.1.2.4: the subscription is over.
            State::Subscribed => {
                self.sent.end(self.refer.cseq);
                self.settle(TransferOutcome::Unknown, call, steps);
            }
            State::Probing => self.refer_failed(call, steps),
            State::AwaitingBye => self.leave_handed_over(steps),
            State::Doubting => steps.push(TransferStep::HangUp(Reason::CallerLost)),
            State::Unresolved => self.leave_unresolved(steps),
            State::Parting(_) => self.settle(self.unheard(), call, steps),
            State::AwaitingAck
            | State::Referring
            | State::Bridging
            | State::Joining
            | State::Settled => {}
        }
    }

    /// Calls the destination, if that is possible from here.
    fn bridge(&mut self, call: CallFacts, steps: &mut Steps) -> bool {
        let Some(route) = self.plan.route.take_if(|_| call.can_dial) else {
            return false;
        };
        self.record.way = TransferMethod::Bridge;
        self.record.state = record::State::Accepted;
        self.record.accepted_at = Some(call.now);
        self.record.ringing_at = None;
        // REFER is tried before or after the bridge, not both.
        self.plan.refers_after_bridge &= self.refer.sent == 0;

        self.wait(State::Bridging, None, steps);
        self.record(steps);
        steps.push(TransferStep::Dial(route));
        true
    }

    fn on_destination_rings(&mut self, call: CallFacts, steps: &mut Steps) {
        if matches!(self.state, State::Bridging) {
            self.rings(180, call, steps);
        }
    }

    /// Tries REFER if nothing has rung: the PBX may reach the destination.
    fn on_destination_lost(&mut self, failure: &DialFailure, call: CallFacts, steps: &mut Steps) {
        if !self.refers_instead(failure, call) {
            return self.on_destination_refused(failure.sip_code, call, steps);
        }
        self.plan.refers_after_bridge = false;
        self.bridge_failure = Some(failure.sip_code);
        self.permit = None;
        self.record.way = TransferMethod::Refer;
        self.record.state = record::State::Requested;
        self.record.accepted_at = None;
        self.record(steps);
        self.refer(call, steps);
    }

    fn refers_instead(&self, failure: &DialFailure, call: CallFacts) -> bool {
        // A REFER would lead the caller into the same dialplan.
        let has_run = |pbx: Pbx| pbx.has_run_dialplan(failure.sip_code, failure.cause);
        let is_in_vain =
            failure.is_answer && self.loses_caller(call) && call.pbx.is_some_and(has_run);
        let is_out_of_reach =
            !is_in_vain && matches!(failure.sip_code, 401 | 403 | 404 | 407 | 408 | 503);
        let has_rung = self.record.ringing_at.is_some();
        let is_bridging = matches!(self.state, State::Bridging);
        is_bridging && self.plan.refers_after_bridge && !has_rung && is_out_of_reach
    }

    fn on_destination_refused(&mut self, status: u16, call: CallFacts, steps: &mut Steps) {
        if matches!(self.state, State::Bridging | State::Joining) {
            self.fail(status, call, steps);
        }
    }

    fn on_destination_connected(&mut self, call: CallFacts, steps: &mut Steps) {
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

    /// Waits in a state, at most so long.
    pub(super) fn wait(&mut self, state: State, at_most: Option<Duration>, steps: &mut Steps) {
        self.state = state;
        steps.push(TransferStep::Wait(at_most));
    }

    /// Records the current state.
    pub(super) fn record(&mut self, steps: &mut Steps) {
        self.record.step = self.record.step.saturating_add(1);
        steps.push(TransferStep::Record(Box::new(self.record.clone())));
    }

    /// Sends a runtime that has sent REFER the destination's status.
    pub(super) fn notify(&self, status: u16, is_last: bool, steps: &mut Steps) {
        // Its subscription ends with the agent's dialog.
        if let Some(subscription) = self.subscription.filter(|_| self.agent_end.is_none()) {
            steps.push(TransferStep::Notify {
                subscription,
                status,
                is_last,
            });
        }
    }
}
