//! Outcome of a transfer, and its consequence for the call: completed it ends here; failed it goes on as before; unknown
//! it shows once the caller leaves.

use std::time::Duration;

use trunkline_model::record::{Ended, Fact, HangupBy, Status};
use trunkline_model::transfer::State;

use super::{Transfer, Wait};
use crate::call::{Call, CallStatus};
use crate::context::Cx;

/// Time after the caller's BYE in which a NOTIFY still counts.
const AFTER_BYE: Duration = Duration::from_secs(1);
/// Time that a PBX which said 2xx has for its own BYE.
const AFTER_SUCCESS: Duration = Duration::from_secs(2);
/// Time that a caller stays whose agent has hung up, while the PBX may still be taking it away.
const ALONE: Duration = Duration::from_secs(5);

impl Call {
    /// Whether the outcome of a transfer is to come.
    pub(crate) fn is_transferring(&self) -> bool {
        let waits = |transfer: &Transfer| transfer.is_open() || transfer.wait == Wait::Leaving;
        self.transfer.as_deref().is_some_and(waits)
    }

    /// Whether the caller is on its own: its agent has hung up, and what becomes of its transfer is to come.
    pub(crate) fn has_agent_left(&self) -> bool {
        let is_gone = self.agent().is_some_and(|agent| agent.dialogs.is_empty());
        is_gone && self.status() == CallStatus::Up && self.is_transferring()
    }

    /// Whether the caller has gone, and only the BYEs are to come.
    pub(crate) fn is_handed_over(&self) -> bool {
        let waits = |transfer: &Transfer| transfer.wait == Wait::Bye;
        self.transfer.as_deref().is_some_and(waits)
    }

    /// The caller has gone: both ends are hung up on.
    pub(crate) fn leave_handed_over(&mut self, cx: &mut Cx<'_>) {
        self.leave(cx, Status::Transferred, HangupBy::Platform);
    }

    /// Whether the call is over but for the outcome of its transfer.
    pub(crate) fn is_parting(&self) -> bool {
        let parts = |transfer: &Transfer| transfer.wait == Wait::Parting;
        self.transfer.as_deref().is_some_and(parts)
    }

    /// The outcome.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, state: State, code: Option<u16>) {
        let Some(transfer) = self
            .transfer
            .as_deref_mut()
            .filter(|transfer| transfer.is_open())
        else {
            return;
        };

        let parting = transfer.wait == Wait::Parting;
        let alone = transfer.agent_gone;
        transfer.permit = None;
        transfer.record.state = state;
        transfer.record.sip_code = code;
        transfer.record.ended_at = Some(cx.now);
        transfer.record.handed_over =
            state == State::Completed || (state == State::Unknown && parting);

        let said = match (state, code) {
            (State::Completed, _) => 200,
            (State::Failed, Some(code)) => code,
            // Its own words, whatever they are worth.
            _ => transfer.heard,
        };
        self.tell_transfer(cx);
        if parting {
            return self.finish_parting(cx);
        }

        self.tell_runtime(cx, said, true);
        match state {
            State::Completed => {
                self.wait_for(cx, Wait::Bye, Some(AFTER_SUCCESS));
            }
            State::Unknown => self.wait_for(cx, Wait::Leaving, alone.then_some(ALONE)),
            State::Failed | State::Requested | State::Accepted | State::Ringing => {
                self.wait_for(cx, Wait::Nothing, None);
                if alone {
                    self.leave(cx, Status::Completed, HangupBy::Agent);
                } else {
                    self.resume_after_transfer(cx);
                }
            }
        }
    }

    /// The agent has hung up. The caller stays until the outcome is known: a BYE now could undo what the PBX is doing.
    pub(crate) fn agent_leaves(&mut self, cx: &mut Cx<'_>) {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        transfer.agent_gone = true;
        if transfer.wait == Wait::Leaving {
            self.wait_for(cx, Wait::Leaving, Some(ALONE));
        }
    }

    /// The outcome is unknown, the agent gone, and the caller still here.
    pub(super) fn caller_stayed(&mut self, cx: &mut Cx<'_>) {
        self.wait_for(cx, Wait::Nothing, None);
        self.leave(cx, Status::Completed, HangupBy::Agent);
    }

    /// No word has come after the caller's BYE.
    pub(super) fn part_unheard(&mut self, cx: &mut Cx<'_>) {
        let requested = |transfer: &Transfer| transfer.record.state == State::Requested;
        if self.transfer.as_deref().is_some_and(requested) {
            self.settle(cx, State::Failed, Some(487));
        } else {
            self.settle(cx, State::Unknown, None);
        }
    }

    /// The call is over. Gives its end back, unless it has to wait for the outcome of a transfer.
    pub(crate) fn end_transfer(&mut self, cx: &mut Cx<'_>, mut ended: Ended) -> Option<Ended> {
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return Some(ended);
        };
        transfer.permit = None;

        let left = matches!(ended.hangup_by, HangupBy::Caller | HangupBy::Callee);
        match transfer.wait {
            Wait::Bye => {
                ended.status = Status::Transferred;
                self.wait_for(cx, Wait::Nothing, None);
                Some(ended)
            }
            Wait::Leaving if left => {
                transfer.record.handed_over = true;
                ended.status = Status::Transferred;
                self.wait_for(cx, Wait::Nothing, None);
                self.tell_transfer(cx);
                Some(ended)
            }
            Wait::Answer | Wait::Again | Wait::Notify if left => {
                transfer.ended = Some(Box::new(ended));
                self.wait_for(cx, Wait::Parting, Some(AFTER_BYE));
                None
            }
            Wait::Destination => {
                self.settle(cx, State::Failed, Some(487));
                Some(ended)
            }
            Wait::Probe => {
                let heard = transfer.heard;
                self.settle(cx, State::Failed, Some(heard));
                Some(ended)
            }
            Wait::Ack | Wait::Answer | Wait::Again | Wait::Notify => {
                self.part_unheard(cx);
                Some(ended)
            }
            Wait::Caller => {
                self.wait_for(cx, Wait::Nothing, None);
                Some(ended)
            }
            Wait::Leaving | Wait::Parting | Wait::Nothing => Some(ended),
        }
    }

    /// The end that was kept back.
    fn finish_parting(&mut self, cx: &mut Cx<'_>) {
        self.wait_for(cx, Wait::Nothing, None);
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return;
        };
        let handed_over = transfer.record.handed_over;
        if let Some(mut ended) = transfer.ended.take() {
            if handed_over {
                ended.status = Status::Transferred;
            }
            cx.core.fact(Fact::Ended(ended));
        }
    }

    /// Nothing more is waited for: the node stops, or a fault of ours ends the call.
    pub(crate) fn stop_parting(&mut self, cx: &mut Cx<'_>) {
        if self.status() == CallStatus::Over && self.is_parting() {
            self.part_unheard(cx);
        }
    }
}
