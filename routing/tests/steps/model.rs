//! Random orgs and calls against a naive reference, and random texts against invariants.

use crate::world::{World, foreign_id};
use proptest::prelude::*;
use trunkline_routing::numbers::reduce;
use trunkline_routing::{
    Agent, AgentState, Country, Decision, E164, Org, Outcome, Step, StepFinding,
};
use uuid::Uuid;

/// The routing rules, written plainly and without a trail.
fn reference(world: &World) -> Outcome {
    let available =
        |agent: &&Agent| agent.enabled && agent.inbound && !world.busy.contains(&agent.id);
    let by_id = |id: Uuid| {
        world
            .org
            .agents
            .iter()
            .filter(|agent| agent.id == id)
            .collect::<Vec<_>>()
    };

    let header = world
        .facts
        .agent_header
        .as_deref()
        .unwrap_or("")
        .trim()
        .parse::<Uuid>();

    let named = header.map(by_id).unwrap_or_default();
    let number = world
        .facts
        .request_user
        .as_deref()
        .and_then(|user| user.parse::<E164>().ok());

    let assigned = number
        .and_then(|number| world.org.held.get(&number).copied())
        .map(by_id)
        .unwrap_or_default();
    for (agents, step) in [(named, Step::Header), (assigned, Step::AssignedNumber)] {
        for agent in agents {
            if available(&agent) {
                return Outcome::Agent { id: agent.id, step };
            }
            if agent.enabled && agent.inbound {
                return Outcome::AgentBusy { id: agent.id };
            }
        }
    }

    let listed = world
        .org
        .trunk
        .as_ref()
        .map(|trunk| trunk.numbers.clone())
        .unwrap_or_default();

    let mut holders = listed
        .iter()
        .filter_map(|number| world.org.held.get(number))
        .flat_map(|id| by_id(*id));
    if let Some(agent) = holders.find(available) {
        return Outcome::Agent {
            id: agent.id,
            step: Step::TrunkNumbers,
        };
    }

    let mut by_age: Vec<&Agent> = world.org.agents.iter().collect();
    by_age.sort_by_key(|agent| agent.created);
    match by_age.into_iter().find(available) {
        Some(agent) => Outcome::Agent {
            id: agent.id,
            step: Step::FirstAvailable,
        },
        None => Outcome::NoAgent,
    }
}

fn number(index: u8) -> E164 {
    E164::parse(&format!("+4930100{index:02}")).expect("nine digits")
}

/// Few agents and few numbers, so that they often meet.
fn worlds() -> impl Strategy<Value = World> {
    let agents = prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 0..5);
    let held = prop::collection::vec((0_u8..6, 1_u128..7), 0..5);
    let listed = prop::option::of(prop::collection::vec(0_u8..6, 0..5));
    let header = prop_oneof![
        3 => Just(None),
        4 => (1_u128..7).prop_map(|id| Some(Uuid::from_u128(id).to_string())),
        1 => Just(Some(foreign_id().to_string())),
        1 => Just(Some("  reception ".to_owned())),
    ];

    let dialled = prop::option::of(prop_oneof![
        (0_u8..6).prop_map(|index| number(index).to_string()),
        Just("s".to_owned())
    ]);

    (agents, held, listed, header, dialled).prop_map(|(agents, held, listed, header, dialled)| {
        let ids: Vec<Uuid> = (1..=agents.len() as u128).map(Uuid::from_u128).collect();
        let mut world = World::new(&ids);
        for (agent, (enabled, inbound, busy)) in world.org.agents.iter_mut().zip(agents) {
            (agent.enabled, agent.inbound) = (enabled, inbound);
            world.busy.extend(busy.then_some(agent.id));
        }
        world.org.held = held
            .into_iter()
            .map(|(index, id)| (number(index), Uuid::from_u128(id)))
            .collect();
        world.org.trunk = world.org.trunk.zip(listed).map(|(mut trunk, listed)| {
            trunk.numbers = listed.into_iter().map(number).collect();
            trunk
        });
        (world.facts.agent_header, world.facts.request_user) = (header, dialled);
        world
    })
}

fn was_chosen(decision: &Decision, org: &Org) -> bool {
    let last = decision.trail.last().map(|looked| &looked.found);
    match (decision.outcome, last) {
        (
            Outcome::Agent { id, .. },
            Some(StepFinding::Agent {
                id: found, state, ..
            }),
        ) => *found == id && *state == AgentState::Available && org.agent(id).is_some(),
        (
            Outcome::AgentBusy { id },
            Some(StepFinding::Agent {
                id: found, state, ..
            }),
        ) => *found == id && *state == AgentState::AtLimit,
        (Outcome::NoAgent, Some(found)) => !matches!(
            found,
            StepFinding::Agent {
                state: AgentState::Available,
                ..
            }
        ),
        (_, _) => false,
    }
}

fn countries() -> impl Strategy<Value = Option<Country>> {
    prop::option::of(prop::sample::select(vec![
        "DE", "US", "IT", "GB", "BR", "AR", "RU", "JP", "AU", "ES",
    ]))
    .prop_map(|code| code.map(|code| Country::parse(code).expect("a country")))
}

/// A number with random separators between its digits.
fn decorated() -> impl Strategy<Value = (E164, String)> {
    let separators = prop::collection::vec(
        prop::sample::select(vec!["", "", "", " ", "-", ".", "/", "\u{a0}"]),
        15,
    );
    ("[1-9][0-9]{6,14}", separators).prop_map(|(digits, separators)| {
        let spelled: String = digits
            .chars()
            .zip(separators)
            .map(|(digit, separator)| format!("{digit}{separator}"))
            .collect();
        (
            E164::parse(&format!("+{digits}")).expect("7 to 15 digits"),
            spelled,
        )
    })
}

/// A number as it is read in its canonical form: a national prefix behind the country code is left out.
fn canonical(number: E164) -> Option<E164> {
    reduce(number.as_str(), None, &|_| false)
}

proptest! {
    #[test]
    fn the_steps_agree_with_the_reference(world in worlds()) {
        let decision = world.decide();
        prop_assert_eq!(decision.outcome, reference(&world));
        prop_assert!(was_chosen(&decision, &world.org), "{}", decision);
        prop_assert_eq!(decision.sentences().len(), decision.trail.len() + 1 + decision.near_misses.len());
        prop_assert!(decision.near_misses.len() <= 8);
    }

    #[test]
    fn a_decision_survives_its_storage(world in worlds()) {
        let decision = world.decide();
        let stored = serde_json::to_string(&decision).unwrap();
        prop_assert_eq!(serde_json::from_str::<Decision>(&stored).unwrap(), decision);
    }

    #[test]
    fn any_text_reduces_to_a_number_or_to_nothing(text in "\\PC*", country in countries()) {
        let reduced = reduce(&text, country, &|_| false);
        prop_assert!(reduced.is_none_or(|number| E164::parse(number.as_str()) == Ok(number)));
    }

    #[test]
    fn any_digits_reduce_to_a_number_or_to_nothing(text in "(tel:)?[+]?[-0-9(). ;=*]{0,40}", country in countries()) {
        let reduced = reduce(&text, country, &|_| true);
        prop_assert!(reduced.is_none_or(|number| E164::parse(number.as_str()) == Ok(number)));
    }

    #[test]
    fn a_global_number_is_read_through_its_separators((number, spelled) in decorated(), country in countries()) {
        for text in [format!("+{spelled}"), format!("tel:+{spelled};isub=1")] {
            prop_assert_eq!(reduce(&text, country, &|held| *held == number), Some(number));
            prop_assert_eq!(reduce(&text, country, &|_| false), canonical(number));
        }
    }

    #[test]
    fn held_digits_need_no_plus((number, spelled) in decorated(), country in countries()) {
        prop_assert_eq!(reduce(&spelled, country, &|held| *held == number), Some(number));
    }

    #[test]
    fn two_zeros_stand_for_the_plus_where_no_plan_says_otherwise((number, spelled) in decorated()) {
        prop_assert_eq!(reduce(&format!("00{spelled}"), None, &|_| false), canonical(number));
    }
}
