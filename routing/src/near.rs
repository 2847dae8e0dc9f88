//! Near misses: what a call almost met. A number that is the dialled one but for what stands before or behind it, a header that names
//! an agent in the wrong way, an agent that was asked for and couldn't take the call.
//!
//! Looked for only where a step came back empty. Nothing outside the call's own org is known here, so that an id of another org looks
//! like one that nobody has.

use crate::decision::{At, Decision, Differs, Found, NearMiss, Outcome, State, Step};
use crate::directory::Org;
use crate::facts::Facts;
use crate::numbers::{plain_digits, reduce};
use crate::{E164, country};

/// Numbers of an org that are compared with the dialled one; an org with more has them looked up by exact readings alone.
const COMPARED: usize = 10_000;
/// Near misses that one decision lists.
const LISTED: usize = 8;
/// Digits at the end that two numbers must share, and those that may differ before them.
const LEAST_SHARED: usize = 7;
const MOST_BEFORE: usize = 5;
/// Digits that may be too many or too few at the end.
const MOST_BEHIND: usize = 4;

/// What the decision about `facts` came close to.
pub(crate) fn near_misses(facts: &Facts, org: &Org, decision: &Decision) -> Vec<NearMiss> {
    let mut near = Vec::new();
    header(org, decision, &mut near);
    number(facts, org, decision, &mut near);
    agents(decision, &mut near);
    near.truncate(LISTED);
    near
}

fn header(org: &Org, decision: &Decision, near: &mut Vec<NearMiss>) {
    let looked = decision
        .trail
        .iter()
        .find(|looked| looked.step == Step::Header);
    let Some((At::Header(value), found)) = looked.map(|looked| (&looked.at, &looked.found)) else {
        return;
    };

    let header = value.clone();
    match found {
        Found::Nothing => near.push(NearMiss::AgentId { header }),
        Found::NotAnId => {
            let named = |name: &str| name.trim().eq_ignore_ascii_case(value.trim_matches('"'));
            if let Some(agent) = org.agents.iter().find(|agent| named(&agent.name)) {
                near.push(NearMiss::AgentName {
                    header,
                    id: agent.id,
                });
            }
        }
        Found::Contradiction | Found::Agent { .. } | Found::Further(_) => {}
    }
}

fn number(facts: &Facts, org: &Org, decision: &Decision, near: &mut Vec<NearMiss>) {
    let was_empty = decision
        .trail
        .iter()
        .any(|looked| looked.step == Step::AssignedNumber && looked.found == Found::Nothing);
    if !was_empty {
        return;
    }

    let dialled = &decision.dialled;
    if let Some(number) = dialled.e164.filter(|number| org.holds(number)) {
        near.push(NearMiss::Unassigned { number });
        return;
    }

    let held = |number: &E164| org.holds(number);
    let to = facts.to_user.as_deref();
    let to = to.and_then(|to| reduce(to, org.country(), &held));
    if let Some(number) = to.filter(|number| org.holds(number)) {
        let agent = org.held.get(&number).copied();
        near.push(NearMiss::To { number, agent });
    }

    let Some((digits, is_global)) = plain_digits(&dialled.raw) else {
        return;
    };

    let whole = dialled.e164.as_ref().map_or(&*digits, E164::digits);
    if let Some((number, differs)) = alike((&digits, is_global), whole, org) {
        near.push(NearMiss::Number {
            dialled: dialled.raw.clone(),
            agent: org.held.get(&number).copied(),
            number,
            differs,
        });
    }
}

/// The org's number that is most like these digits, as they were dialled and `whole` as they were read.
fn alike((digits, is_global): (&str, bool), whole: &str, org: &Org) -> Option<(E164, Differs)> {
    let unlisted = org.held.keys().filter(|held| !org.numbers.contains(held));

    if org.numbers.len() + org.held.len() > COMPARED {
        return None;
    }

    let numbers = || org.numbers.iter().chain(unlisted.clone()).copied();

    // The longest common end; of two alike the smaller number, whatever order a set has.
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
            (more.len() <= MOST_BEHIND).then(|| Differs::Behind {
                dialled: more.to_owned(),
            })
        } else {
            let missing = ours.strip_prefix(whole)?;
            (missing.len() <= MOST_BEHIND && whole.len() >= LEAST_SHARED).then(|| Differs::Short {
                number: missing.to_owned(),
            })
        };

        Some((number, differs?))
    });

    by_start.min_by_key(|(number, _)| *number)
}

fn shared_end(one: &str, other: &str) -> usize {
    let pairs = one.bytes().rev().zip(other.bytes().rev());
    pairs.take_while(|(one, other)| one == other).count()
}

fn before(digits: &str, number: E164, shared: usize, is_global: bool) -> Differs {
    if !is_global && let Some(country) = country::of_number(number.digits(), digits) {
        return Differs::NationalForm {
            country: country.to_owned(),
        };
    }
    let ours = number.digits();
    Differs::Before {
        dialled: digits[..digits.len() - shared].to_owned(),
        number: ours[..ours.len() - shared].to_owned(),
    }
}

/// Those that were asked for, and, if nobody takes the call, those that might have.
fn agents(decision: &Decision, near: &mut Vec<NearMiss>) {
    let nobody = decision.outcome == Outcome::NoAgent;

    for looked in &decision.trail {
        let asked_for = matches!(looked.step, Step::Header | Step::AssignedNumber);

        let Found::Agent { id, name, state } = &looked.found else {
            continue;
        };

        let listed =
            |near: &NearMiss| matches!(near, NearMiss::Agent { id: known, .. } if known == id);
        if *state != State::Available && (asked_for || nobody) && !near.iter().any(listed) {
            near.push(NearMiss::Agent {
                id: *id,
                name: name.clone(),
                state: *state,
            });
        }
    }
}
