//! Sentences for each part of a decision, printed by `route-test` and shown with a call: the reason why it went to its agent.

use std::fmt::{self, Display, Formatter};

use crate::decision::{At, Differs, Found, Looked, NearMiss, Outcome, State, Step};

impl Display for Looked {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match &self.found {
            Found::Nothing => self.nothing(out),
            Found::NotAnId => write!(out, "{}, which is no agent id.", Subject(self)),
            Found::Contradiction => write!(
                out,
                "{}, which are two agents: neither counts.",
                Subject(self)
            ),
            Found::Agent { id, name, state } => write!(
                out,
                "{} agent {name:?} ({id}), which {state}.",
                Subject(self)
            ),
            Found::Further(count) => write!(
                out,
                "{count} more {} passed over as well.",
                self.kind(*count)
            ),
        }
    }
}

impl Looked {
    fn nothing(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match (&self.at, self.step) {
            (At::Header(value), _) => write!(
                out,
                "The agent header says {value:?}, which is no agent of this org."
            ),
            (At::Number(number), Step::TrunkNumbers) => {
                write!(out, "The trunk's number {number} is assigned to no agent.")
            }
            (At::Number(number), _) => {
                write!(out, "The dialled number {number} is assigned to no agent.")
            }
            (At::Nothing | At::Agents, Step::Header) => {
                out.write_str("The call names no agent in a header.")
            }
            (At::Nothing | At::Agents, Step::AssignedNumber) => {
                out.write_str("What was dialled is no phone number.")
            }
            (At::Nothing | At::Agents, Step::TrunkNumbers) => {
                out.write_str("The trunk lists no numbers.")
            }
            (At::Nothing | At::Agents, Step::FirstAvailable) => {
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
struct Subject<'l>(&'l Looked);

impl Display for Subject<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match (&self.0.at, self.0.step, &self.0.found) {
            (At::Header(value), _, Found::NotAnId | Found::Contradiction) => {
                write!(out, "The agent header says {value:?}")
            }
            (At::Header(_), _, _) => out.write_str("The agent header names"),
            (At::Number(number), Step::TrunkNumbers, _) => {
                write!(out, "The trunk's number {number} is assigned to")
            }
            (At::Number(number), _, _) => write!(out, "The dialled number {number} is assigned to"),
            (At::Agents | At::Nothing, _, _) => {
                out.write_str("Among the org's agents, oldest first, is")
            }
        }
    }
}

impl Display for State {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Available => "is available",
            Self::Disabled => "is disabled",
            Self::NotInbound => "doesn't take inbound calls",
            Self::AtLimit => "is at its limit",
        })
    }
}

impl Display for Outcome {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent { id, step } => write!(out, "Agent {id} takes the call: {step}."),
            Self::AgentBusy { id } => write!(
                out,
                "Agent {id} was asked for and no other is a substitute: the call is refused."
            ),
            Self::NoAgent => out.write_str("No agent is available: the call is refused."),
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
            } => {
                write!(
                    out,
                    "Near miss: {dialled:?} is close to the org's number {number}"
                )?;
                match agent {
                    Some(agent) => write!(out, " of agent {agent}: {differs}"),
                    None => write!(out, ", which is assigned to no agent: {differs}"),
                }
            }
            Self::Unassigned { number } => write!(
                out,
                "Near miss: {number} is a number of this org that is assigned to no agent; assign it to the one that should answer."
            ),
            Self::To { number, agent } => {
                write!(out, "Near miss: To names the org's number {number}")?;
                if let Some(agent) = agent {
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
                    State::Available => "it could have taken the call.",
                    State::Disabled => "enable it.",
                    State::NotInbound => "make its type inbound.",
                    State::AtLimit => {
                        "raise its max_concurrent_calls, or wait until one of its calls ends."
                    }
                })
            }
        }
    }
}

impl Display for Differs {
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
                    "{dialled:?} stands before it; have the PBX leave that out."
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
