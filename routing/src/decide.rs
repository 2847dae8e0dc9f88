//! The four steps that find an agent for an inbound call. Owns the order of the steps and the trail; knows nothing of SIP messages.
//!
//! 1. The agent that the header names.
//! 2. The agent that holds the dialled number.
//! 3. The first available agent among those that hold the trunk's numbers, in the order of that list.
//! 4. The org's first available agent, oldest first.
//!
//! In steps 1 and 2 an agent at its limit ends the search: a caller who asked for one department isn't given another. Any other defect is
//! noted in the trail, and the next step is tried.

use uuid::Uuid;

use crate::decision::{AgentState, Decision, Outcome, Step, StepFinding, StepPlace, TrailEntry};
use crate::directory::{Agent, Org};
use crate::facts::{Dialled, Facts, caller, dialled};
use crate::near_miss::near_misses;

/// Most entries that one step adds to the trail; further agents or numbers are only counted.
const LISTED: usize = 20;
/// Most characters of a header value in the trail.
const HEADER_KEPT: usize = 128;
/// Number of entries in most trails: the call has no header, and an agent holds the number. The trail is kept as long as the call lasts, so a
/// larger capacity would cost memory for that time.
const USUAL: usize = 2;

/// Decides which agent takes the call. `busy` returns true for an agent at its limit.
pub fn decide(facts: &Facts, org: &Org, busy: &dyn Fn(Uuid) -> bool) -> Decision {
    let dialled = dialled(facts, org);
    let mut search = Search {
        org,
        busy,
        trail: Vec::with_capacity(USUAL),
    };
    let outcome = search
        .by_header(facts)
        .or_else(|| search.by_number(&dialled))
        .or_else(|| search.by_trunk_numbers())
        .or_else(|| search.oldest_available())
        .unwrap_or(Outcome::NoAgent);

    let mut decision = Decision {
        outcome,
        caller: caller(facts, org),
        dialled,
        trail: search.trail,
        near_misses: Vec::new(),
    };

    decision.near_misses = near_misses(facts, org, &decision);
    decision
}

/// State of one search: its inputs, and the trail so far.
struct Search<'o> {
    org: &'o Org,
    busy: &'o dyn Fn(Uuid) -> bool,
    trail: Vec<TrailEntry>,
}

impl<'o> Search<'o> {
    /// Step 1.
    fn by_header(&mut self, facts: &Facts) -> Option<Outcome> {
        let value = facts.agent_header.as_deref().map(str::trim);
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return self.pass(Step::Header, StepPlace::Nothing, StepFinding::Nothing);
        };

        let kept = |value: &str| value.chars().take(HEADER_KEPT).collect::<String>();
        // Two different values: neither is sure to be the caller's wish, so the other steps decide, and the trail shows both.
        if let Some(other) = &facts.other_agent_header {
            let both = [kept(value), kept(other)].join(", ");
            return self.pass(
                Step::Header,
                StepPlace::Header(both),
                StepFinding::Contradiction,
            );
        }

        let at = StepPlace::Header(kept(value));
        match Uuid::try_parse(value) {
            Ok(id) => self.asked_for(Step::Header, at, self.org.agent(id)),
            Err(_) => self.pass(Step::Header, at, StepFinding::NotAnId),
        }
    }

    /// Step 2.
    fn by_number(&mut self, dialled: &Dialled) -> Option<Outcome> {
        match dialled.e164 {
            Some(number) => self.asked_for(
                Step::AssignedNumber,
                StepPlace::Number(number),
                self.org.holder(&number),
            ),
            None => self.pass(
                Step::AssignedNumber,
                StepPlace::Nothing,
                StepFinding::Nothing,
            ),
        }
    }

    /// Step 3.
    fn by_trunk_numbers(&mut self) -> Option<Outcome> {
        let org = self.org;
        let numbers = org.trunk.iter().flat_map(|trunk| &trunk.numbers);
        self.first_available(
            Step::TrunkNumbers,
            numbers.map(|number| (StepPlace::Number(*number), org.holder(number))),
        )
    }

    /// Step 4.
    fn oldest_available(&mut self) -> Option<Outcome> {
        self.first_available(
            Step::FirstAvailable,
            self.org
                .agents
                .iter()
                .map(|agent| (StepPlace::Agents, Some(agent))),
        )
    }

    /// Judges the agent that the caller asked for. An available one takes the call; one at its limit ends the search; any other defect
    /// passes to the next step.
    fn asked_for(&mut self, step: Step, at: StepPlace, agent: Option<&Agent>) -> Option<Outcome> {
        let Some(agent) = agent else {
            return self.pass(step, at, StepFinding::Nothing);
        };

        let state = AgentState::of(agent, self.busy);
        self.note(step, at, StepFinding::agent(agent, state));
        match state {
            AgentState::Available => Some(Outcome::Agent { id: agent.id, step }),
            AgentState::AtLimit => Some(Outcome::AgentBusy { id: agent.id }),
            AgentState::Disabled | AgentState::NotInbound => None,
        }
    }

    /// Takes the first available agent of the candidates. A place without an agent is noted, too.
    fn first_available(
        &mut self,
        step: Step,
        candidates: impl Iterator<Item = (StepPlace, Option<&'o Agent>)>,
    ) -> Option<Outcome> {
        let mut unlisted = 0;
        let listed_before = self.trail.len();

        for (at, agent) in candidates {
            let state = agent.map(|agent| AgentState::of(agent, self.busy));
            let found = agent
                .zip(state)
                .map_or(StepFinding::Nothing, |(agent, state)| {
                    StepFinding::agent(agent, state)
                });

            if let (Some(agent), Some(AgentState::Available)) = (agent, state) {
                self.further(step, unlisted);
                self.note(step, at, found);
                return Some(Outcome::Agent { id: agent.id, step });
            }

            if self.trail.len() - listed_before < LISTED {
                self.note(step, at, found);
            } else {
                unlisted += 1;
            }
        }

        if self.trail.len() == listed_before {
            return self.pass(step, StepPlace::Nothing, StepFinding::Nothing);
        }

        self.further(step, unlisted);
        None
    }

    /// Notes the number of entries beyond [`LISTED`].
    fn further(&mut self, step: Step, unlisted: u32) {
        if unlisted > 0 {
            self.note(step, StepPlace::Nothing, StepFinding::Further(unlisted));
        }
    }

    fn note(&mut self, step: Step, at: StepPlace, found: StepFinding) {
        self.trail.push(TrailEntry { step, at, found });
    }

    /// Notes why a step found no agent, and passes to the next step.
    fn pass(&mut self, step: Step, at: StepPlace, found: StepFinding) -> Option<Outcome> {
        self.note(step, at, found);
        None
    }
}
