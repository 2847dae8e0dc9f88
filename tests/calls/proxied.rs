//! Kamailio beside the daemon: as the carrier of an outbound trunk that registers, and as a proxy in front of an inbound call.

use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::kamailio::{Kamailio, PASSWORD, USER};
use trunkline_testkit::{Caller, Daemon, DaemonSetup, Deadline, Runtime, tools};

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts Kamailio between a daemon and a phone.
fn behind_kamailio(phone: Runtime) -> (Kamailio, Daemon) {
    let setup = DaemonSetup::new();
    setup.allow("127.0.0.1/32");
    let kamailio = Kamailio::start(setup.sip, phone.address());
    (kamailio, setup.serve())
}

/// Makes a trunk to Kamailio for the first agent; returns it as the API shows it.
fn trunk(daemon: &Daemon, kamailio: &Kamailio, register: bool) -> Value {
    let (status, trunk) = daemon.change(
        "POST",
        "/phone/sip/outbound-trunks",
        &json!({
            "name": "Kamailio", "host": "127.0.0.1", "port": kamailio.address.port(), "register": register,
            "caller_number": "+442071838750", "username": USER, "password": PASSWORD,
        }),
    );
    assert_eq!(status, 201, "{trunk}");

    let path = format!(
        "/phone/sip/agents/{}/outbound-trunk",
        daemon.setup.first_agent
    );
    let assigned = daemon.change("PUT", &path, &json!({"trunk_id": trunk["id"]}));
    assert_eq!(assigned.0, 200, "{}", assigned.1);

    trunk
}

/// A caller that calls through Kamailio.
fn caller(daemon: &Daemon, kamailio: &Kamailio) -> Caller {
    Caller {
        daemon: kamailio.address,
        ..daemon.caller()
    }
}

#[test]
fn a_call_to_a_trunk_goes_through_the_proxy_until_its_end() {
    if !tools(&["kamailio", "sipp"]) {
        return;
    }

    let phone = Runtime::new();
    let (kamailio, daemon) = behind_kamailio(phone);
    trunk(&daemon, &kamailio, false);
    let callee = phone.play("carrier_behind_a_proxy");
    let order = json!({
        "phone_agent_id": daemon.setup.first_agent, "phone_number": "+14155550100", "max_duration_s": 1
    });
    let (status, placed) = daemon.change("POST", "/phone/outbound-call", &order);
    assert_eq!(status, 201, "{placed}");

    let callee = callee.finish();

    // Without the Route to Kamailio, a request would have come by one hop.
    for method in ["INVITE", "ACK", "BYE"] {
        let request = callee.request(method);
        let hops: usize = request
            .headers("Via")
            .iter()
            .map(|line| line.split(',').count())
            .sum();
        assert_eq!(hops, 2, "{method}:\n{callee}");
    }

    assert!(callee.request("INVITE").header("Record-Route").is_some());

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["reason"], "max_duration", "{record}");
}

#[test]
fn an_inbound_call_comes_through_the_proxy() {
    if !tools(&["kamailio", "sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    let kamailio = Kamailio::start(setup.sip, Runtime::new().address());
    let runtime = Runtime::new();
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    let agent = runtime.play("runtime_answers");
    let heard = caller(&daemon, &kamailio).play("caller_hangs_up").finish();
    agent.finish();
    assert!(heard.statuses("INVITE").contains(&401), "{heard}");

    let answer = heard.response(200, "INVITE");
    let route = answer.header("Record-Route").expect("the proxy stays");
    assert!(route.contains(&kamailio.address.to_string()), "{route}");

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
}

#[test]
fn kamailio_registers_us_and_calls_come_back_by_that() {
    if !tools(&["kamailio", "sipp"]) {
        return;
    }

    let (kamailio, daemon) = behind_kamailio(Runtime::new());
    let trunk = trunk(&daemon, &kamailio, true);
    let path = format!(
        "/phone/sip/outbound-trunks/{}",
        trunk["id"].as_str().expect("an id")
    );
    let stands = Deadline::after(PATIENCE).poll(|| {
        let registration = daemon.shown(&path)["registration"].take();
        (registration["status"] == "registered").then_some(registration)
    });
    assert!(stands.is_some(), "{}", daemon.shown(&path));

    let dialled = caller(&daemon, &kamailio).with_header("X-Way: registered");
    dialled.play("caller_known_by_address").finish();

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["direction"], "inbound", "{record}");
    assert_eq!(
        record["to_e164"],
        json!(daemon.setup.first_number),
        "{record}"
    );
    assert!(daemon.stop(), "the registration is taken back in time");
}
