//! The decision about one call and its trail: stored with the call, shown by the API, printed as sentences.
//!
//! Only [`crate::decide()`] builds a decision. The JSON form is stored, so its names stay.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::facts::{Caller, Dialled};
use crate::{Agent, E164};

/// Outcome of routing, and the trail that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The outcome.
    pub outcome: Outcome,
    /// The called number.
    pub dialled: Dialled,
    /// The calling number.
    pub caller: Caller,
    /// Every look, in order.
    pub trail: Vec<TrailEntry>,
    /// Agents and numbers that the call nearly matched.
    #[serde(default)]
    pub near_misses: Vec<NearMiss>,
}

/// Outcome of routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingOutcome")]
pub enum Outcome {
    /// This step found the agent, and it takes the call.
    Agent {
        /// The agent.
        id: Uuid,
        /// The step that found it.
        step: Step,
    },
    /// The agent that was asked for is at its limit, and no other is a substitute: 480.
    AgentBusy {
        /// The agent.
        id: Uuid,
    },
    /// No step found an agent: 480.
    NoAgent,
}

/// An agent or a number that the call nearly matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NearMiss {
    /// The dialled number differs from one of the org's numbers only in this way.
    Number {
        /// As the peer sent it.
        dialled: String,
        /// The org's number.
        number: E164,
        /// The difference.
        differs: NumberDifference,
        /// The agent that holds the number.
        agent: Option<Uuid>,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_name: Option<Box<str>>,
    },
    /// The digits can mean two numbers, and the org has neither or both.
    Ambiguous {
        /// As the peer sent it.
        dialled: String,
        /// The number that was taken.
        read: E164,
        /// The other one.
        other: E164,
    },
    /// The dialled number is the org's, but is assigned to no agent.
    Unassigned {
        /// The org's number.
        number: E164,
    },
    /// `To` names one of the org's numbers, but the Request-URI, which takes precedence, names another.
    To {
        /// The org's number.
        number: E164,
        /// The agent that holds the number.
        agent: Option<Uuid>,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent_name: Option<Box<str>>,
    },
    /// The header gives the name of one of the org's agents instead of its id.
    AgentName {
        /// The header's value.
        header: String,
        /// The agent.
        id: Uuid,
    },
    /// The header gives an id, but none of this org's agents.
    AgentId {
        /// The header's value.
        header: String,
    },
    /// A step reached this agent, but it couldn't take the call.
    Agent {
        /// The agent.
        id: Uuid,
        /// Its name.
        name: Box<str>,
        /// Its state.
        state: AgentState,
    },
}

/// Difference between a dialled number and one of the org's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "NumberDifference")]
pub enum NumberDifference {
    /// The dialled digits are the number's national form in this country (ISO 3166), which isn't the trunk's default country.
    NationalForm {
        /// The country's code.
        country: String,
    },
    /// The digits before those that both share differ.
    Before {
        /// The digits as dialled.
        dialled: String,
        /// The digits of the number.
        number: String,
    },
    /// These digits follow the number.
    Behind {
        /// The digits as dialled.
        dialled: String,
    },
    /// These digits of the number are missing at the end.
    Short {
        /// The digits of the number.
        number: String,
    },
}

/// The four steps, in their order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingStep")]
pub enum Step {
    /// step 1: the agent that the header names
    Header,
    /// step 2: the agent that holds the dialled number
    AssignedNumber,
    /// step 3: the first available agent among those that hold the trunk's numbers
    TrunkNumbers,
    /// step 4: the org's first available agent
    FirstAvailable,
}

/// One entry of the trail: the step, the place where it looked, and what it found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RoutingLook")]
pub struct TrailEntry {
    /// The step.
    pub step: Step,
    /// The place.
    pub at: StepPlace,
    /// The finding.
    pub found: StepFinding,
}

/// Place where a step looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingPlace")]
pub enum StepPlace {
    /// The header's value, cut to 128 characters.
    Header(String),
    /// A number.
    Number(E164),
    /// The org's agents, oldest first.
    Agents,
    /// Nowhere: the call has no header, no number or no trunk.
    Nothing,
}

/// Finding of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "RoutingFound")]
pub enum StepFinding {
    /// No agent.
    Nothing,
    /// The header's value isn't an agent id.
    NotAnId,
    /// The header came with two different values: neither counts.
    Contradiction,
    /// An agent.
    Agent {
        /// The agent.
        id: Uuid,
        /// Its name.
        name: Box<str>,
        /// Its state.
        state: AgentState,
    },
    /// This many more were examined and passed over without being listed.
    Further(u32),
}

/// State of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AgentState")]
pub enum AgentState {
    /// Enabled, takes inbound calls, below its limit.
    Available,
    /// Disabled.
    Disabled,
    /// The agent takes no inbound calls.
    NotInbound,
    /// The agent has as many calls as it may have.
    AtLimit,
}

impl StepFinding {
    pub(crate) fn agent(agent: &Agent, state: AgentState) -> Self {
        Self::Agent {
            id: agent.id,
            name: agent.name.clone(),
            state,
        }
    }
}

impl AgentState {
    pub(crate) fn of(agent: &Agent, busy: &dyn Fn(Uuid) -> bool) -> Self {
        match (agent.enabled, agent.inbound) {
            (false, _) => Self::Disabled,
            (true, false) => Self::NotInbound,
            // Asked last, since only an agent that takes calls can be at its limit.
            (true, true) if busy(agent.id) => Self::AtLimit,
            (true, true) => Self::Available,
        }
    }
}

impl Decision {
    /// Returns the agent that takes the call.
    pub fn agent(&self) -> Option<Uuid> {
        match self.outcome {
            Outcome::Agent { id, .. } => Some(id),
            Outcome::AgentBusy { .. } | Outcome::NoAgent => None,
        }
    }

    /// Returns the trail, the outcome and the near misses, one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let looks = self.trail.iter().map(TrailEntry::to_string);
        let near = self.near_misses.iter().map(NearMiss::to_string);
        looks
            .chain([self.outcome.sentence(&self.trail)])
            .chain(near)
            .collect()
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.sentences().join("\n"))
    }
}
