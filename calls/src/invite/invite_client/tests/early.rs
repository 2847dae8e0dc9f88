//! Early dialogs of an INVITE, requests in them, and the 2xx of one.

use super::peer::{Peer, line_of};
use super::*;

const SDP: &str = "Content-Type: application/sdp\r\n\r\nv=0\r\n";
const RELIABLE_SDP: &str =
    "Require: 100rel\r\nRSeq: 1\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n";

fn called() -> Peer {
    Peer::of(client(vec![DialTarget::Resolved(target(1))]), false)
}

#[test]
fn each_fork_has_a_number_and_there_are_so_many() {
    let mut peer = called();
    for number in 0..16 {
        let event = peer.answer("180", &format!("t{number}"), "");
        assert_eq!(event, format!("dialog {number}"));
    }
    assert_eq!(peer.answer("180", "t16", ""), "no dialog");
    assert_eq!(peer.answer("183", "t3", ""), "dialog 3", "a known one");

    let mut led = called();
    led.client.number_forks_from(1);
    assert_eq!(led.answer("180", "a", ""), "dialog 1");
    assert_eq!(led.answer("180", "b", ""), "dialog 2");
}

#[test]
fn an_early_dialog_begins_once_and_the_first_18x_counts() {
    let mut peer = called();
    for (case, tag, is_first, begins) in [
        ("the first", "a", true, true),
        ("the same fork", "a", false, false),
        ("another fork", "b", false, true),
        ("the first fork again", "a", false, false),
    ] {
        let octets = peer.response("180", tag, "");
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
        let event = peer.world.act(&mut peer.client, |client, cx, text| {
            client.handle_response(cx, text, flow(), &message)
        });
        let InviteEvent::Provisional(heard) = event else {
            panic!("{case}: {event:?}");
        };
        assert_eq!(heard.is_first, is_first, "{case}");
        let early = heard.early.expect("a dialog");
        assert_eq!(early.begins.is_some(), begins, "{case}");
    }
}

/// RFC 3261 §13.2.1: only a reliable response answers our offer.
#[test]
fn a_request_in_an_early_dialog_finds_the_state_of_our_offer() {
    for (case, rest, tag, call_id, offer) in [
        ("ringing", "", "b", None, Some(OurOffer::Open)),
        (
            "an SDP that is a preview",
            SDP,
            "b",
            None,
            Some(OurOffer::Open),
        ),
        (
            "reliable, no SDP",
            "Require: 100rel\r\nRSeq: 1\r\n",
            "b",
            None,
            Some(OurOffer::Open),
        ),
        (
            "reliable, with an SDP",
            RELIABLE_SDP,
            "b",
            None,
            Some(OurOffer::Answered),
        ),
        ("another fork", RELIABLE_SDP, "c", None, None),
        (
            "another call",
            RELIABLE_SDP,
            "b",
            Some("Call-ID: other"),
            None,
        ),
    ] {
        let mut peer = called();
        peer.answer("183", "b", rest);

        let call_id = call_id.map_or_else(|| line_of(&peer.invite, "Call-ID"), str::to_owned);
        let request = format!(
            "UPDATE sip:us@203.0.113.5 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKu\r\nMax-Forwards: 70\r\n\
             From: <sip:them@192.0.2.1>;tag={tag}\r\nTo: <sip:us@203.0.113.5>;tag=x\r\n{call_id}\r\nCSeq: 1 UPDATE\r\n\
             Content-Length: 0\r\n\r\n"
        );
        let request = lex(request.as_bytes(), Framing::Datagram).expect("a request");
        assert_eq!(peer.client.early_offer(&request), offer, "{case}");
    }
}

#[test]
fn the_invite_that_is_out_is_known_by_its_tag_transaction_and_peer() {
    let peer = called();
    let tag = line_of(&peer.invite, "From");
    let (_, tag) = tag.split_once(";tag=").expect("a tag");
    let bits = peer
        .world
        .core
        .minter
        .read_tag(tag.as_bytes())
        .expect("ours")
        .bits;
    assert!(peer.client.invites_as(bits));
    assert!(!peer.client.invites_as(bits ^ 1));
    assert!(peer.world.core.tags.contains_key(&bits));

    let transaction = peer.client.transaction().expect("one");
    assert!(peer.client.owns(transaction));
    let other = called_twice();
    assert!(!peer.client.owns(other));

    let sent = peer.client.sent().expect("it is out");
    assert_eq!((sent.cseq, sent.uri), (1, "sip:them@192.0.2.1"));
    assert_eq!(sent.flow, flow());

    let known: Vec<_> = peer.client.addresses().collect();
    assert_eq!(known, [address("192.0.2.1:0").ip()]);
    assert!(peer.client.knows(known[0]));
    assert!(!peer.client.knows(address("192.0.2.9:0").ip()));

    let Peer { mut client, .. } = peer;
    assert_eq!(client.take_tags()[..], [bits]);
    assert!(client.take_tags().is_empty(), "the call has them");
}

/// The transaction of a second INVITE at the same endpoint.
fn called_twice() -> trunkline_sip::endpoint::ClientTx {
    let mut peer = Peer::of(
        client(vec![
            DialTarget::Resolved(target(1)),
            DialTarget::Resolved(target(9)),
        ]),
        false,
    );
    peer.on(|client, cx, text| client.handle_silence(cx, text));
    peer.client.transaction().expect("one")
}

#[test]
fn a_2xx_tells_its_fork_and_its_sdp() {
    for (case, early, tag, rest, fork, sdp) in [
        ("in the 2xx", "", "b", SDP, 1, AnswerSdp::InBody),
        (
            "in the 183 alone",
            SDP,
            "b",
            "",
            1,
            AnswerSdp::Early((*b"v=0\r\n").into()),
        ),
        ("in both", SDP, "b", SDP, 1, AnswerSdp::InBody),
        ("in another fork's 183", SDP, "c", "", 2, AnswerSdp::Missing),
        ("in none", "", "b", "", 1, AnswerSdp::Missing),
    ] {
        let mut peer = called();
        peer.answer("180", "a", "");
        peer.answer("183", "b", early);

        let octets = peer.response("200", tag, rest);
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
        let event = peer.world.act(&mut peer.client, |client, cx, text| {
            client.handle_response(cx, text, flow(), &message)
        });
        let InviteEvent::Accepted(accepted) = event else {
            panic!("{case}: {event:?}");
        };
        assert_eq!(accepted.fork, fork, "{case}");
        assert_eq!(accepted.cseq, 1, "{case}");
        assert_eq!(accepted.sdp, sdp, "{case}");
        let is_there = sdp != AnswerSdp::Missing;
        assert_eq!(
            accepted.sdp(),
            is_there.then_some(&b"v=0\r\n"[..]),
            "{case}"
        );

        let ack = peer.on(|_, cx, _| {
            accepted.acknowledge(cx);
            InviteEvent::Waits
        });
        assert!(
            ack.starts_with("waits; ACK sip:them@192.0.2.1 1"),
            "{case}: {ack}"
        );
    }
}

#[test]
fn the_client_waits_for_addresses_in_three_states() {
    for (state, waits) in [
        ("idle", false),
        ("looking ahead", true),
        ("resolving", true),
        ("connecting", true),
        ("inviting", false),
        ("over", false),
    ] {
        let (_, client) = at(state, false);
        assert_eq!(client.is_resolving(), waits, "{state}");
    }
}
