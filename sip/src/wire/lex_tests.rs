//! The lexer: the messages it reads, those it refuses and with which answer, and its bounds.

use proptest::prelude::*;

use super::*;
use crate::wire::print;

const INVITE: &str = "INVITE sip:bob@b.example SIP/2.0\r\nVia: SIP/2.0/UDP h.example:5062;branch=z9hG4bK1;rport\r\n\
    Max-Forwards: 70\r\nFrom: \"A; tag=no\" <sip:a@a.example;tag=no>;tag=yes\r\nTo: <sip:bob@b.example>\r\n\
    Call-ID: x@y\r\nCSeq: 7 INVITE\r\nContact: <sip:a@192.0.2.1>\r\nSupported: timer, 100rel\r\n\
    X-Ticket: 4711\r\nContent-Length: 4\r\n\r\nbody";

fn without(line: &str) -> String {
    let kept = INVITE
        .split_inclusive("\r\n")
        .filter(|kept| !kept.starts_with(line));
    kept.collect()
}

fn fault_of(octets: &[u8]) -> Option<MessageFault> {
    lex(octets, Framing::Datagram)
        .err()
        .map(|malformed| malformed.fault)
}

#[test]
fn a_request_is_read() {
    let message = lex(INVITE.as_bytes(), Framing::Datagram).expect("a request");
    assert!(message.is_request());
    assert_eq!(
        (message.method(), message.method_token()),
        (Method::Invite, &b"INVITE"[..])
    );
    assert_eq!(message.request_uri(), b"sip:bob@b.example");
    assert_eq!((message.status(), message.reason()), (0, &b""[..]));
    assert_eq!(message.call_id(), b"x@y");
    assert_eq!(
        (message.cseq().number, message.cseq().method),
        (7, Method::Invite)
    );
    assert_eq!(message.cseq_method_token(), b"INVITE");
    assert_eq!(
        (message.from_tag(), message.to_tag()),
        (Some(&b"yes"[..]), None)
    );
    assert_eq!(
        message.from(),
        b"\"A; tag=no\" <sip:a@a.example;tag=no>;tag=yes"
    );
    assert_eq!(message.to(), b"<sip:bob@b.example>");

    let via = message.top_via();
    assert_eq!(
        (via.host, via.port, via.branch, via.rport),
        (
            &b"h.example"[..],
            Some(5062),
            Some(&b"z9hG4bK1"[..]),
            Some(None)
        )
    );

    assert_eq!(
        (message.body(), message.raw()),
        (&b"body"[..], INVITE.as_bytes())
    );
    assert_eq!(message.headers().count(), 10);
}

#[test]
fn headers_are_found_by_name() {
    let message = lex(INVITE.as_bytes(), Framing::Datagram).expect("a request");
    assert_eq!(message.other("x-ticket"), Some(&b"4711"[..]));
    assert_eq!(message.other("Contact"), None);
    assert_eq!(message.first(HeaderName::Route), None);
    assert_eq!(message.number(HeaderName::MaxForwards), Some(70));
    assert_eq!(message.number(HeaderName::Contact), None);
    assert!(message.has_token(HeaderName::Supported, "100REL"));
    assert!(!message.has_token(HeaderName::Supported, "100"));
    assert!(!message.has_token(HeaderName::Require, "timer"));
}

#[test]
fn lists_fold_over_lines_and_commas() {
    let routes = "Route: <sip:a,b@c;lr>, \"x, y\" <sip:d>\r\nRoute:\r\n <sip:e>\r\n ,<sip:f>\r\n";
    let octets = INVITE.replace("Contact", &format!("{routes}Contact"));
    let message = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
    let elements: Vec<&[u8]> = message.elements(HeaderName::Route).collect();

    assert_eq!(
        elements,
        [
            &b"<sip:a,b@c;lr>"[..],
            b"\"x, y\" <sip:d>",
            b"<sip:e>",
            b"<sip:f>"
        ]
    );

    let folded = message
        .headers()
        .filter(|header| header.name == HeaderName::Route)
        .nth(1)
        .expect("the second line");

    assert_eq!(&*folded.unfolded(), b"<sip:e> ,<sip:f>");
}

#[test]
fn a_response_is_read() {
    for (case, line, status, reason) in [
        ("plain", "SIP/2.0 200 OK", 200, "OK"),
        ("several words", "SIP/2.0 486 Busy Here", 486, "Busy Here"),
        ("no reason", "SIP/2.0 100 ", 100, ""),
        ("not even a space", "SIP/2.0 100", 100, ""),
        ("lower case", "sip/2.0 699 x", 699, "x"),
        ("UTF-8", "SIP/2.0 200 être", 200, "être"),
    ] {
        let octets = INVITE.replace("INVITE sip:bob@b.example SIP/2.0", line);
        let message = lex(octets.as_bytes(), Framing::Stream)
            .unwrap_or_else(|malformed| panic!("{case}: {}", malformed.fault));
        assert!(!message.is_request(), "{case}");
        assert_eq!(
            (message.status(), message.reason()),
            (status, reason.as_bytes()),
            "{case}"
        );
        assert_eq!(
            (message.method(), message.request_uri()),
            (Method::Invite, &b""[..]),
            "{case}"
        );
    }
}

#[test]
fn no_status_line_is_no_message() {
    for line in [
        "SIP/2.0 2000 OK",
        "SIP/2.0 99 x",
        "SIP/2.0 099 x",
        "SIP/2.0 700 x",
        "SIP/2.0 4294967301 x",
        "SIP/2.0 -20 x",
        "SIP/3.0 200 OK",
        "SIP/2.0",
        "SIP/2.0 ",
    ] {
        let octets = INVITE.replace("INVITE sip:bob@b.example SIP/2.0", line);
        let malformed = lex(octets.as_bytes(), Framing::Datagram).expect_err(line);
        assert_eq!(malformed.fault, MessageFault::StartLine, "{line}");
        assert!(malformed.answer.is_none(), "{line}");
    }
}

#[test]
fn what_is_legal_is_read_however_odd() {
    const TICKET: &str = "X-Ticket: 4711";

    for (case, part, odd) in [
        ("empty lines first", "INVITE sip", "\r\n\r\nINVITE sip"),
        ("a compact name", "Via", "v"),
        ("a compact name in upper case", "Content-Length", "L"),
        ("a name in any case", "Call-ID", "cAlL-iD"),
        ("blanks before the colon", "CSeq:", "CSeq \t :"),
        ("no blank behind it", "CSeq: ", "CSeq:"),
        ("a fold before the value", "CSeq: ", "CSeq:\r\n\t"),
        ("a fold inside", "7 INVITE", "7\r\n INVITE"),
        ("an empty value", TICKET, "X-Ticket:"),
        ("a name of odd characters", "X-Ticket", "X.!%*_+`'~"),
        ("a colon in the value", "4711", "a:b\"c<d:e;f"),
        ("the same length twice", TICKET, "l: 4"),
        (
            "octets behind the body",
            "body",
            "bodyINVITE sip:x SIP/2.0\r\n",
        ),
        ("no length", "Content-Length: 4\r\n", ""),
        ("no Max-Forwards", "Max-Forwards: 70\r\n", ""),
        ("the last hop", ": 70", ": 0"),
        ("the most hops", ": 70", ": 255"),
        ("no tag", ";tag=yes", ""),
        ("a tag with an @", "=yes", "=yes@h:1"),
        ("no branch", ";branch=z9hG4bK1", ""),
        ("an unknown method", "INVITE", "%hm~!interesting"),
        ("a method in lower case", "INVITE", "invite"),
        (
            "a version in lower case",
            "b.example SIP/2.0",
            "b.example sip/2.0",
        ),
        (
            "an unknown scheme",
            "sip:bob@b.example SIP",
            "soap.beep://x:3 SIP",
        ),
        ("an escaped NUL in quotes", "\"A;", "\"\\\0A;"),
        (
            "several Vias",
            ";rport",
            ", SIP/2.0/SCTP b, SIP/2.0/UNKNOWN c;x=\"1,2\"",
        ),
        ("empty elements", ";rport", ",, ,SIP/2.0/UDP b,"),
        ("an rport that is none", ";rport", ";rport=x"),
    ] {
        let octets = INVITE.replace(part, odd);
        let read = lex(octets.as_bytes(), Framing::Datagram);
        let message = read.unwrap_or_else(|malformed| panic!("{case}: {}", malformed.fault));
        assert_eq!(message.call_id(), b"x@y", "{case}");
        assert_eq!(message.cseq().number, 7, "{case}");
    }
}

/// The fault of a request that can be answered.
fn answerable_fault_of(case: &str, octets: &str) -> MessageFault {
    let malformed = lex(octets.as_bytes(), Framing::Datagram).expect_err(case);
    let request = malformed.answer.expect(case);
    assert_eq!(request.top_via().branch, Some(&b"z9hG4bK1"[..]), "{case}");
    malformed.fault
}

#[test]
fn what_is_broken_is_refused_with_a_reason() {
    use HeaderName::{CSeq, CallId, ContentLength, From, MaxForwards, To, Via};
    use MessageFault::{
        CSeqMethod, Control, Duplicate, HeaderLine, StartLine, Unreadable, Version,
    };
    const URI: &str = "sip:bob@b.example SIP/2.0";
    const TICKET: &str = "X-Ticket: 4711";
    for (case, part, broken, fault) in [
        (
            "a length past 32 bits",
            "h: 4",
            "h: 4294967299",
            Unreadable(ContentLength),
        ),
        (
            "a negative length",
            "h: 4",
            "h: -4",
            Unreadable(ContentLength),
        ),
        (
            "a length in words",
            "h: 4",
            "h: four",
            Unreadable(ContentLength),
        ),
        (
            "lengths that differ",
            TICKET,
            "l: 3",
            Duplicate(ContentLength),
        ),
        ("a body cut short", "h: 4", "h: 5", MessageFault::BodyShort),
        // Headers that may come once, and those with a form of their own.
        ("two From", TICKET, "f: <sip:x@y>", Duplicate(From)),
        ("two To", TICKET, "t: <sip:x@y>", Duplicate(To)),
        ("two Call-ID", TICKET, "i: x@y", Duplicate(CallId)),
        ("two CSeq", TICKET, "CSEQ: 7 INVITE", Duplicate(CSeq)),
        (
            "two Max-Forwards",
            TICKET,
            "max-forwards: 70",
            Duplicate(MaxForwards),
        ),
        ("too many hops", ": 70", ": 256", Unreadable(MaxForwards)),
        ("hops in words", ": 70", ": many", Unreadable(MaxForwards)),
        ("CSeq of another method", "7 INVITE", "7 BYE", CSeqMethod),
        (
            "CSeq past 31 bits",
            "7 INVITE",
            "2147483648 INVITE",
            Unreadable(CSeq),
        ),
        (
            "CSeq without a number",
            "7 INVITE",
            "INVITE",
            Unreadable(CSeq),
        ),
        // Call-ID, addresses and Via.
        ("a blank in Call-ID", "x@y", "x y", Unreadable(CallId)),
        ("an empty Call-ID", ": x@y", ":", Unreadable(CallId)),
        ("an open quote", "no\" <", "no <", Unreadable(From)),
        (
            "an open bracket",
            "b.example>\r\nCall",
            "b.example\r\nCall",
            Unreadable(To),
        ),
        ("a quoted tag", "tag=yes", "tag=\"yes\"", Unreadable(From)),
        (
            "a second Via that is none",
            ";rport",
            ";;,;,,",
            Unreadable(Via),
        ),
        // Control characters.
        ("a lone line feed", "4711\r\n", "4711\n", Control),
        ("a lone carriage return", "4711", "47\r11", Control),
        ("one in the request line", "bob@b", "b\rb@b", Control),
        ("a NUL", "4711", "47\u{0}11", Control),
        // Lines of headers that every reader needs.
        (
            "a Route without a colon",
            TICKET,
            "Route <sip:a@b;lr>",
            HeaderLine,
        ),
        (
            "a length without a colon",
            TICKET,
            "content-length 4",
            HeaderLine,
        ),
        (
            "a Via folded from its colon",
            TICKET,
            "Via\r\n : SIP/2.0/UDP h",
            HeaderLine,
        ),
        // The start line.
        (
            "two blanks before the URI",
            "INVITE sip",
            "INVITE  sip",
            StartLine,
        ),
        (
            "a blank behind the version",
            "SIP/2.0\r\n",
            "SIP/2.0 \r\n",
            StartLine,
        ),
        (
            "brackets around the URI",
            URI,
            "<sip:bob@b.example> SIP/2.0",
            StartLine,
        ),
        (
            "a blank in the URI",
            URI,
            "sip:bob@b.example; lr SIP/2.0",
            StartLine,
        ),
        ("no URI", URI, " SIP/2.0", StartLine),
        ("another version", URI, "sip:bob@b.example SIP/7.0", Version),
        (
            "another protocol",
            URI,
            "sip:bob@b.example HTTP/1.1",
            StartLine,
        ),
    ] {
        let octets = INVITE.replacen(part, broken, 1);
        assert_eq!(answerable_fault_of(case, &octets), fault, "{case}");
    }
}

#[test]
fn a_line_that_is_no_header_is_skipped_and_counted() {
    const TICKET: &str = "X-Ticket: 4711";
    for (case, part, stray, first, count) in [
        ("no colon", TICKET, "X-Ticket 4711", 10, 1),
        ("no name", TICKET, ": 4711", 10, 1),
        ("a blank in the name", TICKET, "X Ticket: 4711", 10, 1),
        ("a name that is no token", TICKET, "Ünïcode: x", 10, 1),
        (
            "folded from its colon",
            TICKET,
            "X-Ticket\r\n : 4711",
            10,
            1,
        ),
        ("a word of one letter", TICKET, "I am no header", 10, 1),
        (
            "with folds of its own",
            TICKET,
            "stray\r\n : x\r\n\ty: z",
            10,
            1,
        ),
        ("several", TICKET, "one\r\ntwo\r\n: three", 10, 3),
        (
            "behind the start line",
            "Via: SIP",
            " folded: x\r\nVia: SIP",
            2,
            1,
        ),
    ] {
        for (kind, start) in [
            ("request", "INVITE sip:bob@b.example SIP/2.0"),
            ("answer", "SIP/2.0 200 OK"),
        ] {
            let octets = INVITE.replacen("INVITE sip:bob@b.example SIP/2.0", start, 1);
            let octets = octets.replacen(part, stray, 1);
            let message = lex(octets.as_bytes(), Framing::Stream)
                .unwrap_or_else(|malformed| panic!("{kind}, {case}: {malformed}"));
            let skipped = message.skipped_lines().expect(case);
            assert_eq!(
                (skipped.first, skipped.count),
                (first, count),
                "{kind}, {case}"
            );
            let names: Vec<_> = message.headers().map(|header| header.raw_name).collect();
            let kept = if part == TICKET { 9 } else { 10 };
            assert_eq!(names.len(), kept, "{kind}, {case}");
            assert_eq!(message.body(), b"body", "{kind}, {case}");
        }
    }
    let sound = lex(INVITE.as_bytes(), Framing::Datagram).expect("a request");
    assert_eq!(sound.skipped_lines(), None);
}

#[test]
fn a_fault_names_its_line() {
    let answer =
        |octets: &str| octets.replacen("INVITE sip:bob@b.example SIP/2.0", "SIP/2.0 200 OK", 1);
    for (case, part, broken, said) in [
        ("a header", "To: <", "To: ", "line 5: To cannot be read"),
        (
            "behind a fold",
            "70\r\n",
            "\r\n 70\r\nt: <sip:x@y>\r\n",
            "line 7: To occurs twice",
        ),
        (
            "a control character",
            "4711",
            "47\r11",
            "line 10: a control character breaks a line",
        ),
        (
            "a missing header",
            "CSeq: 7 INVITE\r\n",
            "",
            "CSeq is missing",
        ),
        (
            "a length",
            "h: 4",
            "h: 9",
            "line 11: the body is shorter than Content-Length says",
        ),
    ] {
        let octets = answer(&INVITE.replacen(part, broken, 1));
        let malformed = lex(octets.as_bytes(), Framing::Datagram).expect_err(case);
        assert_eq!(malformed.to_string(), said, "{case}");
        let response = malformed.response.expect(case);
        assert_eq!(response.status(), 200, "{case}");
        assert_eq!(response.top_via().branch, Some(&b"z9hG4bK1"[..]), "{case}");
    }
    // No answer has a Max-Forwards that anybody needs.
    let octets = answer(&INVITE.replacen(": 70", ": many", 1));
    assert!(lex(octets.as_bytes(), Framing::Datagram).is_ok());
}

#[test]
fn what_every_message_has_is_missed() {
    for name in [
        HeaderName::From,
        HeaderName::To,
        HeaderName::CallId,
        HeaderName::CSeq,
    ] {
        let octets = without(name.as_str());
        let fault = answerable_fault_of(name.as_str(), &octets);
        assert_eq!(fault, MessageFault::Missing(name));
    }
    let end = INVITE.find("\r\n\r\n").expect("the end of the header");
    for cut in [end, end + 2] {
        let fault = answerable_fault_of("cut", &INVITE[..cut]);
        assert_eq!(fault, MessageFault::NoBlankLine, "cut at {cut}");
    }
}

#[test]
fn what_no_answer_would_reach_is_dropped() {
    for (case, octets) in [
        ("nothing", String::new()),
        ("line ends", "\r\n\r\n".to_owned()),
        ("no Via", without("Via")),
        ("no transport", INVITE.replace("SIP/2.0/UDP ", "")),
        (
            "a line that is none",
            INVITE.replace("INVITE sip:bob@b.example SIP/2.0", "hello"),
        ),
        (
            "no version at all",
            INVITE.replace("INVITE sip:bob@b.example SIP/2.0", "INVITE sip:b"),
        ),
        ("no line end", "INVITE sip:b SIP/2.0".to_owned()),
        (
            "an ACK",
            INVITE.replace("INVITE", "ACK").replace(": x@y", ": x y"),
        ),
        (
            "a response",
            INVITE
                .replace("INVITE sip:bob@b.example SIP/2.0", "SIP/2.0 200 OK")
                .replace(": x@y", ": x y"),
        ),
    ] {
        let malformed = lex(octets.as_bytes(), Framing::Datagram).expect_err(case);
        assert!(malformed.answer.is_none(), "{case}");
    }
}

#[test]
fn on_a_stream_the_length_is_needed() {
    let octets = without("Content-Length");
    let malformed = lex(octets.as_bytes(), Framing::Stream).expect_err("no length");
    assert_eq!(
        malformed.fault,
        MessageFault::Missing(HeaderName::ContentLength)
    );
    assert!(malformed.answer.is_some());
}

#[test]
fn every_bound_holds() {
    let instead = |of: &str, piece: &str, count: usize, end: &str| {
        INVITE.replace(of, &(piece.repeat(count) + end))
    };
    let lines = |count| instead("X-Ticket", "X-A: b\r\n", count, "X-Ticket");
    let vias = |count| instead(";rport", ", SIP/2.0/UDP h", count, "");
    let via_lines = |count| instead("Max-", "v: SIP/2.0/UDP h\r\n", count, "Max-");
    let value = |length| instead("4711", "x", length, "");
    let folds = |count| instead("4711", "x\r\n ", count, "x");
    let uri = |length| instead("sip:bob@b.example SIP", "s", length, " SIP");
    for (case, octets, fault) in [
        ("200 lines", lines(190), None),
        ("201 lines", lines(191), Some(MessageFault::TooManyLines)),
        ("70 Vias on a line", vias(69), None),
        (
            "71 Vias on a line",
            vias(70),
            Some(MessageFault::TooManyVias),
        ),
        ("70 lines of Via", via_lines(69), None),
        (
            "71 lines of Via",
            via_lines(70),
            Some(MessageFault::TooManyVias),
        ),
        ("a line of 8 KiB", value(8_192 - 10), None),
        (
            "a longer line",
            value(8_192 - 9),
            Some(MessageFault::LineTooLong),
        ),
        ("2,000 folds", folds(2_000), None),
        ("2,100 folds", folds(2_100), Some(MessageFault::LineTooLong)),
        ("a URI of 8 KiB", uri(8_192), None),
        ("a longer URI", uri(8_193), Some(MessageFault::UriTooLong)),
    ] {
        assert_eq!(fault_of(octets.as_bytes()), fault, "{case}");
    }

    let mut large = INVITE.as_bytes().to_vec();
    large.resize(MAX_MESSAGE, b'x');
    assert_eq!(fault_of(&large), None);
    large.push(b'x');

    assert_eq!(fault_of(&large), Some(MessageFault::TooLarge));
}

#[test]
fn a_final_answer_past_a_bound_is_cut() {
    let answer = |status: u16| {
        let line = format!("SIP/2.0 {status} x");
        INVITE.replace("INVITE sip:bob@b.example SIP/2.0", &line)
    };
    let long_line = |answer: String| answer.replace("4711", &"x".repeat(8_192));
    let many_lines =
        |answer: String| answer.replace("X-Ticket", &("X-A: b\r\n".repeat(200) + "X-Ticket"));
    let many_vias = |answer: String| answer.replace(";rport", &", SIP/2.0/UDP h".repeat(70));

    for (case, octets, left_out) in [
        ("a long line", long_line(answer(503)), Some("X-Ticket")),
        ("many lines", many_lines(answer(200)), Some("X-Ticket")),
        ("many Vias", many_vias(answer(603)), None),
    ] {
        let message = lex(octets.as_bytes(), Framing::Datagram).expect(case);
        assert!(message.is_cut(), "{case}");
        assert_eq!(message.call_id(), b"x@y", "{case}");
        if let Some(name) = left_out {
            let mut names = message.headers().map(|header| header.raw_name);
            assert!(names.all(|raw| raw != name.as_bytes()), "{case}");
        }
    }

    let whole = answer(503);
    let message = lex(whole.as_bytes(), Framing::Datagram).expect("an answer");
    assert!(!message.is_cut());
    // Not cut: a 183 could lose a header that a reliable one needs, and another 183 may follow it.
    let early = long_line(answer(183));
    assert_eq!(fault_of(early.as_bytes()), Some(MessageFault::LineTooLong));
    // A cut response must keep the headers that identify it.
    let nobodys = long_line(answer(503)).replace(": x@y", ": x y");
    assert_eq!(
        fault_of(nobodys.as_bytes()),
        Some(MessageFault::Unreadable(HeaderName::CallId))
    );
}

#[test]
fn each_status_has_its_fault() {
    for (fault, status) in [
        (MessageFault::Version, 505),
        (MessageFault::UriTooLong, 414),
        (MessageFault::LineTooLong, 513),
        (MessageFault::TooManyLines, 513),
        (MessageFault::TooManyVias, 513),
        (MessageFault::Missing(HeaderName::To), 400),
    ] {
        assert_eq!(fault.status(), status, "{fault}");
        assert_ne!(print::reason_phrase(status), "");
    }
}

/// A message with some octets exchanged, doubled or removed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        any::<prop::sample::Index>(),
        0..4_u8,
        prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\r\n \t:;,<>\"\\=\0/@".to_vec())
        ],
    );

    prop::collection::vec(edit, 0..12).prop_map(|edits| {
        let mut octets = INVITE.as_bytes().to_vec();
        for (at, kind, octet) in edits {
            let at = at.index(octets.len());
            match kind {
                0 => octets[at] = octet,
                1 => octets.insert(at, octet),
                2 => drop(octets.remove(at)),
                _ => octets.extend_from_within(at..),
            }
        }
        octets
    })
}

/// Calls every accessor of a message.
fn exhaust(message: &Message<'_>) {
    for header in message.headers() {
        assert_eq!(HeaderName::from_bytes(header.raw_name), header.name);
        assert!(message.all(header.name).any(|value| value == header.value));
        assert!(!header.unfolded().contains(&b'\n'));
        assert!(message.elements(header.name).count() <= message.raw().len());
        let _ = (message.number(header.name), message.other("X-Ticket"));
    }
    assert!(message.raw().ends_with(message.body()));
}

proptest! {
    #[test]
    fn no_octets_panic(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = lex(&octets, Framing::Datagram);
        let _ = lex(&octets, Framing::Stream);
    }

    #[test]
    fn no_mutation_panics(octets in mutated()) {
        for framing in [Framing::Datagram, Framing::Stream] {
            match lex(&octets, framing) {
                Ok(message) => exhaust(&message),
                Err(malformed) => {
                    if let Some(request) = malformed.answer {
                        prop_assert!(request.is_request());
                        exhaust(&request);
                    }
                }
            }
        }
    }

    /// An accepted message, lexed again without the octets after its end, reads the same.
    #[test]
    fn a_message_is_the_same_without_what_follows_it(octets in mutated()) {
        if let Ok(message) = lex(&octets, Framing::Datagram) {
            let again = lex(message.raw(), Framing::Datagram).expect("what was read can be read");
            prop_assert_eq!(again.raw(), message.raw());
            prop_assert_eq!(again.body(), message.body());
            prop_assert!(again.headers().eq(message.headers()));
        }
    }
}
