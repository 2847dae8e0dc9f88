//! Trunks whose callers are bridged first: a call to the PBX that called, and a REFER if that call reaches nobody.

use std::collections::BTreeSet;

use serde_json::json;

use crate::torture::caller::{Dialling, OFFER};
use crate::torture::daemon_requests::accepting;
use crate::torture::handed_over::{
    ASTERISK, FREESWITCH, NUMBER, OVER, Pbx, assert_calls_back, daemon, trunk,
};
use crate::torture::one_shard;
use trunkline_testkit::{DaemonSetup, Deadline, Peer};

/// A bridge calls the PBX that called; if that reaches nobody, the PBX gets a REFER before the transfer fails.
#[test]
fn a_bridge_calls_the_pbx_first_and_then_refers() {
    let daemon = daemon();
    let desk = Peer::new(daemon.sip());
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.own));
    daemon.setup.settle();

    for (way, reason) in [("bridge", "configured"), ("auto", "not_proven")] {
        trunk(&daemon, &json!({"transfer_way": way}));
        let shown = daemon.shown("/phone/sip/inbound-trunk");
        assert_eq!(shown["transfer_way_in_force"]["way"], "bridge", "{shown}");
        assert_eq!(shown["transfer_way_in_force"]["reason"], reason, "{shown}");

        let pbx = Pbx::calls(&daemon, way, ASTERISK);
        for status in [
            "401 Unauthorized",
            "403 Forbidden",
            "404 Not Found",
            "407 Proxy Authentication Required",
        ] {
            pbx.transfers(&daemon, "Sales");
            let invite = pbx.request("INVITE");
            assert_calls_back(&pbx, &invite);
            pbx.answers(&invite, status);
            let refer = pbx.request("REFER");
            pbx.answers(&refer, "405 Method Not Allowed");

            // The destination's result is the outcome; a refused REFER doesn't change it.
            let shown = pbx.transferred(&daemon, "failed");
            let code: u16 = status[..3].parse().expect("a status");
            assert_eq!(shown["transfer"]["way"], "bridge", "{status}: {shown}");
            assert_eq!(shown["transfer"]["sip_code"], code, "{status}: {shown}");
        }

        // A 486, a 404 after ringing and the 503 of a failed dialplan are answers: no REFER follows.
        for (rings, status) in [
            (false, "486 Busy Here"),
            (true, "404 Not Found"),
            (false, "503 Service Unavailable"),
        ] {
            pbx.transfers(&daemon, "Sales");
            let invite = pbx.request("INVITE");
            if rings {
                pbx.answers(&invite, "180 Ringing");
            }
            pbx.answers(&invite, status);
            let shown = pbx.transferred(&daemon, "failed");
            assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
        }

        // Asterisk would look for this user in its own dialplan, so the destination's host is called.
        pbx.transfers(&daemon, "Desk");
        let invite = desk.receive();
        desk.send(invite.answer("404 Not Found", "desk", "", ""));
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
        // The ACK, and the INVITE again if the answer took long.
        desk.answers_until_probed();
        assert_eq!(pbx.so_far(), [] as [&str; 0]);

        // The trace keeps each of the destinations.
        let trace = daemon.shown(&format!("/phone/calls/{}/trace", pbx.call));
        let items = trace["items"].as_array().expect("items").iter();
        let invites: BTreeSet<String> = items
            .filter(|item| item["leg"] == "destination" && item["summary"] == "INVITE")
            // A retransmission has the same text.
            .map(|item| item["text"].to_string())
            .collect();
        assert_eq!(invites.len(), 8, "{trace}");
        assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
    }
}

/// The PBX's users see the caller's display name with its number, and neither of a caller who wants privacy.
#[test]
fn a_bridge_shows_the_callers_name() {
    let daemon = daemon();
    trunk(&daemon, &json!({"transfer_way": "bridge"}));

    for (case, name, lines, expected) in [
        (
            "quoted",
            "\"Müller, \\\"Mo\\\"\"",
            "",
            "\"Müller, \\\"Mo\\\"\" <sip:+441632960001@",
        ),
        ("token", "Front Desk", "", "Front Desk <sip:+441632960001@"),
        ("none", "", "", "<sip:+441632960001@"),
        (
            "private",
            "Mo",
            "Privacy: id",
            "<sip:anonymous@anonymous.invalid>",
        ),
    ] {
        let mut dialling = Dialling::new(case, &daemon.setup.first_number, daemon.sip());
        dialling.from = format!("{name} {}", dialling.from);
        if !lines.is_empty() {
            dialling = dialling.with(lines);
        }
        let pbx = Pbx::dials(&daemon, dialling);
        pbx.transfers(&daemon, "Sales");
        let invite = pbx.request("INVITE");
        let from = invite.value("From");
        assert!(from.starts_with(expected), "{case}: {from}");
        pbx.answers(&invite, "486 Busy Here");
        pbx.transferred(&daemon, "failed");
        assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
    }
}

/// After an INVITE, a failed dialplan gives 503, or 403, 404 or 408 with a cause; after a REFER it loses the caller. A number that the trunk's context lacks may
/// exist in the caller's context.
#[test]
fn a_dialplan_that_failed_is_not_asked_by_refer() {
    let daemon = daemon();
    trunk(&daemon, &json!({"transfer_way": "bridge"}));
    for (case, user_agent, status, reason, is_asked) in [
        ("congested", ASTERISK, 503, "", false),
        ("hung up", ASTERISK, 404, "Q.850;cause=1", false),
        ("declined", ASTERISK, 403, "Q.850;cause=21", false),
        ("deaf", ASTERISK, 408, "Q.850;cause=18", false),
        ("forbidden", ASTERISK, 403, "", true),
        ("not there", ASTERISK, 404, "", true),
        (
            "unallocated",
            FREESWITCH,
            404,
            "Q.850;cause=1;text=\"UNALLOCATED_NUMBER\"",
            false,
        ),
        (
            "no route",
            FREESWITCH,
            404,
            "Q.850;cause=3;text=\"NO_ROUTE_DESTINATION\"",
            true,
        ),
        ("of no known name", "", 404, "Q.850;cause=1", true),
    ] {
        let pbx = Pbx::calls(&daemon, &case.replace(' ', ""), user_agent);
        pbx.transfers(&daemon, "Sales");
        let invite = pbx.request("INVITE");
        let reason = match reason {
            "" => String::new(),
            reason => format!("Reason: {reason}\r\n"),
        };
        pbx.answers_with(&invite, &format!("{status} No"), &reason, "");
        if is_asked {
            let refer = pbx.request("REFER");
            pbx.answers(&refer, "603 Decline");
        }

        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["way"], "bridge", "{case}: {shown}");
        assert_eq!(shown["transfer"]["sip_code"], status, "{case}: {shown}");
        assert_eq!(pbx.so_far(), [] as [&str; 0], "{case}");
        assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
    }
}

/// The PBX gets a REFER also if it doesn't answer the INVITE at all. If it answers, both ends are joined.
#[test]
fn a_bridge_that_nobody_hears_is_referred_and_one_that_is_answered_joins_both() {
    let daemon = daemon();
    trunk(&daemon, &json!({"transfer_way": "auto"}));
    let pbx = Pbx::calls(&daemon, "deaf", FREESWITCH);
    pbx.transfers(&daemon, "Sales");
    let refer = pbx.peer.peer.next("REFER", |message| {
        let method = message.method();
        assert!(
            matches!(method, None | Some("REFER" | "INVITE")),
            "{message}"
        );
        method == Some("REFER")
    });
    pbx.answers(&refer, "603 Decline");
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
    assert_eq!(shown["transfer"]["sip_code"], 408, "{shown}");

    let pbx = Pbx::calls(&daemon, "answering", FREESWITCH);
    pbx.transfers(&daemon, "Sales");
    let invite = pbx.request("INVITE");
    assert_calls_back(&pbx, &invite);

    let media = OFFER.replace("40000", "40010");
    pbx.answers(&invite, "180 Ringing");
    pbx.answers_with(&invite, "200 OK", &accepting(&pbx.peer.peer), &media);
    let rejoined = pbx.request("INVITE");
    assert!(rejoined.body().contains("m=audio 40010 "), "{rejoined}");

    pbx.answers_with(&rejoined, "200 OK", &accepting(&pbx.peer.peer), OFFER);
    let shown = pbx.transferred(&daemon, "completed");
    assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
    assert_eq!(shown["transfer"]["answer_confirmed"], true, "{shown}");
    assert_eq!(shown["status"], "in_progress", "{shown}");
    assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
    let bye = pbx.request("BYE");
    pbx.answers(&bye, "200 OK");
    assert_eq!(pbx.ended(&daemon)["status"], "transferred");
}

/// A leg to another host counts against the daily bound, also after a restart; a leg back to the PBX isn't counted, and the prefixes don't apply to
/// it.
#[test]
fn a_days_bound_on_legs_of_transfers_survives_a_restart() {
    let setup = one_shard(DaemonSetup::new())
        .set("TRUNKLINE__PHONE__OUTBOUND_PREFIXES", "+49")
        .set("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY", "1");
    let mut daemon = setup.serve();
    let desk = Peer::new(daemon.sip());
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.own));
    daemon.destination("Sales", "phone", NUMBER);
    trunk(&daemon, &json!({"transfer_way": "bridge"}));

    for run in ["before", "after"] {
        let pbx = Pbx::calls(&daemon, run, ASTERISK);
        pbx.transfers(&daemon, "Desk");
        if run == "before" {
            let invite = desk.receive();
            desk.send(invite.answer("486 Busy Here", "desk", "", ""));
            desk.receive();
        }
        let shown = pbx.transferred(&daemon, "failed");
        let is_busy = shown["transfer"]["sip_code"] == 486;
        assert_eq!(is_busy, run == "before", "{shown}");
        assert!(desk.answers_until_probed().is_empty(), "{run}");

        pbx.transfers(&daemon, "Sales");
        let invite = pbx.request("INVITE");
        assert_calls_back(&pbx, &invite);
        pbx.answers(&invite, "486 Busy Here");
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
        assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
        pbx.ended(&daemon);
        if run == "before" {
            daemon.process.terminate();
            let limit = Deadline::after(std::time::Duration::from_secs(30));
            assert!(daemon.process.wait(limit).is_some(), "it ends");
            daemon.process = daemon.setup.start();
        }
    }
}

/// A carrier that trusts this node's address bills the operator, so the bounds hold for it even if the call came from the carrier. An allowed
/// number is called there, and counts.
#[test]
fn a_leg_back_to_a_reserved_peer_is_bounded() {
    let setup = one_shard(DaemonSetup::new())
        .set("TRUNKLINE__SIP__RESERVED_PEERS", "127.0.0.1")
        .set("TRUNKLINE__PHONE__OUTBOUND_PREFIXES", &NUMBER[..4])
        .set("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY", "1");
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", NUMBER);
    daemon.destination("Premium", "phone", "+19005550100");
    trunk(&daemon, &json!({"transfer_way": "bridge"}));
    let pbx = Pbx::calls(&daemon, "reserved", ASTERISK);
    let (status, refused) = pbx.transfer(&daemon, "Premium");
    assert_eq!(status, 400, "{refused}");

    pbx.transfers(&daemon, "Sales");
    let invite = pbx.request("INVITE");
    assert_calls_back(&pbx, &invite);
    pbx.answers(&invite, "486 Busy Here");
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["sip_code"], 486, "{shown}");
    pbx.transfers(&daemon, "Sales");
    let shown = pbx.transferred(&daemon, "failed");
    assert_eq!(shown["transfer"]["sip_code"], 480, "{shown}");
    assert_eq!(pbx.so_far(), [] as [&str; 0]);
    assert_eq!(pbx.peer.hang_up(&pbx.dialling, 99, &pbx.tag), 200);
}

/// Asterisk answers 404 for a user that its dialplan lacks, and keeps its caller.
#[test]
fn a_destination_that_the_pbx_does_not_know_is_called_from_here() {
    let daemon = daemon();
    let desk = Peer::new(daemon.sip());
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.own));
    daemon.setup.settle();
    let pbx = Pbx::calls(&daemon, "unknown", ASTERISK);
    for status in [
        "404 Not Found",
        "484 Address Incomplete",
        "604 Does Not Exist Anywhere",
    ] {
        pbx.transfers(&daemon, "Desk");
        pbx.accepts_refer();
        pbx.notifies(&format!("SIP/2.0 {status}\r\n"), OVER);
        let asked = pbx.request("OPTIONS");
        pbx.answers(&asked, "200 OK");
        let invite = desk.receive();
        desk.send(invite.answer("486 Busy Here", "desk", "", ""));
        let shown = pbx.transferred(&daemon, "failed");
        assert_eq!(shown["transfer"]["way"], "bridge", "{shown}");
        assert_eq!(shown["transfer"]["sip_code"], 486, "{shown}");
        assert_eq!(shown["transfer"]["caller_may_be_gone"], false, "{shown}");
        let ack = desk.receive();
        assert!(ack.is_request("ACK"), "{ack}");
    }

    // The dialog is gone: nobody is called.
    pbx.transfers(&daemon, "Desk");
    pbx.accepts_refer();
    pbx.notifies("SIP/2.0 404 Not Found\r\n", OVER);
    let asked = pbx.request("OPTIONS");
    pbx.answers(&asked, "481 Call/Transaction Does Not Exist");
    let bye = pbx.request("BYE");
    pbx.answers(&bye, "200 OK");

    let record = pbx.ended(&daemon);
    assert_eq!(record["transfer"]["sip_code"], 404, "{record}");
    assert_eq!(record["transfer"]["way"], "refer", "{record}");
    assert!(desk.answers_until_probed().is_empty());
}
