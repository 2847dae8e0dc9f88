//! Events of a transfer and the steps that are due after them.

use std::time::Duration;

use smallvec::SmallVec;
use trunkline_model::record::{Ended, HangupBy, Status};
use trunkline_model::transfer::{Transfer, Trunk};
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::moment::Moment;

use super::plan::Plan;
use crate::pbx::Pbx;
use crate::refusal::Reason;
use crate::unanswered::Failure;

/// Subscription of a runtime that has referred, by the dialog of its REFER.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Subscription {
    /// Number of the dialog.
    pub(crate) fork: u8,
    /// Its id, which a second one in the same dialog needs (RFC 3515 §2.4.6).
    pub(crate) id: Option<u32>,
}

/// Requester of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Requester {
    /// The API, or a caller of the echo agent.
    Api,
    /// The runtime, by REFER; without a subscription it wants no NOTIFY (RFC 4488).
    Runtime(Option<Subscription>),
}

/// A transfer that is to begin.
#[derive(Debug)]
pub(crate) struct NewTransfer<R> {
    pub(crate) record: Transfer,
    pub(crate) requester: Requester,
    pub(crate) plan: Plan<R>,
    /// The trunk of the PBX that is asked.
    pub(crate) trunk: Option<Trunk>,
    /// The value of Refer-To.
    pub(crate) refer_to: Box<str>,
}

/// Facts of the call at the time of an event.
#[derive(Copy, Clone, Debug)]
pub(crate) struct CallFacts {
    pub(crate) now: Moment,
    pub(crate) is_up: bool,
    /// A destination can be called: the caller's media are known, and nobody else is being called.
    pub(crate) can_dial: bool,
    /// The kind of phone system that asked for the call.
    pub(crate) pbx: Option<Pbx>,
}

/// Event of a transfer.
#[derive(Debug)]
pub(crate) enum Event {
    /// The caller's ACK is in.
    Acknowledged,
    /// The REFER went out.
    ReferSent { cseq: u32 },
    /// The REFER couldn't be sent.
    ReferUnsent,
    /// The PBX has answered the REFER.
    ReferAnswered { cseq: u32, answer: ReferAnswer },
    /// The REFER had no answer, or its connection broke: `status` is the one that RFC 3261 §8.1.3.1 gives for that.
    ReferUnanswered {
        cseq: u32,
        status: u16,
        was_connected: bool,
    },
    /// NOTIFY of the PBX, with the status in its body.
    Notified {
        id: Option<u32>,
        status: Option<u16>,
        subscription: SubscriptionState,
    },
    /// The PBX couldn't be asked whether it knows the call.
    ProbeUnsent,
    /// The PBX knows the call: it has answered so.
    ProbeAnswered,
    /// The PBX doesn't know the call any more.
    DialogGone,
    /// The time for what is awaited is over.
    TimedOut,
    /// The destination rings.
    DestinationRings,
    /// The destination won't, or can't be reached.
    DestinationLost(Failure),
    /// The destination may not be called, or doesn't take the agent's place though it has answered.
    DestinationRefused(u16),
    /// The destination has answered.
    DestinationAnswered,
    /// The caller has the destination's media.
    DestinationConnected,
    /// The agent has hung up.
    AgentLeft,
    /// A request of the PBX shows that the caller is there.
    CallerHeard,
    /// The call is over.
    CallEnded(Box<Ended>),
    /// Nothing more is waited for: the node stops, or a fault of ours ends the call.
    Stopped,
}

/// Final answer to a REFER.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReferAnswer {
    /// 2xx.
    Accepted,
    /// 2xx with `Refer-Sub: false`: no NOTIFY will follow (RFC 4488 §4).
    AcceptedSilently,
    /// A challenge, whose answer is in the transfer's proofs.
    Challenged,
    /// Any other.
    Refused(u16),
}

/// Step that is due; in their order.
#[derive(Debug)]
pub(crate) enum Step<R> {
    /// Keeps the transfer as it is now.
    Record(Box<Transfer>),
    /// Tells the runtime that has referred what was heard of the destination.
    Notify {
        subscription: Subscription,
        status: u16,
        is_last: bool,
    },
    /// Stops the transfer's timer, and starts it anew for so long, if it is to run.
    Wait(Option<Duration>),
    /// Starts the transfer's timer as after glare (RFC 3261 §14.1).
    WaitOutGlare,
    /// Sends the REFER: [`Event::ReferSent`] or [`Event::ReferUnsent`] follows.
    Refer,
    /// Asks the PBX whether it still knows the call.
    Probe,
    /// Calls the destination.
    Dial(R),
    /// The caller stays with the agent after all, and hears it.
    Resume,
    /// Hangs up on both: nothing is wrong with that.
    Leave(Status, HangupBy),
    /// Ends the call for that reason.
    HangUp(Reason),
    /// Records the end of the call.
    End(Box<Ended>),
}

/// Steps that are due.
pub(crate) type Steps<R> = SmallVec<[Step<R>; 2]>;

/// Outcome of a transfer.
#[derive(Copy, Clone)]
pub(super) enum Outcome {
    Completed,
    /// With that SIP status.
    Failed(u16),
    Unknown,
}

impl CallFacts {
    /// Returns whether the PBX says by this status that it never began the transfer.
    pub(super) fn never_began(&self, status: u16) -> bool {
        self.pbx.is_some_and(|pbx| pbx.never_began(status))
    }
}
