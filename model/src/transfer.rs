//! A transfer as the journal keeps it and the API shows it: the whole of it each time that its state changes.

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::handoff::Report;
use crate::settings::TransferTarget;

/// Where a transfer stands.
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
    /// The PBX is asked, or is about to be.
    Requested,
    /// It has said that it will try.
    Accepted,
    /// The destination rings.
    Ringing,
    /// Whether the destination has answered can't be known.
    Unknown,
    /// It did not come about; the caller stays with the agent.
    Failed,
    /// The destination has answered.
    Completed,
}

impl State {
    /// The name as the API and the database have it.
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

    /// Whether its outcome is still to come.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Requested | Self::Accepted | Self::Ringing)
    }
}

/// How the caller is brought to the destination.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferWay")]
pub enum Way {
    /// The PBX is asked to by REFER.
    Refer,
    /// We call the destination and connect the two.
    Bridge,
}

impl Way {
    /// The name as the API and the database have it.
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
    /// What the agent calls it.
    pub name: Box<str>,
    /// Where it leads.
    pub target: TransferTarget,
    /// How.
    pub way: Way,
    /// Where it stands.
    pub state: State,
    /// The SIP status that it failed with.
    pub sip_code: Option<u16>,
    /// What the agent reported with it.
    pub report: Report,
    /// When it was asked for.
    pub requested_at: Moment,
    /// When the PBX accepted it.
    pub accepted_at: Option<Moment>,
    /// When the destination rang.
    pub ringing_at: Option<Moment>,
    /// When its outcome was known.
    pub ended_at: Option<Moment>,
    /// Whether the caller has gone to the destination, as far as can be known: a handoff is recorded.
    pub handed_over: bool,
    /// Of one that is completed: whether somebody is known to have answered, not the PBX alone to have begun.
    #[serde(default)]
    pub answer_confirmed: Option<bool>,
    /// It failed at a PBX that loses the caller when an accepted REFER fails.
    #[serde(default)]
    pub caller_may_be_gone: bool,
    /// When a leg of ours was counted among the org's outbound calls.
    #[serde(default)]
    pub counted_at: Option<Moment>,
    /// The trunk of the PBX that was seen alive in the call after an accepted REFER had failed.
    #[serde(default)]
    pub kept_by: Option<Trunk>,
    /// How often the transfer was told of: a later fact replaces an earlier one.
    #[serde(default)]
    pub step: u16,
}
