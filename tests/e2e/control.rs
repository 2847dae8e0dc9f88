//! Two daemons on one PostgreSQL, and a call that is up on one of them: the other daemon carries out commands for it, and shows it as its own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::node::{Node, NodeSetup, text};
use crate::e2e::nodes::Pair;
use trunkline_testkit::database::Database;
use trunkline_testkit::referred::Step::{Answer, Bye, ByeComes, Pause, Refer, Turned};
use trunkline_testkit::{Deadline, Responder, Runtime, tools};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until a node shows the org's only call in a state that `is_so` accepts; returns the call.
fn call_that(node: &Node, key: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let mut shown = String::new();
    let found = Deadline::after(LIMIT).poll(|| {
        shown = node.get("/phone/calls", key).1;
        let page: Value = serde_json::from_str(&shown).ok()?;
        let call = page["items"][0].clone();
        is_so(&call).then_some(call)
    });
    found.unwrap_or_else(|| panic!("it is never so: {shown}"))
}

/// Waits until a node shows the org's only call as answered; returns its id.
pub(crate) fn answered(node: &Node, key: &str) -> String {
    let call = call_that(node, key, |call| call["status"] == "in_progress");
    text(&call["id"])
}

fn one(node: &Node, key: &str, call: &str) -> Value {
    let (status, shown) = node.get(&format!("/phone/calls/{call}"), key);
    assert_eq!(status, 200, "{shown}");
    serde_json::from_str(&shown).expect("JSON")
}

/// Sends `hold` or `resume` to the node that doesn't have the call, and waits until both nodes show the result.
fn turn(pair: &Pair, call: &str, what: &str) {
    let held = what == "hold";
    let path = format!("/phone/calls/{call}/{what}");
    let (status, body) = pair.first.change("POST", &path, &pair.key, &json!({}));
    assert!([200, 202].contains(&status), "{what}: {status} {body}");

    if status == 200 {
        assert_eq!(body["held"], held, "{body}");
    }
    for node in [&pair.first, &pair.second] {
        let turned = Deadline::after(LIMIT)
            .poll(|| (one(node, &pair.key, call)["held"] == held).then_some(()));
        assert!(turned.is_some(), "{what}: {}", one(node, &pair.key, call));
    }
    let listed = call_that(&pair.first, &pair.key, |call| call["held"] == held);
    assert_eq!(listed["id"], call, "{listed}");
}

#[test]
fn a_call_on_one_is_held_resumed_and_hung_up_at_the_other() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };

    let pbx = pair.caller(&pair.second);
    let pbx = pbx.takes(&[Turned("recvonly"), Turned("sendrecv"), ByeComes]);
    let call = answered(&pair.first, &pair.key);
    turn(&pair, &call, "hold");
    turn(&pair, &call, "resume");
    let path = format!("/phone/calls/{call}/hangup");
    let (status, ended) = pair.first.change("POST", &path, &pair.key, &json!({}));
    assert!([200, 202].contains(&status), "{status}: {ended}");

    pbx.finish();
    let ended = call_that(&pair.first, &pair.key, |call| call["ended_at"].is_string());
    assert_eq!(ended["hangup_by"], "platform", "{ended}");
    assert_eq!(ended["held"], false, "{ended}");

    for what in ["hangup", "hold", "transfer"] {
        let path = format!("/phone/calls/{call}/{what}");
        let body = match what {
            "transfer" => json!({"destination": "Sales"}),
            _ => json!({}),
        };
        let (status, refused) = pair.first.change("POST", &path, &pair.key, &body);
        assert_eq!(
            (status, &refused["message"]),
            (409, &json!("The call is over")),
            "{what}"
        );
    }
}

#[test]
fn a_call_on_one_is_transferred_at_the_other() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };

    // Without this, a REFER that the PBX refuses is followed by a bridge.
    let path = "/phone/sip/inbound-trunk";
    let no_bridge = json!({"transfer_way": "refer", "bridge_when_refer_fails": false});
    let (status, changed) = pair.first.change("PATCH", path, &pair.key, &no_bridge);
    assert_eq!(status, 200, "{changed}");

    // A call keeps the settings that it began with. The answer to a route test waits until the second node has the change.
    let question = json!({"to": "1"});
    let path = "/phone/sip/route-test";
    pair.second.made("POST", path, &pair.key, &question);
    let path = format!(
        "/phone/sip/agents/{}/transfer-destinations",
        text(&pair.outset["agent_id"])
    );
    let sales = json!({"create": {"name": "Sales", "type": "phone", "value": "+442071838751"}});
    pair.first.made("POST", &path, &pair.key, &sales);
    let pbx = pair.caller(&pair.second);
    let pbx = pbx.takes(&[Refer, Answer("403 Forbidden", ""), Pause(300), Bye]);
    let call = answered(&pair.first, &pair.key);
    let path = format!("/phone/calls/{call}/transfer");
    let ask = |body: Value| pair.first.change("POST", &path, &pair.key, &body);
    let (status, refused) = ask(json!({"destination": "Nobody"}));

    assert_eq!(status, 400, "{refused}");

    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("destination: "), "{refused}");

    // The call's node may read the new destination a little later than the node that created it.
    let once = || {
        let body = json!({"destination": "sales", "summary": "Wants a price"});
        pair.first.post_once(&path, &pair.key, "to sales", &body)
    };
    let begun = Deadline::after(LIMIT).poll(|| {
        let (status, begun) = once();
        (status != 400).then_some((status, begun))
    });
    let (status, begun) = begun.expect("the destination is known");
    assert_eq!(status, 202, "{begun}");
    assert_eq!(begun["status"], "requested", "{begun}");
    assert_eq!(begun["summary"], "Wants a price", "{begun}");
    assert_eq!(
        once(),
        (202, begun.clone()),
        "sent again, it is answered the same"
    );

    pbx.finish();
    let ended = call_that(&pair.first, &pair.key, |call| call["ended_at"].is_string());
    assert_eq!(ended["transfer"]["id"], begun["id"], "{ended}");
    assert_eq!(ended["transfer"]["sip_code"], 403, "{ended}");
}

/// A node that has taken a command may need longer than five seconds. A client that got an error meanwhile would do it twice.
#[test]
fn a_command_that_was_taken_is_waited_for() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[("TRUNKLINE__SIP__NODE_LEASE_S", "120")]) else {
        return;
    };
    let pbx = pair.caller(&pair.second).takes(&[Pause(60_000)]);
    let call = answered(&pair.first, &pair.key);
    let path = format!("/phone/calls/{call}/transfer");
    let ask = |key: &str| {
        let body = json!({"destination": "Sales"});
        pair.first.post_once(&path, &pair.key, key, &body)
    };

    // In place of the other node, the test takes the command.
    pair.second.signal("STOP");
    let taken = |key: &str, answer: &str| {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| ask(key));
            let sent = Deadline::after(LIMIT).poll(|| {
                let waiting = "SELECT id::text FROM asks WHERE taken_at IS NULL";
                (!pair.database.texts(waiting).is_empty()).then_some(())
            });
            assert!(sent.is_some(), "the command is sent");
            pair.database.run("UPDATE asks SET taken_at = asked_at");
            std::thread::sleep(Duration::from_secs(6));
            pair.database.run(answer);
            asking.join().expect("an answer")
        })
    };

    let done = r#"UPDATE asks SET status = 202, answer = '{"id":"7"}'"#;
    assert_eq!(taken("slow", done), (202, json!({"id": "7"})));
    assert_eq!(ask("slow"), (202, json!({"id": "7"})), "it is kept");

    let (status, unknown) = taken("silent", "SELECT 1");
    assert_eq!((status, &unknown["code"]), (503, &json!("outcome_unknown")));
    let (status, again) = ask("silent");
    assert_eq!(
        (status, &again["code"]),
        (409, &json!("outcome_unknown")),
        "{again}"
    );

    pair.second.signal("CONT");
    drop(pbx);
}

/// The runtime doesn't know which node has its call: its token works at both, for its own call only.
#[test]
fn a_runtime_hangs_up_at_the_other_by_its_token() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };

    let runtime = Runtime::new();
    let agent = format!("/phone/{}", text(&pair.outset["agent_id"]));
    let speaks = json!({"runtime": {"type": "sip", "uri": runtime.uri()}});
    pair.second.made("PATCH", &agent, &pair.key, &speaks);

    let speaker = runtime.play("runtime_answers");
    let pbx = pair.caller(&pair.second).play("caller_is_hung_up_on");
    let call = answered(&pair.first, &pair.key);
    let so_far = speaker.so_far();
    let token = so_far.request("INVITE").header("X-PLATFORM-SESSION-TOKEN");
    let token = token.expect("a token").to_owned();
    let path = format!("/phone/calls/{call}/hangup");
    let mut forged = token.clone();

    forged.replace_range(
        token.len() - 2..,
        if token.ends_with("00") { "11" } else { "00" },
    );
    for wrong in [
        forged.as_str(),
        "tls_00",
        &token.replacen("tls_", "tls_0", 1),
    ] {
        let (status, refused) = pair.first.change("POST", &path, wrong, &json!({}));
        assert_eq!(status, 401, "{refused}");
    }

    let hold = format!("/phone/calls/{call}/hold");
    assert_eq!(pair.first.change("POST", &hold, &token, &json!({})).0, 401);

    let (status, ended) = pair.first.change("POST", &path, &token, &json!({}));
    assert!([200, 202].contains(&status), "{status}: {ended}");

    pbx.finish();
    speaker.finish();
    call_that(&pair.first, &pair.key, |call| call["ended_at"].is_string());

    let (status, refused) = pair.first.change("POST", &path, &token, &json!({}));
    assert_eq!(status, 401, "it died with its call: {refused}");
}

/// Commands for a call of a dead node fail, and no answer claims otherwise.
#[test]
fn a_call_of_a_dead_node_is_out_of_reach() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(mut pair) = Pair::new(&[("TRUNKLINE__SIP__NODE_LEASE_S", "60")]) else {
        return;
    };
    let pbx = pair.caller(&pair.second).takes(&[Pause(20_000)]);
    let call = answered(&pair.first, &pair.key);
    pair.second.kill();
    let path = format!("/phone/calls/{call}/hangup");
    let (status, refused) = pair.first.change("POST", &path, &pair.key, &json!({}));
    assert_eq!(status, 503, "{refused}");
    let sentence = "Node 1 has the call and does not answer: nothing was done";
    assert_eq!(refused["message"], sentence, "{refused}");
    drop(pbx);
}

/// A call can't be rolled back: if its answer can't be kept, the client gets it all the same, and the key is kept from placing another.
#[test]
fn an_answer_that_cant_be_kept_at_once_is_kept_later() {
    let Some(database) = Database::new() else {
        return;
    };
    let setup = NodeSetup::new(&database.environment());
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let (agent, key) = (text(&outset["agent_id"]), text(&outset["api_key"]));
    let node = setup.serve();

    let carrier = Responder::busy();
    let trunk = json!({"name": "Carrier", "host": "127.0.0.1", "port": carrier.address.port(), "caller_number": "+442071838750"});
    let trunk = node.made("POST", "/phone/sip/outbound-trunks", &key, &trunk);
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    node.made("PUT", &path, &key, &json!({"trunk_id": trunk["id"]}));

    database.run("ALTER TABLE idempotency_keys ADD CONSTRAINT no_answer CHECK (status IS NULL)");
    let dials = json!({"phone_agent_id": agent, "phone_number": "+442071838752"});
    let dial = || node.post_once("/phone/outbound-call", &key, "once", &dials);
    let (status, placed) = dial();
    assert_eq!(status, 201, "{placed}");

    database.run("ALTER TABLE idempotency_keys DROP CONSTRAINT no_answer");
    assert_eq!(dial(), (201, placed));
    let calls = "SELECT id::text FROM calls";
    let recorded = Deadline::after(LIMIT).poll(|| (database.texts(calls).len() == 1).then_some(()));
    assert!(recorded.is_some(), "{:?}", database.texts(calls));
}

/// A node that is held up looks like one that was killed. Its call may have been dialled, so that no other node dials it under the same key, and its
/// own answer is given once it can be kept.
#[test]
fn a_call_of_a_node_that_is_held_up_is_not_dialled_again() {
    // So that the node doesn't renew its lease meanwhile.
    let Some(pair) = Pair::new(&[("TRUNKLINE__SIP__NODE_LEASE_S", "300")]) else {
        return;
    };
    let carrier = Responder::busy();
    let trunk = json!({"name": "Carrier", "host": "127.0.0.1", "port": carrier.address.port(), "caller_number": "+442071838750"});
    let trunk = (pair.first).made("POST", "/phone/sip/outbound-trunks", &pair.key, &trunk);
    let agent = text(&pair.outset["agent_id"]);
    let path = format!("/phone/sip/agents/{agent}/outbound-trunk");
    (pair.first).made("PUT", &path, &pair.key, &json!({"trunk_id": trunk["id"]}));

    let database = &pair.database;
    database.run("ALTER TABLE idempotency_keys ADD CONSTRAINT no_answer CHECK (status IS NULL)");
    let dials = json!({"phone_agent_id": agent, "phone_number": "+442071838752"});
    let dial = |node: &Node| node.post_once("/phone/outbound-call", &pair.key, "once", &dials);
    let (status, placed) = dial(&pair.first);
    assert_eq!(status, 201, "{placed}");

    database.run("UPDATE nodes SET lease_expires_at = 1 WHERE node = 0");
    let (status, refused) = dial(&pair.second);
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("outcome_unknown")),
        "{refused}"
    );

    database.run("ALTER TABLE idempotency_keys DROP CONSTRAINT no_answer");
    let answered =
        Deadline::after(LIMIT).poll(|| (dial(&pair.second) == (201, placed.clone())).then_some(()));
    assert!(answered.is_some(), "{:?}", dial(&pair.second));
    let calls = database.texts("SELECT id::text FROM calls");
    assert!(calls.len() <= 1, "{calls:?}");
}
