//! Outbound trunks that register with their carriers: a carrier of the test that checks each REGISTER, and Kamailio.

use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::events::told;
use crate::calls::outbound::order;
use trunkline_testkit::carrier::Carrier;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, http};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a daemon that retries soon after a failure.
fn daemon() -> Daemon {
    DaemonSetup::new()
        .set("TRUNKLINE__SIP__REGISTER_RETRY_S", "1")
        .set("TRUNKLINE__SIP__T1_MS", "50")
        .serve()
}

/// Makes a trunk that registers with the carrier; returns its path.
fn trunk(daemon: &Daemon, carrier: &Carrier, password: &str) -> String {
    let (status, trunk) = daemon.change(
        "POST",
        "/phone/sip/outbound-trunks",
        &json!({
            "name": "Carrier", "host": carrier.address.ip().to_string(), "port": carrier.address.port(),
            "caller_number": "+442071838750", "username": "acme", "password": password, "register": true,
        }),
    );
    assert_eq!(status, 201, "{trunk}");
    assert_eq!(trunk["registration"]["status"], "registering", "{trunk}");
    let id = trunk["id"].as_str().expect("an id");
    format!("/phone/sip/outbound-trunks/{id}")
}

/// Returns the trunk's registration once it is in this state.
fn registration(daemon: &Daemon, path: &str, state: &str) -> Value {
    let seen = Deadline::after(PATIENCE).poll(|| {
        let registration = daemon.shown(path)["registration"].take();
        (registration["status"] == state).then_some(registration)
    });
    seen.unwrap_or_else(|| panic!("not {state}: {}", daemon.shown(path)))
}

fn metric(daemon: &Daemon, line: &str) -> bool {
    let (_, text) = http::get(daemon.setup.http, "/metrics", None).expect("metrics");
    text.lines().any(|shown| shown == line)
}

#[test]
fn a_trunk_is_registered_refreshed_and_taken_back() {
    let carrier = Carrier::start("acme", "wonder land");
    {
        let mut ways = carrier.ways();
        (ways.grants, ways.least, ways.forgets) = (4, 700, 1);
    }
    let daemon = daemon();
    let path = trunk(&daemon, &carrier, "wonder land");
    let first = registration(&daemon, &path, "registered");
    assert_eq!(first["sip_code"], 200, "{first}");
    assert!(
        first["registered_at"].as_str() <= first["next_at"].as_str()
            && first["next_at"].as_str() < first["expires_at"].as_str(),
        "{first}"
    );

    carrier.until("it is refreshed", |ways| ways.registered.len() >= 3);
    let later = daemon.shown(&path)["registration"].take();
    assert_eq!(later["status"], "registered", "{later}");
    assert_eq!(later["registered_at"], first["registered_at"], "{later}");

    {
        let ways = carrier.ways();
        assert!(ways.registered.iter().all(|(asked, _)| *asked == 700));
        assert_eq!(ways.wrong, 0, "{ways:?}");
        let (_, register) = &ways.registered[0];
        let sip = daemon.sip();
        for line in [
            format!("REGISTER sip:{} SIP/2.0", carrier.address),
            format!("To: <sip:acme@{}>", carrier.address.ip()),
            format!("Contact: <sip:trunkline@{sip}>"),
        ] {
            assert!(
                register.lines().any(|shown| shown == line),
                "{line}:\n{register}"
            );
        }
    }
    let up = "trunkline_outbound_registrations{state=\"registered\"} 1";
    let counted = Deadline::after(PATIENCE).poll(|| metric(&daemon, up).then_some(()));
    assert!(counted.is_some(), "{up}");
    assert!(!daemon.log().contains("wonder land"));

    let deleted = http::change("DELETE", daemon.setup.http, &path, daemon.key(), &json!({}));
    assert_eq!(deleted.0, 200, "{deleted:?}");
    carrier.until("it is taken back", |ways| {
        ways.registered.last().is_some_and(|(asked, _)| *asked == 0)
    });
}

#[test]
fn a_node_that_ends_takes_its_registrations_back() {
    let carrier = Carrier::start("acme", "x");
    let daemon = daemon();
    let path = trunk(&daemon, &carrier, "x");
    registration(&daemon, &path, "registered");
    assert!(daemon.stop());
    let ways = carrier.ways();
    let asked: Vec<u32> = ways.registered.iter().map(|(asked, _)| *asked).collect();
    assert_eq!(asked, [600, 0], "{ways:?}");
}

#[test]
fn a_carrier_that_refuses_our_password_is_tried_again() {
    let carrier = Carrier::start("acme", "right");
    let daemon = daemon();
    let path = trunk(&daemon, &carrier, "wrong");
    let failed = registration(&daemon, &path, "failed");
    assert_eq!(failed["sip_code"], 401, "{failed}");
    assert!(failed["registered_at"].is_null(), "{failed}");
    carrier.until("it is tried again", |ways| ways.wrong >= 2);
    assert!(carrier.ways().registered.is_empty());
    daemon.log_line(&["doesn't register us"]);
    assert!(daemon.stop(), "nothing holds the end up");
}

/// RFC 3608 §6.1: a call by the registration goes along the route that the carrier has given, until a refresh comes without one.
#[test]
fn a_call_goes_along_the_service_route_of_its_registration() {
    let proxy = Responder::busy();
    let carrier = Carrier::start("acme", "x");
    let hops = format!("<sip:orig@{};lr>, <sip:core.example;lr>", proxy.address);
    {
        let mut ways = carrier.ways();
        ways.grants = 4;
        ways.lines = format!("Service-Route: {hops}\r\n");
    }
    let daemon = daemon();
    let path = trunk(&daemon, &carrier, "x");
    registration(&daemon, &path, "registered");
    give(&daemon, &path);

    order(&daemon, &json!({}));
    let ack = Deadline::after(PATIENCE).poll(|| proxy.requests("ACK").pop());
    let ack = ack.expect("the ACK of the refused INVITE");
    let invite = proxy.requests("INVITE").pop().expect("an INVITE");
    let request_uri = format!("INVITE sip:+14155550100@{} SIP/2.0\r\n", carrier.address);
    assert!(invite.text().starts_with(&request_uri), "{invite:?}");
    for request in [&invite, &ack] {
        assert_eq!(request.headers("Route"), [&*hops], "{request:?}");
    }

    // The refreshes have none from now on.
    let before = {
        let mut ways = carrier.ways();
        ways.lines.clear();
        ways.registered.len()
    };
    carrier.until("it is refreshed", |ways| ways.registered.len() > before + 1);
    order(&daemon, &json!({}));
    carrier.until("the call comes to the host", |ways| {
        !ways.invites.is_empty()
    });
    assert!(!carrier.ways().invites[0].contains("\r\nRoute:"));
    assert_eq!(proxy.taken(), 1);
    proxy.stop();
}

/// Gives the first agent the trunk at this path.
fn give(daemon: &Daemon, trunk: &str) {
    let agent = &daemon.setup.first_agent;
    let id = trunk.rsplit('/').next().expect("an id");
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    let (status, config) = daemon.change("PUT", &path, &json!({"trunk_id": id}));
    assert_eq!(status, 200, "{config}");
}

#[test]
fn a_carrier_that_is_silent_loses_us_and_gets_us_back() {
    let carrier = Carrier::start("acme", "x");
    carrier.ways().grants = 3;

    let daemon = daemon();
    let path = trunk(&daemon, &carrier, "x");
    registration(&daemon, &path, "registered");
    carrier.ways().silent = true;

    let failed = registration(&daemon, &path, "failed");
    assert!(failed["sip_code"].is_null(), "{failed}");

    carrier.ways().silent = false;
    registration(&daemon, &path, "registered");

    let told = told(&daemon, |told| told.len() == 3);
    let kinds: Vec<_> = told
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();

    assert_eq!(
        kinds[..3],
        ["trunk.registered", "trunk.lost", "trunk.registered"]
    );
    assert_eq!(told[1]["data"]["reason"], "expired", "{}", told[1]);
    assert_eq!(
        told[0]["data"]["source"],
        json!(carrier.address.to_string())
    );
}

#[test]
fn an_org_registers_so_many_trunks() {
    let carrier = Carrier::start("acme", "wonder land");
    let setup = DaemonSetup::new().set("TRUNKLINE__LIMITS__REGISTRATIONS_PER_ORG", "3");
    let daemon = setup.serve();
    let trunks = [(); 3].map(|()| trunk(&daemon, &carrier, "wonder land"));

    for path in &trunks {
        registration(&daemon, path, "registered");
    }
    let more = json!({
        "name": "More", "host": "127.0.0.1", "port": carrier.address.port(), "caller_number": "+442071838750", "username": "acme",
        "password": "x", "register": true,
    });
    let (status, refused) = daemon.change("POST", "/phone/sip/outbound-trunks", &more);
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("too_many_registrations"))
    );

    // Another process lowers the limit: the newest trunk is unregistered.
    let org = &daemon.setup.org;
    let set = ["--registrations", "2", "--json"];
    daemon
        .setup
        .run(&[&["org", "limits", org.as_str()], &set[..]].concat());

    for path in &trunks[..2] {
        registration(&daemon, path, "registered");
    }
    registration(&daemon, &trunks[2], "failed");
    daemon.log_line(&["limits.registrations_per_org"]);
    let (status, deleted) = daemon.change("DELETE", &trunks[0], &json!({}));
    assert_eq!(status, 200, "{deleted}");
    registration(&daemon, &trunks[2], "registered");
}
