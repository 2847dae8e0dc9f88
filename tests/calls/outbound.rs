//! Calls that the API orders: sipp is the carrier, and sipp or the built-in agent is the other leg.

use serde_json::{Value, json};

use std::net::Ipv4Addr;

use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::{
    Credentials, Daemon, DaemonSetup, Deadline, Responder, Runtime, Trace, http, proves, tools,
};

pub(crate) const NUMBER: &str = "+14155550100";
pub(crate) const CALLER_NUMBER: &str = "+442071838750";

/// A daemon whose first agent dials through a trunk to `carrier`.
fn daemon(carrier: Runtime, more: &Value) -> Daemon {
    let daemon = DaemonSetup::new().serve();
    give_trunk(&daemon, carrier, more);
    daemon
}

pub(crate) fn give_trunk(daemon: &Daemon, carrier: Runtime, more: &Value) {
    let address = carrier.address();
    let mut trunk = json!({
        "name": "Carrier",
        "host": address.ip().to_string(),
        "port": address.port(),
        "transport": if carrier.is_tcp() { "tcp" } else { "udp" },
        "caller_number": CALLER_NUMBER,
    });
    for (name, value) in more.as_object().expect("fields") {
        trunk[name] = value.clone();
    }

    let (status, trunk) = daemon.change("POST", "/phone/sip/outbound-trunks", &trunk);
    assert_eq!(status, 201, "{trunk}");

    let agent = &daemon.setup.first_agent;
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    let (status, config) = daemon.change("PUT", &path, &json!({"trunk_id": trunk["id"]}));
    assert_eq!(status, 200, "{config}");
}

/// Orders a call to the number, with further fields; returns it.
pub(crate) fn order(daemon: &Daemon, more: &Value) -> Value {
    let mut order = json!({"phone_agent_id": daemon.setup.first_agent, "phone_number": NUMBER});
    for (name, value) in more.as_object().expect("fields") {
        order[name] = value.clone();
    }
    let (status, placed) = daemon.change("POST", "/phone/outbound-call", &order);
    assert_eq!(status, 201, "{placed}");
    assert_eq!(placed["status"], "queued", "{placed}");
    placed
}

/// Daemon and carrier have different addresses on one machine.
#[test]
fn the_offer_names_our_address_and_not_the_carriers() {
    let carrier = Responder::busy_at(Ipv4Addr::new(127, 0, 0, 9));
    let at = json!({"host": "127.0.0.9", "port": carrier.address.port()});
    let daemon = daemon(Runtime::new(), &at);
    order(&daemon, &json!({}));
    let limit = Deadline::after(std::time::Duration::from_secs(20));
    let invite = limit.poll(|| carrier.requests("INVITE").pop());
    let invite = invite.expect("an INVITE");
    let own = format!("c=IN IP4 {}", daemon.sip().ip());
    assert!(invite.body().contains(&own), "{invite}");
    carrier.stop();
}

#[test]
fn the_callee_is_called_first_and_then_joined_with_the_runtime() {
    if !tools(&["sipp"]) {
        return;
    }

    let (carrier, runtime) = (Runtime::new(), Runtime::new());
    let daemon = daemon(
        carrier,
        &json!({"p_asserted_identity": true, "from_host": "pbx.example.com"}),
    );
    daemon
        .setup
        .runtime(&daemon.setup.first_agent, &runtime.uri());
    daemon.setup.settle();
    let (callee, agent) = (
        carrier.play("carrier_joins"),
        runtime.play("runtime_answers"),
    );
    let placed = order(&daemon, &json!({"metadata": {"order": 7}}));
    let (callee, agent) = (callee.finish(), agent.finish());
    let record = daemon.record();

    let offers = callee.requests("INVITE");
    let invite = offers.first().expect("an INVITE");
    let address = carrier.address();
    assert_eq!(
        invite.start_line(),
        format!("INVITE sip:{NUMBER}@{address} SIP/2.0")
    );
    assert!(
        invite.header("From").is_some_and(
            |from| from.starts_with(&format!("<sip:{CALLER_NUMBER}@pbx.example.com>;tag="))
        ),
        "{callee}"
    );
    assert_eq!(
        invite.header("P-Asserted-Identity"),
        Some(format!("<sip:{CALLER_NUMBER}@pbx.example.com>").as_str())
    );
    assert!(
        invite.body().contains("m=audio") && invite.body().contains("RTP/AVP 0 8 101"),
        "{callee}"
    );

    let to_runtime = agent.request("INVITE");
    assert!(
        to_runtime.body().contains("a=x-answered:by the callee"),
        "{agent}"
    );
    assert_eq!(
        to_runtime.header("X-PLATFORM-SESSION-ID"),
        placed["session_id"].as_str(),
        "{agent}"
    );
    assert_eq!(
        to_runtime.header("X-PLATFORM-CONTACT-ID"),
        record["contact_id"].as_str()
    );

    let joining = offers.last().expect("the re-INVITE");
    assert!(
        joining.body().contains("a=x-answered:by the runtime"),
        "{callee}"
    );

    assert_eq!(record["id"], placed["call_id"]);
    assert_eq!(record["direction"], "outbound", "{record}");
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "callee", "{record}");
    assert_eq!(record["sip_code"], 200, "{record}");
    assert_eq!(record["from_number"], CALLER_NUMBER);

    let trunks = daemon.shown("/phone/sip/outbound-trunks");
    assert_eq!(record["trunk_id"], trunks["items"][0]["id"], "{record}");
    assert_eq!(record["to_e164"], NUMBER);
    assert_eq!(record["caller_call_id"].as_str(), invite.header("Call-ID"));
    assert_eq!(
        record["runtime_call_id"].as_str(),
        to_runtime.header("Call-ID")
    );
    for time in ["ringing_at", "answered_at", "ended_at"] {
        assert!(record[time].is_string(), "{time}: {record}");
    }
}

#[test]
fn the_echo_agent_is_there_from_the_first_offer_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let daemon = daemon(carrier, &json!({}));
    let callee = carrier.play("runtime_hangs_up");
    order(&daemon, &json!({}));
    let callee = callee.finish();
    assert_eq!(callee.requests("INVITE").len(), 1, "{callee}");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "callee", "{record}");
    assert!(record["runtime_call_id"].is_null(), "{record}");
}

/// Plays a call that ends by itself; returns the carrier's trace and the record.
fn ended(more: &Value, scenario: &str) -> (Trace, Value) {
    let carrier = Runtime::new();
    let daemon = daemon(carrier, &json!({}));
    let callee = carrier.play(scenario);
    order(&daemon, more);
    (callee.finish(), daemon.record())
}

fn hang_up(daemon: &Daemon, placed: &Value) {
    let id = placed["call_id"].as_str().expect("an id");
    let (status, call) = daemon.change("POST", &format!("/phone/calls/{id}/hangup"), &json!({}));
    assert!(status == 200 || status == 202, "{status}: {call}");
}

#[test]
fn challenges_to_invite_and_bye_are_answered() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let login = json!({"username": "acme", "password": "wonder land"});
    let daemon = daemon(carrier, &login);
    let callee = carrier.play("carrier_challenges");
    let placed = order(&daemon, &json!({}));
    callee.wait_for("ACK");
    daemon.wait_for_status(&placed["call_id"], "in_progress");
    hang_up(&daemon, &placed);

    let callee = callee.finish();
    let invites = callee.requests("INVITE");
    let numbers: Vec<_> = invites
        .iter()
        .filter_map(|invite| invite.header("CSeq"))
        .collect();

    assert_eq!(
        numbers,
        ["1 INVITE", "2 INVITE", "3 INVITE", "4 INVITE"],
        "{callee}"
    );

    let pair = Credentials {
        username: "acme".to_owned(),
        password: "wonder land".to_owned(),
    };
    let proxy = "Proxy-Authorization";

    for (invite, (by_proxy, by_server)) in
        invites
            .iter()
            .zip([(false, false), (true, false), (true, true), (true, true)])
    {
        assert_eq!(proves(invite, proxy, "INVITE", &pair), by_proxy, "{callee}");
        let proven = proves(invite, "Authorization", "INVITE", &pair);
        assert_eq!(proven, by_server, "{callee}");
    }

    let last = invites.last().and_then(|last| last.header("Authorization"));
    assert!(
        last.is_some_and(|answer| answer.contains("second")),
        "{callee}"
    );

    let byes = callee.requests("BYE");
    assert_eq!(byes.len(), 2, "{callee}");
    assert!(proves(byes[1], "Authorization", "BYE", &pair), "{callee}");
    assert_eq!(daemon.record()["status"], "completed");
    assert!(!daemon.log().contains("wonder land"));
}

#[test]
fn credentials_that_are_not_believed_end_the_call() {
    if !tools(&["sipp"]) {
        return;
    }
    let carrier = Runtime::new();
    let daemon = daemon(carrier, &json!({"username": "acme", "password": "x"}));
    let callee = carrier.play("carrier_distrusts");
    order(&daemon, &json!({}));
    assert_eq!(callee.finish().requests("INVITE").len(), 2);
    let record = daemon.record();
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["sip_code"], 401, "{record}");
    assert_eq!(record["reason"], "trunk_auth_failed", "{record}");
}

#[test]
fn a_busy_callee_is_busy() {
    if !tools(&["sipp"]) {
        return;
    }
    let (_, record) = ended(&json!({}), "runtime_is_busy");
    assert_eq!(record["status"], "busy", "{record}");
    assert_eq!(record["sip_code"], 486, "{record}");
    assert_eq!(record["reason"], "callee_busy", "{record}");
    assert!(record["answered_at"].is_null(), "{record}");
}

#[test]
fn a_callee_who_declines_leaves_the_gateways_cause() {
    if !tools(&["sipp"]) {
        return;
    }
    let (_, record) = ended(&json!({"metadata": {"lead": "7"}}), "carrier_declines");
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["sip_code"], 603, "{record}");
    assert_eq!(record["reason"], "callee_declined", "{record}");
    assert_eq!(record["q850_cause"], 21, "{record}");
    assert_eq!(record["metadata"], json!({"lead": "7"}));
}

#[test]
fn a_603_of_asterisk_without_a_cause_means_that_nobody_answered() {
    if !tools(&["sipp"]) {
        return;
    }
    let (_, record) = ended(&json!({}), "carrier_rings_in_vain");
    assert_eq!(record["status"], "no_answer", "{record}");
    assert_eq!(record["sip_code"], 603, "{record}");
    assert_eq!(record["reason"], "callee_no_answer", "{record}");
}

#[test]
fn ringing_ends_after_its_time() {
    if !tools(&["sipp"]) {
        return;
    }

    let (callee, record) = ended(&json!({"ringing_timeout_s": 1}), "runtime_rings");
    assert!(
        callee
            .request("CANCEL")
            .header("Reason")
            .is_some_and(|reason| reason.contains("cause=408")),
        "{callee}"
    );
    assert_eq!(record["status"], "no_answer", "{record}");
    assert_eq!(record["reason"], "ringing_timeout", "{record}");
}

#[test]
fn a_call_that_rings_can_be_taken_back() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let daemon = daemon(carrier, &json!({}));
    let callee = carrier.play("runtime_rings");
    let placed = order(&daemon, &json!({}));
    daemon.wait_for_status(&placed["call_id"], "ringing");
    hang_up(&daemon, &placed);
    callee.finish();
    let record = daemon.record();
    assert_eq!(record["status"], "canceled", "{record}");
    assert_eq!(record["hangup_by"], "platform", "{record}");
}

#[test]
fn the_longest_duration_ends_a_call() {
    if !tools(&["sipp"]) {
        return;
    }
    let (callee, record) = ended(&json!({"max_duration_s": 1}), "carrier_answers");
    assert!(callee.request("BYE").header("Reason").is_some(), "{callee}");
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["reason"], "max_duration", "{record}");
}

#[test]
fn an_answer_in_the_183_alone_will_do() {
    if !tools(&["sipp"]) {
        return;
    }
    let (_, record) = ended(&json!({"max_duration_s": 1}), "carrier_plays_early");
    assert_eq!(record["status"], "completed", "{record}");
    assert!(record["ringing_at"].is_string(), "{record}");
}

/// Plays a call between two scenarios.
fn joined(carrier_plays: &str, more: &Value) -> (Trace, Trace, Value) {
    let (carrier, runtime) = (Runtime::new(), Runtime::new());
    let daemon = daemon(carrier, &json!({}));
    daemon
        .setup
        .runtime(&daemon.setup.first_agent, &runtime.uri());
    daemon.setup.settle();
    let (callee, agent) = (carrier.play(carrier_plays), runtime.play("runtime_answers"));
    order(&daemon, more);
    (callee.finish(), agent.finish(), daemon.record())
}

#[test]
fn glare_is_waited_out() {
    if !tools(&["sipp"]) {
        return;
    }

    let (callee, _, record) = joined("carrier_glares", &json!({"max_duration_s": 10}));
    let invites = callee.requests("INVITE");
    assert_eq!(invites.len(), 3, "{callee}");

    let origin = |at: usize| {
        let line = invites[at]
            .body()
            .lines()
            .find(|line| line.starts_with("o="));
        let words: Vec<&str> = line.expect("an origin").split(' ').collect();
        (words[1].to_owned(), words[2].to_owned())
    };

    let (session, _) = origin(0);
    assert_eq!(
        origin(2),
        (session, "2".to_owned()),
        "one session, the next version:\n{callee}"
    );
    assert_eq!(record["reason"], "max_duration", "{record}");
}

#[test]
fn a_callee_that_refuses_the_media_is_hung_up_on() {
    if !tools(&["sipp"]) {
        return;
    }
    let (_, agent, record) = joined("carrier_keeps_its_media", &json!({}));
    assert!(agent.request("BYE").header("Reason").is_some(), "{agent}");
    assert_eq!(record["reason"], "join_refused", "{record}");
    assert_eq!(record["hangup_by"], "platform", "{record}");
}

#[test]
fn a_callee_whose_agent_cannot_be_reached_is_hung_up_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let daemon = daemon(carrier, &json!({}));
    daemon
        .setup
        .runtime(&daemon.setup.first_agent, &Runtime::new().uri());
    daemon.setup.settle();
    let callee = carrier.play("carrier_answers");
    order(&daemon, &json!({}));
    callee.finish();
    let record = daemon.record();
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["reason"], "runtime_unreachable", "{record}");
}

#[test]
fn a_trunk_is_dialled_over_tcp() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new().over_tcp();
    let daemon = daemon(carrier, &json!({}));
    let callee = carrier.play("runtime_hangs_up");
    order(&daemon, &json!({}));

    let callee = callee.finish();
    let invite = callee.request("INVITE");
    assert!(invite.start_line().contains(";transport=tcp"), "{callee}");
    assert!(
        invite
            .header("Via")
            .is_some_and(|via| via.starts_with("SIP/2.0/TCP")),
        "{callee}"
    );
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn the_second_target_of_a_name_is_tried_when_the_first_is_down() {
    if !tools(&["sipp"]) {
        return;
    }

    let (first, second) = (Runtime::new(), Runtime::new());
    let port = |carrier: Runtime| carrier.address().port();
    let names = dns::serve(vec![
        (
            "_sip._udp.carrier.test",
            Record::Service(10, port(first), "one.carrier.test"),
        ),
        (
            "_sip._udp.carrier.test",
            Record::Service(20, port(second), "two.carrier.test"),
        ),
        ("one.carrier.test", Record::Address(Ipv4Addr::LOCALHOST)),
        ("two.carrier.test", Record::Address(Ipv4Addr::LOCALHOST)),
    ]);

    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string())
        .serve();

    give_trunk(
        &daemon,
        first,
        &json!({"host": "carrier.test", "port": 5060}),
    );

    let (down, callee) = (
        first.play("carrier_is_down"),
        second.play("runtime_hangs_up"),
    );
    order(&daemon, &json!({}));

    let (down, callee) = (down.finish(), callee.finish());
    for trace in [&down, &callee] {
        let line = trace.request("INVITE").start_line();
        assert_eq!(line, format!("INVITE sip:{NUMBER}@carrier.test SIP/2.0"));
    }

    assert_eq!(daemon.record()["status"], "completed");
}

/// Orders a call that a limit refuses; returns the seconds of `Retry-After`.
fn refused(daemon: &Daemon, order: &Value) -> u64 {
    let (at, key) = (daemon.setup.http, &daemon.setup.key);
    let refused = http::answer("POST", at, "/phone/outbound-call", key, order);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_ne!(refused.json()["message"].as_str().unwrap_or(""), "");

    let wait = refused.header("Retry-After");
    let wait = wait.and_then(|wait| wait.parse().ok());
    wait.unwrap_or_else(|| panic!("no Retry-After: {refused:?}"))
}

/// Each bound on new calls refuses the second call by itself, and says when another may begin.
#[test]
fn each_cap_refuses_the_next_call() {
    if !tools(&["sipp"]) {
        return;
    }

    let caps = [
        (
            "of the trunk at once",
            None,
            json!({"max_concurrent_calls": 1}),
            5..=5,
        ),
        (
            "of the org at once",
            Some("TRUNKLINE__LIMITS__OUTBOUND_CALLS"),
            json!({}),
            5..=5,
        ),
        (
            "of the org a minute",
            Some("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_MINUTE"),
            json!({}),
            1..=60,
        ),
        (
            "of the org a day",
            Some("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY"),
            json!({}),
            61..=86_400,
        ),
    ];

    for (cap, limit, trunk, waits) in caps {
        let carrier = Runtime::new();
        let setup = limit
            .into_iter()
            .fold(DaemonSetup::new(), |setup, limit| setup.set(limit, "1"));

        let daemon = setup.serve();
        give_trunk(&daemon, carrier, &trunk);
        let callee = carrier.play("carrier_answers");
        let both = json!({"phone_agent_id": daemon.setup.first_agent, "phone_number": NUMBER});

        let first = daemon.change("POST", "/phone/outbound-call", &both);
        assert_eq!(first.0, 201, "{cap}: {first:?}");
        let wait = refused(&daemon, &both);
        assert!(waits.contains(&wait), "{cap}: Retry-After: {wait}");

        daemon.wait_for_status(&first.1["call_id"], "in_progress");
        hang_up(&daemon, &first.1);
        callee.finish();
        assert_eq!(daemon.record()["status"], "completed", "{cap}");
    }
}

#[test]
fn what_cannot_be_called_is_refused_at_once() {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__PHONE__OUTBOUND_PREFIXES", "+1,+44")
        .set("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_MINUTE", "1");
    let daemon = setup.serve();
    let agent = daemon.setup.first_agent.clone();
    let try_order = |agent: &str, number: &str| {
        let order = json!({"phone_agent_id": agent, "phone_number": number});
        daemon.change("POST", "/phone/outbound-call", &order)
    };
    assert_eq!(try_order(&agent, NUMBER).0, 409, "no trunk");

    give_trunk(&daemon, Runtime::new(), &json!({}));
    let unknown = try_order("0197a000-0000-7000-8000-000000000000", NUMBER);
    assert_eq!(unknown.0, 404);
    assert_eq!(try_order("nonsense", NUMBER), unknown);

    for number in ["4155550100", "+", "tel:+14155550100", "+0123456789"] {
        assert_eq!(try_order(&agent, number).0, 400, "{number}");
    }

    let elsewhere = try_order(&agent, "+8821234567");
    assert_eq!(elsewhere.0, 403, "{elsewhere:?}");
    assert_eq!(try_order(&agent, NUMBER).0, 201);

    let again = json!({"phone_agent_id": agent, "phone_number": NUMBER});
    let wait = refused(&daemon, &again);
    assert!((1..=60).contains(&wait), "Retry-After: {wait}");

    daemon.setup.disable(&agent);
    daemon.setup.settle();
    assert_eq!(try_order(&agent, NUMBER).0, 409, "disabled");
}
