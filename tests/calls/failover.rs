//! Responses of a target that move a call to the next one.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;

use trunkline_testkit::probe::Probe;
use trunkline_testkit::{DaemonSetup, Responder};

const TRUNK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn what_says_nothing_of_the_runtime_leads_to_the_fallback() {
    let fallback = Responder::busy();
    let setup = DaemonSetup::new();
    setup.dedicate(&TRUNK.to_string());
    let agent = setup.first_agent.clone();
    let daemon = setup.serve();
    let probe = Probe::new(TRUNK, daemon.sip());
    let call = |runtime: serde_json::Value| {
        let body = json!({ "runtime": runtime });
        let (status, shown) = daemon.change("PATCH", &format!("/phone/{agent}"), &body);
        assert_eq!(status, 200, "{shown}");
        assert_eq!(shown["runtime"]["failover_on"], runtime["failover_on"]);
        daemon.setup.settle();
        let before = fallback.taken();
        let status = probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"));
        (status, fallback.taken() - before)
    };

    let uri = |address: SocketAddr| format!("sip:x@{address}");
    let other = format!("sip:x@{}", fallback.address);
    let foreign = "Contact: <sip:x@198.51.100.9>\r\n";

    // A proxy in front of a dead runtime answers 100 and nothing else.
    for status in [
        "100 Trying",
        "408 Request Timeout",
        "500 Server Internal Error",
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Server Time-out",
    ] {
        let first = uri(Responder::answering(status, "").address);
        let called = call(json!({"type": "sip", "uri": first, "fallbacks": [other]}));
        assert_eq!(called, (Some(486), 1), "{status}");
    }

    // The runtime's own refusal, unless the agent's list says otherwise.
    for (status, lines, listed, alone) in [
        ("404 Not Found", "", "404", 480),
        ("480 Temporarily Unavailable", "", "480", 480),
        ("302 Moved Temporarily", foreign, "3xx", 480),
    ] {
        let first = uri(Responder::answering(status, lines).address);
        let called = call(json!({"type": "sip", "uri": first, "fallbacks": [other]}));
        assert_eq!(called, (Some(alone), 0), "{status}");
        let called = call(json!({
            "type": "sip", "uri": first, "fallbacks": [other], "failover_on": [listed]
        }));
        assert_eq!(called, (Some(486), 1), "{status}, listed");
    }

    let declined = uri(Responder::answering("603 Decline", "").address);
    let called = call(json!({"type": "sip", "uri": declined, "fallbacks": [other]}));
    assert_eq!(called, (Some(603), 0), "who declines isn't asked again");
}
