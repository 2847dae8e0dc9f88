//! A transfer of a call, as the journal keeps it and the API shows it. Each change of state writes the whole transfer again.

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::handoff::Report;
use crate::settings::TransferTarget;

/// State of a transfer.
#[derive(
    Copy,
    Clone,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferState")]
pub enum State {
    /// The REFER is sent, or about to be.
    Requested,
    /// The PBX has accepted the REFER.
    Accepted,
    /// The destination rings.
    Ringing,
    /// It can't be known whether the destination has answered.
    Unknown,
    /// The transfer failed; the caller stays with the agent.
    Failed,
    /// The destination has answered.
    Completed,
}

impl State {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Accepted => "accepted",
            Self::Ringing => "ringing",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
            Self::Completed => "completed",
        }
    }

    /// Returns whether the outcome is still open.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Requested | Self::Accepted | Self::Ringing)
    }
}

/// Method of a transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferWay")]
pub enum TransferMethod {
    /// A REFER asks the PBX to call the destination (RFC 3515).
    Refer,
    /// Trunkline calls the destination and connects the two.
    Bridge,
}

impl TransferMethod {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refer => "refer",
            Self::Bridge => "bridge",
        }
    }
}

/// A trunk, by the direction of its calls.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trunk {
    /// An inbound trunk.
    Inbound(Uuid),
    /// An outbound trunk.
    Outbound(Uuid),
}

/// One transfer of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// The transfer.
    pub id: Uuid,
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
    /// The call's session.
    pub session: Uuid,
    /// The destination; `None` for the agent's number for human escalation.
    pub destination: Option<Uuid>,
    /// Name of the destination.
    pub name: Box<str>,
    /// Number or URI of the destination.
    pub target: TransferTarget,
    /// Method.
    pub way: TransferMethod,
    /// Present state.
    pub state: State,
    /// SIP status with which the transfer failed.
    pub sip_code: Option<u16>,
    /// Report of the agent.
    pub report: Report,
    /// Time of the request.
    pub requested_at: Moment,
    /// Time at which the PBX accepted the REFER.
    pub accepted_at: Option<Moment>,
    /// Time at which the destination rang.
    pub ringing_at: Option<Moment>,
    /// Time at which the outcome was known.
    pub ended_at: Option<Moment>,
    /// The caller has been handed over to the destination, as far as Trunkline can know: a hand-off is recorded.
    pub handed_over: bool,
    /// For a completed transfer: true if the destination is known to have answered, false if only the PBX is known to have begun the call.
    pub answer_confirmed: Option<bool>,
    /// The transfer failed at a PBX that loses the caller when an accepted REFER fails.
    pub caller_may_be_gone: bool,
    /// Time at which a leg of this transfer was counted among the org's outbound calls.
    pub counted_at: Option<Moment>,
    /// Trunk whose PBX was seen to keep the call after an accepted REFER had failed.
    pub kept_by: Option<Trunk>,
    /// Number of facts written of the transfer so far; a later fact replaces an earlier one.
    pub step: u16,
}
