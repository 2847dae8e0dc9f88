//! Calls that the API orders: sipp is the carrier, and sipp or the built-in agent speaks.

use serde_json::{Value, json};

use crate::harness::{Daemon, House, Runtime, tools};

const NUMBER: &str = "+14155550100";
const CALLER_NUMBER: &str = "+442071838750";

/// A daemon whose first agent dials through a trunk to `carrier`.
fn daemon(carrier: Runtime, more: &Value) -> Daemon {
    let daemon = House::new().serve();
    give_trunk(&daemon, carrier, more);
    daemon
}

fn give_trunk(daemon: &Daemon, carrier: Runtime, more: &Value) {
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
    let agent = &daemon.house.first_agent;
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    let (status, config) = daemon.change("PUT", &path, &json!({"trunk_id": trunk["id"]}));
    assert_eq!(status, 200, "{config}");
}

/// Orders a call to the number, with further fields.
fn order(daemon: &Daemon, more: &Value) -> Value {
    let mut order = json!({"phone_agent_id": daemon.house.first_agent, "phone_number": NUMBER});
    for (name, value) in more.as_object().expect("fields") {
        order[name] = value.clone();
    }
    let (status, placed) = daemon.change("POST", "/phone/outbound-call", &order);
    assert_eq!(status, 201, "{placed}");
    assert_eq!(placed["status"], "queued", "{placed}");
    placed
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
        .house
        .runtime(&daemon.house.first_agent, &runtime.uri());
    daemon.house.settle();
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
