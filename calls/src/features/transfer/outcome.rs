//! Outcome of a transfer, and its consequence for the call: completed ends it, failed lets it go on, unknown is settled once the caller leaves.

use std::time::Duration;

use trunkline_model::record::{Ended, HangupBy, Status};
use trunkline_model::transfer as record;

use super::event::{AgentEnd, CallFacts, Steps, TransferOutcome, TransferStep};
use super::machine::{State, Transfer};
use crate::leg::call_end::CallEnd;
use crate::parts::pbx::Pbx;
use crate::parts::refusal::Reason;

/// A 200 that comes this soon after the 202 or the last progress doesn't prove an answer: a PBX sends it as soon as it has begun, or as soon as audio
/// flows to the caller.
pub(super) const TOO_SOON: Duration = Duration::from_millis(500);
/// Time after the caller's BYE in which a NOTIFY still counts.
const AFTER_BYE: Duration = Duration::from_secs(1);
/// Time for a PBX that reported 2xx to send its own BYE.
const AFTER_SUCCESS: Duration = Duration::from_secs(2);
/// Time that a caller stays after its agent has hung up, while the PBX may still be moving it.
const ALONE: Duration = Duration::from_secs(5);

impl Transfer {
    /// Handles the end of the agent's leg. The caller stays until the outcome is known: a BYE now could undo the PBX's transfer.
    pub(super) fn on_agent_left(&mut self, end: AgentEnd, steps: &mut Steps) {
        self.agent_end = Some(end);

        match self.state {
            // The agent's BYE counts as ours: the PBX has the caller.
            State::AwaitingBye => self.leave_handed_over(steps),
            // With its agent the caller could wait without a limit; alone it has this time to leave.
            State::Unresolved => self.wait(State::Unresolved, Some(ALONE), steps),
            // Each of these ends by itself: by its timer, its transaction, or the deadline of the destination's leg.
            State::AwaitingAck
            | State::Referring
            | State::Retrying
            | State::Subscribed
            | State::Probing
            | State::Bridging
            | State::Joining
            | State::Doubting
            | State::Parting(_)
            | State::Settled => {}
        }
    }

    /// Ends the call of a caller without an agent whose transfer has no known outcome.
    pub(super) fn leave_unresolved(&mut self, steps: &mut Steps) {
        let end = match self.agent_end {
            Some(AgentEnd::Lost(_)) => self.end_alone(),
            // The agent has hung up for the transfer's sake, which is all that is known of it.
            Some(AgentEnd::HungUp) | None => {
                self.record.handed_over = true;
                self.record(steps);
                self.end_handed_over(HangupBy::Agent)
            }
        };
        self.wait(State::Settled, None, steps);
        steps.push(TransferStep::Leave(end));
    }

    /// Returns the end of a call whose caller has neither an agent nor a destination.
    fn end_alone(&self) -> CallEnd {
        match self.agent_end {
            Some(AgentEnd::Lost(reason)) => CallEnd {
                reason: Some(reason),
                ..CallEnd::of_answered(Status::Completed, HangupBy::Platform)
            },
            Some(AgentEnd::HungUp) | None => {
                CallEnd::of_answered(Status::Completed, HangupBy::Agent)
            }
        }
    }

    pub(super) fn leave_handed_over(&self, steps: &mut Steps) {
        let end = self.end_handed_over(HangupBy::Platform);
        steps.push(TransferStep::Leave(end));
    }

    /// Returns the end of a call whose caller has been handed over. It counts as transferred only if the destination is known to have answered.
    pub(super) fn end_handed_over(&self, by: HangupBy) -> CallEnd {
        match self.record.answer_confirmed {
            Some(true) => CallEnd::of_answered(Status::Transferred, by),
            Some(false) | None => CallEnd {
                reason: Some(Reason::TransferUnconfirmed),
                ..CallEnd::of_answered(Status::Completed, by)
            },
        }
    }

    /// Writes the same into an end that something else has brought; its own reason stays.
    fn note_handed_over(&self, ended: &mut Ended) {
        let end = self.end_handed_over(ended.hangup_by);
        ended.status = end.status;
        let reason = end.reason.map(|reason| reason.code().into());
        ended.reason = ended.reason.take().or(reason);
    }

    /// Notes that the PBX has the caller; the trunk learns this if an accepted REFER has failed before.
    pub(super) fn on_caller_heard(&mut self, steps: &mut Steps) {
        let is_known = !self.has_failed_after_refer || self.record.kept_by.is_some();
        if is_known || self.trunk.is_none() {
            return;
        }
        self.record.kept_by = self.trunk;
        self.record.caller_may_be_gone = false;
        // This stops the timer that would hang up on a lost caller.
        if matches!(self.state, State::Doubting) {
            self.wait(State::Settled, None, steps);
        }
        self.record(steps);
    }

    /// Handles the end of the call: settles an open outcome, or holds the end back while a NOTIFY may still bring the outcome.
    pub(super) fn on_call_ended(
        &mut self,
        mut ended: Box<Ended>,
        call: CallFacts,
        steps: &mut Steps,
    ) {
        self.permit = None;
        let has_caller_left = matches!(ended.hangup_by, HangupBy::Caller | HangupBy::Callee);

        match self.state {
            // The PBX has reported 2xx, so this BYE completes the transfer, from whichever side it comes.
            State::AwaitingBye => {
                self.note_handed_over(&mut ended);
                self.wait(State::Settled, None, steps);
            }

            // The PBX accepted the REFER, reported no outcome and hangs up, as one does that has moved the caller.
            State::Unresolved if has_caller_left => {
                self.record.handed_over = true;
                self.note_handed_over(&mut ended);
                self.wait(State::Settled, None, steps);
                self.record(steps);
            }

            // Some PBXs send BYE before the NOTIFY or even before the 202, so these still count for a moment.
            State::Referring | State::Retrying | State::Subscribed if has_caller_left => {
                return self.wait(State::Parting(ended), Some(AFTER_BYE), steps);
            }

            State::Bridging | State::Joining => {
                self.close(TransferOutcome::Failed(487), call, steps)
            }
            State::Probing => self.close(TransferOutcome::Failed(self.heard), call, steps),
            State::AwaitingAck | State::Referring | State::Retrying | State::Subscribed => {
                self.close(self.unheard(), call, steps);
            }
            State::Doubting | State::Unresolved => self.wait(State::Settled, None, steps),
            // The end of the call is held back already.
            State::Parting(_) => return,
            State::Settled => {}
        }

        steps.push(TransferStep::CallEnd(ended));
    }

    /// Returns whether a 2xx that comes now shows that the destination has answered, and not merely that the PBX has begun to call it.
    pub(super) fn proves_answer(&self, call: CallFacts) -> bool {
        let reports_early = call.pbx.is_some_and(Pbx::reports_early);
        if reports_early && self.progress_at.is_none() {
            return false;
        }
        let last = self.record.accepted_at.max(self.progress_at);
        last.is_none_or(|at| call.now.since(at) > TOO_SOON)
    }

    /// Returns the outcome if nothing more comes.
    pub(super) fn unheard(&self) -> TransferOutcome {
        match self.record.state {
            record::State::Requested => TransferOutcome::Failed(487),
            record::State::Accepted
            | record::State::Ringing
            | record::State::Unknown
            | record::State::Failed
            | record::State::Completed => TransferOutcome::Unknown,
        }
    }

    pub(super) fn fail(&mut self, status: u16, call: CallFacts, steps: &mut Steps) {
        self.settle(TransferOutcome::Failed(status), call, steps);
    }

    /// Settles the outcome; the call continues accordingly.
    pub(super) fn settle(&mut self, outcome: TransferOutcome, call: CallFacts, steps: &mut Steps) {
        // The state is taken out by value; `close` and each branch below set the next one.
        if let State::Parting(mut ended) = std::mem::replace(&mut self.state, State::Settled) {
            // The caller has gone where the PBX moved it.
            let may_be_there = !matches!(outcome, TransferOutcome::Failed(_));
            if may_be_there {
                self.record.handed_over = true;
                self.note_handed_over(&mut ended);
            }
            self.close(outcome, call, steps);
            return steps.push(TransferStep::CallEnd(ended));
        }

        self.note(outcome, call);
        self.record(steps);
        let said = match outcome {
            TransferOutcome::Completed => 200,
            TransferOutcome::Failed(status) => status,
            // The status that the PBX reported, reliable or not.
            TransferOutcome::Unknown => self.heard,
        };
        self.notify(said, true, steps);

        let alone = self.agent_end.is_some();
        match outcome {
            TransferOutcome::Completed => self.wait(State::AwaitingBye, Some(AFTER_SUCCESS), steps),
            TransferOutcome::Unknown => {
                // With its agent the caller can talk on, so nothing bounds this wait but the end of the call.
                self.wait(State::Unresolved, alone.then_some(ALONE), steps);
                if !alone {
                    steps.push(TransferStep::Unresolved);
                }
            }
            TransferOutcome::Failed(_) => {
                self.wait(State::Settled, None, steps);
                steps.push(match alone {
                    // Without its agent, the caller has no call to go back to.
                    true => TransferStep::Leave(self.end_alone()),
                    false => TransferStep::Resume,
                });
            }
        }
    }

    /// Settles the outcome of a call that is over.
    fn close(&mut self, outcome: TransferOutcome, call: CallFacts, steps: &mut Steps) {
        self.note(outcome, call);
        self.record(steps);
        self.wait(State::Settled, None, steps);
    }

    fn note(&mut self, outcome: TransferOutcome, call: CallFacts) {
        self.permit = None;
        let (state, code) = match outcome {
            TransferOutcome::Completed => (record::State::Completed, None),
            TransferOutcome::Failed(status) => (record::State::Failed, Some(status)),
            TransferOutcome::Unknown => (record::State::Unknown, None),
        };
        self.record.state = state;
        self.record.sip_code = code;
        self.record.ended_at = Some(call.now);
        // `settle` has set `handed_over` for an unknown outcome if the caller has gone.
        self.record.handed_over |= matches!(outcome, TransferOutcome::Completed);
    }
}
