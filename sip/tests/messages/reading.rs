//! Facts read from messages that are hard to read.

use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::uri::{Host, Uri};
use trunkline_sip::wire::invite::{self, Invite};
use trunkline_sip::wire::{Framing, HeaderName, Message, lex};

use trunkline_testkit::corpus::{Case, cases};

/// The message, if its set is present; our own sets always are.
fn octets(set: &str, name: &str) -> Option<Vec<u8>> {
    let found = cases()
        .into_iter()
        .find(|case| case.set == set && case.name == name);
    assert!(found.is_some() || set != "own", "no message {name}");
    found.map(|case| case.octets)
}

fn with(set: &str, name: &str, look: impl FnOnce(&Message<'_>)) {
    if let Some(octets) = octets(set, name) {
        look(
            &lex(&octets, Framing::Datagram)
                .unwrap_or_else(|refused| panic!("{name}: {}", refused.fault)),
        );
    }
}

fn invite(name: &str) -> Invite {
    let octets = octets("own", name).expect("ours");
    let message = lex(&octets, Framing::Datagram).expect("valid");
    invite::read(&message).unwrap_or_else(|difference| panic!("{name}: {difference}"))
}

/// Admission and routing see the same facts however the message is written.
#[test]
fn facts_survive_every_spelling() {
    for name in [
        "compact-forms",
        "folded-lines",
        "blank-before-colon",
        "ipv6-uri",
        "tel-uri",
        "length-too-small",
        "length-twice",
        "length-absent",
        "length-in-a-fold",
        "vias-on-one-line",
        "blank-in-via",
        "uri-with-headers",
        "authorization-of-8-kb",
        "authorization-of-open-quotes",
        "digest-sha-256",
        "binary-body",
        "several-bodies",
        "comma-in-a-name",
        "empty-tag",
        "no-tag",
    ] {
        let read = invite(name);

        let digits = |user: Option<String>| user.map(|user| user.replace('-', ""));
        assert_eq!(
            digits(read.request_uri_user()).as_deref(),
            Some("+4930123456"),
            "{name}"
        );
        assert_eq!(
            digits(read.to_user()).as_deref(),
            Some("+4930123456"),
            "{name}"
        );
        assert_eq!(read.from_user().as_deref(), Some("+441632960001"), "{name}");
        assert!(!read.is_anonymous(), "{name}");
    }
}

#[test]
fn users_are_read_whole() {
    assert_eq!(
        invite("dotted-user").request_uri_user().as_deref(),
        Some("john.doe")
    );
    assert_eq!(
        invite("user-with-parameters").request_uri_user().as_deref(),
        Some("+4930123456;npdi;rn=+49301")
    );
    assert_eq!(invite("no-user").request_uri_user(), None);
    assert_eq!(invite("utf-8").from_user().as_deref(), Some("ü"));
    assert_eq!(
        invite("latin-1").from_display().as_deref(),
        Some("J\u{fffd}rgen")
    );
    assert_eq!(
        invite("comma-in-a-name").from_display().as_deref(),
        Some("Lovelace, Ada; \"Countess\" <sip:x@y>")
    );
    assert_eq!(
        invite("folded-lines").header("X-Subject").next(),
        Some("one two three")
    );
}

#[test]
fn a_body_is_taken_octet_for_octet() {
    with("own", "binary-body", |message| {
        assert_eq!(message.body(), b"\0\r\n\r\n\xff\xfeINVITE \n\r\0");
    });
    with("own", "length-too-small", |message| {
        assert_eq!(message.body(), b"v=0")
    });
    with("rfc4475", "mpart01", |message| {
        assert_eq!(message.body().len(), 553)
    });
}

#[test]
fn white_space_is_where_it_may_be() {
    with("rfc4475", "wsinv", |message| {
        assert_eq!(message.to_tag(), Some(&b"1918181833n"[..]));
        assert_eq!(message.from_tag(), Some(&b"98asjd8"[..]));
        assert_eq!(message.cseq().number, 9);
        assert_eq!(message.number(HeaderName::MaxForwards), Some(68));
        assert_eq!(message.body().len(), 150);
        let branches: Vec<_> = vias(message);
        assert_eq!(branches, ["390skdjuw", "z9hG4bK9ikj8", "z9hG4bK30239"]);
        assert_eq!(message.first(HeaderName::Subject), Some(&b""[..]));
        let contact = NameAddr::parse(message.first(HeaderName::Contact).expect("a Contact"))
            .expect("an address");
        assert_eq!(contact.param("newparam"), Some(Some(&b"newvalue"[..])));
        assert_eq!(contact.param("q"), Some(Some(&b"0.33"[..])));
    });
}

fn vias<'m>(message: &Message<'m>) -> Vec<&'m str> {
    let branches = message.elements(HeaderName::Via).map(|via| {
        let via = trunkline_sip::header::via::Via::parse(via).expect("a Via");
        std::str::from_utf8(via.branch.expect("a branch")).expect("text")
    });
    branches.collect()
}

#[test]
fn every_octet_that_may_stand_somewhere_does() {
    with("rfc4475", "intmeth", |message| {
        assert_eq!(
            message.method_token(),
            b"!interesting-Method0123456789_*+`.%indeed'~"
        );
        assert_eq!(message.cseq_method_token(), message.method_token());
        assert_eq!(message.top_via().branch, Some(&b"z9hG4bK-.!%66*_+`'~"[..]));
        assert_eq!(message.from_tag(), Some(&b"_token~1'+`*%!-."[..]));
        let uri = Uri::parse(message.request_uri()).expect("a URI");
        assert_eq!(uri.host, Host::Name(b"example.com"));
        assert_eq!(
            uri.user,
            Some(&b"1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*"[..])
        );
        let to = NameAddr::parse(message.to()).expect("an address");
        assert_eq!(
            to.display_text().as_deref(),
            Some(&b"BEL:\x07 NUL:\0 DEL:\x7f"[..])
        );
    });
}

#[test]
fn the_user_is_the_part_before_the_at_sign() {
    with("rfc4475", "semiuri", |message| {
        let uri = Uri::parse(message.request_uri()).expect("a URI");
        assert_eq!(&*uri.user_unescaped(), b"user;par=u@example.net");
    });
    with("rfc4475", "esc01", |message| {
        let uri = Uri::parse(message.request_uri()).expect("a URI");
        assert_eq!(
            (&*uri.user_unescaped(), uri.host),
            (&b"sips:user@example.com"[..], Host::Name(b"example.net"))
        );
    });
}

#[test]
fn an_address_of_ipv6_ends_at_its_bracket() {
    for (name, port) in [("port-ambiguous", None), ("port-unambiguous", Some(5070))] {
        with("rfc5118", name, |message| {
            assert_eq!(
                Uri::parse(message.request_uri()).expect("a URI").port,
                port,
                "{name}"
            );
        });
    }

    for name in ["ipv6-bug-abnf-3-colons", "ipv6-correct-abnf-2-colons"] {
        with("rfc5118", name, |message| {
            let uri = Uri::parse(message.request_uri()).expect("a URI");
            assert_eq!(
                uri.host,
                Host::V6("2001:db8::192.0.2.1".parse().expect("an address")),
                "{name}"
            );
        });
    }
}

#[test]
fn only_the_first_message_of_a_datagram_counts() {
    let all = [
        ("own", "another-behind-it"),
        ("built4475", "dblreq"),
        ("rfc4475", "dblreq"),
    ];
    for (set, name) in all {
        with(set, name, |message| {
            assert!(message.body().is_empty(), "{name}")
        });
    }
    let held = cases().into_iter().filter(|case| case.tcp.0.len() > 1);
    for Case { name, octets, .. } in held {
        let message = lex(&octets, Framing::Datagram).expect("valid");
        assert!(message.raw().len() < octets.len(), "{name}");
    }
}
