//! Cold transfer: a caller is moved to one of its agent's destinations. Either the PBX gets REFER on the caller's dialog (RFC 3515), or the daemon
//! calls the destination, which replaces the agent; if one of the two fails, the other may follow (`plan`). `machine` is the transfer's state. No module here knows the
//! call: `transferring` passes events and carries out steps.

mod event;
mod last;
mod machine;
mod outcome;
mod plan;
mod sent_refers;
mod sipfrag;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use trunkline_model::handoff::Report;
use uuid::Uuid;

pub(crate) use event::{
    AgentEnd, CallFacts, NewTransfer, ReferAnswer, Requester, Steps, Subscription, TransferEvent,
    TransferStep,
};
pub(crate) use last::LastTransfer;
pub(crate) use plan::Plan;
pub use plan::{MethodReason, method_in_force};
pub(crate) use sipfrag::status_of;

/// Request for a transfer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferRequest {
    /// The destination.
    pub chosen: DestinationChoice,
    /// Report of the agent.
    pub report: Report,
}

/// Reference to a destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationChoice {
    /// By its name, ignoring case.
    Name(Box<str>),
    /// By its id.
    Id(Uuid),
}

/// Reason why there is no transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// The call is over, or was never here.
    #[error("the call is not up")]
    NotUp,
    /// The call has not been answered yet.
    #[error("the call has not been answered yet")]
    NotAnswered,
    /// Another transfer has no outcome yet.
    #[error("another transfer of the call is under way")]
    UnderWay,
    /// The agent has no such destination.
    #[error("no such destination is assigned to the call's agent")]
    NotAssigned,
    /// The operator allows no calls to its number.
    #[error("calls to this number are not allowed here (phone.outbound_prefixes)")]
    NotAllowed,
}
