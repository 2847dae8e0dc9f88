//! The decision about one call and why it came out so: stored with the call, shown by the API, read by people.
//!
//! Written by [`crate::decide()`] alone. The JSON form is stored, so its names stay.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::facts::{Caller, Dialled};
use crate::{Agent, E164};

/// Who takes the call, and the trail that led there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    pub outcome: Outcome,
    pub dialled: Dialled,
    pub caller: Caller,
    /// In the order it was looked at.
    pub trail: Vec<Looked>,
    /// What the call came close to.
    #[serde(default)]
    pub near_misses: Vec<NearMiss>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingOutcome")]
pub enum Outcome {
    /// The agent takes the call, found by this step.
    Agent { id: Uuid, step: Step },
    /// The agent that was asked for is at its limit, and no other is a substitute: 480.
    AgentBusy { id: Uuid },
    /// No step found an agent: 480.
    NoAgent,
}

/// Something that the call came close to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NearMiss {
    /// What was dialled is one of the org's numbers but for this.
    Number {
        /// As the peer sent it.
        dialled: String,
        number: E164,
        differs: Differs,
        /// The agent that holds the number.
        agent: Option<Uuid>,
    },
    /// The dialled number is the org's, and no agent has it.
    Unassigned { number: E164 },
    /// `To` names one of the org's numbers; the Request-URI, which counts, names another.
    To { number: E164, agent: Option<Uuid> },
    /// The header gives the name of one of the org's agents, where its id is wanted.
    AgentName { header: String, id: Uuid },
    /// The header gives an id that is no agent's of this org.
    AgentId { header: String },
    /// An agent that a step came to and that couldn't take the call.
    Agent {
        id: Uuid,
        name: Box<str>,
        state: State,
    },
}

/// How a dialled number differs from one of the org's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "NumberDifference")]
pub enum Differs {
    /// It is the number's national form in this country (ISO 3166), in which the trunk's numbers aren't read.
    NationalForm { country: String },
    /// Other digits stand before those that both share.
    Before { dialled: String, number: String },
    /// These digits follow the number.
    Behind { dialled: String },
    /// These digits of the number are missing at the end.
    Short { number: String },
}

/// The four steps, in their order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingStep")]
pub enum Step {
    /// (a) the agent that the header names
    Header,
    /// (b) the agent that holds the dialled number
    AssignedNumber,
    /// (c) the first available agent among those that hold the trunk's numbers
    TrunkNumbers,
    /// (d) the org's first available agent
    FirstAvailable,
}

/// One look: which step, at what, and what was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RoutingLook")]
pub struct Looked {
    pub step: Step,
    pub at: At,
    pub found: Found,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingPlace")]
pub enum At {
    /// The header's value, cut at a bound.
    Header(String),
    Number(E164),
    /// The org's agents, oldest first.
    Agents,
    /// There was nothing to look at: no header, no number, no trunk.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingFound")]
pub enum Found {
    Nothing,
    /// The header's value isn't an agent id.
    NotAnId,
    /// The header came with two values that differ: neither counts.
    Contradiction,
    Agent {
        id: Uuid,
        name: Box<str>,
        state: State,
    },
    /// So many more were looked at and passed; none is listed.
    Further(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AgentState")]
pub enum State {
    /// Enabled, inbound, below its limit.
    Available,
    Disabled,
    NotInbound,
    AtLimit,
}

impl Found {
    pub(crate) fn agent(agent: &Agent, state: State) -> Self {
        Self::Agent {
            id: agent.id,
            name: agent.name.clone(),
            state,
        }
    }
}

impl State {
    pub(crate) fn of(agent: &Agent, busy: &dyn Fn(Uuid) -> bool) -> Self {
        match (agent.enabled, agent.inbound) {
            (false, _) => Self::Disabled,
            (true, false) => Self::NotInbound,
            (true, true) if busy(agent.id) => Self::AtLimit,
            (true, true) => Self::Available,
        }
    }
}

impl Decision {
    /// The agent that takes the call.
    pub fn agent(&self) -> Option<Uuid> {
        match self.outcome {
            Outcome::Agent { id, .. } => Some(id),
            Outcome::AgentBusy { .. } | Outcome::NoAgent => None,
        }
    }

    /// The trail and the outcome, a sentence each, and then what the call came close to.
    pub fn sentences(&self) -> Vec<String> {
        let looks = self.trail.iter().map(Looked::to_string);
        let near = self.near_misses.iter().map(NearMiss::to_string);
        looks
            .chain([self.outcome.to_string()])
            .chain(near)
            .collect()
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.sentences().join("\n"))
    }
}
