//! Texts stay intact across the bridge: no name, number or phrase of one side becomes a line on the other side, or in the log.

use trunkline_sip::wire::HeaderName;

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::runtime;
use crate::torture::one_shard;
use trunkline_testkit::DaemonSetup;
use trunkline_testkit::message::status_of;

const ANSWER: &str = "Contact: <sip:agent@127.0.0.1>\r\nContent-Type: application/sdp\r\n";

/// Names of headers that come once, and those that may never come.
const ONCE: [&str; 12] = [
    "Via",
    "Max-Forwards",
    "From",
    "To",
    "Call-ID",
    "CSeq",
    "Contact",
    "Content-Length",
    "X-PLATFORM-SESSION-ID",
    "X-PLATFORM-AGENT-ID",
    "X-PLATFORM-SESSION-TOKEN",
    "X-Kept",
];
const NEVER: [&str; 6] = [
    "X-Evil",
    "Authorization",
    "Route",
    "Record-Route",
    "X-PLATFORM-CONTACT-ID",
    "X-PLATFORM-KRISP-ENABLED",
];

fn hostile(id: &str, from: &str, setup: &DaemonSetup) -> Dialling {
    let dialling = Dialling {
        from: from.to_owned(),
        ..Dialling::new(id, &setup.first_number, setup.sip)
    };
    dialling
        .with("X-Kept: a\r\n X-Evil: b\r\n\tX-Evil: c")
        .with("X-PLATFORM-SESSION-ID: mine")
        .with("x-platform-contact-id: mine")
        .with("X-Platform-Krisp-Enabled : true")
        .with("X-PLATFORM-SESSION-TOKEN:\r\n mine")
        .with("Subject: \u{1b}[31mred\u{7f}\u{8}")
        .with("Record-Route: <sip:evil.invalid;lr>")
}

#[test]
fn no_header_is_smuggled_to_the_runtime() {
    let setup = one_shard(DaemonSetup::new()).set("TRUNKLINE__LOG__LEVEL", "trace");
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let froms = [
        (
            "a fold in the name",
            "\"Ada\r\n X-Evil: 1\" <sip:1@pbx.invalid>",
        ),
        (
            "escaped line ends",
            "\"Ada%0d%0aX-Evil: 1\" <sip:1%0d%0aX-Evil:%201@pbx.invalid>",
        ),
        ("an escaped NUL", "\"Ada\\\u{0}\" <sip:1%00@pbx.invalid>"),
        (
            "a quoted header",
            "\"\\\"\\r\\nX-Evil: 1\" <sip:1@pbx.invalid>",
        ),
        (
            "a parameter with a line",
            "<sip:1@pbx.invalid>;x=\"a\r\n X-Evil: 1\"",
        ),
        ("a tag in the URI", "<sip:1@pbx.invalid;tag=evil?X-Evil=1>"),
    ];

    for (at, (case, from)) in froms.iter().enumerate() {
        let dialling = hostile(&format!("hostile-{at}"), from, &daemon.setup);
        caller.dial(&dialling);
        let octets = runtime.request("INVITE");
        let invite = octets.wire();

        let count = |name: &str| {
            invite
                .headers()
                .filter(|header| header.raw_name.eq_ignore_ascii_case(name.as_bytes()))
                .count()
        };

        for name in ONCE {
            assert_eq!(count(name), 1, "{case}: {name} in {octets:?}");
        }
        for name in NEVER {
            assert_eq!(count(name), 0, "{case}: {name} in {octets:?}");
        }

        assert_ne!(
            invite.other("X-PLATFORM-SESSION-ID"),
            Some(&b"mine"[..]),
            "{case}"
        );
        assert_eq!(invite.body(), OFFER.as_bytes(), "{case}");

        runtime.answer(&octets, "486 Busy", "", "");
        runtime.request("ACK");
        let refusal = caller.peer.outcome("INVITE");
        assert_eq!(status_of(&refusal), 486, "{case}");
        caller.send(&dialling, "ACK", 2, &refusal.to_tag());
    }

    let log = daemon.log();
    assert!(
        !log.contains(|char: char| char.is_control() && char != '\n'),
        "{}",
        log.escape_debug()
    );

    let stamped = |line: &str| line.starts_with("20") && line.as_bytes().get(10) == Some(&b'T');
    assert!(
        log.lines().all(stamped),
        "a line that the daemon didn't begin:\n{log}"
    );
}

#[test]
fn no_header_is_smuggled_to_the_caller() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("answered", &daemon.setup.first_number, daemon.sip());
    caller.dial(&dialling);
    let octets = runtime.request("INVITE");
    let lines = format!(
        "{ANSWER}X-Kept: a\r\n X-Evil: b\r\nWWW-Authenticate: Digest realm=\"x\", nonce=\"y\"\r\nRecord-Route: <sip:evil.invalid;lr>\r\n\
         Require: evil\r\nVia: SIP/2.0/UDP evil.invalid\r\n"
    );

    // With a second Via, the response isn't for us (RFC 3261 §8.1.3.3).
    runtime.answer(&octets, "200 Two Vias", &lines, OFFER);
    let lines = lines.replace("Via: SIP/2.0/UDP evil.invalid\r\n", "");
    runtime.answer(&octets, "200 \u{1b}[2J OK\u{0}", &lines, OFFER);
    runtime.answer(&octets, "200 \u{1b}[2J OK", &lines, OFFER);
    let answer = caller.peer.outcome("INVITE");
    let message = answer.wire();
    assert_eq!(message.status(), 200, "{answer:?}");

    for name in [
        HeaderName::WwwAuthenticate,
        HeaderName::RecordRoute,
        HeaderName::Require,
    ] {
        assert_eq!(message.first(name), None, "{answer:?}");
    }
    assert_eq!(message.other("X-Evil"), None);
    assert_eq!(message.other("X-Kept"), Some(&b"a X-Evil: b"[..]));
    assert_eq!(message.all(HeaderName::Via).count(), 1);
    assert_eq!(message.body(), OFFER.as_bytes());
}
