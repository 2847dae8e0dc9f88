//! The printer: headers that a response repeats, content of a request, and that no value ends its line.

use proptest::prelude::*;

use super::*;
use crate::flow::Transport;
use crate::header::text;
use crate::wire::{Framing, lex};

const HEAD: &str = "Max-Forwards: 70\r\nFrom: <sip:a@a.example>;tag=1\r\nTo: <sip:b@b.example>\r\n\
    Call-ID: x@y\r\nCSeq: 7 INVITE\r\n";

fn flow(peer: &str) -> Flow {
    Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: "192.0.2.1:5060".parse().expect("an address"),
        peer: peer.parse().expect("an address"),
    }
}

/// The answer to an INVITE with this Via, which came from `peer`.
fn answer_to(via: &str, peer: &str) -> String {
    let octets = format!("INVITE sip:b SIP/2.0\r\nVia: {via}\r\n{HEAD}\r\n");
    let request = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
    let mut out = Vec::new();
    response(
        &mut out,
        &request,
        &flow(peer),
        180,
        None,
        None,
        "",
        b"",
        b"",
    );

    String::from_utf8(out).expect("text")
}

#[test]
fn a_first_via_without_an_element_is_left_out() {
    for first in ["", ",", " , "] {
        let via = format!("{first}\r\nVia: SIP/2.0/UDP 192.0.2.9;branch=z\r\nVia: SIP/2.0/UDP b");
        let answer = answer_to(&via, "192.0.2.9:1024");
        let vias: Vec<&str> = answer
            .split("\r\n")
            .filter(|line| line.starts_with("Via"))
            .collect();
        assert_eq!(
            vias,
            ["Via: SIP/2.0/UDP 192.0.2.9;branch=z", "Via: SIP/2.0/UDP b"],
            "{first:?}"
        );
    }
}

#[test]
fn a_response_repeats_what_it_must() {
    let octets = "INVITE sip:b SIP/2.0\r\nv: SIP/2.0/UDP a;branch=z9hG4bK1;rport,\r\n SIP/2.0/UDP b\r\n\
        Record-Route: <sip:p;lr>,\r\n\t<sip:q;lr>\r\nf:\r\n <sip:a>;tag=1\r\nV : SIP/2.0/TCP c\r\nt: <sip:b>\r\n\
        i: x@y\r\nCSEQ:  7\r\n INVITE\r\nRoute: <sip:r>\r\n\r\n";
    let request = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
    let mut out = Vec::new();
    response(
        &mut out,
        &request,
        &flow("192.0.2.9:5062"),
        200,
        None,
        Some(b"2"),
        "Trunkline",
        b"Contact: <sip:we>\r\n",
        b"\0\r\n\xff",
    );

    let expected = b"SIP/2.0 200 OK\r\n\
        Via: SIP/2.0/UDP a;branch=z9hG4bK1;received=192.0.2.9;rport=5062, SIP/2.0/UDP b\r\n\
        Via: SIP/2.0/TCP c\r\n\
        Record-Route: <sip:p;lr>, <sip:q;lr>\r\n\
        From: <sip:a>;tag=1\r\n\
        To: <sip:b>;tag=2\r\n\
        Call-ID: x@y\r\n\
        CSeq: 7 INVITE\r\n\
        Contact: <sip:we>\r\n\
        Server: Trunkline\r\n\
        Content-Length: 4\r\n\r\n\0\r\n\xff";

    assert_eq!(
        out.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

#[test]
fn record_route_goes_where_a_dialog_may_come_of_it() {
    let octets = format!(
        "INVITE sip:b SIP/2.0\r\nVia: SIP/2.0/UDP a\r\nRecord-Route: <sip:p;lr>\r\n{HEAD}\r\n"
    );
    let request = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
    for (status, copied) in [
        (100, false),
        (101, true),
        (180, true),
        (299, true),
        (300, false),
    ] {
        let mut out = Vec::new();
        response(
            &mut out,
            &request,
            &flow("192.0.2.9:5"),
            status,
            None,
            None,
            "",
            b"",
            b"",
        );
        let answer = lex(&out, Framing::Stream).expect("an answer");
        let found = answer.first(HeaderName::RecordRoute).is_some();
        assert_eq!(found, copied, "{status}");
    }
}

#[test]
fn a_tag_is_added_where_there_is_none() {
    for (to, printed) in [
        ("<sip:b>", "To: <sip:b>;tag=ours\r\n"),
        ("sip:b;x=y", "To: sip:b;x=y;tag=ours\r\n"),
        ("<sip:b;tag=no>", "To: <sip:b;tag=no>;tag=ours\r\n"),
        ("<sip:b>;tag=", "To: <sip:b>;tag=ours\r\n"),
        ("<sip:b>;Tag", "To: <sip:b>;tag=ours\r\n"),
        (
            "sip:b ; tag=;x=\"y;z\" ;w",
            "To: sip:b ;x=\"y;z\";w;tag=ours\r\n",
        ),
        ("<sip:b>;TAG=theirs", "To: <sip:b>;TAG=theirs\r\n"),
    ] {
        let head = HEAD.replace("<sip:b@b.example>", to);
        let octets = format!("INVITE sip:b SIP/2.0\r\nVia: SIP/2.0/UDP a\r\n{head}\r\n");
        let request = lex(octets.as_bytes(), Framing::Datagram).expect(to);
        let mut out = Vec::new();
        let tag = Some(&b"ours"[..]);
        response(
            &mut out,
            &request,
            &flow("192.0.2.9:5"),
            180,
            None,
            tag,
            "",
            b"",
            b"",
        );
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains(printed), "{to}: {text}");
    }
}

/// RFC 3261 §18.2.1, RFC 3581 §4.
#[test]
fn the_top_via_says_where_a_request_came_from() {
    const FOUR: &str = "192.0.2.9:1024";

    for (via, peer, printed) in [
        ("SIP/2.0/UDP 192.0.2.9", FOUR, "SIP/2.0/UDP 192.0.2.9"),
        ("SIP/2.0/UDP h", FOUR, "SIP/2.0/UDP h;received=192.0.2.9"),
        (
            "SIP/2.0/UDP 192.0.2.8:5060;branch=z",
            FOUR,
            "SIP/2.0/UDP 192.0.2.8:5060;branch=z;received=192.0.2.9",
        ),
        (
            "SIP/2.0/UDP 192.0.2.9;rport;branch=z",
            FOUR,
            "SIP/2.0/UDP 192.0.2.9;branch=z;received=192.0.2.9;rport=1024",
        ),
        (
            "SIP/2.0/UDP h;received=6.6.6.6;rport=666;x=\"a;b\";y",
            FOUR,
            "SIP/2.0/UDP h;x=\"a;b\";y;received=192.0.2.9;rport=1024",
        ),
        (
            "SIP/2.0/UDP [2001:DB8::9]:5060",
            "[2001:db8::9]:5060",
            "SIP/2.0/UDP [2001:DB8::9]:5060",
        ),
        (
            "SIP/2.0/UDP h",
            "[2001:db8::9]:5060",
            "SIP/2.0/UDP h;received=2001:db8::9",
        ),
        (
            "SIP/2.0/UDP h",
            "[::ffff:192.0.2.9]:5060",
            "SIP/2.0/UDP h;received=192.0.2.9",
        ),
        (
            "SIP / 2.0\r\n / UDP h : 5 ; branch = z",
            FOUR,
            "SIP / 2.0 / UDP h : 5;branch=z;received=192.0.2.9",
        ),
    ] {
        let answer = answer_to(via, peer);
        assert!(
            answer.contains(&format!("\r\nVia: {printed}\r\n")),
            "{via}: {answer}"
        );
    }
}

#[test]
fn what_a_malformed_request_lacks_its_answer_lacks() {
    let octets = b"INVITE sip:b SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nCSeq: x\r\n\r\n";
    let malformed = lex(octets, Framing::Datagram).expect_err("no From");
    let request = malformed.answer.expect("enough for an answer");
    let mut out = Vec::new();
    let tag = Some(&b"t"[..]);
    response(
        &mut out,
        &request,
        &flow("192.0.2.9:5"),
        malformed.status,
        None,
        tag,
        "",
        b"",
        b"",
    );
    assert_eq!(
        String::from_utf8(out).expect("text"),
        "SIP/2.0 400 Bad Request\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1;received=192.0.2.9\r\n\
         CSeq: x\r\nContent-Length: 0\r\n\r\n"
    );
}

#[test]
fn every_final_status_has_a_phrase() {
    for status in 100..700 {
        assert!(!reason_phrase(status).is_empty());
    }
    assert_eq!(reason_phrase(486), "Busy Here");
    assert_eq!(reason_phrase(499), "Request Failure");
}

#[test]
fn numbers_are_printed_in_full() {
    for number in [0, 7, 10, 65_535, u64::MAX] {
        let mut out = Vec::new();
        Head::new(&mut out).number("X", number);
        assert_eq!(out, format!("X: {number}\r\n").as_bytes());
    }
}

/// Text that tries to break out of a line.
fn hostile() -> impl Strategy<Value = String> {
    "(\r\n|\r|\n|\u{0}|\\\\|:|;|,|<|>|\"|Via: x|Content-Length: 9|[ -~]|\u{e9}){0,12}"
}

proptest! {
    /// The output has as many lines as were printed, whatever the values hold.
    #[test]
    fn nothing_printed_can_end_its_line(
        method in hostile(), uri in hostile(), via in hostile(), name in hostile(), value in hostile(), body in hostile(),
    ) {
        let mut head = Vec::new();
        let mut lines = Head::new(&mut head);
        lines.line(&name, value.as_bytes());
        lines.fmt(&name, format_args!("<{value}>;{name}"));
        lines.number(&name, 7);
        let mut out = Vec::new();
        request(&mut out, &method, uri.as_bytes(), &via, &head, body.as_bytes());
        let printed = &out[..out.len() - body.len()];
        prop_assert_eq!(memchr::memchr_iter(b'\n', printed).count(), 7);
        prop_assert_eq!(memchr::memchr_iter(b'\r', printed).count(), 7);
        prop_assert!(printed.ends_with(b"\r\n\r\n"));
        prop_assert!(out.ends_with(body.as_bytes()));
    }

    #[test]
    fn a_printed_request_reads_as_it_was_meant(
        user in "[a-z0-9.]{1,9}", number in 0..1_u32 << 31, display in hostile(), extra in hostile(),
        body in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut head = Vec::new();
        let mut lines = Head::new(&mut head);
        lines.fmt("From", format_args!("{} <sip:{user}@h>;tag=1", text::Quoted(display.as_bytes())));
        lines.line("To", b"<sip:b>");
        lines.line("Call-ID", b"x@y");
        lines.fmt("CSeq", format_args!("{number} UPDATE"));
        lines.line("X-Extra", extra.as_bytes());
        let mut out = Vec::new();
        let uri = format!("sip:{user}@h");
        request(&mut out, "UPDATE", uri.as_bytes(), "SIP/2.0/TCP h;branch=z9hG4bK1", &head, &body);
        let message = lex(&out, Framing::Stream).expect("what is printed can be read");
        prop_assert_eq!(message.request_uri(), uri.as_bytes());
        prop_assert_eq!((message.cseq().number, message.from_tag()), (number, Some(&b"1"[..])));
        prop_assert_eq!(message.headers().count(), 7);
        prop_assert_eq!((message.body(), message.raw()), (&body[..], &out[..]));
    }

    /// The answer to any accepted request is a message, takes the same way back, and has no line injected.
    #[test]
    fn a_printed_response_reads_as_it_was_meant(
        display in "([ -!#-\\[\\]-~]|\r\n |\\\\[ -~]|\u{e9}){0,20}", parameter in "([!#-:<-\\[\\]-~]|\r\n ){0,9}",
        reason in hostile(), tag in "[a-z0-9]{1,9}", server in hostile(), status in 100..700_u16,
    ) {
        let octets = format!(
            "INVITE sip:b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1;x=\"{parameter}\"\r\n\
             From: \"{display}\" <sip:a>;tag=1\r\nTo: \"{display}\" <sip:b>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\n\r\n"
        );
        let asked = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
        let mut out = Vec::new();
        response(
            &mut out, &asked, &flow("192.0.2.9:5"), status, Some(&reason), Some(tag.as_bytes()), &server, b"", b"",
        );
        let answer = lex(&out, Framing::Stream).expect("what is printed can be read");
        prop_assert_eq!(answer.status(), status);
        prop_assert_eq!(answer.headers().count(), 6 + usize::from(!server.is_empty()));
        prop_assert_eq!(answer.top_via().branch, Some(&b"z9hG4bK1"[..]));
        prop_assert_eq!((answer.from_tag(), answer.to_tag()), (Some(&b"1"[..]), Some(tag.as_bytes())));
        prop_assert_eq!(unfold(asked.from()), answer.from());
    }
}
