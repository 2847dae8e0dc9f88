//! Peers that vanish without a BYE: the requests that probe them, the answers that prove they are up, and those that end the call. Broken connections
//! end nothing.

use std::net::{Ipv4Addr, UdpSocket};

use crate::torture::caller::OFFER;
use crate::torture::intruders::Up;
use crate::torture::one_shard;
use trunkline_testkit::message::status_of;
use trunkline_testkit::{DaemonSetup, Message, Peer};

const ALLOW: &str = "Allow: INVITE, ACK, BYE, OPTIONS, UPDATE";

/// Makes a call whose caller allows UPDATE, at a daemon with a short bound.
fn up(setting: &'static str, value: &str) -> Up {
    let setup = one_shard(DaemonSetup::new()).set(setting, value);
    setup.allow("127.0.0.1/32");
    Up::of(setup, |caller, dialling| {
        caller.ask(dialling, &dialling.clone().with(ALLOW))
    })
}

/// Returns the next request to this peer; skips ACKs.
fn asked(peer: &Peer) -> Message {
    peer.next("request", |message| {
        message.method().is_some_and(|method| method != "ACK")
    })
}

/// Returns the next request that isn't a retransmission.
fn asked_anew(peer: &Peer, before: &mut Option<Message>) -> Message {
    loop {
        let request = asked(peer);
        if before.as_ref() != Some(&request) {
            *before = Some(request.clone());
            return request;
        }
    }
}

fn says(peer: &Peer, request: &Message, status: &str) {
    peer.answer(request, status, "", "");
}

#[test]
fn a_peer_that_knows_the_call_no_more_ends_it() {
    let up = up("TRUNKLINE__SIP__DEAD_PEER_S", "1");
    let update = asked(&up.caller.peer);
    assert!(update.is_request("UPDATE"), "{update:?}");
    assert!(update.wire().body().is_empty());
    says(
        &up.caller.peer,
        &update,
        "481 Call/Transaction Does Not Exist",
    );
    up.runtime.request("BYE");
    assert_eq!(up.daemon.record()["reason"], "dialog_gone");
}

#[test]
fn whatever_else_is_answered_is_life_and_what_refreshes_is_tried_first() {
    let up = up("TRUNKLINE__SIP__DEAD_PEER_S", "1");
    let (peer, mut before) = (&up.caller.peer, None);
    for (wanted, status) in [
        ("UPDATE", "401 Unauthorized"),
        ("UPDATE", "403 Forbidden"),
        ("UPDATE", "501 Not Implemented"),
        ("INVITE", "488 Not Acceptable Here"),
        ("OPTIONS", "405 Method Not Allowed"),
        // One 481 may come from a peer that doesn't match OPTIONS to dialogs.
        ("OPTIONS", "481 Call/Transaction Does Not Exist"),
    ] {
        let request = asked_anew(peer, &mut before);
        assert!(request.is_request(wanted), "{wanted}: {request:?}");
        if wanted == "INVITE" {
            let body = request.body();
            assert!(body.contains("m=audio 40000 "), "what it has: {body}");
        }
        says(peer, &request, status);
    }
    assert_eq!(up.of_caller.status(peer, (3, "OPTIONS"), ""), 200);

    up.hangs_up(peer, 4);
}

/// A refused connection counts as 503 (RFC 3261 §8.1.3.1): the change fails, and the call goes on (§12.2.1.2).
#[test]
fn a_change_that_nobody_listens_for_fails_and_ends_nothing() {
    let up = up("TRUNKLINE__SIP__DEAD_PEER_S", "0");
    let Up {
        daemon,
        caller,
        runtime,
        of_caller,
        ..
    } = up;
    let port = runtime.own.port();
    drop(runtime);
    assert_eq!(of_caller.status(&caller.peer, (3, "INVITE"), OFFER), 503);

    let again = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("it was ours");
    let again = Peer::bound(again, Some(daemon.sip()));
    let inform = of_caller.request(&caller.peer, (4, "INFO"), "", "");
    caller.peer.send(inform);
    let info = asked(&again);
    assert!(info.is_request("INFO"), "{info:?}");
    says(&again, &info, "200 OK");
    assert_eq!(status_of(&caller.peer.outcome("4 INFO")), 200);
    assert_eq!(daemon.calls()[0]["status"], "in_progress");
}

#[test]
fn a_runtime_that_is_found_gone_is_asked_in_its_calls() {
    let setup = one_shard(DaemonSetup::new())
        .set("TRUNKLINE__SIP__DEAD_PEER_S", "0")
        .set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "1");
    setup.allow("127.0.0.1/32");

    let up = Up::of(setup, |caller, dialling| caller.ask(dialling, dialling));
    let update = loop {
        let request = asked(&up.runtime);
        if !request.is_request("OPTIONS") {
            break request;
        }
        says(&up.runtime, &request, "503 Service Unavailable");
    };
    assert!(update.is_request("UPDATE"), "{update:?}");
    says(&up.runtime, &update, "481 Call/Transaction Does Not Exist");

    let bye = asked(&up.caller.peer);
    assert!(bye.is_request("BYE"), "{bye:?}");
    says(&up.caller.peer, &bye, "200 OK");
    assert_eq!(up.daemon.record()["reason"], "dialog_gone");
}

/// A tenant whose agent makes a peer's address look down repeatedly doesn't cause more probes in the calls with it.
#[test]
fn a_runtime_that_comes_and_goes_is_asked_once_in_its_calls() {
    let setup = one_shard(DaemonSetup::new())
        .set("TRUNKLINE__SIP__DEAD_PEER_S", "0")
        .set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "1");
    setup.allow("127.0.0.1/32");

    let up = Up::of(setup, |caller, dialling| caller.ask(dialling, dialling));
    let (mut probes, mut questions, mut before) = (0, 0, None);
    while probes < 8 {
        let request = asked_anew(&up.runtime, &mut before);
        let is_probe = request.is_request("OPTIONS");
        // Three refusals take it down, and an answer brings it up again.
        let is_gone = is_probe && probes % 4 < 3;
        let status = match is_gone {
            true => "503 Service Unavailable",
            false => "200 OK",
        };
        says(&up.runtime, &request, status);
        match is_probe {
            true => probes += 1,
            false => questions += 1,
        }
    }

    assert_eq!(questions, 1);
}
