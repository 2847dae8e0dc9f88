//! The calls of a run, with both ends: datagrams and time go in, datagrams come out. No socket, no clock.
//!
//! Caller and callee share a record per call, which the callee finds by the `X-Bench-Call` that the daemon carries to it. The callee
//! compares the parts that the daemon must carry unchanged.

mod callee;
mod callee_print;
mod caller;
mod caller_print;
mod gate;
mod plan;

use crate::calls::{CallRef, CalleeState, CallerState, Calls};
use crate::due::{Due, DueAction, GIVE_UP, Schedule};
use crate::outbox::Outbox;
use crate::tally::{Failure, Tally};

use callee_print::Callee;
use caller_print::Caller;
pub use gate::Gate;
pub use plan::{Parties, Plan, Span};

/// Both ends of all calls of a run.
#[derive(Debug)]
pub struct Exchange {
    plan: Plan,
    calls: Calls,
    due: Schedule,
    caller: Caller,
    callee: Callee,
    gate: Option<Gate>,
    /// The counts so far.
    pub tally: Tally,
    /// True if calls that begin now count.
    pub measuring: bool,
    /// Datagrams for the caller's socket to send.
    pub caller_out: Outbox,
    /// Datagrams for the callee's socket to send.
    pub callee_out: Outbox,
}

impl Exchange {
    /// An exchange without calls, for at most `room` at once.
    pub fn new(parties: &Parties, plan: Plan, gate: Option<Gate>, room: usize) -> Self {
        Self {
            plan,
            calls: Calls::new(room),
            due: Schedule::default(),
            caller: Caller::new(parties),
            callee: Callee::new(parties),
            gate,
            tally: Tally::default(),
            measuring: true,
            caller_out: Outbox::default(),
            callee_out: Outbox::default(),
        }
    }

    /// Sets the plan of calls that begin from now on.
    pub fn set_plan(&mut self, plan: Plan) {
        self.plan = plan;
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of calls that are alive on either end.
    pub fn live(&self) -> usize {
        self.calls.live()
    }

    /// Calls whose two ends are in these states.
    pub fn in_states(&self, caller: CallerState, callee: CalleeState) -> Vec<CallRef> {
        let alike = self
            .calls
            .references()
            .filter(|(_, call)| call.caller == caller && call.callee == callee);
        alike.map(|(reference, _)| reference).collect()
    }

    /// Calls that are established on both ends.
    pub fn talking(&self) -> Vec<CallRef> {
        self.in_states(CallerState::Talking, CalleeState::Talking)
    }

    /// Runs due timers; returns true if there was any.
    pub fn handle_due(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(due) = self.due.pop(now) {
            any = true;
            self.fire(due, now);
        }
        any
    }

    /// Returns the time at which the next timer is due, in microseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.due.next()
    }

    /// Cancels calls without a final response within the plan's patience, and fails calls whose callee's end isn't over long after the
    /// caller's. Run it every few seconds.
    pub fn sweep(&mut self, now: u64) {
        let patience = self.plan.patience;
        let late = |at: u64| now.saturating_sub(at) > patience;

        let waiting: Vec<_> = self
            .calls
            .references()
            .filter(|(_, call)| match call.caller {
                CallerState::Proceeding => late(call.scheduled) && self.plan.ring != Span::Held,
                // The daemon repeats its BYE to the callee for 64·T1: until then the callee's end isn't left over.
                CallerState::Done => now.saturating_sub(call.ended) > GIVE_UP + 3_000_000,
                // These have timers of their own: retransmissions end after 64·T1, and the plan ends the talk.
                CallerState::Inviting
                | CallerState::Talking
                | CallerState::HangingUp
                | CallerState::Probing => false,
            })
            .map(|(reference, call)| (reference, call.caller))
            .collect();

        for (reference, state) in waiting {
            if state == CallerState::Done {
                self.fail(reference, Failure::CalleeLeftOver);
                self.calls.release(reference);
            } else {
                self.cancel(reference, now);
            }
        }
    }

    fn fire(&mut self, due: Due, now: u64) {
        match due.what {
            DueAction::Invite { cseq } => self.invite_due(due, cseq, now),
            DueAction::Bye => self.bye_due(due, now),
            DueAction::Probe => self.probe_due(due, now),
            DueAction::Ok => self.ok_due(due, now),
            DueAction::Answer => self.answer(due.call, now),
            DueAction::HangUp => self.hang_up(due.call, now),
        }
    }

    /// Counts a failure, at most one per call.
    fn fail(&mut self, reference: CallRef, failure: Failure) {
        if let Some(call) = self.calls.find(reference)
            && !std::mem::replace(&mut call.failed, true)
            && call.measured
        {
            self.tally.fail(failure);
        }
    }

    fn caller_done(&mut self, reference: CallRef, now: u64) {
        if let Some(call) = self.calls.find(reference) {
            call.caller = CallerState::Done;
            call.ended = now;
        }
        self.settle(reference);
    }

    /// Frees a call that is over on both ends.
    fn settle(&mut self, reference: CallRef) {
        let Some(call) = self.calls.find(reference) else {
            return;
        };
        let callee_over = matches!(call.callee, CalleeState::Idle | CalleeState::Done);
        if call.caller == CallerState::Done && callee_over {
            // A call that began in the warm-up counts too: its end falls into the window, as those of the last calls
            // fall behind it.
            self.tally.completed += u64::from(!call.failed);
            self.calls.release(reference);
        }
    }
}
