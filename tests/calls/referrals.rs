//! Transfers that the agent's runtime requests: by REFER in its dialog, and by the token of its session.

use serde_json::{Value, json};

use trunkline_testkit::referred::Step::{
    self, Answer, Bye, ByeComes, Notify, Pause, Refer, Rejoined,
};
use trunkline_testkit::{DaemonSetup, Runtime, Trace, assert_handed_over, http, tools};

const NUMBER: &str = "+442071838751";

/// A daemon whose agent speaks through a runtime that refers to this user.
fn referring(user: &str, scenario: &str, steps: &[Step]) -> (Trace, Trace, Value) {
    referring_with((user, None), scenario, steps)
}

/// The same, with these headers inside Refer-To.
fn referring_with(
    (user, headers): (&str, Option<&str>),
    scenario: &str,
    steps: &[Step],
) -> (Trace, Trace, Value) {
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", NUMBER);
    let agent = match headers {
        Some(headers) => runtime.refers_with(user, headers, scenario),
        None => runtime.refers_to(user, scenario),
    };
    let pbx = daemon.caller().takes(steps);
    let pbx = pbx.finish();
    (pbx, agent.finish(), daemon.record())
}

#[test]
fn a_runtime_refers_its_caller_and_is_told_the_truth() {
    if !tools(&["sipp"]) {
        return;
    }

    let steps = [
        Refer,
        Answer("202 Accepted", ""),
        Notify("SIP/2.0 100 Trying", "active;expires=60"),
        Notify("SIP/2.0 183 Session Progress", "active;expires=60"),
        Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ByeComes,
    ];
    let (pbx, agent, record) = referring("sales", "runtime_refers", &steps);
    let to = pbx.request("REFER").header("Refer-To").expect("a Refer-To");
    assert!(to.starts_with(&format!("<sip:{NUMBER}@127.0.0.1")), "{to}");

    let told: Vec<_> = agent
        .requests("NOTIFY")
        .into_iter()
        .map(|notify| (notify.body(), notify.header("Subscription-State")))
        .collect();
    assert_eq!(
        told,
        [
            ("SIP/2.0 100 Trying", Some("active;expires=600")),
            ("SIP/2.0 183 Session Progress", Some("active;expires=600")),
            ("SIP/2.0 200 OK", Some("terminated;reason=noresource")),
        ],
        "{agent}"
    );
    let first = agent.request("NOTIFY");

    assert_eq!(first.header("Event"), Some("refer"), "{agent}");
    assert_eq!(
        first.header("Content-Type"),
        Some("message/sipfrag;version=2.0"),
        "{agent}"
    );
    assert_handed_over(&record);
    assert_eq!(record["transfer"]["status"], "completed", "{record}");
    assert_eq!(
        record["transfer"]["reasons"],
        json!(["ai_implied_handoff"]),
        "{record}"
    );
}

#[test]
fn a_runtime_is_told_of_a_failure_and_keeps_its_caller() {
    if !tools(&["sipp"]) {
        return;
    }

    let steps = [
        Refer,
        Answer("202 Accepted", ""),
        Notify("SIP/2.0 180 Ringing", "active"),
        Notify("SIP/2.0 486 Busy Here", "terminated;reason=noresource"),
        Pause(300),
        Bye,
    ];
    let (_, agent, record) = referring(NUMBER, "runtime_refers", &steps);

    let last = agent.requests("NOTIFY").last().map(|notify| notify.body());
    assert_eq!(last, Some("SIP/2.0 486 Busy Here"), "{agent}");
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 486, "{record}");
}

#[test]
fn a_runtime_reaches_only_what_its_agent_has() {
    if !tools(&["sipp"]) {
        return;
    }
    let (pbx, _, record) = referring("+19005550100", "runtime_is_refused", &[Pause(3_000), Bye]);
    assert!(pbx.requests("REFER").is_empty(), "{pbx}");
    assert!(record["transfer"].is_null(), "{record}");
}

/// The runtime has called the destination itself (consultation): the REFER to the PBX names the dialog to replace.
#[test]
fn a_runtime_hands_its_caller_to_whom_it_has_asked() {
    if !tools(&["sipp"]) {
        return;
    }

    const REPLACES: &str = "Replaces=asked%40runtime%3Bto-tag%3Dpbx%3Bfrom-tag%3Druntime";
    let steps = [
        Refer,
        Answer("202 Accepted", ""),
        Notify("SIP/2.0 100 Trying", "active;expires=60"),
        Notify("SIP/2.0 183 Session Progress", "active;expires=60"),
        Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ByeComes,
    ];
    let (pbx, _, record) = referring_with(("sales", Some(REPLACES)), "runtime_refers", &steps);

    let to = pbx.request("REFER").header("Refer-To").expect("a Refer-To");
    assert!(to.starts_with(&format!("<sip:{NUMBER}@127.0.0.1")), "{to}");
    assert!(
        to.contains(&format!("?{REPLACES}&X-PLATFORM-SESSION-ID=")),
        "{to}"
    );
    assert_eq!(record["transfer"]["status"], "completed", "{record}");
}

/// With Replaces too, only the agent's destinations are reachable.
#[test]
fn replaces_reaches_only_what_the_agent_has() {
    if !tools(&["sipp"]) {
        return;
    }
    const REPLACES: &str = "Replaces=asked%40runtime%3Bto-tag%3Dpbx%3Bfrom-tag%3Druntime";
    let steps = [Pause(3_000), Bye];
    let (pbx, _, record) = referring_with(
        ("+19005550100", Some(REPLACES)),
        "runtime_is_refused",
        &steps,
    );
    assert!(pbx.requests("REFER").is_empty(), "{pbx}");
    assert!(record["transfer"].is_null(), "{record}");
}

/// The runtime is in two calls, and hands the caller of one to the far end of the other: the two hear each other, and the runtime's legs end.
#[test]
fn a_runtime_joins_two_of_its_calls() {
    if !tools(&["sipp"]) {
        return;
    }

    let (asked, asking) = (Runtime::new(), Runtime::new());
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, &asked.uri());
    let second = setup.agent("Second", asking);
    let daemon = setup.serve();

    let expert = asked.takes(&[ByeComes]);
    let callee = daemon.caller().takes(&[Rejoined, ByeComes]);
    let other = daemon.answered_call();
    expert.wait_for("ACK");
    let so_far = expert.so_far();

    let invite = so_far.request("INVITE");
    let of = |name: &str| invite.header(name).expect("it is there").to_owned();
    let answer = so_far.sent().find(|message| message.status() == Some(200));
    let to = answer
        .and_then(|answer| answer.header("To"))
        .expect("a To")
        .to_owned();

    let tag = |value: &str| {
        let (_, tag) = value.split_once(";tag=").expect("a tag");
        tag.to_owned()
    };
    let replaces = format!(
        "Replaces={}%3Bto-tag%3D{}%3Bfrom-tag%3D{}",
        of("Call-ID").replace('@', "%40"),
        tag(&of("From")),
        tag(&to)
    );

    let joins = asking.refers_with("trunkline", &replaces, "runtime_joins");
    let caller = daemon.caller().names_agent(&second);
    let pbx = caller.takes(&[Rejoined, Pause(500), Bye]);
    let (pbx, callee) = (pbx.finish(), callee.finish());
    let (joins, expert) = (joins.finish(), expert.finish());

    let told: Vec<_> = joins
        .requests("NOTIFY")
        .into_iter()
        .map(|notify| (notify.body(), notify.header("Subscription-State")))
        .collect();
    assert_eq!(
        told,
        [
            ("SIP/2.0 100 Trying", Some("active;expires=600")),
            ("SIP/2.0 200 OK", Some("terminated;reason=noresource")),
        ],
        "{joins}"
    );

    assert_eq!(expert.requests("BYE").len(), 1, "{expert}");
    assert!(
        pbx.requests("REFER").is_empty(),
        "it isn't the PBX's affair: {pbx}"
    );

    for (trace, who) in [(&pbx, "the caller"), (&callee, "the callee")] {
        let offer = trace.request("INVITE");
        let theirs = "a=x-unknown:kept as it is";
        assert!(
            offer.body().contains(theirs),
            "{who} hears the other: {trace}"
        );
        assert!(offer.header("X-PLATFORM-JOIN").is_none(), "{trace}");
    }

    let records = daemon.records(2);
    for record in &records {
        assert_eq!(record["status"], "transferred", "{record}");
        let way = if record["id"] == other.as_str() {
            assert!(record["transfer"].is_null(), "{record}");
            continue;
        } else {
            &record["transfer"]
        };
        assert_eq!(way["status"], "completed", "{record}");
        assert_eq!(way["way"], "bridge", "{record}");
        assert_eq!(way["destination"], "another call", "{record}");
    }
}

/// The token that came with the runtime's INVITE acts on its own call only.
#[test]
fn a_runtime_transfers_and_hangs_up_its_own_call_by_its_token() {
    if !tools(&["sipp"]) {
        return;
    }

    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", NUMBER);
    let agent = runtime.play("runtime_answers");
    let pbx = daemon
        .caller()
        .takes(&[Refer, Answer("403 Forbidden", ""), ByeComes]);
    agent.wait_for("ACK");
    let token = agent
        .so_far()
        .request("INVITE")
        .header("X-PLATFORM-SESSION-TOKEN")
        .expect("a token")
        .to_owned();
    let call = daemon.answered_call();
    let ask =
        |path: &str, body: &Value| http::change("POST", daemon.setup.http, path, &token, body);
    let (status, body) = ask("/phone/outbound-call", &json!({}));

    assert_eq!(status, 401, "{body}");

    let (status, body) = ask(
        &format!("/phone/calls/{}/hangup", daemon.setup.org),
        &json!({}),
    );
    assert_eq!(status, 401, "{body}");

    let (status, body) = ask(
        &format!("/phone/calls/{call}/transfer"),
        &json!({"destination": "Sales"}),
    );
    assert_eq!(status, 202, "{body}");

    pbx.wait_for("REFER");
    let (status, body) = ask(&format!("/phone/calls/{call}/hangup"), &json!({}));

    // The call's end may not be stored yet.
    assert!(matches!(status, 200 | 202), "{status}: {body}");

    agent.finish();
    pbx.finish();
    let (status, body) = ask(&format!("/phone/calls/{call}/hangup"), &json!({}));
    assert_eq!(status, 401, "{body}");
}
