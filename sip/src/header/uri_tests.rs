//! The URIs that the parser accepts and refuses: RFC 3261 §19.1.3, RFC 4475, RFC 5118, and random octets.

use proptest::prelude::*;

use super::*;

fn read(uri: &str) -> Uri<'_> {
    Uri::parse(uri.as_bytes()).unwrap_or_else(|fault| panic!("{uri}: {fault}"))
}

fn text(octets: Option<&[u8]>) -> Option<&str> {
    octets.map(|octets| std::str::from_utf8(octets).unwrap())
}

#[test]
fn users_and_hosts_are_told_apart() {
    for (uri, user, password, host, port) in [
        // RFC 3261 §19.1.3
        (
            "sip:alice@atlanta.com",
            Some("alice"),
            None,
            "atlanta.com",
            None,
        ),
        (
            "sip:alice:secret@atlanta.com;transport=tcp",
            Some("alice"),
            Some("secret"),
            "atlanta.com",
            None,
        ),
        (
            "sip:john.doe@example.com",
            Some("john.doe"),
            None,
            "example.com",
            None,
        ),
        (
            "sip:+1-212-555-1212:1234@gateway.com;user=phone",
            Some("+1-212-555-1212"),
            Some("1234"),
            "gateway.com",
            None,
        ),
        (
            "sip:1212@gateway.com",
            Some("1212"),
            None,
            "gateway.com",
            None,
        ),
        (
            "sip:alice@192.0.2.4:5070",
            Some("alice"),
            None,
            "192.0.2.4",
            Some(5070),
        ),
        (
            "sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com",
            None,
            None,
            "atlanta.com",
            None,
        ),
        (
            "sip:alice;day=tuesday@atlanta.com",
            Some("alice;day=tuesday"),
            None,
            "atlanta.com",
            None,
        ),
        // An empty user, a feature code, a host with an underscore
        ("sip:@pbx.example.com", None, None, "pbx.example.com", None),
        (
            "SIPS:*67#@pbx_1.example.com.",
            Some("*67#"),
            None,
            "pbx_1.example.com.",
            None,
        ),
        // RFC 4475 §3.1.1.2, §3.1.1.3, §3.1.1.5
        (
            "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com",
            Some("1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*"),
            Some("&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"),
            "example.com",
            None,
        ),
        (
            "sip:sips%3Auser%40example.com@example.net",
            Some("sips%3Auser%40example.com"),
            None,
            "example.net",
            None,
        ),
        (
            "sip:user;par=u%40example.net@example.com",
            Some("user;par=u%40example.net"),
            None,
            "example.com",
            None,
        ),
        // RFC 5118 §4
        (
            "sip:user@[2001:db8::10]",
            Some("user"),
            None,
            "[2001:db8::10]",
            None,
        ),
        (
            "sip:[2001:db8::10]:5070",
            None,
            None,
            "[2001:db8::10]",
            Some(5070),
        ),
        (
            "sip:user@[2001:DB8:::192.0.2.1]",
            Some("user"),
            None,
            "[2001:db8::c000:201]",
            None,
        ),
    ] {
        let read = read(uri);
        assert_eq!(text(read.user), user, "{uri}");
        assert_eq!(text(read.password), password, "{uri}");
        assert_eq!(read.host.to_string(), host, "{uri}");
        assert_eq!(read.port, port, "{uri}");
        assert_eq!(read.raw, uri.as_bytes());
    }
}

#[test]
fn what_two_readers_could_read_differently_is_refused() {
    for (uri, fault) in [
        ("", UriFault::Scheme),
        ("alice", UriFault::Scheme),
        (":alice@host", UriFault::Scheme),
        ("<sip:alice@host>", UriFault::Scheme),
        ("sip:", UriFault::Host),
        ("sip:alice@", UriFault::Host),
        ("sip:alice@;lr", UriFault::Host),
        ("sip:alice@host@evil", UriFault::Host),
        ("sip:alice@ho%73t", UriFault::Host),
        ("sip:alice@...", UriFault::Host),
        ("sip:alice@host;x=@evil", UriFault::Params),
        ("sip:alice@host; lr", UriFault::Octet),
        ("sip:alice@host\r\nVia: x", UriFault::Octet),
        ("sip:alice@host>", UriFault::Octet),
        ("sip:alice@host:", UriFault::Port),
        ("sip:alice@host:0", UriFault::Port),
        ("sip:alice@host:65536", UriFault::Port),
        ("sip:alice@host:5060a", UriFault::Port),
        ("sip:user@[2001:db8::10", UriFault::Host),
        ("sip:user@[2001:db8::10]5070", UriFault::Host),
        ("sip:user@[fe80::1%25eth0]", UriFault::Host),
        ("sip:user@[192.0.2.1]", UriFault::Host),
        ("sip:2001:db8::10", UriFault::Port), // RFC 5118 §4.2: no brackets
        ("tel:", UriFault::Number),
        ("tel:alice", UriFault::Number),
        ("tel:;phone-context=x", UriFault::Number),
    ] {
        assert_eq!(Uri::parse(uri.as_bytes()), Err(fault), "{uri}");
    }
    let long = format!("sip:{}", "a".repeat(256));
    assert_eq!(Uri::parse(long.as_bytes()), Err(UriFault::Host));
}

#[test]
fn a_tel_uri_has_a_number_and_no_host() {
    let uri = read("tel:+1-201-555-0123;phone-context=x;ext=7");
    assert_eq!((uri.scheme, uri.host), (Scheme::Tel, Host::Name(b"")));
    assert_eq!(text(uri.user), Some("+1-201-555-0123"));
    assert_eq!(uri.param("ext"), Some(Some(&b"7"[..])));
    assert_eq!(uri.to_string(), "tel:+1-201-555-0123;phone-context=x;ext=7");
}

#[test]
fn a_foreign_scheme_is_kept_whole() {
    let uri = read("nobodyKnowsThisScheme:totallyopaquecontent");
    assert_eq!((uri.scheme, uri.user), (Scheme::Other, None));
    assert_eq!(
        uri.to_string(),
        "nobodyKnowsThisScheme:totallyopaquecontent"
    );
}

#[test]
fn transports_ports_and_routes() {
    for (uri, transport, port, is_loose) in [
        ("sip:a@192.0.2.1", None, 5060, false),
        (
            "sip:a@192.0.2.1;Transport=TCP;lr",
            Some(Transport::Tcp),
            5060,
            true,
        ),
        (
            "sip:a@192.0.2.1;transport=tls;lr=on",
            Some(Transport::Tls),
            5061,
            true,
        ),
        ("sip:a@192.0.2.1;transport=ws", None, 5060, false),
        ("sip:a@192.0.2.1:5082;transport", None, 5082, false),
        (
            "sips:a@192.0.2.1;transport=tcp",
            Some(Transport::Tls),
            5061,
            false,
        ),
    ] {
        let read = read(uri);
        assert_eq!(read.transport(), transport, "{uri}");
        assert_eq!(read.port_or_default(), port, "{uri}");
        assert_eq!(read.is_loose(), is_loose, "{uri}");
        assert_eq!(
            read.socket_addr(),
            Some(SocketAddr::from(([192, 0, 2, 1], port))),
            "{uri}"
        );
    }
    assert_eq!(read("sip:a@example.com").socket_addr(), None);
}

#[test]
fn maddr_overrides_the_host_as_destination() {
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 9), Ipv6Addr::LOCALHOST);
    for (uri, destination) in [
        ("sip:a@example.com", Some(Host::Name(b"example.com"))),
        ("sip:a@192.0.2.1;maddr=192.0.2.9", Some(Host::V4(v4))),
        ("sips:a@b;lr;MADDR=[::1];x", Some(Host::V6(v6))),
        (
            "sip:a@192.0.2.1;maddr=b.example",
            Some(Host::Name(b"b.example")),
        ),
        ("sip:a@192.0.2.1;maddr", None),
        ("sip:a@192.0.2.1;maddr=", None),
        ("sip:a@192.0.2.1;maddr=[::1", None),
    ] {
        let read = read(uri);
        assert_eq!(read.destination(), destination, "{uri}");
        let address = destination.and_then(|host| host.address());
        assert_eq!(read.socket_addr().map(|at| at.ip()), address, "{uri}");
    }
}

#[test]
fn escapes_are_resolved_and_made() {
    for (name, escaped, plain) in [
        ("none", "alice", "alice"),
        ("letters", "j%40s0n", "j@s0n"),
        ("both cases", "%c3%A9", "\u{e9}"),
        ("cut short", "a%4", "a%4"),
        ("no hex", "%zz%", "%zz%"),
        ("null", "null-%00-null", "null-\0-null"),
        ("once only", "%2541", "%41"),
    ] {
        assert_eq!(&*unescape(escaped.as_bytes()), plain.as_bytes(), "{name}");
    }

    assert_eq!(
        Escaped(b"a b;c=\"d\"&\xe9+1").to_string(),
        "a%20b%3Bc%3D%22d%22%26%E9+1"
    );
    assert_eq!(&*read("sip:%2B1@host").user_unescaped(), b"+1");
}

#[test]
fn headers_of_a_uri_come_unescaped() {
    let uri = read("sip:b@host?Replaces=a%40b%3Bto-tag%3D1&&X-Why=&X-Flag");
    let fields: Vec<_> = uri
        .header_fields()
        .map(|(name, value)| format!("{}: {}", text::Octets(&name), text::Octets(&value)))
        .collect();
    assert_eq!(fields, ["Replaces: a@b;to-tag=1", "X-Why: ", "X-Flag: "]);
}

fn uri_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"sip:".to_vec()),
        Just(b"tel:+".to_vec()),
        Just(b"[2001:db8::1]".to_vec()),
        Just(b"192.0.2.1".to_vec()),
        Just(b"@".to_vec()),
        Just(b";lr".to_vec()),
        Just(b"?a=b&c".to_vec()),
        Just(b":5060".to_vec()),
        Just(b"%40".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
        "[a-z]{1,5}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn an_ipv4_address_is_read_as_the_standard_library_reads_it(text in "([0-9]{1,4}|25[0-9]|[.x ]){1,8}|([0-9]{1,3}\\.){3}[0-9]{1,4}") {
        prop_assert_eq!(v4_of(text.as_bytes()), text.parse().ok());
    }

    #[test]
    fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Uri::parse(&octets);
    }

    #[test]
    fn what_is_printed_reads_as_the_same(octets in uri_like()) {
        if let Ok(uri) = Uri::parse(&octets) {
            let printed = uri.to_string();
            let again = Uri::parse(printed.as_bytes()).expect("the canonical form is a URI");
            prop_assert_eq!(again.to_string(), printed.clone());
            prop_assert_eq!((again.scheme, again.host, again.port), (uri.scheme, uri.host, uri.port));
            prop_assert_eq!(again.user_unescaped(), uri.user_unescaped());
            let _ = (uri.transport(), uri.header_fields().count());
        }
    }
}
