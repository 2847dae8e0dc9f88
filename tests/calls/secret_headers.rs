//! Headers of a runtime as credentials: the runtime gets them, and a colleague who may read calls finds them nowhere.

use std::net::Ipv4Addr;

use serde_json::json;

use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Daemon, DaemonSetup, Responder, http};

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SECRET: &str = "hunter2-of-the-crm";

fn key(daemon: &Daemon, scopes: &str) -> String {
    let arguments = [
        "key",
        "create",
        "--org",
        &daemon.setup.org,
        "--scopes",
        scopes,
        "--json",
    ];
    let made = daemon.setup.run(&arguments);
    made["api_key"].as_str().expect("a key").to_owned()
}

#[test]
fn a_runtimes_headers_are_in_no_trace_and_in_no_answer_to_a_reader() {
    let runtime = Responder::busy();
    let setup = DaemonSetup::new();
    setup.dedicate(&CALLER.to_string());
    let (agent, address) = (setup.first_agent.clone(), runtime.address);
    let daemon = setup.serve();
    let headers = json!({"X-Account": SECRET, "X-Called": "for {called}"});
    let uri = format!("sip:a@{address}");
    let change = json!({"runtime": {"type": "sip", "uri": uri, "headers": headers}});
    let path = format!("/phone/{agent}");
    let (status, body) = daemon.change("PATCH", &path, &change);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();

    // The caller says the same header with another value, which stays readable.
    let caller = Probe::new(CALLER, daemon.sip());
    let said = format!("X-PLATFORM-AGENT-ID: {agent}\r\nX-Other: {SECRET}\r\nX-Queue: sales");
    assert_eq!(caller.call("+12025550123", &said), Some(486));
    let invite = runtime.requests("INVITE").pop().expect("an INVITE");
    assert_eq!(invite.headers("X-Account"), [SECRET], "the honest runtime");
    assert_eq!(invite.headers("X-Called"), ["for +12025550123"]);

    let reader = key(&daemon, "phone:read,calls:read");
    let (status, shown) = daemon.read(&path, &reader);
    assert_eq!(status, 200, "{shown}");
    assert_eq!(shown["runtime"]["headers"]["X-Account"], "***");

    let call = daemon.record()["id"].as_str().expect("an id").to_owned();
    let trace = format!("/phone/calls/{call}/trace");
    let (status, json) = daemon.read(&trace, &reader);
    assert_eq!(status, 200, "{json}");
    let http = daemon.setup.http;
    let trace = json.to_string();
    assert!(trace.contains("X-Account: xxxx"), "{trace}");
    assert!(trace.contains("X-Called: xxxx"), "{trace}");
    assert!(trace.contains("X-Queue: sales"), "{trace}");
    assert!(!trace.contains(&format!("X-Account: {SECRET}")), "{trace}");

    let path = format!(
        "/phone/sessions/{}",
        daemon.stored(&call)["session_id"]
            .as_str()
            .expect("a session")
    );
    let session = http::get(http, &path, Some(&reader)).expect("an answer");
    assert_eq!(session.0, 200, "{}", session.1);
    let agent =
        serde_json::from_str::<serde_json::Value>(&session.1).expect("JSON")["agent"].clone();
    assert_eq!(agent["runtime"]["headers"]["X-Account"], "***");
}
