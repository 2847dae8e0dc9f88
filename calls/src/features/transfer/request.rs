//! Request of a client for a transfer, and the reasons why there is none.

use serde::{Deserialize, Serialize};
use trunkline_model::handoff::Report;
use uuid::Uuid;

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
