//! The ways a call ends.

use serde_json::{Value, json};

use trunkline_testkit::{Daemon, DaemonSetup, Runtime, tools};

fn daemon() -> (Daemon, Runtime) {
    serve(DaemonSetup::new())
}

fn serve(setup: DaemonSetup) -> (Daemon, Runtime) {
    let runtime = Runtime::new();
    setup.runtime(&setup.first_agent, &runtime.uri());
    (setup.serve(), runtime)
}

fn assert_ended(call: &Value, status: &str, hangup_by: &str) {
    assert_eq!(call["status"], status, "{call}");
    assert_eq!(call["hangup_by"], hangup_by, "{call}");
}

#[test]
fn the_runtime_hangs_up() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_hangs_up");
    let caller = daemon.caller().play("caller_is_hung_up_on").finish();
    agent.finish();
    assert_eq!(
        caller.request("BYE").header("Reason"),
        Some("Q.850;cause=16;text=\"done\""),
        "{caller}"
    );
    assert_ended(&daemon.record(), "completed", "agent");
}

#[test]
fn the_caller_gives_up_while_it_rings() {
    if !tools(&["sipp"]) {
        return;
    }
    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_rings");
    daemon.caller().play("caller_cancels").finish();
    agent.finish();
    let call = daemon.record();
    assert_ended(&call, "canceled", "caller");
    assert_eq!(call["sip_code"], 487, "{call}");
    assert!(call["answered_at"].is_null(), "{call}");
}

#[test]
fn byes_of_both_sides_cross() {
    if !tools(&["sipp"]) {
        return;
    }
    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_hangs_up");
    daemon.caller().play("caller_crosses_bye").finish();
    let agent = agent.finish();
    assert!(
        agent.requests("BYE").is_empty(),
        "who hung up isn't hung up on:\n{agent}"
    );
    assert_ended(&daemon.record(), "completed", "agent");
}

/// RFC 3261 §13.3.1.4: the 200 is repeated for 64·T1, then the session is ended with BYE.
#[test]
fn a_caller_that_never_acknowledges_is_hung_up_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = serve(DaemonSetup::new().set("TRUNKLINE__SIP__T1_MS", "100"));
    let agent = runtime.play("runtime_answers");
    let caller = daemon.caller().play("caller_never_acks").finish();
    let agent = agent.finish();

    assert!(
        caller
            .statuses("INVITE")
            .iter()
            .filter(|status| **status == 200)
            .count()
            > 5,
        "{caller}"
    );
    assert_eq!(agent.requests("BYE").len(), 1, "{agent}");

    let call = daemon.record();
    assert_ended(&call, "failed", "platform");
    assert_eq!(call["reason"], "no_ack", "{call}");
}

#[test]
fn a_call_is_hung_up_over_the_api() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_answers");
    let caller = daemon.caller().play("caller_is_hung_up_on");
    agent.wait_for("ACK");
    let id = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
    let call = daemon.hang_up(&id);
    assert_ended(&call, "completed", "platform");
    assert_eq!(call["reason"], "operator", "{call}");
    assert!(!call["ended_at"].is_null(), "{call}");

    caller.finish();
    agent.finish();
    assert_eq!(daemon.record(), call);

    let path = format!("/phone/calls/{id}/hangup");
    let (status, refused) = daemon.change("POST", &path, &json!({}));
    assert_eq!(status, 409, "{refused}");
    assert_eq!(refused["message"], "The call is over");
}

#[test]
fn sigterm_lets_a_call_in_progress_end() {
    if !tools(&["sipp"]) {
        return;
    }
    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_hangs_up");
    let caller = daemon.caller().play("caller_is_hung_up_on");
    agent.wait_for("ACK");
    let stopped = daemon.stop();
    caller.finish();
    agent.finish();
    assert!(stopped, "the daemon drains and ends by itself");
}

#[test]
fn a_runtime_that_rings_for_ever_is_given_up() {
    if !tools(&["sipp"]) {
        return;
    }
    let (daemon, runtime) = serve(DaemonSetup::new().set("TRUNKLINE__SIP__SETUP_TIMEOUT_S", "1"));
    let agent = runtime.play("runtime_rings");
    let caller = daemon.caller().play("caller_is_refused").finish();
    agent.finish();
    assert_eq!(caller.outcome().status(), Some(480), "{caller}");
    let call = daemon.record();
    assert_ended(&call, "no_answer", "platform");
    assert_eq!(call["reason"], "setup_timeout", "{call}");
}

#[test]
fn an_invite_stands_no_longer_than_its_expires() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = serve(DaemonSetup::new());
    let agent = runtime.play("runtime_rings");
    let caller = daemon
        .caller()
        .with_header("Expires: 1")
        .play("caller_is_refused")
        .finish();
    agent.finish();
    assert_eq!(caller.outcome().status(), Some(487), "{caller}");
    let call = daemon.record();
    assert_ended(&call, "no_answer", "platform");
    assert_eq!(call["reason"], "invite_expired", "{call}");
}

#[test]
fn the_longest_duration_ends_both_legs() {
    if !tools(&["sipp"]) {
        return;
    }
    let (daemon, runtime) = serve(DaemonSetup::new().set("TRUNKLINE__SIP__MAX_DURATION_S", "1"));
    let agent = runtime.play("runtime_answers");
    daemon.caller().play("caller_is_hung_up_on").finish();
    agent.finish();
    let call = daemon.record();
    assert_ended(&call, "completed", "platform");
    assert_eq!(call["reason"], "max_duration", "{call}");
}

#[test]
fn the_echo_agent_is_hung_up_on() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = DaemonSetup::new().serve();
    let caller = daemon.caller().play("caller_hangs_up").finish();
    let answer = caller.response(200, "INVITE").body();
    assert!(
        answer.contains("m=audio ") && answer.contains("PCMA/8000"),
        "{caller}"
    );
    assert_ended(&daemon.record(), "completed", "caller");
}
