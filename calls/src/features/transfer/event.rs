//! Events of a transfer, and the steps that follow.

use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::record::Ended;
use trunkline_model::transfer::{Transfer, Trunk};
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::moment::Moment;

use super::destination_route::DestinationRoute;
use super::plan::Plan;
use crate::leg::call_end::CallEnd;
use crate::parts::dial_failure::DialFailure;
use crate::parts::ids::LegId;
use crate::parts::pbx::Pbx;
use crate::parts::refusal::Reason;

/// Subscription that a runtime made by sending REFER, in the dialog of that REFER.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Subscription {
    /// Number of the dialog.
    pub(crate) fork: u8,
    /// Its id, needed for a second one in the same dialog (RFC 3515 §2.4.6).
    pub(crate) id: Option<u32>,
}

/// Requester of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Requester {
    /// The API, or a caller of the echo agent.
    Api,
    /// The runtime, by REFER; without a subscription it gets no NOTIFY (RFC 4488).
    Runtime(Option<Subscription>),
}

/// A new transfer.
#[derive(Debug)]
pub(crate) struct NewTransfer {
    pub(crate) record: Transfer,
    pub(crate) requester: Requester,
    pub(crate) plan: Plan,
    /// Trunk of the PBX that gets REFER.
    pub(crate) trunk: Option<Trunk>,
    /// The value of Refer-To.
    pub(crate) refer_to: Box<str>,
}

/// Facts of the call at the time of an event.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CallFacts {
    pub(crate) now: Moment,
    pub(crate) is_up: bool,
    /// A destination can be called: the caller's media are known, and no other peer is being called.
    pub(crate) can_dial: bool,
    /// Kind of phone system on the caller's side.
    pub(crate) pbx: Option<Pbx>,
}

/// Event of a transfer.
#[derive(Debug)]
pub(crate) enum TransferEvent {
    /// The call is up: its INVITE was acknowledged, so the transfer may send requests.
    Acknowledged,
    /// The REFER went out.
    ReferSent { leg: LegId, cseq: u32 },
    /// The REFER couldn't be sent.
    ReferUnsent,
    /// The PBX has answered the REFER.
    ReferAnswered { cseq: u32, answer: ReferAnswer },
    /// The REFER had no answer, or its connection broke: `status` is that of RFC 3261 §8.1.3.1.
    ReferUnanswered {
        cseq: u32,
        status: u16,
        was_connected: bool,
    },
    /// NOTIFY of the PBX for the REFER with this CSeq, with the status in its body.
    Notified {
        cseq: u32,
        status: Option<u16>,
        subscription: SubscriptionState,
    },
    /// The probe of the PBX couldn't be sent.
    ProbeUnsent,
    /// The PBX knows the call, by its answer to the probe.
    ProbeAnswered,
    /// The PBX no longer knows the call.
    DialogGone,
    /// The transfer's timer has fired.
    TimedOut,
    /// The destination rings.
    DestinationRings,
    /// The INVITE to the destination has failed: refused, unanswered, or no target was reached. REFER may follow.
    DestinationLost(DialFailure),
    /// The destination may not be called, or has answered and still can't replace the agent. The transfer fails.
    DestinationRefused(u16),
    /// The destination has answered.
    DestinationAnswered,
    /// The caller has the destination's media.
    DestinationConnected,
    /// The runtime no longer knows the subscription of its REFER.
    Unsubscribed,
    /// The agent's leg has ended.
    AgentLeft(AgentEnd),
    /// A request of the PBX shows that the caller is there.
    CallerHeard,
    /// The call is over.
    CallEnded(Box<Ended>),
    /// A hang-up was ordered for a call that is over already: the node stops, for one. An outcome that is still awaited is settled at once.
    Stopped,
}

impl TransferEvent {
    /// The PBX's answer to a probe: any but 408 and 481 shows that it knows the call, not that it has the caller.
    pub(crate) const fn of_probe(status: u16) -> Self {
        match status {
            // RFC 3261 §12.2.1.2: after a 481 or a 408 inside a dialog "the UAC SHOULD terminate the dialog".
            408 | 481 => Self::DialogGone,
            _ => Self::ProbeAnswered,
        }
    }
}

/// End of the agent's leg while its caller is being transferred.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AgentEnd {
    /// The agent has hung up.
    HungUp,
    /// The agent no longer has the dialog, for this reason.
    Lost(Reason),
}

/// Final answer to a REFER.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReferAnswer {
    /// 2xx; NOTIFYs follow.
    Accepted,
    /// 2xx with `Refer-Sub: false`: no NOTIFY follows (RFC 4488 §4).
    AcceptedSilently,
    /// A challenge, whose answer is among the transfer's digest answers.
    Challenged,
    /// Any other status.
    Refused(u16),
}

/// Step that the call takes for a transfer; steps are taken in their order.
#[derive(Debug)]
pub(crate) enum TransferStep {
    /// Records the transfer's current state.
    Record(Box<Transfer>),
    /// Sends the runtime that has sent REFER the destination's status.
    Notify {
        subscription: Subscription,
        status: u16,
        is_last: bool,
    },
    /// Stops the transfer's timer, and restarts it if a time is given.
    Wait(Option<Duration>),
    /// Starts the transfer's timer as after glare (RFC 3261 §14.1).
    WaitOutGlare,
    /// Sends the REFER: [`TransferEvent::ReferSent`] or [`TransferEvent::ReferUnsent`] follows.
    Refer,
    /// Probes the PBX for the call.
    Probe,
    /// Calls the destination.
    Dial(Box<DestinationRoute>),
    /// Resumes the caller's call with the agent.
    Resume,
    /// Leaves open whether the PBX has the caller: the flow of a built-in agent goes on if the caller is still here after 10 s.
    Unresolved,
    /// Ends both legs normally.
    Leave(CallEnd),
    /// Ends the call for that reason.
    HangUp(Reason),
    /// Records the end of the call.
    CallEnd(Box<Ended>),
}

/// Steps that are due.
pub(crate) type Steps = SmallVec<[TransferStep; 2]>;

/// Outcome of a transfer.
#[derive(Copy, Clone)]
pub(super) enum TransferOutcome {
    Completed,
    /// With that SIP status.
    Failed(u16),
    Unknown,
}

impl CallFacts {
    /// Returns whether this status of the PBX says that the transfer never began.
    pub(super) fn never_began(&self, status: u16) -> bool {
        self.pbx.is_some_and(|pbx| pbx.never_began(status))
    }
}

/// Returns whether a transfer with this final status had surely begun. If it hadn't, a caller who is heard afterwards proves nothing of the PBX:
/// it kept the caller anyway.
pub(super) const fn has_surely_begun(status: u16) -> bool {
    !matches!(status, 400 | 403 | 404 | 484 | 500 | 604)
}
