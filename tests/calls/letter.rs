//! Where the letter of RFC 3261 decides: a caller and a runtime of bare sockets, who look at single lines.

use std::net::SocketAddr;

use trunkline_testkit::end::{End, SDP};
use trunkline_testkit::{Daemon, House, Message};

/// A caller by its address, and the runtime of the only agent.
struct Call {
    daemon: Daemon,
    caller: End,
    runtime: End,
    uri: String,
    to: String,
}

impl Call {
    fn new() -> Self {
        let house = House::new();
        house.allow("127.0.0.1/32");
        let (caller, runtime) = (End::new(house.sip), End::new(house.sip));
        house.runtime(&house.first_agent, &format!("sip:agent@{}", runtime.own));
        let daemon = house.serve();
        let uri = format!("sip:{}@{}", daemon.house.first_number, daemon.sip());
        Self {
            to: format!("<{uri}>"),
            uri,
            daemon,
            caller,
            runtime,
        }
    }

    /// A request of the caller, with this CSeq number in its branch.
    fn text(&self, cseq: u32, method: &str, lines: &str, body: &str) -> String {
        let (own, uri, to) = (self.caller.own, &self.uri, &self.to);
        let (ack, length) = (if method == "ACK" { "ack" } else { "" }, body.len());
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{cseq}{ack}\r\nMax-Forwards: 70\r\n\
             From: <sip:+441632960001@{own}>;tag=us\r\nTo: {to}\r\nCall-ID: letter@{own}\r\nCSeq: {cseq} {method}\r\n\
             {lines}Content-Length: {length}\r\n\r\n{body}"
        )
    }

    fn offer(&self, cseq: u32, contact: SocketAddr) {
        let lines = format!(
            "Contact: <sip:{contact}>\r\nTimestamp: 54.25\r\nContent-Type: application/sdp\r\n"
        );
        self.caller.send(&self.text(cseq, "INVITE", &lines, SDP));
    }

    fn send(&self, cseq: u32, method: &str) {
        self.caller.send(&self.text(cseq, method, "", ""));
    }

    /// The runtime answers, and the call is up. The INVITE that the runtime got.
    fn begin(&mut self) -> Vec<u8> {
        self.offer(1, self.caller.own);
        let (_, invite) = self.runtime.request("INVITE");
        self.runtime.reply(&invite, "200 OK");
        self.accepted();
        self.runtime.request("ACK");
        invite
    }

    /// The caller gets its 200, and acknowledges.
    fn accepted(&mut self) {
        let accepted = self.caller.answer("1 INVITE");
        assert_eq!(accepted.status(), Some(200), "{accepted:?}");
        self.to = accepted.header("To").expect("it is there").to_owned();
        self.send(1, "ACK");
    }
}

#[test]
fn an_invite_is_told_its_timestamp_and_tag_and_a_second_one_that_it_is_early() {
    let mut call = Call::new();
    call.offer(1, call.caller.own);
    let is_trying = |message: &Message| message.status() == Some(100);
    let (trying, _) = call.caller.next("100", is_trying);
    assert_eq!(trying.header("Timestamp"), Some("54.25"));
    let (_, invite) = call.runtime.request("INVITE");
    call.runtime.reply(&invite, "183 Session Progress");
    let is_progress = |message: &Message| message.status() == Some(183);
    let (progress, _) = call.caller.next("183", is_progress);
    assert_eq!(progress.header("Timestamp"), None);

    let first = std::mem::replace(
        &mut call.to,
        progress.header("To").expect("it is there").to_owned(),
    );
    call.offer(2, call.caller.own);
    let early = call.caller.answer("2 INVITE");
    assert_eq!(early.status(), Some(500), "RFC 3261 §14.2");
    let after = early.header("Retry-After").expect("§14.2 wants it");
    let seconds: u32 = after.parse().expect("seconds");
    assert!(seconds <= 10, "{after}");
    let ack = call
        .text(2, "ACK", "", "")
        .replace("z9hG4bK-2ack", "z9hG4bK-2");
    call.caller.send(&ack);

    call.to = first;
    call.send(1, "CANCEL");
    let canceled = call.caller.answer("1 CANCEL");
    let refused = call.caller.answer("1 INVITE");
    assert_eq!(
        (canceled.status(), refused.status()),
        (Some(200), Some(487))
    );
    assert_eq!(canceled.header("To"), refused.header("To"), "§9.2");
    assert_eq!(canceled.header("To"), progress.header("To"));
}

#[test]
fn cancel_and_its_invite_are_answered_under_one_tag_before_anything_rings() {
    let call = Call::new();
    call.offer(1, call.caller.own);
    call.runtime.request("INVITE");
    call.send(1, "CANCEL");
    let canceled = call.caller.answer("1 CANCEL");
    let refused = call.caller.answer("1 INVITE");
    assert_eq!(
        (canceled.status(), refused.status()),
        (Some(200), Some(487))
    );
    assert_eq!(canceled.header("To"), refused.header("To"));
    assert_eq!(call.daemon.record()["status"], "canceled");
}

#[test]
fn a_change_that_is_refused_moves_nobody() {
    let mut call = Call::new();
    let elsewhere = End::new(call.daemon.sip());
    let invite = call.begin();

    call.send(2, "OPTIONS");
    let able = call.caller.answer("2 OPTIONS");
    for name in ["Allow", "Accept", "Supported"] {
        assert!(able.header(name).is_some(), "{name}");
    }

    call.offer(3, elsewhere.own);
    let (_, change) = call.runtime.request("INVITE");
    call.runtime.reply(&change, "488 Not Acceptable Here");
    assert_eq!(call.caller.answer("3 INVITE").status(), Some(488));
    let ack = call
        .text(3, "ACK", "", "")
        .replace("z9hG4bK-3ack", "z9hG4bK-3");
    call.caller.send(&ack);

    call.offer(4, elsewhere.own);
    let (_, change) = call.runtime.next("INVITE", |message| {
        message.is_request("INVITE") && message.header("CSeq") == Some("3 INVITE")
    });
    let to_old_place = inform(&call, &invite, 7);
    call.caller.reply(&to_old_place, "200 OK");
    call.runtime.answer("7 INFO");
    call.runtime.reply(&change, "200 OK");
    assert_eq!(call.caller.answer("4 INVITE").status(), Some(200));
    call.send(4, "ACK");

    send_info(&call, &invite, 8);
    let (moved, info) = elsewhere.request("INFO");
    assert_eq!(
        moved.start_line(),
        format!("INFO sip:{} SIP/2.0", elsewhere.own)
    );
    elsewhere.reply(&info, "200 OK");
    call.runtime.answer("8 INFO");
    call.send(5, "BYE");
    let (_, bye) = call.runtime.request("BYE");
    call.runtime.reply(&bye, "200 OK");
    assert_eq!(call.caller.answer("5 BYE").status(), Some(200));
}

/// An INFO of the runtime, as it comes to the caller.
fn inform(call: &Call, invite: &[u8], cseq: u32) -> Vec<u8> {
    send_info(call, invite, cseq);
    call.caller.request("INFO").1
}

fn send_info(call: &Call, invite: &[u8], cseq: u32) {
    send_back(call, invite, cseq, "INFO");
}

/// A request of the runtime inside the call.
fn send_back(call: &Call, invite: &[u8], cseq: u32, method: &str) {
    let invite = Message::of(&String::from_utf8_lossy(invite));
    let of = |name: &str| invite.header(name).expect("it is there").to_owned();
    let (own, to, from, id) = (call.runtime.own, of("To"), of("From"), of("Call-ID"));
    call.runtime.send(&format!(
        "{method} sip:{} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-rt{cseq}\r\nMax-Forwards: 70\r\n\
         From: {to};tag=peer\r\nTo: {from}\r\nCall-ID: {id}\r\nCSeq: {cseq} {method}\r\nContent-Length: 0\r\n\r\n",
        call.daemon.sip()
    ));
}

/// A digest would be good at whoever has the same pair, or be guessed at in peace.
#[test]
fn a_peer_that_has_proven_no_password_gets_no_digest() {
    let mut call = Call::new();
    let invite = call.begin();
    send_back(&call, &invite, 2, "BYE");
    let (first, bye) = call.caller.request("BYE");
    assert_eq!(first.header("Proxy-Authorization"), None);
    let challenge = "Proxy-Authenticate: Digest realm=\"pbx\", nonce=\"abc\", qop=\"auth\"\r\n";
    call.caller
        .reply_with(&bye, "407 Proxy Authentication Required", challenge);
    assert_eq!(call.runtime.answer("2 BYE").status(), Some(200));
    assert_eq!(call.daemon.record()["status"], "completed");
    // What answers this has heard the 407 before.
    call.caller.send(&call.text(3, "OPTIONS", "", ""));
    let is_last = |message: &Message| {
        let proof = message.header("Proxy-Authorization");
        assert_eq!(proof, None, "{message:?}");
        message.status().is_some() && message.header("CSeq") == Some("3 OPTIONS")
    };
    call.caller.next("an answer to OPTIONS", is_last);
}

#[test]
fn an_answer_waits_for_no_prack_of_an_18x_without_sdp() {
    let mut call = Call::new();
    let lines = format!(
        "Contact: <sip:{}>\r\nSupported: 100rel\r\nContent-Type: application / SDP\r\n",
        call.caller.own
    );
    call.caller.send(&call.text(1, "INVITE", &lines, SDP));
    let (_, invite) = call.runtime.request("INVITE");
    let reliable = "Require: 100rel\r\nRSeq: 7\r\n";
    call.runtime.reply_with(&invite, "180 Ringing", reliable);
    let is_ringing = |message: &Message| message.status() == Some(180);
    let (ringing, _) = call.caller.next("180", is_ringing);
    let rseq = ringing.header("RSeq").expect("it is reliable").to_owned();
    call.runtime.reply(&invite, "200 OK");
    call.accepted();
    let rack = format!("RAck: {rseq} 1 INVITE\r\n");
    for (cseq, status) in [(2, 200), (3, 481)] {
        call.caller.send(&call.text(cseq, "PRACK", &rack, ""));
        let answer = call.caller.answer(&format!("{cseq} PRACK"));
        assert_eq!(answer.status(), Some(status), "the {cseq}. request");
    }
    call.send(4, "BYE");
    assert_eq!(call.caller.answer("4 BYE").status(), Some(200));
}

#[test]
fn hops_are_counted_inside_calls() {
    let mut call = Call::new();
    let invite = call.begin();
    let invite = Message::of(&String::from_utf8_lossy(&invite));
    assert_eq!(invite.header("Max-Forwards"), Some("69"));
    let with_hops = |call: &Call, cseq, method, hops: u32| {
        let text = call.text(cseq, method, "", "");
        let hops = format!("Max-Forwards: {hops}");
        call.caller.send(&text.replace("Max-Forwards: 70", &hops));
    };
    with_hops(&call, 2, "INFO", 12);
    let (info, octets) = call.runtime.request("INFO");
    assert_eq!(info.header("Max-Forwards"), Some("11"));
    call.runtime.reply(&octets, "200 OK");
    assert_eq!(call.caller.answer("2 INFO").status(), Some(200));
    for (cseq, method) in [(3, "INFO"), (4, "MESSAGE"), (5, "INVITE")] {
        with_hops(&call, cseq, method, 0);
        let answer = call.caller.answer(&format!("{cseq} {method}"));
        assert_eq!(answer.status(), Some(483), "{method}");
    }
    let uncounted = call.text(6, "MESSAGE", "", "");
    call.caller
        .send(&uncounted.replace("Max-Forwards: 70\r\n", ""));
    let (message, octets) = call.runtime.request("MESSAGE");
    assert_eq!(message.header("Max-Forwards"), Some("70"));
    call.runtime.reply(&octets, "200 OK");
    // These go no further than to us.
    for (cseq, method) in [(7, "UPDATE"), (8, "OPTIONS"), (9, "BYE")] {
        with_hops(&call, cseq, method, 0);
        let answer = call.caller.answer(&format!("{cseq} {method}"));
        assert_eq!(answer.status(), Some(200), "{method}");
    }
    let (bye, _) = call.runtime.request("BYE");
    assert_eq!(bye.header("Max-Forwards"), Some("70"));
}

#[test]
fn a_preview_is_no_offer_where_the_200_makes_it() {
    let mut call = Call::new();
    let own = call.caller.own;
    let lines = format!("Contact: <sip:{own}>\r\nRequire: 100rel\r\nSupported: 100rel\r\n");
    call.caller.send(&call.text(1, "INVITE", &lines, ""));
    let (_, invite) = call.runtime.request("INVITE");
    call.runtime
        .reply_with_sdp(&invite, "183 Session Progress", SDP);
    let is_progress = |message: &Message| message.status() == Some(183);
    let (progress, _) = call.caller.next("183", is_progress);
    assert_eq!(progress.body(), "", "{progress:?}");
    assert_eq!(progress.header("Content-Type"), None, "{progress:?}");
    let rseq = progress.header("RSeq").expect("it is reliable");
    call.to = progress.header("To").expect("it is there").to_owned();
    call.caller
        .send(&call.text(2, "PRACK", &format!("RAck: {rseq} 1 INVITE\r\n"), ""));
    assert_eq!(call.caller.answer("2 PRACK").status(), Some(200));
    call.runtime.reply_with_sdp(&invite, "200 OK", SDP);
    let accepted = call.caller.answer("1 INVITE");
    assert!(accepted.body().contains("m=audio"), "{accepted:?}");
    let content = "Content-Type: application/sdp\r\n";
    call.caller.send(&call.text(1, "ACK", content, SDP));
    let (ack, _) = call.runtime.request("ACK");
    assert!(ack.body().contains("m=audio 9 "), "{ack:?}");
}

#[test]
fn the_ack_of_a_late_200_has_an_sdp_only_where_that_offers() {
    for (content, body, answers) in [
        ("application/sdp", SDP, false),
        ("text/plain", "good day", true),
        ("", "", true),
    ] {
        let call = Call::new();
        let mut lines = format!("Contact: <sip:{}>\r\n", call.caller.own);
        if !content.is_empty() {
            lines += &format!("Content-Type: {content}\r\n");
        }
        call.caller.send(&call.text(1, "INVITE", &lines, body));
        let (_, invite) = call.runtime.request("INVITE");
        call.runtime.reply(&invite, "180 Ringing");
        let is_ringing = |message: &Message| message.status() == Some(180);
        call.caller.next("180", is_ringing);
        call.send(1, "CANCEL");
        assert_eq!(call.caller.answer("1 INVITE").status(), Some(487));
        call.runtime.reply_with_sdp(&invite, "200 OK", SDP);
        let (ack, _) = call.runtime.request("ACK");
        assert_eq!(ack.body().contains("m=audio 0 "), answers, "{ack:?}");
        assert_eq!(ack.body().is_empty(), !answers, "{ack:?}");
        let (_, bye) = call.runtime.request("BYE");
        call.runtime.reply(&bye, "200 OK");
    }
}

#[test]
fn whose_request_is_not_allowed_learns_what_is() {
    let mut call = Call::new();
    let invite = call.begin();
    send_back(&call, &invite, 2, "MESSAGE");
    let (_, letter) = call.caller.request("MESSAGE");
    let allowed = "Allow: INVITE, ACK, BYE, CANCEL\r\n";
    call.caller
        .reply_with(&letter, "405 Method Not Allowed", allowed);
    let refused = call.runtime.answer("2 MESSAGE");
    assert_eq!(refused.status(), Some(405));
    assert_eq!(refused.header("Allow"), Some("INVITE, ACK, BYE, CANCEL"));
}

#[test]
fn the_echo_agent_says_which_bodies_it_reads() {
    let mut call = Call::new();
    let house = &call.daemon.house;
    house.runtime(&house.first_agent, "echo");
    house.settle();
    let to = call.to.clone();
    for (cseq, content, body, status, said) in [
        (
            1,
            "text/plain",
            "good day",
            415,
            ("Accept", "application/sdp"),
        ),
        (
            2,
            "application/sdp\r\nContent-Encoding: gzip",
            SDP,
            415,
            ("Accept-Encoding", "identity"),
        ),
        (
            3,
            "application/sdp",
            "foo",
            488,
            (
                "Warning",
                "304 trunkline \"The body is no session description\"",
            ),
        ),
    ] {
        let lines = format!(
            "Contact: <sip:{}>\r\nContent-Type: {content}\r\n",
            call.caller.own
        );
        call.to.clone_from(&to);
        let invite = call.text(cseq, "INVITE", &lines, body);
        call.caller
            .send(&invite.replace("letter@", &format!("{cseq}@")));
        let refused = call.caller.answer(&format!("{cseq} INVITE"));
        assert_eq!(refused.status(), Some(status), "{refused:?}");
        assert_eq!(refused.header(said.0), Some(said.1), "{refused:?}");
        refused
            .header("To")
            .expect("it is there")
            .clone_into(&mut call.to);
        let ack = call
            .text(cseq, "ACK", "", "")
            .replace("letter@", &format!("{cseq}@"));
        call.caller
            .send(&ack.replace(&format!("z9hG4bK-{cseq}ack"), &format!("z9hG4bK-{cseq}")));
    }
}
