//! Hold and resume over the API: the re-INVITEs to both sides, and what the call shows.

use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::outbound::{give_trunk, order};
use trunkline_testkit::http;
use trunkline_testkit::referred::Step::{self, Answer, ByeComes, Offers, Refer, Turned, Unjoined};
use trunkline_testkit::sipp::SippProcess;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Runtime, Trace, tools};

/// Starts a daemon whose agent is a runtime of the test.
fn daemon() -> (Daemon, Runtime) {
    let (setup, runtime) = (DaemonSetup::new(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    (setup.serve(), runtime)
}

fn ask(daemon: &Daemon, call: &str, what: &str) -> (u16, Value) {
    daemon.change("POST", &format!("/phone/calls/{call}/{what}"), &json!({}))
}

/// Holds or resumes, however long the peers take to agree.
fn turn(daemon: &Daemon, call: &str, what: &str) {
    let (status, body) = ask(daemon, call, what);
    assert!([200, 202].contains(&status), "{what}: {status} {body}");
    let held = Value::Bool(what == "hold");
    let path = format!("/phone/calls/{call}");
    let limit = Deadline::after(Duration::from_secs(20));
    let turned = limit.poll(|| (daemon.shown(&path)["held"] == held).then_some(()));
    assert!(turned.is_some(), "{what}: {}", daemon.shown(&path));
    if status == 200 {
        assert_eq!(body["held"], held, "{body}");
    }
}

/// Returns the re-INVITEs that a peer got, without retransmissions.
fn offers(trace: &Trace) -> Vec<&Message> {
    let mut offers = trace.requests("INVITE");
    offers.dedup_by_key(|offer| offer.header("CSeq").map(str::to_owned));
    offers
}

/// Returns direction, version and port of each SDP.
fn described(offers: &[&Message]) -> Vec<(String, u64, String)> {
    let line = |offer: &Message, key: &str| {
        let body = offer.body().to_owned();
        let found = body.lines().find(|line| line.starts_with(key));
        found.unwrap_or_default().trim_end().to_owned()
    };

    let of = |offer: &&Message| {
        let directions = ["sendrecv", "sendonly", "recvonly", "inactive"];
        let is_direction = |text: &&str| directions.iter().any(|name| *text == format!("a={name}"));
        let body = offer.body().to_owned();
        let said: Vec<&str> = body
            .lines()
            .map(str::trim_end)
            .filter(is_direction)
            .collect();
        let version = line(offer, "o=")
            .split(' ')
            .nth(2)
            .and_then(|word| word.parse().ok());
        let port = line(offer, "m=audio ")
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        (said.join(" "), version.unwrap_or_default(), port)
    };
    offers.iter().map(of).collect()
}

fn directions(offers: &[&Message]) -> Vec<String> {
    described(offers)
        .into_iter()
        .map(|(said, ..)| said)
        .collect()
}

#[test]
fn both_sides_are_held_and_resumed() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let pbx = daemon
        .caller()
        .takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let call = daemon.answered_call();
    assert_eq!(daemon.shown(&format!("/phone/calls/{call}"))["held"], false);

    turn(&daemon, &call, "hold");
    let (status, again) = ask(&daemon, &call, "hold");
    assert_eq!((status, &again["held"]), (200, &json!(true)), "{again}");

    let listed = daemon.shown("/phone/calls");
    assert_eq!(listed["items"][0]["held"], true, "{listed}");

    turn(&daemon, &call, "resume");
    assert_eq!(ask(&daemon, &call, "resume").0, 200);

    daemon.hang_up(&call);
    let (pbx, agent) = (pbx.finish(), agent.finish());
    let to_agent = offers(&agent);
    let to_pbx = offers(&pbx);
    assert_eq!(
        directions(&to_agent),
        ["a=sendrecv", "a=sendonly", "a=sendrecv"],
        "{agent}"
    );
    assert_eq!(directions(&to_pbx), ["a=sendonly", "a=sendrecv"], "{pbx}");

    let first = described(&to_agent)[0].1;
    let versions: Vec<u64> = described(&to_agent)
        .iter()
        .map(|(_, version, _)| *version)
        .collect();
    assert_eq!(versions, [first, first + 1, first + 2], "{agent}");
    for (_, _, port) in described(&to_agent) {
        assert_eq!(port, "41000", "the caller's media, to the agent");
    }

    // The runtime's answer was version 8.
    assert_eq!(
        described(&to_pbx)
            .iter()
            .map(|(_, version, port)| (*version, port.as_str()))
            .collect::<Vec<_>>(),
        [(9, "42000"), (10, "42000")],
        "{pbx}"
    );

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["held"], false, "{record}");

    let (status, refused) = ask(&daemon, &call, "hold");
    assert_eq!(
        (status, &refused["message"]),
        (409, &json!("The call is over"))
    );
}

#[test]
fn a_runtime_that_refuses_leaves_the_call_as_it_was() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.takes(&[Unjoined("488 Not Acceptable Here"), ByeComes]);
    let pbx = daemon.caller().takes(&[ByeComes]);
    let call = daemon.answered_call();
    let (status, refused) = ask(&daemon, &call, "hold");
    assert_eq!(status, 409, "{refused}");
    let sentence = "The agent's runtime refused with SIP status 488";
    assert_eq!(refused["message"], sentence, "{refused}");
    assert_eq!(daemon.shown(&format!("/phone/calls/{call}"))["held"], false);
    daemon.hang_up(&call);
    let (pbx, _) = (pbx.finish(), agent.finish());
    assert!(offers(&pbx).is_empty(), "{pbx}");
}

#[test]
fn a_pbx_that_refuses_has_the_runtime_go_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let pbx = daemon
        .caller()
        .takes(&[Unjoined("488 Not Acceptable Here"), ByeComes]);
    let call = daemon.answered_call();
    let (status, refused) = ask(&daemon, &call, "hold");
    assert_eq!(status, 409, "{refused}");

    let sentence = "The other end of the line refused with SIP status 488";
    assert_eq!(refused["message"], sentence, "{refused}");
    assert_eq!(daemon.shown(&format!("/phone/calls/{call}"))["held"], false);

    daemon.hang_up(&call);
    pbx.finish();

    let agent = agent.finish();
    assert_eq!(
        directions(&offers(&agent)),
        ["a=sendrecv", "a=sendonly", "a=sendrecv"],
        "{agent}"
    );
}

/// A side may have a request of its own under way: the re-INVITE is retried a little later.
#[test]
fn glare_is_waited_out() {
    if !tools(&["sipp"]) {
        return;
    }
    const GLARE: Step = Unjoined("491 Request Pending");

    let (daemon, runtime) = daemon();
    let agent = runtime.takes(&[GLARE, Turned("recvonly"), ByeComes]);
    let pbx = daemon
        .caller()
        .takes(&[GLARE, GLARE, Turned("recvonly"), ByeComes]);
    let call = daemon.answered_call();
    turn(&daemon, &call, "hold");
    daemon.hang_up(&call);

    let (pbx, agent) = (pbx.finish(), agent.finish());
    assert_eq!(directions(&offers(&pbx)), ["a=sendonly"; 3], "{pbx}");
    assert_eq!(
        directions(&offers(&agent)),
        ["a=sendrecv", "a=sendonly", "a=sendonly"],
        "{agent}"
    );
}

/// An offer of the held caller stays on hold, and its new media reach the agent when the call is resumed.
#[test]
fn a_held_callers_own_change_is_switched_off() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.takes(&[
        Turned("recvonly"),
        Turned("inactive"),
        Turned("sendrecv"),
        ByeComes,
    ]);

    let pbx = daemon.caller().takes(&[
        Turned("recvonly"),
        Offers("sendrecv"),
        Turned("sendrecv"),
        ByeComes,
    ]);

    let call = daemon.answered_call();
    turn(&daemon, &call, "hold");

    let answered = Deadline::after(Duration::from_secs(20)).poll(|| {
        let so_far = agent.so_far();
        (so_far.requests("ACK").len() >= 3).then_some(())
    });

    assert!(answered.is_some(), "{}", agent.so_far());
    assert_eq!(daemon.shown(&format!("/phone/calls/{call}"))["held"], true);

    turn(&daemon, &call, "resume");
    daemon.hang_up(&call);

    let (pbx, agent) = (pbx.finish(), agent.finish());
    assert_eq!(
        directions(&offers(&agent)),
        ["a=sendrecv", "a=sendonly", "a=inactive", "a=sendrecv"],
        "{agent}"
    );

    let answers = pbx.received().filter(|message| {
        let is_invites = message
            .header("CSeq")
            .is_some_and(|cseq| cseq.ends_with("INVITE"));
        message.status() == Some(200) && is_invites
    });
    let answer = answers.last().map(Message::body).unwrap_or_default();
    assert!(answer.contains("a=inactive"), "{pbx}");
}

#[test]
fn the_echo_agents_caller_is_held() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let pbx = daemon
        .caller()
        .takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let call = daemon.answered_call();
    turn(&daemon, &call, "hold");
    turn(&daemon, &call, "resume");
    daemon.hang_up(&call);

    let pbx = pbx.finish();
    let asked = described(&offers(&pbx));
    assert_eq!(
        directions(&offers(&pbx)),
        ["a=sendonly", "a=sendrecv"],
        "{pbx}"
    );
    assert_eq!(asked[1].1, asked[0].1 + 1, "{pbx}");
    assert_eq!(daemon.record()["status"], "completed");
}

/// The callee is held with the media of its own leg, after both sides have been joined.
#[test]
fn a_call_of_our_own_is_held_and_resumed() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let (daemon, runtime) = daemon();
    give_trunk(&daemon, carrier, &json!({}));

    let agent = runtime.takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let callee = carrier.takes(&[
        Turned("sendrecv"),
        Turned("recvonly"),
        Turned("sendrecv"),
        ByeComes,
    ]);

    let placed = order(&daemon, &json!({}));
    let call = placed["call_id"].as_str().expect("an id").to_owned();
    daemon.wait_for_status(&placed["call_id"], "in_progress");
    agent.wait_for("ACK");
    turn(&daemon, &call, "hold");
    turn(&daemon, &call, "resume");
    daemon.hang_up(&call);

    let (callee, agent) = (callee.finish(), agent.finish());
    assert_eq!(
        directions(&offers(&callee)),
        ["a=sendrecv", "a=sendrecv", "a=sendonly", "a=sendrecv"],
        "{callee}"
    );

    let versions: Vec<u64> = described(&offers(&callee))
        .iter()
        .map(|(_, version, _)| *version)
        .collect();

    assert!(
        versions.is_sorted_by(|one, next| *next == *one + 1),
        "{callee}"
    );
    assert_eq!(
        directions(&offers(&agent)),
        ["a=sendrecv", "a=sendonly", "a=sendrecv"],
        "{agent}"
    );
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn a_call_that_is_being_transferred_is_not_held() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    daemon.destination("Sales", "phone", "+442071838751");

    let pbx = daemon
        .caller()
        .takes(&[Refer, Answer("202 Accepted", ""), ByeComes]);
    let call = daemon.answered_call();
    transfer(&daemon, &call);

    let (status, refused) = ask(&daemon, &call, "hold");
    assert_eq!(status, 409, "{refused}");
    assert_eq!(
        refused["message"], "A transfer of the call is under way",
        "{refused}"
    );
    daemon.hang_up(&call);

    let pbx = pbx.finish();
    assert!(offers(&pbx).is_empty(), "{pbx}");
}

fn transfer(daemon: &Daemon, call: &str) {
    let ask = json!({"destination": "Sales"});
    let (status, begun) = daemon.change("POST", &format!("/phone/calls/{call}/transfer"), &ask);
    assert_eq!(status, 202, "{begun}");
}

/// The caller is left with its agent, and not on hold.
#[test]
fn a_transfer_that_fails_ends_the_hold() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    daemon.destination("Sales", "phone", "+442071838751");
    let no_bridge = serde_json::json!({"bridge_when_refer_fails": false});
    let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &no_bridge);
    assert_eq!(status, 200, "{body}");

    daemon.setup.settle();
    let agent = runtime.takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let pbx = daemon.caller().takes(&[
        Turned("recvonly"),
        Refer,
        Answer("403 Forbidden", ""),
        Turned("sendrecv"),
        ByeComes,
    ]);
    let call = daemon.answered_call();
    let path = format!("/phone/calls/{call}");
    turn(&daemon, &call, "hold");
    transfer(&daemon, &call);
    let goes_on = || {
        let shown = daemon.shown(&path);
        (shown["transfer"]["status"] == "failed" && shown["held"] == false).then_some(())
    };
    let waited = Deadline::after(Duration::from_secs(20)).poll(goes_on);

    assert!(waited.is_some(), "{}", daemon.shown(&path));

    daemon.hang_up(&call);
    let (pbx, agent) = (pbx.finish(), agent.finish());

    assert_eq!(
        directions(&offers(&pbx)),
        ["a=sendonly", "a=sendrecv"],
        "{pbx}"
    );
    assert_eq!(
        directions(&offers(&agent)),
        ["a=sendrecv", "a=sendonly", "a=sendrecv"],
        "{agent}"
    );
}

#[test]
fn a_call_that_rings_is_not_held() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let agent = runtime.play("runtime_rings");
    let pbx = daemon.caller().play("caller_cancels");
    agent.wait_for("INVITE");
    let call = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
    let (status, refused) = ask(&daemon, &call, "hold");
    assert_eq!(status, 409, "{refused}");
    assert_eq!(
        refused["message"], "The call has not been answered yet",
        "{refused}"
    );

    pbx.finish();
    agent.finish();
}

/// A call that is up, until it is hung up on.
struct Up {
    agent: SippProcess,
    pbx: SippProcess,
    /// Session token of the runtime.
    token: String,
}

fn up(daemon: &Daemon, runtime: &Runtime) -> Up {
    let agent = runtime.play("runtime_answers");
    let pbx = daemon.caller().play("caller_is_hung_up_on");
    agent.wait_for("ACK");

    let so_far = agent.so_far();
    let token = so_far.request("INVITE").header("X-PLATFORM-SESSION-TOKEN");
    let token = token.expect("a token").to_owned();
    Up { agent, pbx, token }
}

/// The runtime's session token hangs up and transfers, and can't hold.
#[test]
fn a_session_token_holds_nothing() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let Up { agent, pbx, token } = up(&daemon, &runtime);
    let call = daemon.answered_call();
    for what in ["hold", "resume"] {
        let path = format!("/phone/calls/{call}/{what}");
        let (status, body) = http::change("POST", daemon.setup.http, &path, &token, &json!({}));
        assert_eq!(status, 401, "{body}");
    }

    daemon.hang_up(&call);
    pbx.finish();
    agent.finish();
}

/// A call that is up when its org is suspended can only be ended.
#[test]
fn a_session_token_of_a_suspended_org_ends_its_call_and_transfers_nothing() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, runtime) = daemon();
    let Up { agent, pbx, token } = up(&daemon, &runtime);
    let call = daemon.answered_call();
    let ask = |what: &str, body: &Value| {
        let path = format!("/phone/calls/{call}/{what}");
        http::change("POST", daemon.setup.http, &path, &token, body)
    };
    let org = daemon.setup.org.clone();
    daemon
        .setup
        .run(&["org", "suspend", &org, "--yes", "--json"]);

    let transfer = json!({"destination": "Nobody"});
    let refused = Deadline::after(Duration::from_secs(10)).poll(|| {
        let (status, body) = ask("transfer", &transfer);
        (status == 403).then_some(body)
    });
    assert_eq!(refused.expect("refused")["code"], "org_suspended");
    let (status, body) = ask("hangup", &json!({}));
    assert!(matches!(status, 200 | 202), "{status}: {body}");
    pbx.finish();
    agent.finish();
}
