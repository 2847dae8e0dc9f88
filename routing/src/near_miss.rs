//! Near misses: a number that differs from the dialled one only at its beginning or end, a header that doesn't name an agent by its id, an
//! agent that was asked for but couldn't take the call.
//!
//! Only steps that found no available agent are examined. Only the call's own org is known here, so the id of another org's agent is reported like
//! an id that doesn't exist.

use uuid::Uuid;

use crate::decision::{
    AgentState, Decision, NearMiss, NumberDifference, Outcome, Step, StepFinding, StepPlace,
};
use crate::directory::Org;
use crate::facts::Facts;
use crate::numbers::{other_reading, plain_digits, reduce};
use crate::{E164, country};

/// Most numbers of an org that are compared with the dialled one. An org with more numbers gets no near misses by comparison.
const COMPARED: usize = 10_000;
/// Most near misses in one decision; further ones are left out.
const LISTED: usize = 8;
/// Least digits at the end that two similar numbers share.
const LEAST_SHARED: usize = 7;
/// Most digits before the shared ones, in either number.
const MOST_BEFORE: usize = 5;
/// Most digits that may be surplus or missing at the end.
const MOST_BEHIND: usize = 4;

/// Returns the near misses of the decision about `facts`.
pub(crate) fn near_misses(facts: &Facts, org: &Org, decision: &Decision) -> Vec<NearMiss> {
    let mut near = Vec::new();
    ambiguity(org, decision, &mut near);
    header(org, decision, &mut near);
    number(facts, org, decision, &mut near);
    agents(decision, &mut near);
    near.truncate(LISTED);
    near
}

/// Adds a second number that the dialled digits can mean.
fn ambiguity(org: &Org, decision: &Decision, near: &mut Vec<NearMiss>) {
    let dialled = &decision.dialled;
    let Some(read) = dialled.e164 else {
        return;
    };
    let held = |number: &E164| org.holds(number);
    if let Some(other) = other_reading(&dialled.raw, &read, org.country(), &held) {
        near.push(NearMiss::Ambiguous {
            dialled: dialled.raw.to_string(),
            read,
            other,
        });
    }
}

/// Adds an agent that the header names in the wrong way.
fn header(org: &Org, decision: &Decision, near: &mut Vec<NearMiss>) {
    let looked = decision
        .trail
        .iter()
        .find(|looked| looked.step == Step::Header);
    let Some((StepPlace::Header(value), found)) = looked.map(|looked| (&looked.at, &looked.found))
    else {
        return;
    };

    let header = value.clone();
    match found {
        StepFinding::Nothing => near.push(NearMiss::AgentId { header }),
        StepFinding::NotAnId => {
            let named = |name: &str| name.trim().eq_ignore_ascii_case(value.trim_matches('"'));
            if let Some(agent) = org.agents.iter().find(|agent| named(&agent.name)) {
                near.push(NearMiss::AgentName {
                    header,
                    id: agent.id,
                });
            }
        }
        StepFinding::Contradiction | StepFinding::Agent { .. } | StepFinding::Further(_) => {}
    }
}

/// Adds numbers of the org that the dialled one nearly matches.
fn number(facts: &Facts, org: &Org, decision: &Decision, near: &mut Vec<NearMiss>) {
    let was_empty = decision
        .trail
        .iter()
        .any(|looked| looked.step == Step::AssignedNumber && looked.found == StepFinding::Nothing);
    if !was_empty {
        return;
    }

    let dialled = &decision.dialled;
    if let Some(number) = dialled.e164.filter(|number| org.holds(number)) {
        // The number is right, so none that resembles it could be meant.
        near.push(NearMiss::Unassigned { number });
        return;
    }

    let is_of_org = |number: &E164| org.holds(number);
    let to = facts.to_user.as_deref();
    let to = to.and_then(|to| reduce(to, org.country(), &is_of_org));
    if let Some(number) = to.filter(|number| org.holds(number)) {
        let (agent, agent_name) = holder(&number, org);
        near.push(NearMiss::To {
            number,
            agent,
            agent_name,
        });
    }

    let Some((digits, is_global)) = plain_digits(&dialled.raw) else {
        return;
    };

    let whole = dialled.e164.as_ref().map_or(&*digits, E164::digits);
    if let Some((number, differs)) = alike(&digits, is_global, whole, org) {
        let (agent, agent_name) = holder(&number, org);
        near.push(NearMiss::Number {
            dialled: dialled.raw.to_string(),
            agent,
            agent_name,
            number,
            differs,
        });
    }
}

/// Returns the agent that holds a number, and its name.
fn holder(number: &E164, org: &Org) -> (Option<Uuid>, Option<Box<str>>) {
    let id = org.held.get(number).copied();
    let agent = org.agents.iter().find(|agent| Some(agent.id) == id);
    (id, agent.map(|agent| agent.name.clone()))
}

/// Returns the org's number most similar to the dialled digits, and the difference. `digits` are as dialled; `whole` is the number as read.
fn alike(
    digits: &str,
    is_global: bool,
    whole: &str,
    org: &Org,
) -> Option<(E164, NumberDifference)> {
    if org.numbers.len() + org.held.len() > COMPARED {
        return None;
    }

    // An assigned number may have lost its verification since: it is in `held` alone.
    let unlisted = org.held.keys().filter(|held| !org.numbers.contains(held));
    let numbers = || org.numbers.iter().chain(unlisted.clone()).copied();

    // The longest common end wins. Of two equally long ends the smaller number wins, since a set has no stable order.
    let by_end = numbers().filter_map(|number| {
        let shared = shared_end(digits, number.digits());
        let before = (digits.len() - shared, number.digits().len() - shared);
        (shared >= LEAST_SHARED && before.0 <= MOST_BEFORE && before.1 <= MOST_BEFORE)
            .then_some((shared, std::cmp::Reverse(number)))
    });
    if let Some((shared, std::cmp::Reverse(number))) = by_end.max() {
        return Some((number, before(digits, number, shared, is_global)));
    }

    let by_start = numbers().filter_map(|number| {
        let ours = number.digits();
        let differs = if let Some(more) = whole.strip_prefix(ours) {
            (more.len() <= MOST_BEHIND).then(|| NumberDifference::Behind {
                dialled: more.to_owned(),
            })
        } else {
            let missing = ours.strip_prefix(whole)?;
            (missing.len() <= MOST_BEHIND && whole.len() >= LEAST_SHARED).then(|| {
                NumberDifference::Short {
                    number: missing.to_owned(),
                }
            })
        };

        Some((number, differs?))
    });

    by_start.min_by_key(|(number, _)| *number)
}

/// Returns the number of digits at the end that both share.
fn shared_end(one: &str, other: &str) -> usize {
    let pairs = one.bytes().rev().zip(other.bytes().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

/// Returns the difference between digits and number, which share their last `shared` digits.
fn before(digits: &str, number: E164, shared: usize, is_global: bool) -> NumberDifference {
    if !is_global && let Some(country) = country::of_number(number.digits(), digits) {
        return NumberDifference::NationalForm {
            country: country.to_owned(),
        };
    }
    let ours = number.digits();
    NumberDifference::Before {
        dialled: digits[..digits.len() - shared].to_owned(),
        number: ours[..ours.len() - shared].to_owned(),
    }
}

/// Adds the agents that the caller asked for and, if no agent takes the call, those that were considered.
fn agents(decision: &Decision, near: &mut Vec<NearMiss>) {
    let nobody = decision.outcome == Outcome::NoAgent;

    for looked in &decision.trail {
        let asked_for = matches!(looked.step, Step::Header | Step::AssignedNumber);

        let StepFinding::Agent { id, name, state } = &looked.found else {
            continue;
        };

        let listed =
            |near: &NearMiss| matches!(near, NearMiss::Agent { id: known, .. } if known == id);
        if *state != AgentState::Available && (asked_for || nobody) && !near.iter().any(listed) {
            near.push(NearMiss::Agent {
                id: *id,
                name: name.clone(),
                state: *state,
            });
        }
    }
}
