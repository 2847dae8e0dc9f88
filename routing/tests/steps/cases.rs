//! The four steps, case by case, and the sentences that explain them.

use crate::world::{RECEPTION, SALES, SUPPORT, World, foreign_id};
use trunkline_routing::{
    AgentState, Decision, NearMiss, Outcome, Step, StepFinding, StepPlace, TrailEntry, decide,
};

/// A number as it is dialled from Singapore, by two habits.
#[test]
fn digits_that_can_mean_two_numbers_are_named() {
    let world = |held: &[&str]| {
        let mut world = World::new(&[RECEPTION]);
        let trunk = world.org.trunk.as_mut().expect("a trunk");
        trunk.default_country = "SG".parse().ok();
        for number in held {
            world = world.assigned(number, RECEPTION);
        }
        world.dialled("0012015550123").decide()
    };
    let (egypt, usa) = ("+2015550123", "+12015550123");
    for (name, held, read, other) in [
        (
            "neither is held: the country's own reading",
            &[][..],
            egypt,
            Some(usa),
        ),
        ("the held one", &[usa], usa, None),
        (
            "the held one, by the country's own reading",
            &[egypt],
            egypt,
            None,
        ),
        (
            "both are held: the country's own reading",
            &[usa, egypt],
            egypt,
            Some(usa),
        ),
    ] {
        let decision = world(held);
        assert_eq!(
            decision
                .dialled
                .e164
                .map(|number| number.to_string())
                .as_deref(),
            Some(read),
            "{name}"
        );
        let near = decision.near_misses.first();
        let named = match near {
            Some(NearMiss::Ambiguous { other, .. }) => Some(other.to_string()),
            Some(near) => panic!("{name}: {near}"),
            None => None,
        };
        assert_eq!(named.as_deref(), other, "{name}");
    }
    let said = world(&[]).sentences().join(" ");
    assert!(
        said.contains(
            "\"0012015550123\" was read as +2015550123, and can mean +12015550123 as well"
        ),
        "{said}"
    );
}

fn chosen(world: &World) -> Outcome {
    world.decide().outcome
}

#[test]
fn each_step_chooses_when_those_before_it_find_nobody() {
    let world = World::new(&[RECEPTION, SALES, SUPPORT]).listing(&["+4930100", "+4930200"]);
    let cases = [
        (
            "step 1: the header's agent",
            world
                .clone()
                .header(SUPPORT.to_string())
                .assigned("+4930100", SALES)
                .dialled("+4930100"),
            (SUPPORT, Step::Header),
        ),
        (
            "step 2: the dialled number's",
            world
                .clone()
                .assigned("+4930100", SALES)
                .dialled("+4930100"),
            (SALES, Step::AssignedNumber),
        ),
        (
            "step 2: though the trunk doesn't list it",
            world
                .clone()
                .assigned("+4930900", SALES)
                .dialled("+4930900"),
            (SALES, Step::AssignedNumber),
        ),
        (
            "step 3: the list's first",
            world
                .clone()
                .assigned("+4930200", SALES)
                .dialled("+4930999"),
            (SALES, Step::TrunkNumbers),
        ),
        (
            "step 3: in the list's order",
            world
                .clone()
                .assigned("+4930200", SALES)
                .assigned("+4930100", SUPPORT)
                .dialled("s"),
            (SUPPORT, Step::TrunkNumbers),
        ),
        (
            "step 3: passing one at its limit",
            world
                .clone()
                .assigned("+4930100", SALES)
                .assigned("+4930200", SUPPORT)
                .busy(SALES),
            (SUPPORT, Step::TrunkNumbers),
        ),
        (
            "step 4: the oldest",
            world.clone(),
            (RECEPTION, Step::FirstAvailable),
        ),
        (
            "step 4: passing a disabled one",
            world.clone().disabled(RECEPTION),
            (SALES, Step::FirstAvailable),
        ),
        (
            "step 4: passing an outbound one",
            world.clone().outbound(RECEPTION),
            (SALES, Step::FirstAvailable),
        ),
        (
            "step 4: passing one at its limit",
            world.clone().busy(RECEPTION),
            (SALES, Step::FirstAvailable),
        ),
    ];

    for (name, world, (id, step)) in cases {
        assert_eq!(chosen(&world), Outcome::Agent { id, step }, "{name}");
    }
}

#[test]
fn a_defect_is_noted_and_the_next_step_tried() {
    let world = World::new(&[RECEPTION, SALES])
        .assigned("+4930100", SALES)
        .dialled("+4930100");
    let next = Outcome::Agent {
        id: SALES,
        step: Step::AssignedNumber,
    };

    let cases = [
        (
            "no id",
            world.clone().header("reception"),
            StepFinding::NotAnId,
        ),
        (
            "another org's",
            world.clone().header(foreign_id().to_string()),
            StepFinding::Nothing,
        ),
        (
            "disabled",
            world
                .clone()
                .header(RECEPTION.to_string())
                .disabled(RECEPTION),
            agent("agent 1", AgentState::Disabled),
        ),
        (
            "outbound",
            world
                .clone()
                .header(RECEPTION.to_string())
                .outbound(RECEPTION),
            agent("agent 1", AgentState::NotInbound),
        ),
        (
            "disabled and at its limit",
            world
                .clone()
                .header(RECEPTION.to_string())
                .disabled(RECEPTION)
                .busy(RECEPTION),
            agent("agent 1", AgentState::Disabled),
        ),
    ];

    for (name, world, found) in cases {
        let decision = world.decide();
        assert_eq!(decision.outcome, next, "{name}");
        assert_eq!(decision.trail[0].found, found, "{name}");
    }
}

fn agent(name: &str, state: AgentState) -> StepFinding {
    StepFinding::Agent {
        id: RECEPTION,
        name: name.into(),
        state,
    }
}

#[test]
fn an_agent_asked_for_and_at_its_limit_ends_the_search() {
    let world = World::new(&[RECEPTION, SALES])
        .assigned("+4930100", RECEPTION)
        .listing(&["+4930100"])
        .busy(RECEPTION);
    let cases = [
        ("by header", world.clone().header(RECEPTION.to_string())),
        ("by number", world.clone().dialled("+4930100")),
    ];

    for (name, world) in cases {
        assert_eq!(
            chosen(&world),
            Outcome::AgentBusy { id: RECEPTION },
            "{name}"
        );
    }
}

#[test]
fn nobody_is_nobody() {
    let cases = [
        ("no agents", World::new(&[])),
        (
            "all busy",
            World::new(&[SALES, SUPPORT]).busy(SALES).busy(SUPPORT),
        ),
        (
            "a number whose agent is gone",
            World::new(&[])
                .assigned("+4930100", SALES)
                .dialled("+4930100"),
        ),
    ];

    for (name, world) in cases {
        assert_eq!(chosen(&world), Outcome::NoAgent, "{name}");
    }
}

#[test]
fn the_trail_reads_as_sentences() {
    let world = World::new(&[RECEPTION, SALES])
        .header("reception")
        .dialled("+493010")
        .assigned("+4930200", RECEPTION)
        .listing(&["+4930100", "+4930200"])
        .busy(RECEPTION);

    let expected = [
        "The agent header says \"reception\", which is no agent id.".to_owned(),
        "What was dialled is no phone number.".to_owned(),
        "The trunk's number +4930100 is assigned to no agent.".to_owned(),
        format!(
            "The trunk's number +4930200 is assigned to agent \"agent 1\" ({RECEPTION}), which is at its limit."
        ),
        format!(
            "Among the org's agents, oldest first, is agent \"agent 1\" ({RECEPTION}), which is at its limit."
        ),
        format!(
            "Among the org's agents, oldest first, is agent \"agent 2\" ({SALES}), which is available."
        ),
        format!("Agent \"agent 2\" ({SALES}) takes the call: it is the org's first available one."),
    ];

    assert_eq!(world.decide().sentences(), expected);
}

/// Each near miss, and the change that its sentence suggests.
#[test]
fn what_a_call_came_close_to_is_said() {
    let world = World::new(&[RECEPTION, SALES]).assigned("+493012345678", SALES);
    let to = |user: &str| {
        let mut world = world.clone().dialled("+493099999999");
        world.facts.to_user = Some(user.to_owned());
        world
    };
    let abroad = |user: &str| {
        let mut world = world.clone().dialled(user);
        let trunk = world.org.trunk.as_mut().expect("every world has a trunk");
        trunk.default_country = Some("US".parse().expect("a country"));
        world
    };
    let mut free = world.clone().dialled("+4930555555");
    free.org
        .numbers
        .insert("+4930555555".parse().expect("a number"));

    let cases: [(&str, World, &[&str]); 16] = [
        ("a hit", world.clone().dialled("+493012345678"), &[]),
        ("nothing alike", world.clone().dialled("+442071838750"), &[]),
        ("an extension", world.clone().dialled("678"), &[]),
        (
            "national form without a country",
            world.clone().dialled("030 12345678"),
            &["national form in DE; set the trunk's default_country to DE"],
        ),
        (
            "without its zero as well",
            world.clone().dialled("3012345678"),
            &["national form in DE"],
        ),
        (
            "in another country",
            abroad("03012345678"),
            &["national form in DE"],
        ),
        (
            "an outside line before it",
            world.clone().dialled("9493012345678"),
            &["\"9\" comes before it"],
        ),
        (
            "another country code",
            world.clone().dialled("+13012345678"),
            &["begins with \"1\" where the number begins with \"49\""],
        ),
        (
            "an extension behind it",
            world.clone().dialled("+4930123456780"),
            &["\"0\" follows it"],
        ),
        (
            "its end is missing",
            world.clone().dialled("+4930123456"),
            &["\"78\" is missing at its end"],
        ),
        (
            "in To alone",
            to("+493012345678"),
            &["To names the org's number +493012345678"],
        ),
        (
            "verified and nobody's",
            free,
            &["+4930555555 is a number of this org that is assigned to no agent"],
        ),
        (
            "the name of an agent",
            world.clone().header("Agent 2"),
            &["gives the name \"Agent 2\"; send the agent's id"],
        ),
        (
            "an id of nobody here",
            world.clone().header(foreign_id().to_string()),
            &["isn't one of this org's agents"],
        ),
        (
            "its agent is disabled",
            world.clone().dialled("+493012345678").disabled(SALES),
            &["is disabled; enable it"],
        ),
        (
            "everybody is busy",
            World::new(&[RECEPTION, SALES])
                .busy(RECEPTION)
                .outbound(SALES),
            &[
                "is at its limit; raise",
                "doesn't take inbound calls; make its type",
            ],
        ),
    ];

    for (name, world, expected) in cases {
        let decision = world.decide();
        let said: Vec<String> = decision
            .near_misses
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(said.len(), expected.len(), "{name}: {said:?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.contains(expected), "{name}: {said}");
        }
    }
}

/// The id of another org's agent can't be distinguished from an id that doesn't exist.
#[test]
fn a_foreign_id_looks_like_any_other() {
    let said = |id: uuid::Uuid| {
        let decision = World::new(&[RECEPTION]).header(id.to_string()).decide();
        decision.sentences().join("\n").replace(&id.to_string(), "")
    };
    assert_eq!(said(foreign_id()), said(uuid::Uuid::from_u128(0xdead)));
}

#[test]
fn an_org_of_many_numbers_is_not_looked_through() {
    let mut world = World::new(&[RECEPTION]).dialled("030 12345678");
    let many = 1_000_000..1_010_001;
    let numbers = many.map(|at| format!("+4930{at}").parse().expect("a number"));
    world.org.numbers = numbers.collect();
    world
        .org
        .numbers
        .insert("+493012345678".parse().expect("a number"));
    assert_eq!(world.decide().near_misses, []);
}

#[test]
fn control_characters_of_a_header_are_escaped_and_its_length_is_bounded() {
    let decision = World::new(&[RECEPTION])
        .header(format!("a\u{1b}[31m{}", "x".repeat(9000)))
        .decide();
    let sentence = &decision.sentences()[0];
    assert!(sentence.contains("\\u{1b}[31m"), "{sentence}");
    assert!(sentence.len() < 300, "{}", sentence.len());
}

#[test]
fn an_org_of_thousands_leaves_a_short_trail() {
    let ids: Vec<_> = (1..=5000).map(uuid::Uuid::from_u128).collect();
    let mut world = World::new(&ids);
    for id in &ids[..4999] {
        world = world.busy(*id);
    }

    let decision = world.decide();
    assert_eq!(decision.agent(), Some(ids[4999]));
    assert!(decision.trail.len() < 30, "{}", decision.trail.len());

    let counted = TrailEntry {
        step: Step::FirstAvailable,
        at: StepPlace::Nothing,
        found: StepFinding::Further(4979),
    };
    assert!(decision.trail.contains(&counted), "{:?}", decision.trail);
}

#[test]
fn the_stored_form_stays() {
    let world = World::new(&[RECEPTION])
        .header(RECEPTION.to_string())
        .dialled("+493012345678")
        .disabled(RECEPTION);
    let stored = format!(
        r#"{{"outcome":"no_agent","dialled":{{"raw":"+493012345678","e164":"+493012345678"}},"caller":{{"raw":"","e164":null}},"trail":[{{"step":"header","at":{{"header":"{RECEPTION}"}},"found":{{"agent":{{"id":"{RECEPTION}","name":"agent 1","state":"disabled"}}}}}},{{"step":"assigned_number","at":{{"number":"+493012345678"}},"found":"nothing"}},{{"step":"trunk_numbers","at":"nothing","found":"nothing"}},{{"step":"first_available","at":"agents","found":{{"agent":{{"id":"{RECEPTION}","name":"agent 1","state":"disabled"}}}}}}]}}"#
    );

    let mut decision = decide(&world.facts, &world.org, &|_| false);
    let near =
        format!(r#"[{{"agent":{{"id":"{RECEPTION}","name":"agent 1","state":"disabled"}}}}]"#);
    assert_eq!(serde_json::to_string(&decision.near_misses).unwrap(), near);

    // A decision that was stored before near misses existed can still be read.
    decision.near_misses.clear();
    assert_eq!(serde_json::from_str::<Decision>(&stored).unwrap(), decision);
    let today = stored.strip_suffix('}').unwrap().to_owned() + r#","near_misses":[]}"#;
    assert_eq!(serde_json::to_string(&decision).unwrap(), today);
}

#[test]
fn two_headers_that_differ_are_noted_and_neither_counts() {
    let world = World::new(&[RECEPTION, SALES, SUPPORT])
        .header(SALES.to_string())
        .other_header(SUPPORT.to_string());
    let decision = world.decide();
    let first = Outcome::Agent {
        id: RECEPTION,
        step: Step::FirstAvailable,
    };
    assert_eq!(decision.outcome, first);

    let noted = TrailEntry {
        step: Step::Header,
        at: StepPlace::Header(format!("{SALES}, {SUPPORT}")),
        found: StepFinding::Contradiction,
    };
    assert_eq!(decision.trail[0], noted);

    let sentence = format!(
        "The agent header says \"{SALES}, {SUPPORT}\", which are two agents: neither counts."
    );
    assert_eq!(decision.sentences()[0], sentence);
    assert_eq!(decision.near_misses, []);
}
