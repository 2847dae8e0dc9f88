//! Challenges that get no answer: the doctor names the peers that sent the requests, and the cause.

use serde_json::json;

use crate::calls::challenges::{challenged, is_proof, order, trunk_with};
use trunkline_testkit::leg::{
    ATTACKER, Agent, HONEST, PATIENCE, WITHOUT_QOP, contact_of, inbound, inbound_by, refuse,
    with_runtime, with_sdp,
};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Peer};

/// Waits until the doctor has this finding on challenges.
fn finds(daemon: &Daemon, parts: &[&str]) {
    let found = || {
        let (_, report) = daemon.setup.doctor();
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let texts = findings
            .iter()
            .filter(|finding| finding["check"] == "challenges");
        let texts: Vec<String> = texts
            .filter_map(|finding| Some(finding["text"].as_str()?.to_owned()))
            .collect();
        let is_it = |text: &&String| parts.iter().all(|part| text.contains(part));
        texts.iter().find(is_it).cloned()
    };
    let found = Deadline::after(PATIENCE).poll(found);
    assert!(found.is_some(), "{parts:?}: {}", daemon.setup.doctor().1);
}

#[test]
fn the_doctor_names_who_challenges_in_vain() {
    let (daemon, agent) = with_runtime();
    let pair = daemon.credentials();
    let (pbx, asker) = inbound(&daemon, &agent, &pair, (None, None));
    let proofs = challenged(&asker, &pbx, &pbx.end, "INFO", &[HONEST]);
    assert!(is_proof(&proofs, "INFO", &pair), "{proofs:?}");
    let (_, report) = daemon.setup.doctor();
    assert!(!report.to_string().contains("\"challenges\""), "{report}");

    challenged(&asker, &pbx, &pbx.end, "INFO", &[WITHOUT_QOP]);
    finds(
        &daemon,
        &[
            "The PBX of",
            "challenged INFO with 401",
            "pbx.example",
            "no qop",
        ],
    );

    let attacker = Peer::on(ATTACKER, daemon.sip());
    let (pbx, asker) = inbound(&daemon, &agent, &pair, (Some(attacker.own), None));
    challenged(&asker, &pbx, &attacker, "UPDATE", &[HONEST]);
    finds(
        &daemon,
        &["127.0.0.66", "challenged UPDATE", "another address"],
    );

    let carrier = Agent::new(Peer::new(daemon.sip()));
    trunk_with(&daemon, carrier.end.own, &json!({"auth_realm": "a"}));
    order(&daemon, "+14155550100");
    refuse(&carrier.end, &carrier.next(), HONEST);
    finds(
        &daemon,
        &["\"Carrier\"", "challenged INVITE", "not one of the trunk's"],
    );
}

#[test]
fn the_doctor_names_a_pbx_that_was_admitted_by_address() {
    let setup = DaemonSetup::new();
    setup.allow("127.0.0.1/32");
    let agent = Agent::new(Peer::new(setup.sip));
    setup.runtime(&setup.first_agent, &format!("sip:agent@{}", agent.end.own));
    let daemon = setup.serve();
    let accept = |invite: Message| {
        with_sdp(&agent.end, &invite, &contact_of(&agent.end));
        invite
    };
    let (pbx, asker) = inbound_by(&daemon, &agent, None, (None, None), accept);
    challenged(&asker, &pbx, &pbx.end, "BYE", &[HONEST]);
    finds(
        &daemon,
        &["The PBX of", "challenged BYE", "admitted by address"],
    );

    assert_eq!(daemon.record()["status"], "completed");
}
