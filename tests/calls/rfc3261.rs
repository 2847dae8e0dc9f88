//! Cases that the text of RFC 3261 decides: caller and runtime are bare sockets that check single lines.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::SDP;
use trunkline_testkit::peer::Transport;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Peer, http};

/// A caller authenticated by its address, and the runtime of the only agent.
struct Call {
    daemon: Daemon,
    caller: Peer,
    runtime: Peer,
    dialog: Dialog,
}

impl Call {
    fn new() -> Self {
        let setup = DaemonSetup::new();
        setup.allow("127.0.0.1/32");
        let (caller, runtime) = (Peer::new(setup.sip), Peer::new(setup.sip));
        setup.runtime(&setup.first_agent, &format!("sip:agent@{}", runtime.own));
        let daemon = setup.serve();
        let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
        Self {
            dialog: Dialog::calling(&uri, "+441632960001", "letter", &caller),
            daemon,
            caller,
            runtime,
        }
    }

    /// Returns a request of the caller.
    fn text(&self, cseq: u32, method: &str, lines: &str, body: &str) -> String {
        self.dialog
            .request(&self.caller, (cseq, method), lines, body)
    }

    fn offer(&self, cseq: u32, contact: SocketAddr) {
        let lines = format!(
            "Contact: <sip:{contact}>\r\nTimestamp: 54.25\r\nContent-Type: application/sdp\r\n"
        );
        self.caller.send(self.text(cseq, "INVITE", &lines, SDP));
    }

    /// An INVITE with a body of any type, which may be followed by further lines.
    fn invite(&self, cseq: u32, (content, body): (&str, &str)) {
        let contact = self.caller.own;
        let lines = format!("Contact: <sip:{contact}>\r\nContent-Type: {content}\r\n");
        self.caller.send(self.text(cseq, "INVITE", &lines, body));
    }

    fn send(&self, cseq: u32, method: &str) {
        self.caller.send(self.text(cseq, method, "", ""));
    }

    /// The runtime answers, and the call is up; returns the INVITE that the runtime got.
    fn begin(&mut self) -> Message {
        self.offer(1, self.caller.own);
        let invite = self.runtime.request("INVITE");
        self.runtime.reply_with_sdp(&invite, "200 OK", SDP);
        self.accepted();
        self.runtime.request("ACK");
        invite
    }

    /// The caller gets its 200 and acknowledges it.
    fn accepted(&mut self) {
        let accepted = self.caller.outcome("1 INVITE");
        assert_eq!(accepted.status(), Some(200), "{accepted:?}");
        self.dialog.to = accepted.value("To");
        self.send(1, "ACK");
    }
}

#[test]
fn an_invite_is_told_its_timestamp_and_tag_and_a_second_one_that_it_is_early() {
    let mut call = Call::new();
    call.offer(1, call.caller.own);
    let trying = call.caller.response(100);
    assert_eq!(trying.header("Timestamp"), Some("54.25"));
    let invite = call.runtime.request("INVITE");
    call.runtime.reply(&invite, "183 Session Progress", "");
    let progress = call.caller.response(183);
    assert_eq!(progress.header("Timestamp"), None);

    let first = std::mem::replace(&mut call.dialog.to, progress.value("To"));
    call.offer(2, call.caller.own);
    let early = call.caller.outcome("2 INVITE");
    assert_eq!(early.status(), Some(500), "RFC 3261 §14.2");
    let after = early.header("Retry-After").expect("§14.2 wants it");
    let seconds: u32 = after.parse().expect("seconds");
    assert!(seconds <= 10, "{after}");
    call.caller.send(call.dialog.ack(&call.caller, 2, &early));

    call.dialog.to = first;
    call.send(1, "CANCEL");
    let canceled = call.caller.outcome("1 CANCEL");
    let refused = call.caller.outcome("1 INVITE");
    assert_eq!(
        (canceled.status(), refused.status()),
        (Some(200), Some(487))
    );
    assert_eq!(canceled.header("To"), refused.header("To"), "§9.2");
    assert_eq!(canceled.header("To"), progress.header("To"));
}

/// Lines and values that nobody needs (RFC 3261 §8.2.2).
const UNNEEDED: &str = "stray line\r\n: no name\r\nTwo Words: x\r\nÜnïcode: x\r\nSession-Expires: abc\r\nMin-SE: -1\r\n\
    x:\r\nContent-Encoding:\r\nX-Last: 4711\r\n";

#[test]
fn lines_that_nobody_needs_and_cannot_be_read_neither_refuse_a_call_nor_cross() {
    let mut call = Call::new();
    let own = call.caller.own;
    let lines = format!("Contact: <sip:{own}>\r\n{UNNEEDED}Content-Type: application/sdp\r\n");
    call.caller.send(call.text(1, "INVITE", &lines, SDP));
    let invite = call.runtime.request("INVITE");

    let own = call.runtime.own;
    let lines = format!("Contact: <sip:{own}>\r\n{UNNEEDED}Content-Type: application/sdp\r\n");
    call.runtime.answer(&invite, "200 OK", &lines, SDP);
    let answer = call.caller.outcome("1 INVITE");
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    call.dialog.to = answer.value("To");
    call.send(1, "ACK");
    call.runtime.request("ACK");

    for message in [&invite, &answer] {
        assert_eq!(message.header("X-Last"), Some("4711"), "{message:?}");
        let text = message.to_string();
        for line in ["stray", "no name", "Two Words", "code: x", ": abc", ": -1"] {
            assert!(!text.contains(line), "{line}: {text}");
        }
    }

    // A BYE with such lines ends the call.
    call.caller.send(call.text(2, "BYE", UNNEEDED, ""));
    let bye = call.runtime.request("BYE");
    call.runtime.reply(&bye, "200 OK", "");
    assert_eq!(call.caller.outcome("2 BYE").status(), Some(200));

    // A shard reports its counters once a second.
    let counted = Deadline::after(Duration::from_secs(30)).poll(|| {
        let (_, metrics) = http::get(call.daemon.setup.http, "/metrics", None)?;
        let count = metrics
            .lines()
            .find_map(|line| line.strip_prefix("trunkline_sip_ignored_lines_total "))?;
        (count.parse::<f64>().ok()? >= 12.0).then_some(())
    });
    assert!(counted.is_some(), "12 lines were ignored");

    let id = call.daemon.record()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let trace = call.daemon.shown(&format!("/phone/calls/{id}/trace"));
    let said = "is no header and was ignored";
    assert!(trace.to_string().contains(said), "{trace}");
}

#[test]
fn a_refusal_names_the_part_that_cannot_be_used() {
    let call = Call::new();
    let uri = format!(
        "sip:{}@{}",
        call.daemon.setup.first_number,
        call.daemon.sip()
    );
    let own = call.caller.own;
    let routes = |count: usize| "Record-Route: <sip:proxy.test;lr>\r\n".repeat(count);
    for (turn, (case, lines, status, said)) in [
        (
            "65 routes",
            routes(65),
            400,
            "399 trunkline \"it has more than 64 Record-Routes\"",
        ),
        (
            "an unreadable one",
            "Record-Route: <sip:>\r\n".to_owned(),
            400,
            "399 trunkline \"its Record-Route can't be read\"",
        ),
        (
            "a privacy that can't be met",
            "Privacy: session;critical\r\n".to_owned(),
            500,
            "privacy_unavailable",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let dialog = Dialog::calling(
            &uri,
            "+441632960001",
            &format!("refused-{turn}"),
            &call.caller,
        );
        let lines = format!("Contact: <sip:{own}>\r\n{lines}Content-Type: application/sdp\r\n");
        let refused = call
            .caller
            .ask(&dialog.request(&call.caller, (1, "INVITE"), &lines, SDP));
        assert_eq!(refused.status(), Some(status), "{case}: {refused:?}");
        assert!(refused.to_string().contains(said), "{case}: {refused}");
        call.caller.send(dialog.ack(&call.caller, 1, &refused));
    }

    // As many as may be: the runtime is called.
    let dialog = Dialog::calling(&uri, "+441632960001", "routed", &call.caller);
    let lines = format!(
        "Contact: <sip:{own}>\r\n{}Content-Type: application/sdp\r\n",
        routes(64)
    );
    call.caller
        .send(dialog.request(&call.caller, (1, "INVITE"), &lines, SDP));
    call.runtime.request("INVITE");
}

/// RFC 3261 §18.2.2.
#[test]
fn a_runtime_that_rings_answers_over_another_connection() {
    let setup = DaemonSetup::new();
    setup.allow("127.0.0.1/32");
    let (caller, runtime) = (Peer::new(setup.sip), Peer::listening(Transport::Tcp));
    setup.runtime(&setup.first_agent, &runtime.uri("agent"));
    let daemon = setup.serve();
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let mut dialog = Dialog::calling(&uri, "+441632960001", "rings", &caller);
    let lines = format!(
        "Contact: <sip:{}>\r\nContent-Type: application/sdp\r\n",
        caller.own
    );
    caller.send(dialog.request(&caller, (1, "INVITE"), &lines, SDP));

    let invite = runtime.request("INVITE");
    runtime.reply(&invite, "180 Ringing", "");
    caller.response(180);
    let contact = runtime.uri("agent");
    drop(runtime);
    let after = caller.soon();
    assert!(after.is_none(), "the call goes on: {after:?}");

    let again = Peer::tcp(Ipv4Addr::LOCALHOST, daemon.sip());
    let lines = format!("Contact: <{contact}>\r\nContent-Type: application/sdp\r\n");
    again.answer(&invite, "200 OK", &lines, SDP);
    let accepted = caller.outcome("1 INVITE");
    assert_eq!(accepted.status(), Some(200), "{accepted:?}");
    dialog.to = accepted.value("To");
    caller.send(dialog.ack(&caller, 1, &accepted));
    again.request("ACK");
}

#[test]
fn a_2xx_that_is_cut_is_acknowledged_and_hung_up_on() {
    let call = Call::new();
    call.offer(1, call.caller.own);
    let invite = call.runtime.request("INVITE");
    let own = call.runtime.own;
    let overlong = "x".repeat(9_000);
    let lines = format!(
        "Contact: <sip:{own}>\r\nX-Ticket: {overlong}\r\nContent-Type: application/sdp\r\n"
    );
    call.runtime.answer(&invite, "200 OK", &lines, SDP);

    call.runtime.request("ACK");
    let bye = call.runtime.request("BYE");
    call.runtime.reply(&bye, "200 OK", "");
    assert_eq!(call.caller.outcome("1 INVITE").status(), Some(480));
}

#[test]
fn cancel_and_its_invite_are_answered_under_one_tag_before_anything_rings() {
    let call = Call::new();
    call.offer(1, call.caller.own);
    call.runtime.request("INVITE");
    call.send(1, "CANCEL");
    let canceled = call.caller.outcome("1 CANCEL");
    let refused = call.caller.outcome("1 INVITE");
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
    let elsewhere = Peer::new(call.daemon.sip());
    let invite = call.begin();

    call.send(2, "OPTIONS");
    let able = call.caller.outcome("2 OPTIONS");
    for name in ["Allow", "Accept", "Supported"] {
        assert!(able.header(name).is_some(), "{name}");
    }

    call.offer(3, elsewhere.own);
    let change = call.runtime.request("INVITE");
    call.runtime.reply(&change, "488 Not Acceptable Here", "");
    let refused = call.caller.outcome("3 INVITE");
    assert_eq!(refused.status(), Some(488));
    call.caller.send(call.dialog.ack(&call.caller, 3, &refused));

    call.offer(4, elsewhere.own);
    let change = call.runtime.next("INVITE", |message| {
        message.is_request("INVITE") && message.header("CSeq") == Some("3 INVITE")
    });
    let to_old_place = inform(&call, &invite, 7);
    call.caller.reply(&to_old_place, "200 OK", "");
    call.runtime.outcome("7 INFO");
    call.runtime.reply(&change, "200 OK", "");
    assert_eq!(call.caller.outcome("4 INVITE").status(), Some(200));
    call.send(4, "ACK");

    send_info(&call, &invite, 8);
    let moved = elsewhere.request("INFO");
    assert_eq!(
        moved.start_line(),
        format!("INFO sip:{} SIP/2.0", elsewhere.own)
    );
    elsewhere.reply(&moved, "200 OK", "");
    call.runtime.outcome("8 INFO");
    call.send(5, "BYE");
    let bye = call.runtime.request("BYE");
    call.runtime.reply(&bye, "200 OK", "");
    assert_eq!(call.caller.outcome("5 BYE").status(), Some(200));
}

/// Sends an INFO of the runtime; returns it as the caller gets it.
fn inform(call: &Call, invite: &Message, cseq: u32) -> Message {
    send_info(call, invite, cseq);
    call.caller.request("INFO")
}

fn send_info(call: &Call, invite: &Message, cseq: u32) {
    send_back(call, invite, cseq, "INFO");
}

/// Sends a request of the runtime inside the call.
fn send_back(call: &Call, invite: &Message, cseq: u32, method: &str) {
    let dialog = Dialog::called(invite, call.runtime.tag);
    call.runtime
        .send(dialog.request(&call.runtime, (cseq, method), "", ""));
}

/// Such a peer could use the digest at another host with the same pair, or guess the password offline.
#[test]
fn a_peer_that_has_proven_no_password_gets_no_digest() {
    let mut call = Call::new();
    let invite = call.begin();
    send_back(&call, &invite, 2, "BYE");

    let bye = call.caller.request("BYE");
    assert_eq!(bye.header("Proxy-Authorization"), None);

    let challenge = "Proxy-Authenticate: Digest realm=\"pbx\", nonce=\"abc\", qop=\"auth\"\r\n";
    call.caller
        .reply(&bye, "407 Proxy Authentication Required", challenge);

    assert_eq!(call.runtime.outcome("2 BYE").status(), Some(200));
    assert_eq!(call.daemon.record()["status"], "completed");

    // The peer that answers this has seen the 407 before.
    call.caller.send(call.text(3, "OPTIONS", "", ""));

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
    call.caller.send(call.text(1, "INVITE", &lines, SDP));

    let invite = call.runtime.request("INVITE");
    let reliable = "Require: 100rel\r\nRSeq: 7\r\n";
    call.runtime.reply(&invite, "180 Ringing", reliable);

    let ringing = call.caller.response(180);
    let rseq = ringing.header("RSeq").expect("it is reliable").to_owned();
    call.runtime.reply_with_sdp(&invite, "200 OK", SDP);
    call.accepted();

    let rack = format!("RAck: {rseq} 1 INVITE\r\n");
    for (cseq, status) in [(2, 200), (3, 481)] {
        call.caller.send(call.text(cseq, "PRACK", &rack, ""));
        let answer = call.caller.outcome(&format!("{cseq} PRACK"));
        assert_eq!(answer.status(), Some(status), "the {cseq}. request");
    }
    call.send(4, "BYE");

    assert_eq!(call.caller.outcome("4 BYE").status(), Some(200));
}

#[test]
fn hops_are_counted_inside_calls() {
    let mut call = Call::new();
    let invite = call.begin();
    assert_eq!(invite.header("Max-Forwards"), Some("69"));

    let with_hops = |call: &Call, cseq, method, hops: u32| {
        let text = call.text(cseq, method, "", "");
        let hops = format!("Max-Forwards: {hops}");
        call.caller.send(text.replace("Max-Forwards: 70", &hops));
    };
    with_hops(&call, 2, "INFO", 12);

    let info = call.runtime.request("INFO");
    assert_eq!(info.header("Max-Forwards"), Some("11"));
    call.runtime.reply(&info, "200 OK", "");
    assert_eq!(call.caller.outcome("2 INFO").status(), Some(200));

    for (cseq, method) in [(3, "INFO"), (4, "MESSAGE"), (5, "INVITE")] {
        with_hops(&call, cseq, method, 0);
        let answer = call.caller.outcome(&format!("{cseq} {method}"));
        assert_eq!(answer.status(), Some(483), "{method}");
    }

    let uncounted = call.text(6, "MESSAGE", "", "");
    call.caller
        .send(uncounted.replace("Max-Forwards: 70\r\n", ""));

    let message = call.runtime.request("MESSAGE");
    assert_eq!(message.header("Max-Forwards"), Some("70"));
    call.runtime.reply(&message, "200 OK", "");

    // The daemon answers these itself.
    for (cseq, method) in [(7, "UPDATE"), (8, "OPTIONS"), (9, "BYE")] {
        with_hops(&call, cseq, method, 0);
        let answer = call.caller.outcome(&format!("{cseq} {method}"));
        assert_eq!(answer.status(), Some(200), "{method}");
    }

    let bye = call.runtime.request("BYE");
    assert_eq!(bye.header("Max-Forwards"), Some("70"));
}

#[test]
fn a_preview_is_no_offer_where_the_200_makes_it() {
    let mut call = Call::new();
    let own = call.caller.own;
    let lines = format!("Contact: <sip:{own}>\r\nRequire: 100rel\r\nSupported: 100rel\r\n");
    call.caller.send(call.text(1, "INVITE", &lines, ""));

    let invite = call.runtime.request("INVITE");
    call.runtime
        .reply_with_sdp(&invite, "183 Session Progress", SDP);

    let progress = call.caller.response(183);
    assert_eq!(progress.body(), "", "{progress:?}");
    assert_eq!(progress.header("Content-Type"), None, "{progress:?}");

    let rseq = progress.header("RSeq").expect("it is reliable");
    call.dialog.to = progress.value("To");
    call.caller
        .send(call.text(2, "PRACK", &format!("RAck: {rseq} 1 INVITE\r\n"), ""));
    assert_eq!(call.caller.outcome("2 PRACK").status(), Some(200));
    call.runtime.reply_with_sdp(&invite, "200 OK", SDP);

    let accepted = call.caller.outcome("1 INVITE");
    assert!(accepted.body().contains("m=audio"), "{accepted:?}");

    let content = "Content-Type: application/sdp\r\n";
    call.caller.send(call.text(1, "ACK", content, SDP));

    let ack = call.runtime.request("ACK");
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
        call.caller.send(call.text(1, "INVITE", &lines, body));
        let invite = call.runtime.request("INVITE");
        call.runtime.reply(&invite, "180 Ringing", "");
        call.caller.response(180);
        call.send(1, "CANCEL");
        assert_eq!(call.caller.outcome("1 INVITE").status(), Some(487));
        call.runtime.reply_with_sdp(&invite, "200 OK", SDP);
        let ack = call.runtime.request("ACK");
        assert_eq!(ack.body().contains("m=audio 0 "), answers, "{ack:?}");
        assert_eq!(ack.body().is_empty(), !answers, "{ack:?}");
        let bye = call.runtime.request("BYE");
        call.runtime.reply(&bye, "200 OK", "");
    }
}

#[test]
fn whose_request_is_not_allowed_learns_what_is() {
    let mut call = Call::new();
    let invite = call.begin();
    send_back(&call, &invite, 2, "MESSAGE");
    let letter = call.caller.request("MESSAGE");
    let allowed = "Allow: INVITE, ACK, BYE, CANCEL\r\n";
    call.caller
        .reply(&letter, "405 Method Not Allowed", allowed);
    let refused = call.runtime.outcome("2 MESSAGE");
    assert_eq!(refused.status(), Some(405));
    assert_eq!(refused.header("Allow"), Some("INVITE, ACK, BYE, CANCEL"));
}

#[test]
fn the_echo_agent_says_which_bodies_it_reads() {
    let mut call = Call::new();
    let setup = &call.daemon.setup;
    setup.runtime(&setup.first_agent, "echo");
    setup.settle();

    let text = ("text/plain", "good day");
    let zipped = ("application/sdp\r\nContent-Encoding: gzip", SDP);
    let only_sdp = "399 trunkline \"Only a body of type application/sdp is accepted here\"";
    let only_plain = "399 trunkline \"Only a body without Content-Encoding is accepted here\"";
    let no_sdp = "304 trunkline \"The body is no session description\"";
    let check = |refused: &Message, status: u16, warning: &str| {
        assert_eq!(refused.status(), Some(status), "{refused:?}");
        assert_eq!(refused.header("Warning"), Some(warning), "{refused:?}");
        let accepted = ["Accept", "Accept-Encoding"].map(|name| refused.header(name));
        let expected = match status {
            415 => [Some("application/sdp"), Some("identity")],
            _ => [None; 2],
        };
        assert_eq!(accepted, expected, "{refused:?}");
    };

    let to = call.dialog.to.clone();
    let cases = [
        (1, text, 415, only_sdp),
        (2, zipped, 415, only_plain),
        (3, ("application/sdp", "foo"), 488, no_sdp),
    ];

    for (cseq, content, status, warning) in cases {
        call.dialog.to.clone_from(&to);
        call.dialog.id = format!("{cseq}@echo");
        call.invite(cseq, content);
        let refused = call.caller.outcome(&format!("{cseq} INVITE"));
        check(&refused, status, warning);
        call.caller
            .send(call.dialog.ack(&call.caller, cseq, &refused));
    }
    let record = Deadline::after(Duration::from_secs(10)).poll(|| {
        let mut calls = call.daemon.calls().into_iter();
        calls.find(|call| call["caller_call_id"] == "3@echo" && call["ended_at"].is_string())
    });
    let record = record.expect("the refused call is recorded");
    assert_eq!(record["reason"], "no_common_media", "{record}");
    let detail = "The body is no session description";
    assert_eq!(record["reason_detail"], detail, "{record}");

    call.dialog.to = to;
    call.dialog.id = "up@echo".into();
    call.offer(1, call.caller.own);
    call.accepted();
    for (number, content, status, warning) in cases {
        let cseq = number + 1;
        call.invite(cseq, content);
        let refused = call.caller.outcome(&format!("{cseq} INVITE"));
        check(&refused, status, warning);
        call.caller
            .send(call.dialog.ack(&call.caller, cseq, &refused));
    }
}
