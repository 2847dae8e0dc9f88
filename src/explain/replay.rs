//! Routes recorded calls of a period again, by another directory. The facts that routed a call are stored with it, so
//! only the directory differs. Nothing is changed.
//!
//! Limits of agents are simulated too: a call that was up for some time occupies the agent that it goes to now. A call
//! that was refused at the time occupies no agent, because its length is unknown.

use std::collections::{BTreeMap, HashMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::{Decision, Facts, Org, Outcome, Step, StepPlace, decide};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_store::{Recorded, written};

/// Most calls of one replay.
pub const MOST_CALLS: u32 = 5_000;
/// Calls of a replay that names no number of its own.
pub const CALLS: u32 = 1_000;
/// Most days of the period.
pub const MOST_DAYS: u64 = 92;
/// Calls in the list. Older ones are counted, but not listed.
const LISTED: usize = 500;

/// Result of a replay.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RouteReplay")]
pub struct ReplayView {
    start_date: String,
    end_date: String,
    /// Inbound calls of the period that were examined.
    pub calls: u32,
    /// Calls among them that were refused before they were routed, so that there is nothing to compare.
    pub unrouted: u32,
    /// Calls among them with another outcome.
    pub elsewhere: u32,
    /// True if every call of the period was examined; otherwise only the newest were, from `looked_at_from` on.
    pub complete: bool,
    /// Start of the oldest call that was routed; to replay earlier calls, use it as `end_date`.
    looked_at_from: Option<String>,
    /// True if `items` lists every call with another outcome; it holds the newest 500.
    pub all_listed: bool,
    /// Calls with another outcome, newest first.
    pub items: Vec<MovedView>,
}

/// A call that would be routed differently.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MovedCall")]
pub struct MovedView {
    /// The call.
    pub call_id: Uuid,
    /// Time of its INVITE.
    pub started_at: String,
    /// As sent.
    pub from_number: String,
    /// As sent.
    pub to_number: String,
    /// Outcome at the time.
    pub before: Outcome,
    /// Outcome of the replay.
    pub after: Outcome,
    /// Explanation of the new outcome.
    pub explanation: Vec<String>,
}

/// Routes `calls` again by `org`. They are given newest first, with one more than `most` if there are more.
pub fn replay(
    mut calls: Vec<Recorded>,
    most: u32,
    from: Moment,
    until: Moment,
    org: &Org,
) -> ReplayView {
    let complete = calls.len() <= most as usize;
    calls.truncate(most as usize);
    let looked_at_from = calls.last().map(|call| written(call.started_at));
    let mut view = ReplayView {
        start_date: written(from),
        end_date: written(until),
        calls: u32::try_from(calls.len()).unwrap_or(u32::MAX),
        unrouted: 0,
        elsewhere: 0,
        complete,
        looked_at_from,
        all_listed: true,
        items: Vec::new(),
    };

    let mut up = Up::default();
    // Oldest first, as they came: a call occupies its agent for those that follow.
    for call in calls.into_iter().rev() {
        let Some(before) = &call.decision else {
            view.unrouted += 1;
            continue;
        };

        up.end_before(call.started_at);
        let after = decide(&facts(&call, before), org, &|agent| up.is_full(org, agent));
        if let Outcome::Agent { id, .. } = after.outcome {
            // A call that is still up occupies its agent for the rest of the period.
            up.begin(id, call.ended_at.unwrap_or(until));
        }

        if place(before.outcome) != place(after.outcome) {
            view.elsewhere += 1;
            view.items.push(moved(&call, before, &after));
        }
    }

    view.items.reverse();
    view.all_listed = view.items.len() <= LISTED;
    view.items.truncate(LISTED);
    view
}

fn moved(call: &Recorded, before: &Decision, after: &Decision) -> MovedView {
    MovedView {
        call_id: call.id,
        started_at: written(call.started_at),
        from_number: call.from_number.clone(),
        to_number: call.to_number.clone(),
        before: before.outcome,
        after: after.outcome,
        explanation: after.sentences(),
    }
}

/// Returns the facts that routed the call. Where retention has emptied them, they follow from the record and the trail.
fn facts(call: &Recorded, decision: &Decision) -> Facts {
    if let Some(asked) = &call.asked {
        return asked.facts.clone();
    }

    let header = decision.trail.iter().find_map(|looked| match &looked.at {
        StepPlace::Header(value) if looked.step == Step::Header => Some(value.clone()),
        StepPlace::Header(_) | StepPlace::Number(_) | StepPlace::Agents | StepPlace::Nothing => {
            None
        }
    });
    Facts {
        agent_header: header,
        request_user: Some(call.to_number.clone()),
        from_user: Some(call.from_number.clone()),
        ..Facts::default()
    }
}

/// Target of a call, regardless of the step that chose it.
const fn place(outcome: Outcome) -> (u8, Option<Uuid>) {
    match outcome {
        Outcome::Agent { id, .. } => (0, Some(id)),
        Outcome::AgentBusy { id } => (1, Some(id)),
        Outcome::NoAgent => (2, None),
    }
}

/// Calls that are up at a time of the replay.
#[derive(Debug, Default)]
struct Up {
    by_agent: HashMap<Uuid, u32>,
    /// Calls by the time of their end.
    ends: BTreeMap<Moment, Vec<Uuid>>,
}

impl Up {
    fn begin(&mut self, agent: Uuid, ends_at: Moment) {
        *self.by_agent.entry(agent).or_default() += 1;
        self.ends.entry(ends_at).or_default().push(agent);
    }

    fn end_before(&mut self, now: Moment) {
        while let Some(entry) = self.ends.first_entry() {
            if *entry.key() > now {
                return;
            }
            for agent in entry.remove() {
                if let Some(count) = self.by_agent.get_mut(&agent) {
                    *count = count.saturating_sub(1);
                }
            }
        }
    }

    fn is_full(&self, org: &Org, agent: Uuid) -> bool {
        let limit = org
            .agent(agent)
            .and_then(|agent| agent.max_concurrent_calls);
        limit.is_some_and(|most| self.by_agent.get(&agent).copied().unwrap_or(0) >= most)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use trunkline_routing::{Agent, Country, E164, Trunk};

    use super::*;
    use crate::explain::change::{AgentChange, Change, NumberChange, TrunkChange};

    fn agent(id: u128, most: Option<u32>) -> Agent {
        Agent {
            id: Uuid::from_u128(id),
            name: format!("agent {id}").into(),
            inbound: true,
            enabled: true,
            max_concurrent_calls: most,
            created: 0,
        }
    }

    fn org() -> Org {
        let number = E164::parse("+493012345678").expect("a number");
        Org {
            id: Uuid::from_u128(9),
            agents: vec![agent(1, None), agent(2, None)],
            held: HashMap::from([(number, Uuid::from_u128(2))]),
            numbers: HashSet::from([number]),
            trunk: Some(Trunk {
                id: Uuid::from_u128(8),
                numbers: Vec::new(),
                default_country: None,
                max_concurrent_calls: None,
            }),
            max_concurrent_calls: None,
        }
    }

    fn recorded(id: u128, at: u64, lasted: u64, dialled: &str, org: &Org) -> Recorded {
        let facts = Facts {
            request_user: Some(dialled.to_owned()),
            ..Facts::default()
        };
        Recorded {
            id: Uuid::from_u128(id),
            from_number: "100".to_owned(),
            to_number: dialled.to_owned(),
            to_e164: None,
            started_at: Moment::from_secs(at),
            ended_at: Some(Moment::from_secs(at + lasted)),
            reason: None,
            decision: Some(decide(&facts, org, &|_| false)),
            asked: None,
        }
    }

    const FROM: Moment = Moment::from_secs(0);
    const UNTIL: Moment = Moment::from_secs(1_000);

    fn change(id: u128) -> AgentChange {
        AgentChange {
            id: Uuid::from_u128(id),
            enabled: None,
            inbound: None,
            max_concurrent_calls: None,
            deleted: false,
        }
    }

    #[test]
    fn the_same_directory_moves_nothing() {
        let org = org();
        let calls = vec![
            recorded(2, 20, 5, "+493012345678", &org),
            recorded(1, 10, 5, "nobody", &org),
        ];
        let view = replay(calls, 10, FROM, UNTIL, &org);
        assert_eq!((view.calls, view.elsewhere, view.complete), (2, 0, true));
    }

    #[test]
    fn a_change_moves_those_it_is_about() {
        let org = org();
        let national = recorded(1, 10, 5, "030 12345678", &org);
        let assigned = recorded(2, 20, 5, "+493012345678", &org);
        let moved = |change: &Change| {
            let changed = change.apply(&org).expect("a sound change");
            let calls = vec![assigned.clone(), national.clone()];
            let view = replay(calls, 10, FROM, UNTIL, &changed);
            let ids: Vec<u128> = view
                .items
                .iter()
                .map(|item| item.call_id.as_u128())
                .collect();
            assert_eq!(ids.len(), view.elsewhere as usize);
            ids
        };

        let germany = TrunkChange {
            default_country: Some(Country::parse("DE").ok()),
            numbers: None,
        };
        let number = |agent| NumberChange {
            number: E164::parse("+493012345678").expect("a number"),
            agent,
            deleted: false,
        };

        for (name, change, expected) in [
            ("nothing", Change::default(), &[] as &[u128]),
            (
                "a country",
                Change {
                    trunk: germany,
                    ..Change::default()
                },
                &[1],
            ),
            (
                "its agent is disabled",
                Change {
                    agents: vec![AgentChange {
                        enabled: Some(false),
                        ..change(2)
                    }],
                    ..Change::default()
                },
                &[2],
            ),
            (
                "the other is deleted",
                Change {
                    agents: vec![AgentChange {
                        deleted: true,
                        ..change(1)
                    }],
                    ..Change::default()
                },
                &[1],
            ),
            (
                "the number is given to the other",
                Change {
                    numbers: vec![number(Some(Some(Uuid::from_u128(1))))],
                    ..Change::default()
                },
                &[2],
            ),
        ] {
            assert_eq!(moved(&change), expected, "{name}");
        }

        let foreign = Change {
            agents: vec![change(77)],
            numbers: vec![number(Some(Some(Uuid::from_u128(78))))],
            ..Change::default()
        };
        assert_eq!(
            foreign.apply(&org).unwrap_err(),
            [
                "agents[0].id: is not an agent of this org",
                "numbers[0].agent_id: is not an agent of this org"
            ]
        );
    }

    #[test]
    fn a_limit_counts_the_calls_that_are_up() {
        let org = org();
        let calls = || {
            vec![
                recorded(3, 40, 5, "+493012345678", &org),
                recorded(2, 20, 5, "+493012345678", &org),
                recorded(1, 10, 20, "+493012345678", &org),
            ]
        };

        let limited = Change {
            agents: vec![AgentChange {
                max_concurrent_calls: Some(Some(1)),
                ..change(2)
            }],
            ..Change::default()
        };

        let limited = limited.apply(&org).expect("a sound change");
        let view = replay(calls(), 10, FROM, UNTIL, &limited);
        let moved: Vec<_> = view
            .items
            .iter()
            .map(|item| (item.call_id.as_u128(), item.after))
            .collect();

        let busy = Outcome::AgentBusy {
            id: Uuid::from_u128(2),
        };
        assert_eq!(moved, [(2, busy)]);

        let cut = replay(calls(), 2, FROM, UNTIL, &limited);
        assert_eq!((cut.calls, cut.elsewhere, cut.complete), (2, 0, false));
    }
}
