//! Names of persons and places are removed from a message, whatever header holds them.

use super::super::flow::{Entry, Role};
use super::*;

const INVITE: &str = "INVITE sip:+442071838750@pbx.acme.example:5070;user=phone SIP/2.0\r\n\
    Via: SIP/2.0/UDP 203.0.113.77:5060;branch=z9hG4bKabc;received=203.0.113.77, SIP/2.0/TCP gw.acme.example;branch=z9hG4bK2\r\n\
    From: \"Alice Liddell\" <sip:alice:secret@acme.example>;tag=1928301774\r\n\
    To: <tel:+442071838750>\r\nCall-ID: a84b4c76@203.0.113.77\r\nCSeq: 314159 INVITE\r\n\
    Contact: <sip:alice@192.168.7.9:5062;transport=tcp>\r\n\
    Authorization: Digest username=\"alice\", realm=\"acme.example\", nonce=\"dcd98b\", uri=\"sip:+442071838750@pbx.acme.example\", response=\"6629fae49393a05397450978507c4ef1\"\r\n\
    X-Customer: Alice Liddell 4711\r\nSubject: about Alice\r\nWarning: 399 pbx.acme.example \"+442071838750 is unknown\"\r\n\
    Content-Length: 99\r\n\r\n";
const BODY: &str = "v=0\r\no=alice 1 1 IN IP4 192.168.7.9\r\ns=Alice\r\ne=alice@acme.example\r\nc=IN IP4 media.acme.example\r\nm=audio 4000 RTP/SAVP 0\r\n\
    a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:WVNfX19zZW1jdGwgKCkgewkyMjA7\r\na=rtcp:4001 IN IP4 192.168.7.9\r\n";

fn anonymised(text: &str) -> String {
    let mut call = Call {
        peers: vec![(Role::Caller, "203.0.113.77:5060".parse().unwrap())],
        entries: vec![Entry {
            octets: text.as_bytes().to_vec(),
            ..Entry::default()
        }],
        ..Call::default()
    };

    Anonymiser::default().call(&mut call);
    format!(
        "{:?}\n{}\n{}",
        call.peers,
        call.title,
        String::from_utf8_lossy(&call.entries[0].octets)
    )
}

#[test]
fn no_person_and_no_place_is_left() {
    let text = INVITE.replace(
        "Content-Length: 99",
        &format!("Content-Length: {}", BODY.len()),
    );
    let shown = anonymised(&format!("{text}{BODY}"));
    for gone in [
        "lice",
        "Liddell",
        "acme",
        "203.0.113.77",
        "192.168.7.9",
        "2071838750",
        "secret",
        "a84b4c76",
        "6629fae4",
        "WVNfX",
        "4711",
        "dcd98b",
    ] {
        assert!(!shown.contains(gone), "{gone} is left in\n{shown}");
    }

    for kept in [
        "sip:+44",
        ";user=phone",
        "tag=1928301774",
        "CSeq: 314159 INVITE",
        "branch=z9hG4bKabc",
        ":5062;transport=tcp",
    ] {
        assert!(shown.contains(kept), "{kept} is gone from\n{shown}");
    }

    let (_, message) = shown.split_once("INVITE sip").unwrap();
    let message = Message::parse(message.split_once("INVITE sip").unwrap().1.as_bytes());
    assert!(message.is_length_right(), "{shown}");
}

#[test]
fn an_address_is_found_among_other_digits() {
    let mut anonymiser = Anonymiser::default();
    let mut shown = |text: &str| anonymiser.plain(text);
    assert_eq!(
        shown("z9hG4bK-46ea715e8.8.8.8;x"),
        "z9hG4bK-46ea715e192.0.2.1;x"
    );
    assert_eq!(shown("8.8.8.8ab at 12:34:56"), "192.0.2.1ab at 12:34:56");
    assert_eq!(
        shown("8.8.8.8:5060, ::1, 2001:4860::8888"),
        "192.0.2.1:5060, ::1, 2001:db8::1"
    );
    assert_eq!(shown("1.2.3"), "1.2.3");
}

/// Secrets at odd places of a message, written by careless or hostile senders.
#[test]
fn nothing_slips_through() {
    for line in [
        "Contact: \"Alice <x\" <sip:1@h>, \"Secret, Bob\" <sip:secret@h>;+sip.instance=\"<urn:uuid:secret>\"",
        "From: Secret Bob <sip:1@h>;tag=1;epid=00secret",
        "From: <sip:secret@h",
        "From: <sip:1;Secret_Bob@h;secret>;tag=1;secret",
        "From: sip:secret@h;tag=1",
        "From: secret",
        "Diversion: <mailto:secret@h>;reason=busy",
        "Authorization: Basic c2VjcmV0",
        "Authorization: Bearer secret.secret.secret",
        "Proxy-Authorization: Digest realm=\"Acme, secret\", username=\"a, secret\", secret, response=\"secret\"",
        "Via: SIP/2.0/UDP secret.example;branch=z9hG4bK1;received=secret.example;x=\"secret\"",
        "In-Reply-To: one@h, secret@h",
        "Replaces: secret@h;to-tag=1;from-tag=2;x=secret",
        "User-Agent: Phone 1.2 0015657secret4b150 00:15:65:7b:15:00",
        "User-Agent: Phone 1.2 001565748150 805ec0secret",
        "Reason: SIP;cause=486;text=\"+442071838750 is busy\"",
        "Reason: Q.850;cause=16;text=\"Alice; Bob, hung up\", SIP;text=secret;cause=200, Bob;x=secret",
        "Warning: 399 h Secret Bob is away",
        "Warning: 399 h:5060 \"Alice is away\"",
        "Warning: 392 h:5060 \"Noisy feedback: in_uri=sip:secret@secret.example out_uri=<SIP:secret.example>, tel:+442071838750\"",
        "Refer-To: <sip:1@h?Referred-By=secret>",
        "X-Anything: secret",
        "secret",
    ] {
        let shown = anonymised(&format!("BYE sip:1@h SIP/2.0\r\n{line}\r\n\r\n"));
        // What a user agent calls itself stays, but for the hardware's address.
        let words = if line.starts_with("User-Agent") {
            &["15:65", "001565748150"][..]
        } else {
            &["ecret", "Bob", "Alice", "Acme", "c2VjcmV0", "2071838750"]
        };
        for word in words {
            assert!(!shown.contains(word), "{word} is left of {line}:\n{shown}");
        }
    }

    for phrase in [
        "Alice Liddell is away",
        "No 02071838750 here",
        "Not Found, Alice",
    ] {
        let shown = anonymised(&format!("SIP/2.0 404 {phrase}\r\n\r\n"));
        assert!(shown.contains("SIP/2.0 404 "), "{shown}");
        for word in ["lice", "Liddell", "1838750"] {
            assert!(!shown.contains(word), "{shown}");
        }
    }
}

#[test]
fn standard_phrases_stay() {
    for text in [
        "SIP/2.0 404 Not Found\r\n\r\n",
        "SIP/2.0 487 Request terminated\r\nReason: Q.850;cause=16;text=\"NORMAL_CLEARING\"\r\n\r\n",
        "SIP/2.0 200 OK\r\nReason: SIP;cause=200;text=\"Call completed elsewhere\", Q.850;cause=31;text=\"Normal, unspecified\"\r\n\r\n",
        "SIP/2.0 488 Not Acceptable Here\r\nWarning: 305 192.0.2.2 \"Incompatible media format\"\r\n\r\n",
        "SIP/2.0 183\r\n\r\n",
    ] {
        let shown = anonymised(text);
        assert!(shown.ends_with(text), "{text}: {shown}");
    }
}

#[test]
fn what_is_expected_is_said_of_the_new_message() {
    let mut anonymiser = Anonymiser::default();
    for (stated, expected) in [
        ("status 480", Some("status 480")),
        (
            "header To is <sip:+442071838750@h>",
            Some("header To is <sip:+440005550001@host-1.invalid>"),
        ),
        (
            "header Allow contains REFER",
            Some("header Allow contains REFER"),
        ),
        ("header From contains Alice", None),
        ("body contains Alice", None),
        ("Alice", None),
    ] {
        let shown = anonymiser.stated(stated.to_owned());
        assert_eq!(shown.as_deref(), expected, "{stated}");
    }
}
