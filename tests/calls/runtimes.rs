//! INVITEs for an agent's runtime: placeholders filled in, the agent's own headers, and the session token where it is trusted.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use trunkline_testkit::probe::Probe;
use trunkline_testkit::{DaemonSetup, Message, Responder};

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns the last INVITE that the runtime got.
fn last(runtime: &Responder) -> Message {
    runtime.requests("INVITE").pop().expect("an INVITE")
}

/// Returns the values of a header in that INVITE.
fn in_last(runtime: &Responder, name: &str) -> Vec<String> {
    let last = last(runtime);
    let values = last.headers(name).into_iter();
    values.map(str::to_owned).collect()
}

fn uri(runtime: &Responder) -> String {
    let last = last(runtime);
    assert!(last.header("Call-ID").is_some());
    let uri = last.start_line().split(' ').nth(1);
    uri.expect("a request").to_owned()
}

#[test]
fn a_runtime_gets_what_its_agent_says_and_nothing_that_a_caller_makes_of_it() {
    let runtime = Responder::busy();
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__TRUSTED_RUNTIMES", "192.0.2.1");
    setup.dedicate(&CALLER.to_string());
    let (agent, address) = (setup.first_agent.clone(), runtime.address);
    let daemon = setup.serve();
    let set = |runtime: Value| {
        let change = json!({ "runtime": runtime });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        daemon.setup.settle();
        (status, body)
    };
    let caller = Probe::new(CALLER, daemon.sip());
    let header = "X-Secret: forged\r\nx_secret: forged as well";
    let header = format!("X-PLATFORM-AGENT-ID: {agent}\r\n{header}");

    let wanted = json!({
        "type": "sip", "uri": format!("sip:{{called}}@{address};agent={{agent_id}}"),
        "headers": {"X-Secret": "ours", "X-Call": "{called} {session_id}"},
    });
    let (status, body) = set(wanted.clone());
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["runtime"]["headers"], wanted["headers"]);

    // The user part as its sender escaped it: an `@` with a host, and CRLF with a header.
    let dialled = "a%40evil.example%0D%0AX-Evil%3A%20yes";
    assert_eq!(caller.call(dialled, &header), Some(486));
    assert_eq!(
        uri(&runtime),
        format!("sip:{dialled}@{address};agent={agent}")
    );
    assert_eq!(in_last(&runtime, "X-Secret"), ["ours"]);
    assert_eq!(in_last(&runtime, "X_Secret"), [""; 0]);
    assert_eq!(in_last(&runtime, "X-Evil"), [""; 0]);

    let session = in_last(&runtime, "X-PLATFORM-SESSION-ID").remove(0);
    let call = in_last(&runtime, "X-Call").remove(0);
    assert_eq!(call, format!("a@evil.exampleX-Evil: yes {session}"));
    assert_eq!(
        in_last(&runtime, "X-PLATFORM-SESSION-TOKEN"),
        [""; 0],
        "nobody trusts this runtime"
    );

    let mut trusting = wanted;
    trusting["session_token"] = json!(true);
    assert_eq!(set(trusting).0, 200);
    assert_eq!(caller.call("+12025550123", &header), Some(486));
    assert_eq!(in_last(&runtime, "X-PLATFORM-SESSION-TOKEN").len(), 1);
    assert_eq!(
        uri(&runtime),
        format!("sip:+12025550123@{address};agent={agent}")
    );

    let many: serde_json::Map<String, Value> =
        (0..21).map(|at| (format!("X-{at}"), json!("v"))).collect();
    for (uri, headers) in [
        ("sip:a@{called}", json!({})),
        ("sip:a@b.example;x={caller}", json!({})),
        ("sip:a@b.example", json!({"Via": "x"})),
        ("sip:a@b.example", json!({"X-PLATFORM-SESSION-ID": "x"})),
        ("sip:a@b.example", json!({"x_platform_agent-id": "x"})),
        ("sip:a@b.example", json!({"X-A": "x\r\nY: z"})),
        (
            "sip:a@b.example",
            json!({"X-A": "x".repeat(500), "X-B": "x".repeat(500), "X-C": "x".repeat(500), "X-D": "x".repeat(500), "X-E": "x".repeat(100)}),
        ),
        ("sip:a@b.example", Value::Object(many)),
    ] {
        let (status, body) = set(json!({"type": "sip", "uri": uri, "headers": headers}));
        assert_eq!(status, 400, "{uri}, {headers}: {body}");
    }
}
