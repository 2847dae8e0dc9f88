//! Requests of peers that an outbound call has called: while they ring, and once the callee has answered and the runtime still rings (RFC 3261
//! §12.1, §12.2.2).

use serde_json::json;

use crate::calls::challenges::{order, trunk_with};
use trunkline_testkit::leg::{Agent, Leg, contact_of, with_runtime, with_sdp};
use trunkline_testkit::message::{SDP, status_of};
use trunkline_testkit::{Message, Peer};

fn answer_to(leg: &Leg, method: &str, body: &str) -> Message {
    let number = leg.send_by(&leg.end, method, "", body);
    leg.end.outcome(&format!("{number} {method}"))
}

/// Sends requests in an early dialog with us, and checks their answers.
fn asks_early(leg: &Leg) {
    for (method, body, status) in [
        ("UPDATE", "", 200),
        ("UPDATE", SDP, 491),
        ("INFO", "", 200),
        ("OPTIONS", "", 200),
        ("MESSAGE", "", 480),
        ("INVITE", SDP, 491),
        ("PUBLISH", "", 405),
    ] {
        let answer = answer_to(leg, method, body);
        assert_eq!(status_of(&answer), status, "{method}: {answer:?}");
        if method == "INVITE" {
            leg.acknowledge(&answer);
        }
        let names_methods =
            matches!(method, "OPTIONS" | "PUBLISH") || status == 200 && method == "UPDATE";
        assert_eq!(answer.header("Allow").is_some(), names_methods, "{method}");
    }
}

#[test]
fn peers_that_ring_are_answered_in_their_early_dialogs() {
    let (daemon, runtime) = with_runtime();
    let carrier = Agent::new(Peer::new(daemon.sip()));
    trunk_with(&daemon, carrier.end.own, &json!({}));
    order(&daemon, "+14155550100");

    let invite = carrier.next();
    carrier.end.reply(&invite, "183 Session Progress", "");
    let callee = Leg::called(&carrier.end, &invite);
    asks_early(&callee);

    with_sdp(&carrier.end, &invite, &contact_of(&carrier.end));
    let called = runtime.next();
    runtime.end.reply(&called, "180 Ringing", "");
    asks_early(&Leg::called(&runtime.end, &called));

    // The callee's dialog is confirmed, and its runtime rings.
    for (method, status) in [("INFO", 200), ("MESSAGE", 480)] {
        let answer = answer_to(&callee, method, "");
        assert_eq!(status_of(&answer), status, "{method}: {answer:?}");
    }
    assert_eq!(status_of(&answer_to(&callee, "BYE", "")), 200);
}
