//! Facts of a call, as the journal keeps them and the store projects them into rows.
//!
//! A call writes a fact at each of its steps, from [`Fact::Started`] to [`Fact::Ended`]. Each names the call and the org, so that
//! projecting a fact alone, or twice, is safe. Plain data only; times are microseconds since the epoch. The JSON form is on disk, so its
//! names stay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::{Decision, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::invite_facts::InviteFacts;
use crate::media::CallMedia;
use crate::transfer::Transfer;

/// Party that began the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallDirection")]
pub enum Direction {
    /// A PBX called an agent.
    Inbound,
    /// An agent called out through a trunk.
    Outbound,
}

impl Direction {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

/// Status of a call; one list for both directions.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallStatus")]
pub enum Status {
    /// Accepted, nothing sent yet.
    Queued,
    /// The callee is being called.
    Ringing,
    /// Answered.
    InProgress,
    /// Answered and ended.
    Completed,
    /// The callee was busy (486, 600).
    Busy,
    /// Nobody answered in time.
    NoAnswer,
    /// The call failed: an error response, no route, or a fault of a node.
    Failed,
    /// The caller gave up before the answer.
    Canceled,
    /// We refused the call.
    Refused,
    /// The caller was transferred.
    Transferred,
    /// The node died while the call was up.
    Lost,
}

impl Status {
    /// Every status that a call can end with.
    pub const FINAL: [Self; 8] = [
        Self::Completed,
        Self::Busy,
        Self::NoAnswer,
        Self::Failed,
        Self::Canceled,
        Self::Refused,
        Self::Transferred,
        Self::Lost,
    ];

    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Ringing => "ringing",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Busy => "busy",
            Self::NoAnswer => "no_answer",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Refused => "refused",
            Self::Transferred => "transferred",
            Self::Lost => "lost",
        }
    }
}

/// Party that ended the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HangupBy {
    /// The caller, or the PBX on the caller's behalf.
    Caller,
    /// The callee of an outbound call.
    Callee,
    /// The agent's runtime.
    Agent,
    /// Trunkline itself.
    Platform,
}

impl HangupBy {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Callee => "callee",
            Self::Agent => "agent",
            Self::Platform => "platform",
        }
    }
}

/// Fact: a call has begun, or was refused. Holds what is known from its INVITE.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Started {
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
    /// The session that the runtime and a transfer carry.
    pub session: Uuid,
    /// The agent that was chosen.
    pub agent: Option<Uuid>,
    /// Trunk over which the call came in or goes out; absent for a call from the address of an org without an inbound trunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<Uuid>,
    /// Party that began the call.
    pub direction: Direction,
    /// The caller's number as sent.
    pub from: Box<str>,
    /// The dialled number as sent.
    pub to: Box<str>,
    /// The caller's number as E.164.
    pub from_e164: Option<E164>,
    /// The dialled number as E.164.
    pub to_e164: Option<E164>,
    /// Call-ID of the caller's leg.
    pub caller_call_id: Box<str>,
    /// Arrival of the INVITE.
    pub at: Moment,
    /// The routing decision with its trail; absent when the call was refused before routing.
    pub decision: Option<Box<Decision>>,
    /// The caller's own `X-` headers, as the runtime got them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// Metadata that the API client attached to the call, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<str>>,
    /// Facts of the caller's INVITE; absent for outbound calls.
    #[serde(rename = "asked", default, skip_serializing_if = "Option::is_none")]
    pub invite_facts: Option<Box<InviteFacts>>,
    /// Wall clock minus the node's clock of timers as the call began, in microseconds: the times of all facts of the call are on it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_offset: i64,
}

const fn is_zero(offset: &i64) -> bool {
    *offset == 0
}

impl Started {
    /// Returns whether the caller asked not to be named (RFC 3323).
    pub fn withholds_caller(&self) -> bool {
        let invite_facts = self.invite_facts.as_deref();
        invite_facts.is_some_and(|invite_facts| invite_facts.facts.anonymous)
    }
}

/// Fact: a call is over.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// The call.
    pub call: Uuid,
    /// The org.
    pub org: Uuid,
    /// Time of the end.
    pub at: Moment,
    /// The final status.
    pub status: Status,
    /// The SIP status code that ended the set-up; 200 for an answered call.
    pub sip_code: u16,
    /// Stable, machine-readable reason (`agent_busy`, `no_agent`, `runtime_unreachable`, …).
    pub reason: Option<Box<str>>,
    /// Details of the reason, for people: what the offer of a call that got a 488 lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_detail: Option<Box<str>>,
    /// Party that ended the call.
    pub hangup_by: HangupBy,
    /// Q.850 cause that a peer named (RFC 3326).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<u8>,
}

/// One fact of a call.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// The call began.
    Started(std::sync::Arc<Started>),
    /// The contact is known.
    Contact {
        /// The call.
        call: Uuid,
        /// The org.
        org: Uuid,
        /// The contact.
        contact: Uuid,
    },
    /// The runtime rings; in an outbound call the callee.
    Ringing {
        /// The call.
        call: Uuid,
        /// The org.
        org: Uuid,
        /// Time of the first ring.
        at: Moment,
    },
    /// The runtime answered; in an outbound call the callee.
    Answered {
        /// The call.
        call: Uuid,
        /// The org.
        org: Uuid,
        /// Time of the answer.
        at: Moment,
        /// Call-ID of the runtime's leg; empty if none answered: for an outbound call, and for media that this node terminates.
        runtime_call_id: Box<str>,
    },
    /// The runtime has joined an outbound call whose callee had answered before.
    Joined {
        /// The call.
        call: Uuid,
        /// The org.
        org: Uuid,
        /// Call-ID of the runtime's leg.
        runtime_call_id: Box<str>,
    },
    /// The call was put on hold through the API, or taken off hold.
    Held {
        /// The call.
        call: Uuid,
        /// The org.
        org: Uuid,
        /// True when put on hold, false when taken off.
        held: bool,
    },
    /// A transfer of the call has changed its state.
    Transfer(Box<Transfer>),
    /// A target failed, or was reached after another had failed.
    Attempt(Box<Attempt>),
    /// The media that this node terminated for the call is over.
    Media(Box<CallMedia>),
    /// The call is over.
    Ended(Box<Ended>),
}

impl Fact {
    /// Returns the call that the fact is about.
    pub fn call(&self) -> Uuid {
        match self {
            Self::Started(started) => started.call,
            Self::Ended(ended) => ended.call,
            Self::Transfer(transfer) => transfer.call,
            Self::Attempt(attempt) => attempt.call,
            Self::Media(media) => media.call,
            Self::Contact { call, .. }
            | Self::Ringing { call, .. }
            | Self::Joined { call, .. }
            | Self::Held { call, .. }
            | Self::Answered { call, .. } => *call,
        }
    }

    /// Returns the org of the call.
    pub fn org(&self) -> Uuid {
        match self {
            Self::Started(started) => started.org,
            Self::Ended(ended) => ended.org,
            Self::Transfer(transfer) => transfer.org,
            Self::Attempt(attempt) => attempt.org,
            Self::Media(media) => media.org,
            Self::Contact { org, .. }
            | Self::Ringing { org, .. }
            | Self::Joined { org, .. }
            | Self::Held { org, .. }
            | Self::Answered { org, .. } => *org,
        }
    }
}
