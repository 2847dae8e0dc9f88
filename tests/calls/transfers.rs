//! Cold transfers: what the PBX is asked, and what becomes of the ways in which it may answer.

use serde_json::{Value, json};

use crate::harness::referred::Step::{self, Answer, Bye, ByeComes, Notify, Pause, Refer};
use crate::harness::{Daemon, House, Trace, tools};

const NUMBER: &str = "+442071838751";

/// The echo agent of the first org, with one destination.
fn daemon() -> Daemon {
    let daemon = House::new().serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon
}

fn transfer(daemon: &Daemon, call: &str, ask: &Value) -> (u16, Value) {
    daemon.change("POST", &format!("/phone/calls/{call}/transfer"), ask)
}

/// A call that is transferred to `Sales`: what the PBX saw, and the record.
fn transferred(daemon: &Daemon, steps: &[Step]) -> (Trace, Value) {
    let pbx = daemon.caller().takes(steps);
    let call = daemon.answered_call();
    let (status, begun) = transfer(daemon, &call, &json!({"destination": "sales"}));
    assert_eq!(status, 202, "{begun}");
    assert_eq!(begun["state"], "requested", "{begun}");
    let trace = pbx.finish();
    (trace, daemon.record())
}

#[test]
fn the_pbx_is_asked_with_all_the_context_and_the_call_ends_transferred() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = daemon();
    let pbx = daemon.caller().takes(&[
        Refer,
        Answer("202 Accepted", ""),
        Notify("SIP/2.0 100 Trying", "active;expires=60"),
        Notify("SIP/2.0 180 Ringing", "active;expires=60"),
        Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ByeComes,
    ]);
    let call = daemon.answered_call();
    let ask = json!({
        "destination": "SALES",
        "reasons": ["user_requested_human_assistance"],
        "summary": "Wants a price",
        "sentiment": "happy",
    });
    let (status, begun) = transfer(&daemon, &call, &ask);
    assert_eq!(status, 202, "{begun}");
    let trace = pbx.finish();
    let record = daemon.record();
    let refer = trace.request("REFER");
    let [session, contact] =
        ["session_id", "contact_id"].map(|field| record[field].as_str().expect("an id"));
    let agent = daemon.house.first_agent.as_str();
    assert_eq!(refer.headers("X-PLATFORM-SESSION-ID"), [session], "{trace}");
    assert_eq!(refer.headers("X-PLATFORM-AGENT-ID"), [agent], "{trace}");
    assert_eq!(refer.headers("X-PLATFORM-CONTACT-ID"), [contact], "{trace}");
    let to = refer.header("Refer-To").expect("a Refer-To");
    assert!(to.starts_with(&format!("<sip:{NUMBER}@127.0.0.1")), "{to}");
    let inside = format!(
        "?X-PLATFORM-SESSION-ID={session}&X-PLATFORM-AGENT-ID={agent}&X-PLATFORM-CONTACT-ID={contact}>"
    );
    assert!(to.ends_with(&inside), "{to}");
    assert!(
        refer
            .header("Referred-By")
            .is_some_and(|by| by.starts_with("<sip:")),
        "{trace}"
    );
    assert!(refer.header("Contact").is_some(), "{trace}");
    assert_eq!(record["status"], "transferred", "{record}");
    let done = &record["transfer"];
    assert_eq!(done["state"], "completed", "{record}");
    assert_eq!(done["way"], "refer", "{record}");
    for time in ["requested_at", "accepted_at", "ringing_at", "ended_at"] {
        assert!(done[time].is_string(), "{time}: {record}");
    }
    let handoffs = daemon.shown("/handoff-analytics/events");
    assert_eq!(handoffs["total"], 1, "{handoffs}");
    let handoff = &handoffs["items"][0];
    assert_eq!(handoff["session_id"], session, "{handoff}");
    assert_eq!(
        handoff["reasons"],
        json!(["user_requested_human_assistance"]),
        "{handoff}"
    );
    assert_eq!(handoff["summary"], "Wants a price", "{handoff}");
    assert_eq!(handoff["sentiment"], "happy", "{handoff}");
}

#[test]
fn a_refusal_leaves_the_caller_with_the_agent() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = daemon();
    let (_, record) = transferred(
        &daemon,
        &[Refer, Answer("403 Forbidden", ""), Pause(300), Bye],
    );
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
    assert_eq!(record["transfer"]["state"], "failed", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 403, "{record}");
    assert_eq!(daemon.shown("/handoff-analytics/events")["total"], 0);
}
