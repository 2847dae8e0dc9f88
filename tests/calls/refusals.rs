//! Calls that nobody answers: the response to the caller, and the record.

use std::time::Duration;

use serde_json::Value;

use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::{
    Caller, Credentials, Daemon, DaemonSetup, Deadline, Message, Peer, Runtime, tools,
};

fn refusal(caller: &Caller) -> Message {
    caller.play("caller_is_refused").finish().outcome().clone()
}

fn assert_recorded(call: &Value, status: &str, sip_code: u16) {
    assert_eq!(call["status"], status, "{call}");
    assert_eq!(call["sip_code"], sip_code, "{call}");
    assert!(call["answered_at"].is_null(), "{call}");
}

/// Checks that a refusal after authentication names its reason to the caller.
fn assert_explained(answer: &Message) {
    let warning = answer.header("Warning").unwrap_or_default();
    assert!(warning.starts_with("399 "), "{answer:?}");
}

#[test]
fn a_wrong_password_and_an_unknown_user_get_the_same_challenge() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let right = daemon.credentials();
    let wrong = Credentials {
        password: "wrong".to_owned(),
        ..right.clone()
    };
    let unknown = Credentials {
        username: "nobody".to_owned(),
        ..right
    };
    let answers = [wrong, unknown].map(|credentials| refusal(&daemon.caller().with(credentials)));

    for answer in &answers {
        assert_eq!(answer.status(), Some(401), "{answer:?}");
        assert!(
            answer
                .header("WWW-Authenticate")
                .is_some_and(|value| value.starts_with("Digest ")),
            "{answer:?}"
        );
    }

    let names = answers.each_ref().map(Message::header_names);
    assert_eq!(names[0], names[1], "{answers:?}");
    assert!(
        daemon.calls().is_empty(),
        "strangers leave no call: {:?}",
        daemon.calls()
    );
}

/// Many tenants may share an address, so an allowed address is good for its trunk's own numbers only.
#[test]
fn an_allowed_address_needs_no_password_for_listed_numbers_alone() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    setup.allow("127.0.0.0/8");
    let daemon = setup.serve();
    daemon.caller().play("caller_known_by_address").finish();
    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");

    // sipp plays this scenario to its end only if it is challenged.
    daemon
        .caller()
        .dials("+493099999999")
        .play("caller_hangs_up")
        .finish();
    daemon.records(2);
}

#[test]
fn a_dedicated_address_needs_no_password_for_any_number() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    setup.dedicate("127.0.0.1");
    let daemon = setup.serve();
    daemon
        .caller()
        .dials("+493099999999")
        .play("caller_known_by_address")
        .finish();
    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");
}

#[test]
fn no_agent_is_480() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    setup.disable(&setup.first_agent);
    let daemon = setup.serve();
    let answer = refusal(&daemon.caller());
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_explained(&answer);
    let call = daemon.record();
    assert_recorded(&call, "refused", 480);
    assert_eq!(call["reason"], "no_agent", "{call}");
    assert_eq!(daemon.routing(&call)["outcome"], "no_agent");
}

#[test]
fn an_agent_at_its_limit_is_480_and_no_other_takes_the_call() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    let sales = setup.agent("Sales", runtime);
    setup.limit(&sales, 1);

    let daemon = setup.serve();
    let caller = daemon.caller().names_agent(&sales);
    let agent = runtime.play("runtime_answers");
    let first = caller.play("caller_is_hung_up_on");
    agent.wait_for("ACK");

    let call = daemon.answered_call();
    let answer = refusal(&caller);
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_explained(&answer);

    daemon.hang_up(&call);
    first.finish();
    agent.finish();

    let refused = daemon
        .records(2)
        .into_iter()
        .find(|call| call["status"] == "refused");

    assert_eq!(
        refused.expect("the refused call is recorded")["reason"],
        "agent_busy"
    );
}

fn with_runtime(runtime: Runtime) -> Daemon {
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, &runtime.uri());
    setup.serve()
}

#[test]
fn a_runtime_that_is_down_is_480() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = with_runtime(Runtime::new());
    let answer = refusal(&daemon.caller());
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_explained(&answer);
    let call = daemon.record();
    assert_recorded(&call, "failed", 480);
    assert_eq!(call["agent_id"], daemon.setup.first_agent, "{call}");
}

#[test]
fn a_runtime_that_is_busy_is_486() {
    if !tools(&["sipp"]) {
        return;
    }

    let runtime = Runtime::new();
    let daemon = with_runtime(runtime);
    let agent = runtime.play("runtime_is_busy");
    let answer = refusal(&daemon.caller());
    assert_eq!(answer.status(), Some(486), "{answer:?}");
    assert_eq!(answer.header("Retry-After"), Some("120 (in a meeting)"));

    let [ours, theirs] = answer.headers("Warning")[..] else {
        panic!("not two warnings: {answer:?}")
    };
    assert!(ours.starts_with("399 "), "{ours}");
    assert_eq!(theirs, r#"307 runtime.test "No agent is free""#);
    agent.finish();
    assert_recorded(&daemon.record(), "busy", 486);
}

#[test]
fn a_runtime_that_is_down_is_passed_for_its_fallback() {
    if !tools(&["sipp"]) {
        return;
    }
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime_with_fallback(&setup.first_agent, &Runtime::new().uri(), &runtime.uri());
    let daemon = setup.serve();
    let agent = runtime.play("runtime_answers");
    daemon.caller().play("caller_hangs_up").finish();
    agent.finish();
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn options_is_answered_without_credentials() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    for caller in [daemon.caller(), daemon.caller().over_tcp()] {
        let answer = caller.play("pings").finish();
        assert!(
            answer
                .response(200, "OPTIONS")
                .header("Allow")
                .is_some_and(|allow| allow.contains("INVITE")),
            "{answer}"
        );
    }
}

/// RFC 4028 §8.1.
#[test]
fn a_session_interval_below_ours_is_422() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let answer = refusal(
        &daemon
            .caller()
            .with_header("Supported: timer\r\nSession-Expires: 60"),
    );
    assert_eq!(
        (answer.status(), answer.header("Min-SE")),
        (Some(422), Some("90")),
        "{answer:?}"
    );
    assert_recorded(&daemon.record(), "refused", 422);
}

#[test]
fn an_extension_that_we_lack_is_420() {
    if !tools(&["sipp"]) {
        return;
    }
    let daemon = DaemonSetup::new().serve();
    let answer = refusal(&daemon.caller().with_header("Require: x-teleport"));
    assert_eq!(
        (answer.status(), answer.header("Unsupported")),
        (Some(420), Some("x-teleport")),
        "{answer:?}"
    );
    assert_recorded(&daemon.record(), "refused", 420);
}

#[test]
fn a_runtime_whose_name_does_not_resolve_is_480() {
    if !tools(&["sipp"]) {
        return;
    }
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, "sip:agent@nowhere.invalid");
    let daemon = setup.serve();
    let answer = refusal(&daemon.caller());
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_eq!(daemon.record()["reason"], "runtime_unreachable");
}

/// Refusing for overload would help nobody: the daemon catches up with the INVITEs that arrived while it was stopped.
#[test]
fn who_waited_while_the_machine_stood_still_is_challenged() {
    const CALLERS: usize = 100;

    let daemon = DaemonSetup::new().serve();
    let peer = Peer::new(daemon.sip());
    let uri = format!("sip:+12025550123@{}", daemon.sip());
    daemon.process.signal("STOP");
    for caller in 0..CALLERS {
        let dialog = Dialog::calling(&uri, "+441632960001", &caller.to_string(), &peer);
        peer.send(dialog.request(&peer, (1, "INVITE"), "", ""));
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.process.signal("CONT");

    let mut answers = Vec::new();
    let all = Deadline::after(Duration::from_secs(20)).poll(|| {
        answers.push(peer.soon()?.status());
        (answers.len() == CALLERS).then_some(())
    });

    assert!(all.is_some(), "only {} answers", answers.len());
    assert_eq!(answers, [Some(401); CALLERS]);
}
