//! Sentences for each part of a decision, printed by `route-test` and shown with a call: the reason why it went to its agent.

use std::fmt::{self, Display, Formatter};

use uuid::Uuid;

use crate::decision::{
    AgentState, NearMiss, NumberDifference, Outcome, Step, StepFinding, StepPlace, TrailEntry,
};

impl Display for TrailEntry {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match &self.found {
            StepFinding::Nothing => self.nothing(out),
            StepFinding::NotAnId => write!(out, "{}, which is no agent id.", Subject(self)),
            StepFinding::Contradiction => write!(
                out,
                "{}, which are two agents: neither counts.",
                Subject(self)
            ),
            StepFinding::Agent { id, name, state } => write!(
                out,
                "{} agent {name:?} ({id}), which {state}.",
                Subject(self)
            ),
            StepFinding::Further(count) => write!(
                out,
                "{count} more {} passed over as well.",
                self.kind(*count)
            ),
        }
    }
}

impl TrailEntry {
    fn nothing(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match (&self.at, self.step) {
            (StepPlace::Header(value), _) => write!(
                out,
                "The agent header says {value:?}, which is no agent of this org."
            ),
            (StepPlace::Number(number), Step::TrunkNumbers) => {
                write!(out, "The trunk's number {number} is assigned to no agent.")
            }
            (StepPlace::Number(number), _) => {
                write!(out, "The dialled number {number} is assigned to no agent.")
            }
            (StepPlace::Nothing | StepPlace::Agents, Step::Header) => {
                out.write_str("The call names no agent in a header.")
            }
            (StepPlace::Nothing | StepPlace::Agents, Step::AssignedNumber) => {
                out.write_str("What was dialled is no phone number.")
            }
            (StepPlace::Nothing | StepPlace::Agents, Step::TrunkNumbers) => {
                out.write_str("The trunk lists no numbers.")
            }
            (StepPlace::Nothing | StepPlace::Agents, Step::FirstAvailable) => {
                out.write_str("The org has no agents.")
            }
        }
    }

    fn kind(&self, count: u32) -> &'static str {
        match (self.step, count) {
            (Step::FirstAvailable, 1) => "agent was",
            (Step::FirstAvailable, _) => "agents were",
            (Step::Header | Step::AssignedNumber | Step::TrunkNumbers, 1) => "number was",
            (Step::Header | Step::AssignedNumber | Step::TrunkNumbers, _) => "numbers were",
        }
    }
}

/// Beginning of a sentence about a finding.
struct Subject<'l>(&'l TrailEntry);

impl Display for Subject<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match (&self.0.at, self.0.step, &self.0.found) {
            (StepPlace::Header(value), _, StepFinding::NotAnId | StepFinding::Contradiction) => {
                write!(out, "The agent header says {value:?}")
            }
            (StepPlace::Header(_), _, _) => out.write_str("The agent header names"),
            (StepPlace::Number(number), Step::TrunkNumbers, _) => {
                write!(out, "The trunk's number {number} is assigned to")
            }
            (StepPlace::Number(number), _, _) => {
                write!(out, "The dialled number {number} is assigned to")
            }
            (StepPlace::Agents | StepPlace::Nothing, _, _) => {
                out.write_str("Among the org's agents, oldest first, is")
            }
        }
    }
}

impl Display for AgentState {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Available => "is available",
            Self::Disabled => "is disabled",
            Self::NotInbound => "doesn't take inbound calls",
            Self::AtLimit => "is at its limit",
        })
    }
}

/// Agent by its name, if it is known, and its id.
struct Named<'a>(Option<&'a str>, Uuid);

impl Display for Named<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self(Some(name), id) => write!(out, "{name:?} ({id})"),
            Self(None, id) => write!(out, "{id}"),
        }
    }
}

impl Outcome {
    /// Returns the outcome as a sentence, with the agent's name from the trail that led to it.
    pub(crate) fn sentence(&self, trail: &[TrailEntry]) -> String {
        let named = |wanted: &Uuid| {
            let name = trail.iter().find_map(|entry| match &entry.found {
                StepFinding::Agent { id, name, .. } if id == wanted => Some(&**name),
                StepFinding::Agent { .. }
                | StepFinding::Nothing
                | StepFinding::NotAnId
                | StepFinding::Contradiction
                | StepFinding::Further(_) => None,
            });
            Named(name, *wanted)
        };
        match self {
            Self::Agent { id, step } => format!("Agent {} takes the call: {step}.", named(id)),
            Self::AgentBusy { id } => format!(
                "Agent {} was asked for and no other is a substitute: the call is refused.",
                named(id)
            ),
            Self::NoAgent => "No agent is available: the call is refused.".to_owned(),
        }
    }
}

impl Display for Step {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Header => "the header names it",
            Self::AssignedNumber => "it holds the dialled number",
            Self::TrunkNumbers => "it is the first available one on the trunk's number list",
            Self::FirstAvailable => "it is the org's first available one",
        })
    }
}

/// Names the near miss, and the change that would make it match.
impl Display for NearMiss {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number {
                dialled,
                number,
                differs,
                agent,
                agent_name,
            } => {
                write!(
                    out,
                    "Near miss: {dialled:?} is close to the org's number {number}"
                )?;
                match agent {
                    Some(agent) => {
                        let agent = Named(agent_name.as_deref(), *agent);
                        write!(out, " of agent {agent}: {differs}")
                    }
                    None => write!(out, ", which is assigned to no agent: {differs}"),
                }
            }

            Self::Ambiguous {
                dialled,
                read,
                other,
            } => write!(
                out,
                "{dialled:?} was read as {read}, and can mean {other} as well; have the PBX send the number with a plus sign."
            ),

            Self::Unassigned { number } => write!(
                out,
                "Near miss: {number} is a number of this org that is assigned to no agent; assign it to the one that should answer."
            ),
            Self::To {
                number,
                agent,
                agent_name,
            } => {
                write!(out, "Near miss: To names the org's number {number}")?;
                if let Some(agent) = agent {
                    let agent = Named(agent_name.as_deref(), *agent);
                    write!(out, " of agent {agent}")?;
                }
                out.write_str(
                    ", but the number in the Request-URI is what counts; have the PBX put the dialled number there.",
                )
            }

            Self::AgentName { header, id } => write!(
                out,
                "Near miss: the agent header gives the name {header:?}; send the agent's id, {id}."
            ),
            Self::AgentId { header } => write!(
                out,
                "Near miss: the agent header gives the id {header:?}, which isn't one of this org's agents; send the id of one that is."
            ),

            Self::Agent { id, name, state } => {
                write!(out, "Near miss: agent {name:?} ({id}) {state}; ")?;
                out.write_str(match state {
                    AgentState::Available => "it could have taken the call.",
                    AgentState::Disabled => "enable it.",
                    AgentState::NotInbound => "make its type inbound.",
                    AgentState::AtLimit => {
                        "raise its max_concurrent_calls, or wait until one of its calls ends."
                    }
                })
            }
        }
    }
}

impl Display for NumberDifference {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NationalForm { country } => write!(
                out,
                "that is its national form in {country}; set the trunk's default_country to {country}."
            ),

            Self::Before { dialled, number } => match (dialled.as_str(), number.as_str()) {
                ("", number) => write!(
                    out,
                    "{number:?} is missing before it; have the PBX send the whole number."
                ),
                (dialled, "") => write!(
                    out,
                    "{dialled:?} comes before it; have the PBX leave that out."
                ),
                (dialled, number) => write!(
                    out,
                    "it begins with {dialled:?} where the number begins with {number:?}; have the PBX send the number as it is."
                ),
            },

            Self::Behind { dialled } => write!(
                out,
                "{dialled:?} follows it; have the PBX leave that out, or add the longer number to the org."
            ),
            Self::Short { number } => write!(
                out,
                "{number:?} is missing at its end; have the PBX send the whole number."
            ),
        }
    }
}
