//! Requests and responses between caller and runtime in an answered call.

use serde_json::Value;

use trunkline_testkit::{Daemon, DaemonSetup, Message, Runtime, Trace, tools};

/// Starts a daemon whose agent is a runtime of the test.
fn daemon() -> (Daemon, Runtime) {
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    (setup.serve(), runtime)
}

/// Plays one call between two scenarios; returns the caller's trace, the runtime's trace, and the record.
fn call(
    daemon: &Daemon,
    runtime: Runtime,
    [caller_plays, runtime_plays]: [&str; 2],
) -> (Trace, Trace, Value) {
    let agent = runtime.play(runtime_plays);
    let caller = daemon.caller().play(caller_plays).finish();
    (caller, agent.finish(), daemon.record())
}

/// Returns the request that was sent with credentials.
fn sent<'t>(trace: &'t Trace, method: &str) -> &'t Message {
    trace
        .sent()
        .filter(|message| message.is_request(method))
        .last()
        .expect("the scenario sends it")
}

fn assert_completed(call: &Value, hangup_by: &str) {
    assert_eq!(call["status"], "completed", "{call}");
    assert_eq!(call["hangup_by"], hangup_by, "{call}");
    assert_eq!(call["sip_code"], 200, "{call}");
    for time in ["started_at", "answered_at", "ended_at"] {
        assert!(call[time].is_string(), "{time}: {call}");
    }
}

#[test]
fn the_runtime_gets_context_sdp_and_the_callers_own_headers() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();

    // The first call creates the caller's contact; on a slow disk that may be too late for its INVITE.
    call(&daemon, runtime, ["caller_hangs_up", "runtime_answers"]);
    let agent = runtime.play("runtime_answers");
    let caller = daemon.caller().play("caller_hangs_up").finish();
    let (agent, record) = (agent.finish(), daemon.records(2).remove(0));
    let invite = agent.request("INVITE");

    assert_eq!(
        invite.headers("X-PLATFORM-SESSION-ID"),
        [record["session_id"].as_str().expect("a text")],
        "{agent}"
    );
    assert_eq!(
        invite.headers("X-PLATFORM-AGENT-ID"),
        [daemon.setup.first_agent.as_str()],
        "{agent}"
    );
    assert_eq!(
        invite.headers("X-PLATFORM-CONTACT-ID"),
        [record["contact_id"].as_str().expect("a text")],
        "{agent}"
    );
    assert_eq!(invite.header("X-Account"), Some("4711"));
    assert_eq!(invite.header("X-Queue-Name"), Some("front desk"));
    assert!(
        invite
            .start_line()
            .contains(&format!("sip:{}@", daemon.setup.first_agent)),
        "{agent}"
    );
    assert_eq!(invite.body(), sent(&caller, "INVITE").body());

    // Pressed keys travel with the audio as telephone events (RFC 4733), which the two peers negotiate between them.
    assert!(invite.body().contains("telephone-event/8000"), "{agent}");

    let answer = caller.response(200, "INVITE");
    let answered = agent
        .sent()
        .find(|message| message.status() == Some(200))
        .expect("the runtime answered");
    assert_eq!(answer.body(), answered.body());

    assert_completed(&record, "caller");
}

/// Each leg is a dialog of its own.
#[test]
fn the_legs_share_neither_call_id_nor_tags_nor_credentials() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let (caller, agent, _) = call(&daemon, runtime, ["caller_hangs_up", "runtime_answers"]);
    let (came, went) = (agent.request("INVITE"), sent(&caller, "INVITE"));
    assert_ne!(came.header("Call-ID"), went.header("Call-ID"));
    assert_ne!(came.header("From"), went.header("From"));
    assert_eq!(came.header("Authorization"), None);

    let ours = daemon.sip().to_string();

    assert!(
        came.header("Contact")
            .is_some_and(|contact| contact.contains(&ours)),
        "{agent}"
    );
    assert_eq!(came.headers("Via").len(), 1, "{agent}");
}

#[test]
fn an_anonymous_caller_makes_no_contact() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_answers");
    daemon
        .caller()
        .with_header("Privacy: id")
        .play("caller_hangs_up")
        .finish();

    let agent = agent.finish();
    assert_eq!(
        agent.request("INVITE").header("X-PLATFORM-CONTACT-ID"),
        None,
        "{agent}"
    );
    assert!(daemon.record()["contact_id"].is_null());
}

#[test]
fn early_media_reaches_the_caller_before_the_answer() {
    if !tools(&["sipp"]) {
        return;
    }
    let (daemon, runtime) = daemon();
    let (caller, _, record) = call(&daemon, runtime, ["caller_hangs_up", "runtime_plays_early"]);
    let early = caller.response(183, "INVITE");
    assert!(
        early.body().contains("a=x-answered:by the runtime"),
        "{caller}"
    );
    assert_completed(&record, "caller");
}

#[test]
fn a_delayed_offer_is_answered_in_the_callers_ack() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let (caller, agent, record) = call(&daemon, runtime, ["caller_offers_late", "runtime_answers"]);

    assert_eq!(agent.request("INVITE").body(), "", "{agent}");
    assert!(
        caller
            .response(200, "INVITE")
            .body()
            .contains("a=x-answered:by the runtime"),
        "{caller}"
    );
    assert_eq!(
        agent.request("ACK").body(),
        sent(&caller, "ACK").body(),
        "{agent}"
    );
    assert_completed(&record, "caller");
}

#[test]
fn hold_and_resume_cross() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let (caller, agent, record) = call(&daemon, runtime, ["caller_holds", "runtime_is_held"]);
    let offers: Vec<&str> = agent
        .requests("INVITE")
        .into_iter()
        .map(Message::body)
        .collect();
    let went: Vec<&str> = caller
        .sent()
        .filter(|message| message.is_request("INVITE"))
        .map(Message::body)
        .collect();
    assert!(
        offers.len() == 3 && offers[1].contains("a=sendonly") && offers[2].contains("a=sendrecv"),
        "{agent}"
    );

    assert_eq!(offers[1..], went[went.len() - 2..]);

    let answers = caller
        .received()
        .filter(|message| message.status() == Some(200) && message.body().contains("a=recvonly"));
    assert!(
        answers.count() > 0,
        "the answer to hold didn't come:\n{caller}"
    );
    assert_completed(&record, "caller");
}

#[test]
fn reliable_ringing_is_acknowledged_end_to_end() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_rings_reliably");
    let caller = daemon
        .caller()
        .with_header("Supported: 100rel")
        .play("caller_pracks")
        .finish();
    let agent = agent.finish();
    let invite = agent.request("INVITE");

    assert!(
        invite
            .header("Supported")
            .is_some_and(|tags| tags.contains("100rel")),
        "{agent}"
    );

    let acknowledged = agent
        .request("PRACK")
        .header("RAck")
        .expect("PRACK has it")
        .to_owned();
    assert_eq!(
        acknowledged,
        format!("7700 {}", invite.header("CSeq").expect("INVITE has it")),
        "{agent}"
    );

    assert!(
        caller
            .response(180, "INVITE")
            .header("Require")
            .is_some_and(|tags| tags.contains("100rel")),
        "{caller}"
    );
    assert_completed(&daemon.record(), "caller");
}

#[test]
fn a_key_crosses() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let (caller, agent, _) = call(
        &daemon,
        runtime,
        ["caller_presses_a_key", "runtime_hears_a_key"],
    );

    let key = agent.request("INFO");
    assert_eq!(
        key.header("Content-Type"),
        Some("application/dtmf-relay"),
        "{agent}"
    );
    assert_eq!(key.body(), sent(&caller, "INFO").body());
}
