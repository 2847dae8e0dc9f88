//! Last transfer of a call, as the call uses it.

use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;

use super::event::{CallFacts, NewTransfer, Steps, TransferEvent, TransferStep};
use super::machine::{Refer, State, Transfer};
use super::request::TransferError;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::limits::Permit;
use crate::parts::ids::LegId;
use crate::parts::refusal::Reason;
use crate::trust::digest_answers::DigestAnswers;

/// The last transfer of a call, under way or settled.
#[derive(Debug, Default)]
pub(crate) struct LastTransfer(pub(super) Option<Box<Transfer>>);

impl LastTransfer {
    /// Begins a transfer after the last one has settled.
    pub(crate) fn begin(&mut self, new: NewTransfer) -> Steps {
        let settled = self.0.take().map(|settled| *settled);
        let transfer = Transfer::new(new, settled);
        let transfer = self.0.insert(Box::new(transfer));

        let mut steps = Steps::new();
        // A settled transfer may still run its timer (`Doubting`, `Unresolved`): that timer must not fire for the new transfer.
        steps.push(TransferStep::Wait(None));
        transfer.record(&mut steps);
        // RFC 6665 §4.2.1.2: "notifiers MUST send a NOTIFY request immediately" once they have accepted a subscription.
        transfer.notify(100, false, &mut steps);
        steps
    }

    /// Handles an event.
    pub(crate) fn handle(&mut self, event: TransferEvent, call: CallFacts) -> Steps {
        let mut steps = Steps::new();
        match (self.0.as_deref_mut(), event) {
            (Some(transfer), event) => transfer.handle(event, call, &mut steps),
            // Without a transfer no outcome holds the end of the call back.
            (None, TransferEvent::CallEnded(ended)) => steps.push(TransferStep::CallEnd(ended)),
            (None, TransferEvent::DialogGone) => {
                steps.push(TransferStep::HangUp(Reason::DialogGone))
            }
            (None, _) => {}
        }
        steps
    }

    /// Returns the CSeq of the REFER that a NOTIFY on this leg with this id belongs to; `None` without a subscription.
    pub(crate) fn refer_of_notify(&self, leg: LegId, id: Option<u32>) -> Option<u32> {
        self.0.as_deref()?.sent.of_notify(leg, id)
    }

    /// Returns whether another transfer has to wait: this one's outcome is open, or the BYE of the transferred caller is awaited.
    pub(crate) fn is_busy(&self) -> bool {
        let is_busy = |transfer: &Transfer| {
            matches!(transfer.state, State::AwaitingBye) || transfer.state.is_open()
        };
        self.0.as_deref().is_some_and(is_busy)
    }

    /// Returns whether the transfer's outcome is open, or unknown until the caller leaves.
    pub(crate) fn is_under_way(&self) -> bool {
        let waits = |transfer: &Transfer| {
            matches!(transfer.state, State::Unresolved) || transfer.state.is_open()
        };
        self.0.as_deref().is_some_and(waits)
    }

    /// Returns whether the transfer goes on without the agent: its outcome is open, or the caller has been transferred and only the BYEs are missing.
    pub(crate) fn goes_on(&self) -> bool {
        let is_awaited = |transfer: &Transfer| matches!(transfer.state, State::AwaitingBye);
        self.is_under_way() || self.0.as_deref().is_some_and(is_awaited)
    }

    /// Returns whether the call is over, and only the transfer's outcome is awaited.
    pub(crate) fn is_parting(&self) -> bool {
        let parts = |transfer: &Transfer| matches!(transfer.state, State::Parting(_));
        self.0.as_deref().is_some_and(parts)
    }

    /// REFERs of the runtime in this call so far.
    pub(crate) fn referrals(&self) -> u8 {
        self.0.as_deref().map_or(0, |transfer| transfer.referrals)
    }

    /// The REFER to the PBX.
    pub(crate) fn refer(&self) -> Option<&Refer> {
        self.0.as_deref().map(|transfer| &transfer.refer)
    }

    /// Returns the digest answers for a challenge of the PBX to the current REFER; `None` for any other REFER.
    pub(crate) fn digest_answers_for(&mut self, cseq: u32) -> Option<&mut DigestAnswers> {
        let transfer = self.0.as_deref_mut()?;
        let is_asked = matches!(transfer.state, State::Referring | State::Subscribed);
        (is_asked && transfer.refer.cseq == cseq).then_some(&mut transfer.refer.digest_answers)
    }

    /// Returns whether the PBX gets REFER if the bridge fails.
    pub(crate) fn refers_after_bridge(&self) -> bool {
        let refers = |transfer: &Transfer| transfer.plan.refers_after_bridge;
        self.0.as_deref().is_some_and(refers)
    }

    /// Stores the permit of a destination's leg, and the time at which it was counted among the org's outbound calls.
    pub(crate) fn count(&mut self, permit: Option<Permit>, at: Option<Moment>) {
        if let Some(transfer) = self.0.as_deref_mut() {
            transfer.permit = permit;
            transfer.record.counted_at = at;
        }
    }

    /// The timer that runs for the transfer.
    pub(crate) fn timer(&self) -> Option<TimerId> {
        self.0.as_deref()?.timer
    }

    pub(crate) fn timer_mut(&mut self) -> Option<&mut Option<TimerId>> {
        self.0.as_deref_mut().map(|transfer| &mut transfer.timer)
    }
}

impl LastTransfer {
    /// Returns why no transfer of the call can begin now, if none can.
    pub(crate) fn may_begin(&self, bridge: &Bridge) -> Result<(), TransferError> {
        match bridge.status() {
            CallStatus::SettingUp => return Err(TransferError::NotAnswered),
            CallStatus::Over => return Err(TransferError::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        // The destination is no agent of the org: there is no list of destinations that it may transfer to.
        if bridge.is_with_destination() {
            return Err(TransferError::NotUp);
        }
        // Once a new leg replaces one of the two, the result of a REFER on the old one has no use (RFC 3891 §3).
        match self.is_busy() || bridge.legs.successor().is_some() {
            true => Err(TransferError::UnderWay),
            false => Ok(()),
        }
    }

    /// Returns whether the call goes on without this leg: that of an agent whose caller is being transferred.
    pub(crate) fn outlives(&self, bridge: &Bridge, leg: LegId) -> bool {
        let is_up = matches!(bridge.status(), CallStatus::Answered | CallStatus::Up);
        is_up && leg == bridge.agent_id() && self.goes_on()
    }

    /// Returns whether the caller is alone: its agent has hung up, and the outcome of its transfer is open.
    pub(crate) fn has_agent_left(&self, bridge: &Bridge) -> bool {
        let is_gone = bridge.agent().is_some_and(|agent| agent.dialogs.is_empty());
        is_gone && bridge.status() == CallStatus::Up && self.is_under_way()
    }
}
