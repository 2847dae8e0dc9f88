//! Peers that go without a BYE: by what they are asked whether they are there, what counts as life, and what ends the call. And ways that
//! break, which end nothing.

use std::net::{Ipv4Addr, UdpSocket};

use trunkline_sip::wire::Method;

use crate::caller::{OFFER, read};
use crate::intruders::Up;
use crate::one_shard;
use crate::peer::{Stranger, status_of};
use trunkline_testkit::House;
use trunkline_testkit::answer::answer;

const ALLOW: &str = "Allow: INVITE, ACK, BYE, OPTIONS, UPDATE";

/// A call whose caller takes UPDATE, in a house where a second is a long time.
fn up(setting: &'static str, value: &str) -> Up {
    let house = one_shard(House::new()).set(setting, value);
    house.allow("127.0.0.1/32");
    Up::of(house, |caller, dialling| {
        caller.ask(dialling, &dialling.clone().with(ALLOW))
    })
}

/// The next request of the daemon to this peer; ACKs are passed over.
fn asked(peer: &Stranger) -> (Method, Vec<u8>) {
    loop {
        let octets = peer.receive();
        let message = read(&octets);
        if message.is_request() && message.method() != Method::Ack {
            return (message.method(), octets);
        }
    }
}

/// The next one that isn't sent again.
fn asked_anew(peer: &Stranger, before: &mut Vec<u8>) -> (Method, Vec<u8>) {
    loop {
        let (method, octets) = asked(peer);
        if octets != *before {
            before.clone_from(&octets);
            return (method, octets);
        }
    }
}

fn says(peer: &Stranger, request: &[u8], status: &str) {
    peer.send(answer(&read(request), status, "", "", ""));
}

#[test]
fn a_peer_that_knows_the_call_no_more_ends_it() {
    let up = up("TRUNKLINE__SIP__DEAD_PEER_S", "1");
    let (method, update) = asked(&up.caller.peer);
    assert_eq!(method, Method::Update);
    assert!(read(&update).body().is_empty());
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
    let (peer, mut before) = (&up.caller.peer, Vec::new());
    for (wanted, status) in [
        (Method::Update, "401 Unauthorized"),
        (Method::Update, "403 Forbidden"),
        (Method::Update, "501 Not Implemented"),
        (Method::Invite, "488 Not Acceptable Here"),
        (Method::Options, "405 Method Not Allowed"),
        // Once it may come from a peer that looks for no dialog.
        (Method::Options, "481 Call/Transaction Does Not Exist"),
    ] {
        let (method, request) = asked_anew(peer, &mut before);
        assert_eq!(method, wanted, "{}", request.escape_ascii());
        if method == Method::Invite {
            let body = String::from_utf8_lossy(read(&request).body()).into_owned();
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
    let port = runtime.peer.address().port();
    drop(runtime);
    let change = of_caller.request((3, "INVITE"), "UDP", caller.peer.address(), OFFER);
    caller.peer.send(&change);
    assert_eq!(
        status_of(&of_caller.answer(&caller.peer, (3, "INVITE"))),
        503
    );

    let again = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).expect("it was ours");
    let again = Stranger::on(again, daemon.sip());
    caller
        .peer
        .send(of_caller.request((4, "INFO"), "UDP", caller.peer.address(), ""));
    let (method, info) = asked(&again);
    assert_eq!(method, Method::Info);
    says(&again, &info, "200 OK");
    assert_eq!(status_of(&of_caller.answer(&caller.peer, (4, "INFO"))), 200);
    assert_eq!(daemon.calls()[0]["status"], "in_progress");
}

#[test]
fn a_runtime_that_is_found_gone_is_asked_in_its_calls() {
    let house = one_shard(House::new())
        .set("TRUNKLINE__SIP__DEAD_PEER_S", "0")
        .set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "1")
        .set("TRUNKLINE__SIP__HEALTH_DOWN_AFTER", "1");
    house.allow("127.0.0.1/32");
    let up = Up::of(house, |caller, dialling| caller.ask(dialling, dialling));
    let (method, update) = loop {
        let (method, request) = asked(&up.runtime.peer);
        if method != Method::Options {
            break (method, request);
        }
        says(&up.runtime.peer, &request, "503 Service Unavailable");
    };
    assert_eq!(method, Method::Update);
    says(
        &up.runtime.peer,
        &update,
        "481 Call/Transaction Does Not Exist",
    );
    let (method, bye) = asked(&up.caller.peer);
    assert_eq!(method, Method::Bye);
    says(&up.caller.peer, &bye, "200 OK");
    assert_eq!(up.daemon.record()["reason"], "dialog_gone");
}

/// Whoever has a peer look gone again and again, by an agent of its own at the same address, has its calls asked no more often.
#[test]
fn a_runtime_that_comes_and_goes_is_asked_once_in_its_calls() {
    let house = one_shard(House::new())
        .set("TRUNKLINE__SIP__DEAD_PEER_S", "0")
        .set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "1")
        .set("TRUNKLINE__SIP__HEALTH_DOWN_AFTER", "1");
    house.allow("127.0.0.1/32");
    let up = Up::of(house, |caller, dialling| caller.ask(dialling, dialling));
    let (mut probes, mut questions) = (0, 0);
    while probes < 8 {
        let (method, request) = asked(&up.runtime.peer);
        let is_gone = method == Method::Options && probes % 2 == 0;
        let status = match is_gone {
            true => "503 Service Unavailable",
            false => "200 OK",
        };
        says(&up.runtime.peer, &request, status);
        match method == Method::Options {
            true => probes += 1,
            false => questions += 1,
        }
    }
    assert_eq!(questions, 1);
}
