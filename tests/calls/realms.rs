//! Realms of an outbound trunk: learned from its carrier, limited in number, kept over restarts, and no others answered.

use std::cell::RefCell;
use std::collections::HashSet;

use serde_json::{Value, json};

use crate::calls::challenges::{acme, order, trunk_with};
use trunkline_testkit::leg::{
    Agent, Harvest, Leg, PATIENCE, in_force, refuse, with_runtime, with_sdp,
};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Peer, proves};

/// Returns a challenge of this realm.
fn of(realm: &str) -> String {
    format!("realm=\"{realm}\", nonce=\"n-{realm}\", qop=\"auth\"")
}

fn without_qop(realm: &str) -> String {
    format!("realm=\"{realm}\", nonce=\"n-{realm}\"")
}

/// Returns whether a call by the trunk answers this challenge with a digest; `rings` sends 180 before it. The call is then refused.
fn is_answered(daemon: &Daemon, carrier: &Agent, (challenge, rings): (&str, bool)) -> bool {
    let call = order(daemon, "+14155550100");
    let invite = carrier.next();
    if rings {
        carrier.end.reply(&invite, "180 Ringing", "");
    }
    refuse(&carrier.end, &invite, challenge);

    let path = format!("/phone/calls/{call}");
    let settled = Deadline::after(PATIENCE).poll(|| {
        if let Some(message) = carrier.end.soon()
            && message.is_request("INVITE")
            && message.header("Authorization").is_some()
        {
            assert!(
                proves(&message, "Authorization", "INVITE", &acme()),
                "{message:?}"
            );
            carrier.end.reply(&message, "486 Busy Here", "");
            return Some(true);
        }
        let call = daemon.shown(&path);
        (call["reason"] == "trunk_auth_failed").then_some(false)
    });
    settled.unwrap_or_else(|| panic!("{}", daemon.shown(&path)))
}

fn path_of(trunk: &Value) -> String {
    let id = trunk["id"].as_str().expect("an id");
    format!("/phone/sip/outbound-trunks/{id}")
}

/// Waits until the trunk shows these realms.
fn shows(daemon: &Daemon, trunk: &Value, realms: &[&str]) {
    let path = path_of(trunk);
    let shown = Deadline::after(PATIENCE)
        .poll(|| (daemon.shown(&path)["auth_realms"] == json!(realms)).then_some(()));
    assert!(shown.is_some(), "{realms:?}: {}", daemon.shown(&path));
}

/// Waits until the trunk has learned the realm. The directory follows the store within a second.
fn learns(daemon: &Daemon, carrier: &Agent, trunk: &Value, (realm, all): (&str, &[&str])) {
    assert!(is_answered(daemon, carrier, (&of(realm), false)), "{realm}");
    shows(daemon, trunk, all);
    in_force(daemon);
}

#[test]
fn a_trunk_has_a_few_realms_of_its_own() {
    let (mut daemon, agent) = with_runtime();
    let carrier = Agent::new(Peer::new(daemon.sip()));
    let trunk = trunk_with(&daemon, carrier.end.own, &json!({}));
    assert_eq!(trunk["auth_realms"], json!([]), "{trunk}");
    assert_eq!(trunk["auth_realm"], json!(null), "{trunk}");

    // After a 180, and inside a call, the challenger may be a peer behind the carrier.
    assert!(!is_answered(&daemon, &carrier, (&of("late"), true)));
    learns(&daemon, &carrier, &trunk, ("a", &["a"]));
    assert!(
        is_answered(&daemon, &carrier, (&of("a"), true)),
        "a known one is"
    );

    let bye = |realm: &str| {
        let call = order(&daemon, "+14155550100");
        let invite = carrier.next();
        let target = format!("Contact: <sip:{}>\r\n", carrier.end.own);
        with_sdp(&carrier.end, &invite, &target);
        agent.answers();
        let joining = carrier.end.next("the re-INVITE", |message| {
            let to = message.header("To").unwrap_or_default();
            message.is_request("INVITE") && to.contains(";tag=")
        });
        with_sdp(&carrier.end, &joining, &target);
        let path = format!("/phone/calls/{call}/hangup");
        let (status, ended) = daemon.change("POST", &path, &json!({}));
        assert!(status == 200 || status == 202, "{ended}");
        let ended = carrier.end.request("BYE");
        refuse(&carrier.end, &ended, &of(realm));
        // The peer that answers this has seen the 401 before.
        let callee = Leg::called(&carrier.end, &invite);
        let number = callee.send_by(&carrier.end, "OPTIONS", "", "");
        let settled = Deadline::after(PATIENCE).poll(|| {
            let message = carrier.end.soon()?;
            if message.is_request("BYE") && message.header("Authorization").is_some() {
                carrier.end.reply(&message, "200 OK", "");
                return Some(true);
            }
            let answer = message.header("CSeq") == Some(&*format!("{number} OPTIONS"));
            (answer && message.status() >= Some(200)).then_some(false)
        });
        settled.expect("the BYE is settled")
    };
    assert!(bye("a") && !bye("later"));

    // Four realms and no fifth, also after a restart.
    learns(&daemon, &carrier, &trunk, ("b", &["a", "b"]));
    learns(&daemon, &carrier, &trunk, ("c", &["a", "b", "c"]));
    learns(&daemon, &carrier, &trunk, ("d", &["a", "b", "c", "d"]));
    assert!(!is_answered(&daemon, &carrier, (&of("e"), false)));
    daemon.restart(&[]);
    shows(&daemon, &trunk, &["a", "b", "c", "d"]);
    assert!(!is_answered(&daemon, &carrier, (&of("e"), false)));
    assert!(is_answered(&daemon, &carrier, (&of("b"), false)));
    // A realm that has offered qop must go on offering it.
    assert!(!is_answered(&daemon, &carrier, (&without_qop("b"), false)));

    let (status, cleared) = daemon.change("PATCH", &path_of(&trunk), &json!({"auth_realms": []}));
    assert_eq!(
        (status, &cleared["auth_realms"]),
        (200, &json!([])),
        "{cleared}"
    );
    in_force(&daemon);
    assert!(is_answered(&daemon, &carrier, (&without_qop("b"), false)));
    shows(&daemon, &trunk, &["b"]);
    learns(&daemon, &carrier, &trunk, ("e", &["b", "e"]));
}

#[test]
fn a_realm_can_be_fixed_and_qop_required() {
    let (daemon, _agent) = with_runtime();
    let carrier = Agent::new(Peer::new(daemon.sip()));
    let fixed = trunk_with(&daemon, carrier.end.own, &json!({"auth_realm": "a"}));
    assert_eq!(fixed["auth_realms"], json!(["a"]), "{fixed}");

    for (challenge, answered) in [(of("b"), false), (without_qop("a"), true), (of("a"), true)] {
        let given = is_answered(&daemon, &carrier, (&challenge, false));
        assert_eq!(given, answered, "{challenge}");
    }

    let strict = trunk_with(
        &daemon,
        carrier.end.own,
        &json!({"digest_require_qop": true}),
    );

    assert!(!is_answered(&daemon, &carrier, (&without_qop("a"), false)));
    assert!(is_answered(&daemon, &carrier, (&of("a"), false)));

    let off = json!({"digest_require_qop": false});
    let (status, changed) = daemon.change("PATCH", &path_of(&strict), &off);
    assert_eq!(
        (status, &changed["digest_require_qop"]),
        (200, &json!(false))
    );
    in_force(&daemon);

    assert!(is_answered(&daemon, &carrier, (&without_qop("b"), false)));
}

/// A carrier that fetched a challenge from us gets no digest that it could log in here with.
#[test]
fn a_register_answers_no_challenge_of_ours_with_an_inbound_trunks_name() {
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__SIP__REGISTER_RETRY_S", "1")
        .serve();
    let Harvest { realm, nonce } = Harvest::fetched(&daemon);
    let own = daemon.credentials();
    let registering = |username: &str, password: &str| {
        let carrier = Peer::new(daemon.sip());
        let more = json!({"register": true, "username": username, "password": password});
        trunk_with(&daemon, carrier.own, &more);
        carrier
    };
    let ours = [
        format!("realm=\"{realm}\", nonce=\"{nonce}\", qop=\"auth\""),
        format!("realm=\"carrier.example\", nonce=\"{nonce}\", qop=\"auth\""),
        format!("realm=\"{realm}\", nonce=\"made-up\", qop=\"auth\""),
    ];
    let pairs = [(&*own.password, &*own.username), ("other", &*own.username)];
    let carriers = pairs.map(|(password, username)| registering(username, password));

    // Another Trunkline is the carrier, whose realm may be the same.
    let other = registering("acme", "wonder land");
    let seen = RefCell::new(HashSet::new());
    let next = |carrier: &Peer| {
        carrier.next("a new REGISTER", |message| {
            let cseq = message.header("CSeq").map(str::to_owned);
            message.is_request("REGISTER") && seen.borrow_mut().insert((carrier.own, cseq))
        })
    };

    for challenge in &ours {
        for carrier in &carriers {
            let bare = next(carrier);
            assert_eq!(bare.header("Authorization"), None, "{bare:?}");
            refuse(carrier, &bare, challenge);
        }
    }

    let honest = of("carrier.example");
    for (carrier, challenge) in [
        (&carriers[0], &honest),
        (&carriers[1], &honest),
        (&other, &ours[2]),
    ] {
        let bare = next(carrier);
        assert_eq!(bare.header("Authorization"), None, "{bare:?}");
        refuse(carrier, &bare, challenge);
        let proven = next(carrier);
        assert!(
            proven.header("Authorization").is_some(),
            "{challenge}: {proven:?}"
        );
    }
}
