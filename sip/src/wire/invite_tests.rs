//! The INVITE through rsip: where both readers agree, where they differ, and the INVITEs that rsip can't read by itself.

use proptest::prelude::*;
use rsip::headers::ToTypedHeader;
use rsip::message::HeadersExt;

use super::*;
use crate::wire::{Framing, HeaderName, MessageFault, lex};

/// An INVITE with every oddity that `rsip` can't read, except those in `uri` and `more`.
fn odd_invite(uri: &str, more: &str) -> Vec<u8> {
    format!(
        "INVITE {uri} SIP/2.0\r\nv: SIP/2.0/UDP h ;branch=z9hG4bK1, SIP/2.0/UDP i;branch=z9hG4bK2\r\n\
         f: \"A, B\" <sip:+15550001@a.example>;tag=1\r\nt: <sip:bob@b.example>\r\ni: x@y\r\n\
         CSeq : 7  INVITE\r\nm: <sip:a@192.0.2.1>\r\n{more}l: 0\r\n\r\n"
    )
    .into_bytes()
}

/// An INVITE that `rsip` reads unchanged.
const PLAIN: &str = "INVITE sip:bob@b.example SIP/2.0\r\nVia: SIP/2.0/UDP h.example;branch=z9hG4bK1\r\n\
    From: <sip:a@a.example>;tag=1\r\nTo: <sip:bob@b.example>\r\nCall-ID: x@y\r\nCSeq: 7 INVITE\r\n\
    Subject: x\r\nContent-Length: 4\r\n\r\nbody";

fn read_one(octets: &[u8]) -> Result<Invite, Difference> {
    read(&lex(octets, Framing::Datagram).expect("a well-formed message"))
}

fn by_rsip(octets: &[u8]) -> Result<rsip::Request, rsip::Error> {
    rsip::Request::try_from(octets)
}

#[test]
fn the_request_is_the_one_that_rsip_read() {
    for (case, uri, parsed) in [
        ("plain", "sip:100@h.example", true),
        (
            "port and parameters",
            "sip:100@h.example:5080;user=phone;x",
            true,
        ),
        ("secure", "sips:100@192.0.2.1", true),
        (
            "a transport in capitals",
            "sip:100@h.example;transport=TCP",
            true,
        ),
        ("a dot in the user", "sip:john.doe@h.example", true),
        ("IPv6", "sip:100@[2001:db8::10]:5070", false),
        ("a telephone number", "tel:+1-555-0100", false),
        (
            "an unknown transport",
            "sip:100@h.example;transport=pigeon",
            false,
        ),
        ("headers", "sip:100@h.example?X-A=b", false),
        ("an unknown scheme", "soap.beep://h", false),
    ] {
        let read = read_one(&odd_invite(uri, ""));
        let read = read.unwrap_or_else(|difference| panic!("{case}: {difference}"));
        assert_eq!(read.built_from_parts(), !parsed, "{case}");
        assert_eq!(read.from_user().as_deref(), Some("+15550001"), "{case}");
        assert_eq!(read.to_user().as_deref(), Some("bob"), "{case}");
    }
}

#[test]
fn the_user_of_the_request_uri_is_found() {
    for (uri, user) in [
        ("sip:john.doe@example.com", Some("john.doe")),
        ("sip:100@[2001:db8::10]:5070", Some("100")),
        ("tel:+1-555-000-2;phone-context=x", Some("+1-555-000-2")),
        ("sip:100@h.example?X-A=b", Some("100")),
        (
            "sip:100;phone-context=x.y@h.example",
            Some("100;phone-context=x.y"),
        ),
        (
            "tel:2025550101;phone-context=+1",
            Some("2025550101;phone-context=+1"),
        ),
        (
            "tel:7042;isub=1;phone-context=pbx.example",
            Some("7042;phone-context=pbx.example"),
        ),
        (
            "sip:2025550101@h.example;phone-context=%2B1",
            Some("2025550101;phone-context=+1"),
        ),
        ("sip:a%20b%40c@h.example", Some("a b@c")),
        ("sip:%e9@h.example", Some("\u{fffd}")),
        ("sip:100:secret@h.example", Some("100")),
        ("sip:#31#*5@h.example", Some("#31#*5")),
        ("SIP:100@H.EXAMPLE", Some("100")),
        ("sip:h.example", None),
        ("sip:h.example:5060;lr", None),
        ("soap.beep://x@y", None),
    ] {
        let read = read_one(&odd_invite(uri, ""));
        let read = read.unwrap_or_else(|difference| panic!("{uri}: {difference}"));
        assert_eq!(read.request_uri_user().as_deref(), user, "{uri}");
    }
}

#[test]
fn facts_are_found_in_folded_compact_and_repeated_headers() {
    for uri in ["sip:100@h", "tel:100"] {
        let more = "P-Asserted-Identity: \"X\" <sip:+15551@h>,\r\n <tel:+15552>\r\nX-PLATFORM-AGENT-ID :\r\n  abc\r\n\
            Organization: \r\n caf\u{e9}\r\np-asserted-identity: sip:+15553@h\r\nX-Blank: \r\ns: nobody asks\r\n";
        let read = read_one(&odd_invite(uri, more)).expect("one reading");
        assert_eq!(read.asserted_identities(), ["+15551", "+15552", "+15553"]);
        let host_alone = "P-Asserted-Identity: <sip:pbx.example.com>\r\n";
        let read_too = read_one(&odd_invite(uri, host_alone)).expect("one reading");
        assert_eq!(read_too.asserted_identities(), [""; 0]);
        assert_eq!(read.from_display().as_deref(), Some("A, B"));
        for (name, value) in [
            ("x-platform-agent-id", Some("abc")),
            ("Organization", Some("caf\u{e9}")),
            ("Subject", None),
            ("X-Blank", None),
            ("X-Absent", None),
        ] {
            assert_eq!(read.header(name).next(), value, "{name} of {uri}");
        }
        assert!(!read.is_anonymous());
    }
}

/// RFC 3966 §5.1.5.
#[test]
fn a_local_number_keeps_its_context_in_every_header() {
    for (case, address, user) in [
        (
            "tel:",
            "<tel:2025550188;phone-context=+1>",
            "2025550188;phone-context=+1",
        ),
        (
            "tel: without brackets",
            "tel:2025550188;phone-context=+1",
            "2025550188;phone-context=+1",
        ),
        (
            "sip:",
            "<sip:2025550188;phone-context=+1@x.example>",
            "2025550188;phone-context=+1",
        ),
        (
            "a global number",
            "<tel:+12025550188;phone-context=+44>",
            "+12025550188",
        ),
    ] {
        let octets = PLAIN
            .replace(
                "From: <sip:a@a.example>;tag=1",
                &format!("From: {address};tag=1"),
            )
            .replace("To: <sip:bob@b.example>", &format!("To: {address}"))
            .replace(
                "Subject: x",
                &format!("P-Asserted-Identity: <sip:b@c>, {address}"),
            );
        assert_eq!(octets.matches(address).count(), 3, "{case}");
        let read =
            read_one(octets.as_bytes()).unwrap_or_else(|difference| panic!("{case}: {difference}"));
        assert_eq!(read.from_user().as_deref(), Some(user), "{case}");
        assert_eq!(read.to_user().as_deref(), Some(user), "{case}");
        assert_eq!(read.asserted_identities(), ["b", user], "{case}");
    }
}

#[test]
fn anonymity_is_seen() {
    for (case, from, privacy, anonymous) in [
        ("nothing asked", "sip:+15550001@a.example", "", false),
        (
            "nothing to hide",
            "sip:+15550001@a.example",
            "Privacy: none\r\n",
            false,
        ),
        (
            "the identity",
            "sip:+15550001@a.example",
            "Privacy: header;ID\r\n",
            true,
        ),
        (
            "in a second line",
            "sip:1@h",
            "Privacy: critical\r\nPrivacy: id\r\n",
            true,
        ),
        (
            "who was called before",
            "sip:1@h",
            "Privacy: history\r\n",
            true,
        ),
        (
            "only its urgency",
            "sip:1@h",
            "Privacy: critical\r\n",
            false,
        ),
        (
            "a From of nobody",
            "sip:anonymous@anonymous.invalid",
            "",
            true,
        ),
        ("nobody's host", "sip:x@Anonymous.Invalid", "", true),
        ("nobody's name", "sip:Anonymous@h", "", true),
    ] {
        let octets = String::from_utf8(odd_invite("sip:1@h", privacy)).expect("text");
        let octets = octets.replace("sip:+15550001@a.example", from);
        let read = read_one(octets.as_bytes()).expect("one reading");
        assert_eq!(read.is_anonymous(), anonymous, "{case}");
    }
}

#[test]
fn a_request_uri_that_is_none_is_no_request() {
    for uri in [
        "bob",
        "sip:",
        "sip:a@b@c",
        "sip:a@h:x",
        "sip:a@[::1",
        "tel:bob",
    ] {
        let difference = read_one(&odd_invite(uri, "")).expect_err(uri);
        assert_eq!(difference, Difference("Request-URI"), "{uri}");
    }
}

#[test]
fn two_readings_are_no_request() {
    let octets = odd_invite("sip:100@h.example", "");
    let message = lex(&octets, Framing::Datagram).expect("a request");
    let text = normalise::request_text(&message);

    for (what, part, other) in [
        ("Request-URI", "sip:100@", "sip:101@"),
        ("Request-URI", "h.example SIP", "h.example:5061 SIP"),
        ("Request-URI", "sip:100@h", "sips:100@h"),
        ("Call-ID", "x@y", "x@z"),
        ("CSeq", "7  INVITE", "8 INVITE"),
        ("CSeq", "7  INVITE", "7 BYE"),
        ("From", "tag=1", "tag=2"),
        ("To", "<sip:bob@b.example>", "<sip:bob@b.example>;tag=3"),
        ("Via", "z9hG4bK1", "z9hG4bK2"),
    ] {
        let request = by_rsip(text.replacen(part, other, 1).as_bytes()).expect("rsip reads it");
        let invite = Invite::unread(request, false);
        let uri = Uri::parse(message.request_uri()).expect("a URI");
        assert_eq!(
            invite.compare(&message, &uri),
            Err(Difference(what)),
            "{other}"
        );
    }
}

/// Messages that `rsip` 0.4.0 refuses and SIP allows.
#[test]
fn what_rsip_refuses_is_read() {
    let (before, behind) = PLAIN.split_once("<sip:a@").expect("From");
    let latin1 = [
        before.as_bytes(),
        b"\"Andr\xe9\" <sip:a@",
        behind.as_bytes(),
    ]
    .concat();
    assert!(by_rsip(PLAIN.as_bytes()).is_ok());

    for (case, octets) in [
        (
            "a fold",
            PLAIN.replace("Subject: x", "Subject: x\r\n y").into(),
        ),
        (
            "a blank before the colon",
            PLAIN.replace("Subject:", "Subject :").into(),
        ),
        (
            "IPv6",
            PLAIN
                .replace("sip:bob@b.example SIP", "sip:bob@[2001:db8::1] SIP")
                .into(),
        ),
        ("no UTF-8", latin1),
    ] {
        assert!(by_rsip(&octets).is_err(), "{case}: rsip has learnt it");
        let read = read_one(&octets).unwrap_or_else(|difference| panic!("{case}: {difference}"));
        assert_eq!(read.from_user().as_deref(), Some("a"), "{case}");
    }

    let unknown = PLAIN.replace("INVITE", "FETCH");
    assert!(by_rsip(unknown.as_bytes()).is_err());

    let message = lex(unknown.as_bytes(), Framing::Datagram).expect("a request");
    assert_eq!(message.method_token(), b"FETCH");
}

/// Messages that `rsip` 0.4.0 accepts and misreads.
#[test]
fn what_rsip_misreads_is_read() {
    let compact = PLAIN.replace("From", "f");
    let theirs = by_rsip(compact.as_bytes()).expect("rsip reads it");
    assert!(theirs.from_header().is_err());
    let ours = read_one(compact.as_bytes()).expect("one reading");
    assert_eq!(ours.from_user().as_deref(), Some("a"));

    let dotted = PLAIN.replace("sip:bob@b.example SIP", "sip:john.doe@b.example SIP");
    let theirs = by_rsip(dotted.as_bytes()).expect("rsip reads it");
    assert_eq!(theirs.uri.user(), None);
    let ours = read_one(dotted.as_bytes()).expect("one reading");
    assert_eq!(ours.request_uri_user().as_deref(), Some("john.doe"));

    let number = PLAIN.replace("sip:bob@b.example SIP", "tel:+15550100 SIP");
    let theirs = by_rsip(number.as_bytes()).map(|request| request.uri.user().is_some());
    assert!(!theirs.is_ok_and(|has_user| has_user));
    let ours = read_one(number.as_bytes()).expect("one reading");
    assert_eq!(ours.request_uri_user().as_deref(), Some("+15550100"));
}

#[test]
fn vias_that_rsip_loses_are_kept() {
    let octets = PLAIN
        .replace("h.example;", "h.example ;")
        .replace("bK1", "bK1, SIP/2.0/TCP second");
    let theirs = by_rsip(octets.as_bytes()).expect("rsip reads it");
    let via = theirs.via_header().expect("a Via");
    let branch = via
        .typed()
        .ok()
        .and_then(|via| via.branch().map(ToString::to_string));
    assert_ne!(branch.as_deref(), Some("z9hG4bK1"));

    let message = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
    assert_eq!(message.top_via().branch, Some(&b"z9hG4bK1"[..]));

    let ours = read(&message).expect("one reading");
    let vias: Vec<&str> = ours.values("Via").collect();
    assert_eq!(
        vias,
        [
            "SIP/2.0/UDP h.example ;branch=z9hG4bK1",
            "SIP/2.0/TCP second"
        ]
    );
}

/// Messages that `rsip` 0.4.0 accepts and must not.
#[test]
fn what_rsip_accepts_wrongly_is_refused() {
    let end = PLAIN.find("\r\n\r\n").expect("the end of the header");
    for (case, octets, fault) in [
        (
            "cut before the blank line",
            PLAIN[..end + 2].to_owned(),
            MessageFault::NoBlankLine,
        ),
        (
            "a body that is too short",
            PLAIN.replace("h: 4", "h: 40"),
            MessageFault::BodyShort,
        ),
        (
            "no length at all",
            PLAIN.replace("h: 4", "h: x"),
            MessageFault::Unreadable(HeaderName::ContentLength),
        ),
        (
            "no CSeq",
            PLAIN.replace("CSeq: 7 INVITE\r\n", ""),
            MessageFault::Missing(HeaderName::CSeq),
        ),
        (
            "another CSeq",
            PLAIN.replace("7 INVITE", "7 BYE"),
            MessageFault::CSeqMethod,
        ),
    ] {
        assert!(
            by_rsip(octets.as_bytes()).is_ok(),
            "{case}: rsip has learnt it"
        );
        let malformed = lex(octets.as_bytes(), Framing::Datagram).expect_err(case);
        assert_eq!(malformed.fault, fault, "{case}");
    }
}

/// `rsip`'s parser for credentials takes quadratic time, and knows neither SHA-256 nor counts above 9.
#[test]
fn rsip_sees_no_credentials() {
    let credentials = "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:bob@b.example\", response=\"0\", \
        algorithm=SHA-256, qop=auth, nc=0000000a, cnonce=\"c\"";
    let octets = PLAIN.replace("Subject: x", &format!("Authorization: {credentials}"));
    let theirs = by_rsip(octets.as_bytes()).expect("rsip reads it");
    let header = theirs.authorization_header().expect("credentials");
    assert!(header.typed().is_err(), "rsip has learnt it");
    let message = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
    assert_eq!(
        message.first(HeaderName::Authorization),
        Some(credentials.as_bytes())
    );
    assert!(!normalise::request_text(&message).contains("Digest"));

    assert_eq!(
        read(&message)
            .expect("one reading")
            .header("Authorization")
            .next(),
        None
    );
}

/// `rsip`'s serialiser turns a body into text, and its errors repeat the packet.
#[test]
fn rsip_neither_prints_nor_explains() {
    let binary = [PLAIN.as_bytes(), b"\xff\xfe"].concat();
    let theirs = by_rsip(&binary).expect("rsip reads it").to_string();
    assert!(
        !theirs.as_bytes().ends_with(b"\xff\xfe"),
        "rsip has learnt it"
    );
    let octets = PLAIN.replace("Subject: x", "Route x-secret");
    let theirs = by_rsip(octets.as_bytes())
        .expect_err("no colon")
        .to_string();
    assert!(theirs.contains("x-secret"));
    let ours = lex(octets.as_bytes(), Framing::Datagram).expect_err("no colon");
    assert!(!ours.fault.to_string().contains("x-secret"));
}

proptest! {
    /// Every URI that the header parsers accept has one reading: theirs.
    #[test]
    fn no_uri_is_refused_for_being_odd(
        scheme in "(sip|sips|SIP|tel)", user in "([a-z0-9.+*#;=:%?&/_~!$,()'-]{0,9}@)?",
        host in "(h|h-1\\.example|H\\.EXAMPLE|192\\.0\\.2\\.1|\\[2001:db8::1\\]|[0-9.+-]{1,9})", port in "(:5060|:0|:1)?",
        params in "(;(lr|transport=(udp|TCP|x)|user=phone|maddr=1\\.2\\.3\\.4|method=INVITE|method=x|x=%20|[a-z.=%]{0,5})){0,2}",
        headers in "(\\?a=b)?",
    ) {
        let text = format!("{scheme}:{user}{host}{port}{params}{headers}");
        let octets = odd_invite(&text, "");
        let message = lex(&octets, Framing::Datagram).expect("a request");
        match (Uri::parse(text.as_bytes()), read(&message)) {
            (Ok(uri), Ok(invite)) => {
                let user = uri.user.map(|_| String::from_utf8_lossy(&uri.user_unescaped()).into_owned());
                prop_assert_eq!(invite.request_uri_user(), user);
            }
            (Ok(_), Err(difference)) => prop_assert!(false, "{}: {}", text, difference),
            (Err(_), read) => prop_assert!(read.is_err()),
        }
    }
}
