//! Transfers where the PBX has no REFER: the daemon calls the destination itself and sends its media to the caller by re-INVITE.

use serde_json::{Value, json};

use crate::calls::events::told;
use crate::calls::outbound::give_trunk;
use trunkline_testkit::event_schema::assert_fits;
use trunkline_testkit::referred::Step::{
    self, Answer, Bye, ByeComes, Key, Moves, Offers, Pause, Refer, Rejoined, Rings, Turned,
    Unjoined,
};
use trunkline_testkit::{Daemon, DaemonSetup, Runtime, tools};

const NUMBER: &str = "+442071838751";
const REFUSED: Step = Answer("405 Method Not Allowed", "");

/// Starts a daemon with the echo agent and one destination, which is called through `carrier`.
fn daemon(carrier: Runtime) -> Daemon {
    let daemon = DaemonSetup::new().serve();
    give_trunk(&daemon, carrier, &json!({}));
    daemon.destination_via("trunk", "Sales", "phone", NUMBER);
    daemon
}

/// The same with a runtime as the agent, and a trunk with these fields.
fn spoken_for(trunk: &Value) -> (Daemon, Runtime, Runtime) {
    let (carrier, runtime) = (Runtime::new(), Runtime::new());
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    give_trunk(&daemon, carrier, trunk);
    daemon.destination_via("trunk", "Sales", "phone", NUMBER);
    (daemon, carrier, runtime)
}

fn transfer(daemon: &Daemon, call: &str) {
    let ask = json!({"destination": "sales", "summary": "Wants a price"});
    let path = format!("/phone/calls/{call}/transfer");
    let (status, begun) = daemon.change("POST", &path, &ask);
    assert_eq!(status, 202, "{begun}");
    assert_eq!(begun["status"], "requested", "{begun}");
}

/// Waits until the transfer of the only call is in that state.
fn transferred(daemon: &Daemon, call: &str, state: &str) -> Value {
    let shown = trunkline_testkit::Deadline::after(std::time::Duration::from_secs(20)).poll(|| {
        let shown = daemon.shown(&format!("/phone/calls/{call}"));
        (shown["transfer"]["status"] == state).then_some(shown)
    });
    shown.unwrap_or_else(|| {
        panic!(
            "not {state}: {}",
            daemon.shown(&format!("/phone/calls/{call}"))
        )
    })
}

#[test]
fn a_pbx_without_refer_has_its_caller_bridged() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, carrier, runtime) = spoken_for(&json!({"from_host": "pbx.example.com"}));
    let (agent, sales) = (
        runtime.play("runtime_answers"),
        carrier.play("runtime_answers"),
    );
    let pbx = daemon
        .caller()
        .takes(&[Refer, REFUSED, Rejoined, Pause(5_000), Bye]);
    let call = daemon.answered_call();
    transfer(&daemon, &call);

    // The agent's leg is hung up, the call goes on.
    agent.finish();
    let shown = transferred(&daemon, &call, "completed");
    assert_eq!(shown["status"], "in_progress", "{shown}");
    let (pbx, sales) = (pbx.finish(), sales.finish());
    let record = daemon.record();

    let invite = sales.request("INVITE");
    assert_eq!(
        invite.start_line(),
        format!("INVITE sip:{NUMBER}@{} SIP/2.0", carrier.address())
    );

    let from = invite.header("From").expect("a From");
    assert!(
        from.starts_with("<sip:+442071838750@pbx.example.com>"),
        "{from}"
    );

    for (name, field) in [
        ("X-PLATFORM-SESSION-ID", "session_id"),
        ("X-PLATFORM-AGENT-ID", "agent_id"),
        ("X-PLATFORM-CONTACT-ID", "contact_id"),
    ] {
        assert_eq!(invite.header(name), record[field].as_str(), "{sales}");
    }
    assert_eq!(invite.header("X-PLATFORM-SESSION-TOKEN"), None, "{sales}");
    assert!(
        invite.body().contains("m=audio 41000 RTP/AVP 8 0 101"),
        "the caller's own media are offered: {sales}"
    );

    // For the caller it is the agent's session with the next version, and the destination's media.
    let moved = pbx.request("INVITE").body();
    assert!(moved.contains("o=runtime 3 4 IN IP4 127.0.0.1"), "{pbx}");
    assert!(moved.contains("m=audio 42000"), "{pbx}");

    assert_eq!(record["status"], "transferred", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
    let done = &record["transfer"];
    assert_eq!(done["way"], "bridge", "{record}");
    assert_eq!(done["sip_code"], json!(null), "{record}");
    for time in ["requested_at", "accepted_at", "ringing_at", "ended_at"] {
        assert!(done[time].is_string(), "{time}: {record}");
    }
    let handoffs = daemon.shown("/handoff-analytics/events");
    assert_eq!(handoffs["total"], 1, "{handoffs}");
    assert_eq!(handoffs["items"][0]["summary"], "Wants a price");

    let events = told(&daemon, |told| {
        told.last().is_some_and(|last| last["type"] == "call.ended")
    });
    let updated = events
        .iter()
        .filter(|event| event["type"] == "transfer.updated");
    let mut steps = Vec::new();

    for event in updated {
        assert_fits("transfer.updated", &event["data"]);
        assert_eq!(event["data"]["transfer_id"], done["id"], "{event}");
        steps.push([&event["data"]["way"], &event["data"]["status"]]);
    }
    assert_eq!(
        json!(steps),
        json!([
            ["refer", "requested"],
            ["bridge", "accepted"],
            ["bridge", "ringing"],
            ["bridge", "completed"],
        ])
    );
}

/// A PBX shows that it takes no REFER by a final answer, or by leaving it out of its Allow header. In the last case no REFER is sent.
#[test]
fn every_refusal_that_means_no_refer_leads_to_the_bridge() {
    if !tools(&["sipp"]) {
        return;
    }

    let cases: [(&str, &[Step]); 3] = [
        ("501", &[Refer, Answer("501 Not Implemented", ""), Rejoined]),
        ("603", &[Refer, Answer("603 Decline", ""), Rejoined]),
        ("nothing, in Allow", &[Rejoined]),
    ];
    let carrier = Runtime::new();
    let daemon = daemon(carrier);

    for (place, (case, steps)) in cases.into_iter().enumerate() {
        let sales = carrier.play("runtime_hangs_up");
        let mut steps = steps.to_vec();
        steps.push(ByeComes);
        let mut caller = daemon.caller();
        if place == 2 {
            caller = caller.allows("INVITE, ACK, BYE, CANCEL, OPTIONS");
        }
        let pbx = caller.takes(&steps);
        transfer(&daemon, &daemon.answered_call());
        let (pbx, _) = (pbx.finish(), sales.finish());
        let asked = pbx.requests("REFER").len();
        assert_eq!(asked, usize::from(place != 2), "{case}: {pbx}");
        let record = daemon.records(place + 1).remove(0);
        assert_eq!(record["transfer"]["way"], "bridge", "{case}: {record}");
        assert_eq!(
            record["transfer"]["status"], "completed",
            "{case}: {record}"
        );
        assert_eq!(record["status"], "transferred", "{case}: {record}");
        assert_eq!(record["hangup_by"], "agent", "{case}: {record}");
    }
}

#[test]
fn a_destination_that_is_busy_leaves_the_caller_with_its_agent() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, carrier, runtime) = spoken_for(&json!({}));
    let (agent, sales) = (
        runtime.play("runtime_answers"),
        carrier.play("runtime_is_busy"),
    );
    let pbx = daemon.caller().takes(&[Refer, REFUSED, ByeComes]);
    let call = daemon.answered_call();
    transfer(&daemon, &call);
    sales.finish();
    let shown = transferred(&daemon, &call, "failed");
    assert_eq!(shown["status"], "in_progress", "{shown}");
    assert_eq!(shown["transfer"]["sip_code"], 486, "{shown}");
    assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");

    daemon.hang_up(&call);
    let (pbx, agent) = (pbx.finish(), agent.finish());
    assert!(pbx.requests("INVITE").is_empty(), "{pbx}");
    assert_eq!(agent.requests("BYE").len(), 1, "{agent}");

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(daemon.shown("/handoff-analytics/events")["total"], 0);

    let attempts = daemon.routing(&record)["attempts"].take();
    assert_eq!(attempts[0]["leg"], "destination", "{attempts}");
    assert_eq!(attempts[0]["sip_code"], 486, "{attempts}");
    assert_eq!(attempts[1], serde_json::Value::Null, "{attempts}");
}

/// The destination is offered `sendrecv` although caller and agent hold each other.
#[test]
fn a_call_that_waits_goes_on_with_the_destination() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, carrier, runtime) = spoken_for(&json!({}));
    let agent = runtime.takes(&[Turned("recvonly"), ByeComes]);
    let sales = carrier.play("runtime_answers");
    let pbx = daemon
        .caller()
        .takes(&[Offers("sendonly"), Refer, REFUSED, Rejoined, ByeComes]);
    let call = daemon.answered_call();
    let has_waited = || (agent.so_far().requests("ACK").len() >= 2).then_some(());
    let limit = trunkline_testkit::Deadline::after(std::time::Duration::from_secs(20));
    assert!(limit.poll(has_waited).is_some(), "{}", agent.so_far());

    transfer(&daemon, &call);
    sales.wait_for("ACK");
    transferred(&daemon, &call, "completed");
    daemon.hang_up(&call);

    let (pbx, sales) = (pbx.finish(), sales.finish());
    agent.finish();

    let offer = sales.request("INVITE").body().to_owned();
    assert!(offer.contains("a=sendrecv"), "{sales}");
    assert!(!offer.contains("a=sendonly"), "{sales}");

    let said = "a=x-answered:by the runtime";
    let last = pbx.requests("INVITE").pop().expect("a re-INVITE");
    assert!(last.body().contains(said), "{pbx}");
}

/// The destination was offered an SDP that no longer holds when it answers.
#[test]
fn a_caller_who_moves_while_the_destination_rings_is_heard_where_it_is() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let daemon = daemon(carrier);
    let sales = carrier.takes(&[Rings(3000), Turned("sendrecv"), ByeComes]);
    let pbx =
        daemon
            .caller()
            .takes(&[Refer, REFUSED, Pause(200), Moves(41008), Rejoined, ByeComes]);
    let call = daemon.answered_call();
    transfer(&daemon, &call);
    transferred(&daemon, &call, "completed");

    let told = || (sales.so_far().requests("ACK").len() >= 2).then_some(());
    let limit = trunkline_testkit::Deadline::after(std::time::Duration::from_secs(20));
    assert!(limit.poll(told).is_some(), "{}", sales.so_far());
    daemon.hang_up(&call);

    let (_, sales) = (pbx.finish(), sales.finish());
    let offers = sales.requests("INVITE");
    let [first, last] = offers.as_slice() else {
        panic!("not two offers: {sales}");
    };

    assert!(first.body().contains("m=audio 41000"), "{sales}");
    assert!(last.body().contains("m=audio 41008"), "{sales}");
}

#[test]
fn a_caller_who_leaves_while_the_destination_rings_takes_the_call_back() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let daemon = daemon(carrier);
    let sales = carrier.play("runtime_rings");
    let pbx = daemon.caller().takes(&[Refer, REFUSED, Pause(5_000), Bye]);
    let call = daemon.answered_call();
    transfer(&daemon, &call);
    transferred(&daemon, &call, "ringing");
    pbx.finish();
    let sales = sales.finish();
    assert_eq!(sales.requests("CANCEL").len(), 1, "{sales}");

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["transfer"]["status"], "failed", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 487, "{record}");
}

#[test]
fn a_trunk_that_wants_no_bridge_has_none() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = daemon(Runtime::new());
    let (status, body) = daemon.change(
        "PATCH",
        "/phone/sip/inbound-trunk",
        &json!({"bridge_when_refer_fails": false}),
    );
    assert_eq!(status, 200, "{body}");

    daemon.setup.settle();
    let pbx = daemon.caller().takes(&[Refer, REFUSED, Pause(100), Bye]);
    transfer(&daemon, &daemon.answered_call());
    pbx.finish();

    let record = daemon.record();
    assert_eq!(record["transfer"]["way"], "refer", "{record}");
    assert_eq!(record["transfer"]["status"], "failed", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 405, "{record}");
}

/// A SIP destination is called at its own host. A caller whose PBX refuses its media stays with its agent (RFC 3725 §4.4).
#[test]
fn a_caller_that_refuses_the_destinations_media_stays_with_its_agent() {
    if !tools(&["sipp"]) {
        return;
    }

    let desk = Runtime::new();
    let daemon = DaemonSetup::new().serve();
    let uri = format!("sip:desk@{}?Subject=x", desk.address());
    daemon.destination("Sales", "sip", &uri);
    let sales = desk.play("runtime_answers");
    let pbx = daemon.caller().takes(&[
        Refer,
        REFUSED,
        Unjoined("488 Not Acceptable Here"),
        Pause(200),
        Bye,
    ]);
    transfer(&daemon, &daemon.answered_call());
    let (_, sales) = (pbx.finish(), sales.finish());

    assert!(sales.request("BYE").header("Reason").is_none());

    let start = format!("INVITE sip:desk@{} SIP/2.0", desk.address());
    let invite = sales.request("INVITE");
    assert_eq!(invite.start_line(), start);

    let number = daemon.caller().number;
    let from = invite.header("From").expect("a From");
    assert!(
        from.starts_with(&format!("\"Caller\" <sip:{number}@")),
        "{from}: the caller calls"
    );

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
    assert_eq!(record["transfer"]["status"], "failed", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 488, "{record}");
}

/// The runtime that sent REFER gets its NOTIFY before its leg is hung up.
#[test]
fn a_runtime_that_refers_hears_of_the_bridge() {
    if !tools(&["sipp"]) {
        return;
    }

    let (daemon, carrier, runtime) = spoken_for(&json!({}));
    let sales = carrier.play("runtime_answers");
    let agent = runtime.refers_to("sales", "runtime_refers");
    let pbx = daemon
        .caller()
        .takes(&[Refer, REFUSED, Rejoined, Pause(300), Bye]);
    pbx.finish();
    sales.finish();

    let agent = agent.finish();
    let told: Vec<_> = agent
        .requests("NOTIFY")
        .into_iter()
        .map(|notify| notify.body())
        .collect();

    assert_eq!(
        told,
        [
            "SIP/2.0 100 Trying",
            "SIP/2.0 180 Ringing",
            "SIP/2.0 200 OK"
        ],
        "{agent}"
    );
    assert_eq!(daemon.record()["status"], "transferred");
}

/// A runtime that consulted the destination first names that dialog in Replaces; a bridge sends it along as well.
#[test]
fn a_destination_that_was_asked_is_told_what_it_replaces() {
    if !tools(&["sipp"]) {
        return;
    }

    let (desk, runtime) = (Runtime::new(), Runtime::new());
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, &runtime.uri());

    let daemon = setup.serve();
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.address()));

    let answering = desk.play("runtime_answers");
    let replaces = "Replaces=asked%40runtime%3Bto-tag%3Dpbx%3Bfrom-tag%3Druntime";
    let agent = runtime.refers_with("desk", replaces, "runtime_refers");
    let pbx = daemon
        .caller()
        .takes(&[Refer, REFUSED, Rejoined, Pause(300), Bye]);
    pbx.finish();
    agent.finish();

    let answering = answering.finish();
    let invite = answering.request("INVITE");
    let value = "asked@runtime;to-tag=pbx;from-tag=runtime";
    assert_eq!(invite.headers("Replaces"), [value], "{answering}");
    assert_eq!(invite.header("Require"), Some("replaces"), "{answering}");
    assert_eq!(daemon.record()["status"], "transferred");
}

/// The bounds on outbound calls hold for every transfer: by a number in a SIP URI, by the PBX, or by a key.
#[test]
fn a_transfer_is_no_way_around_the_bounds_on_outbound_calls() {
    if !tools(&["sipp"]) {
        return;
    }

    let (carrier, desk) = (Runtime::new(), Runtime::new());
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__PHONE__OUTBOUND_PREFIXES", "+44")
        .set("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY", "1");
    let daemon = setup.serve();
    give_trunk(&daemon, carrier, &json!({"username": "u", "password": "p"}));
    daemon.destination("Premium", "phone", "+19005550100");

    for (name, user) in [("Plus", "+19005550100"), ("Bare", "19005550100")] {
        let uri = format!("sip:{user}@{}", carrier.address());
        daemon.destination(name, "sip", &uri);
    }

    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.address()));
    let sales = desk.play("runtime_answers");
    let pbx = daemon
        .caller()
        .takes(&[Key('1'), Refer, REFUSED, Rejoined, Pause(300), Bye]);
    let call = daemon.answered_call();
    let path = format!("/phone/calls/{call}/transfer");

    for name in ["premium", "plus", "bare"] {
        let (status, body) = daemon.change("POST", &path, &json!({"destination": name}));
        assert_eq!(status, 400, "{name}: {body}");
        let message = body["message"].as_str().unwrap_or_default();
        assert!(message.contains("outbound_prefixes"), "{name}: {body}");
    }

    // An allowed destination is called, once a day.
    assert_eq!(
        daemon
            .change("POST", &path, &json!({"destination": "desk"}))
            .0,
        202
    );
    let (pbx, sales) = (pbx.finish(), sales.finish());
    assert_eq!(pbx.requests("REFER").len(), 1, "{pbx}");
    let invite = sales.request("INVITE");
    assert!(invite.header("Authorization").is_none(), "{sales}");
    assert_eq!(daemon.records(1)[0]["transfer"]["status"], "completed");

    let pbx = daemon.caller().takes(&[Refer, REFUSED, Pause(500), Bye]);
    let call = daemon.answered_call();
    let path = format!("/phone/calls/{call}/transfer");
    assert_eq!(
        daemon
            .change("POST", &path, &json!({"destination": "desk"}))
            .0,
        202
    );

    pbx.finish();
    let record = daemon.records(2).remove(0);
    assert_eq!(record["transfer"]["status"], "failed", "{record}");
    assert_eq!(record["transfer"]["sip_code"], 480, "{record}");
}
