//! Dialogs from both sides: identity, sequence, targets and routes.

use super::*;
use crate::wire::{Framing, lex};

struct Sent {
    start: &'static str,
    contact: &'static str,
    routes: &'static str,
    cseq: &'static str,
    from: &'static str,
    to: &'static str,
}

const INVITE: Sent = Sent {
    start: "INVITE sip:bob@trunk.example SIP/2.0",
    contact: "Contact: \"A, B\" <sip:alice@192.0.2.1:5062;transport=tcp?X=y>;expires=60\r\n",
    routes: "",
    cseq: "314159 INVITE",
    from: "\"Alice\" <sip:alice@atlanta.example>;tag=a1",
    to: "Bob <sip:bob@trunk.example>",
};

const ANSWER: Sent = Sent {
    start: "SIP/2.0 200 OK",
    contact: "m: <sip:bob@198.51.100.7>\r\n",
    to: "Bob <sip:bob@trunk.example>;tag=b2",
    ..INVITE
};

fn octets(sent: &Sent) -> Vec<u8> {
    let Sent {
        start,
        contact,
        routes,
        cseq,
        from,
        to,
    } = sent;

    format!(
        "{start}\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: {from}\r\nTo: {to}\r\nCall-ID: a84b4c76e66710\r\n\
         CSeq: {cseq}\r\n{routes}{contact}Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

fn uas(sent: &Sent) -> Option<Dialog> {
    let octets = octets(sent);
    Dialog::uas(&lex(&octets, Framing::Datagram).unwrap(), b"ours")
}

#[test]
fn a_fork_has_its_own_tag_in_the_same_dialog() {
    let octets = octets(&Sent {
        routes: "Record-Route: <sip:p;lr>, <sip:q;lr>\r\n",
        ..INVITE
    });
    let invite = lex(&octets, Framing::Datagram).unwrap();
    let of_tag = |tag: &[u8]| Dialog::uas(&invite, tag).unwrap();
    for before in [b"".as_slice(), b"first"] {
        let fork = of_tag(before).with_local_tag(b"second").unwrap();
        assert_eq!(fork, of_tag(b"second"));
        assert_eq!(fork.local_tag(), b"second");
    }
}

fn uac(sent: &Sent) -> Option<Dialog> {
    let octets = octets(sent);
    Dialog::uac(
        b"sip:bob@trunk.example",
        &lex(&octets, Framing::Datagram).unwrap(),
    )
}

fn begun(dialog: &mut Dialog, method: &str) -> String {
    let mut lines = Vec::new();
    dialog.begin(method, 70, &mut Head::new(&mut lines));
    String::from_utf8(lines).unwrap()
}

fn text(octets: &[u8]) -> &str {
    std::str::from_utf8(octets).unwrap()
}

#[test]
fn the_answerer_asks_back_along_the_recorded_route() {
    let mut dialog = uas(&Sent {
        routes: "Record-Route: <sip:p2.example;lr>, Proxy <sip:p1.example;lr>;x=\"a,b\"\r\n",
        ..INVITE
    })
    .unwrap();
    assert!(!dialog.is_confirmed());
    dialog.confirm();
    assert!(dialog.is_confirmed());
    assert_eq!(dialog.local_seq(), 0);
    assert_eq!(
        begun(&mut dialog, "BYE"),
        "Max-Forwards: 70\r\nRoute: <sip:p2.example;lr>,<sip:p1.example;lr>;x=\"a,b\"\r\n\
         From: <sip:bob@trunk.example>;tag=ours\r\nTo: <sip:alice@atlanta.example>;tag=a1\r\n\
         Call-ID: a84b4c76e66710\r\nCSeq: 1 BYE\r\n"
    );
    assert_eq!(
        text(dialog.request_uri()),
        "sip:alice@192.0.2.1:5062;transport=tcp"
    );
    assert_eq!(
        text(dialog.remote_target()),
        "sip:alice@192.0.2.1:5062;transport=tcp?X=y"
    );
    assert_eq!(text(dialog.next_hop()), "sip:p2.example;lr");
    assert_eq!(
        (text(dialog.local_tag()), text(dialog.remote_tag())),
        ("ours", "a1")
    );
    assert!(dialog.has_route());
}

#[test]
fn the_asker_goes_on_along_the_reversed_route() {
    let mut dialog = uac(&Sent {
        routes: "Record-Route: <sip:p2.example;lr>,\r\n <sip:p1.example;lr>\r\nRecord-Route: <sip:p0.example;lr>\r\n",
        ..ANSWER
    })
    .unwrap();
    assert!(dialog.is_confirmed());
    assert_eq!(dialog.local_seq(), 314_159);
    let mut ack = Vec::new();
    dialog.ack_head(314_159, &mut Head::new(&mut ack));
    let common = "Max-Forwards: 70\r\nRoute: <sip:p0.example;lr>,<sip:p1.example;lr>,<sip:p2.example;lr>\r\n\
        From: <sip:alice@atlanta.example>;tag=a1\r\nTo: <sip:bob@trunk.example>;tag=b2\r\nCall-ID: a84b4c76e66710\r\n";
    assert_eq!(text(&ack), format!("{common}CSeq: 314159 ACK\r\n"));
    assert_eq!(
        begun(&mut dialog, "UPDATE"),
        format!("{common}CSeq: 314160 UPDATE\r\n")
    );
    assert_eq!(dialog.local_seq(), 314_160);
    assert_eq!(
        (text(dialog.local_tag()), text(dialog.remote_tag())),
        ("a1", "b2")
    );
}

#[test]
fn routes_are_loose_or_strict() {
    for (name, routes, uri, hop, line) in [
        ("none", "", "sip:alice@h?x@y", "sip:alice@h?x@y", ""),
        (
            "loose",
            "Record-Route: <sip:p1;lr>\r\n",
            "sip:alice@h?x@y",
            "sip:p1;lr",
            "Route: <sip:p1;lr>\r\n",
        ),
        (
            "strict",
            "Record-Route: <sip:p1?a=b>\r\n",
            "sip:p1",
            "sip:p1?a=b",
            "Route: <sip:alice@h?x@y>\r\n",
        ),
        (
            "strict, then loose",
            "Record-Route: <sip:p1>, <sip:p2;lr>\r\n",
            "sip:p1",
            "sip:p1",
            "Route: <sip:p2;lr>,<sip:alice@h?x@y>\r\n",
        ),
        (
            "loose, then strict",
            "Record-Route: <sip:p1;lr=on>, <sip:p2>\r\n",
            "sip:alice@h?x@y",
            "sip:p1;lr=on",
            "Route: <sip:p1;lr=on>,<sip:p2>\r\n",
        ),
    ] {
        let contact = "Contact: <sip:alice@h?x@y>\r\n";
        let mut dialog = uas(&Sent {
            routes,
            contact,
            ..INVITE
        })
        .unwrap();

        let uri = uri.split_once("?x").map_or(uri, |(before, _)| before);
        assert_eq!(text(dialog.request_uri()), uri, "{name}");
        assert_eq!(text(dialog.next_hop()), hop, "{name}");

        let begun = begun(&mut dialog, "BYE");
        let route = begun
            .strip_prefix("Max-Forwards: 70\r\n")
            .unwrap()
            .split("From")
            .next()
            .unwrap();
        assert_eq!(route, line, "{name}");
        assert_eq!(dialog.has_route(), !line.is_empty(), "{name}");
    }
}

#[test]
fn what_makes_no_dialog_is_refused() {
    for (name, sent) in [
        (
            "no Contact",
            Sent {
                contact: "",
                ..INVITE
            },
        ),
        (
            "Contact: *",
            Sent {
                contact: "Contact: *\r\n",
                ..INVITE
            },
        ),
        (
            "an unreadable Contact",
            Sent {
                contact: "Contact: <sip:a@b@c>\r\n",
                ..INVITE
            },
        ),
        (
            "a Contact nobody can ask",
            Sent {
                contact: "Contact: <tel:+12015550123>\r\n",
                ..INVITE
            },
        ),
        (
            "an unreadable Record-Route",
            Sent {
                routes: "Record-Route: <p1>\r\n",
                ..INVITE
            },
        ),
    ] {
        assert_eq!(uas(&sent), None, "{name}");
    }

    for (name, contact) in [
        ("no Contact", ""),
        ("an unreadable one", "Contact: <sip:a@b@c>\r\n"),
    ] {
        let dialog = uac(&Sent { contact, ..ANSWER }).unwrap();
        assert_eq!(
            text(dialog.remote_target()),
            "sip:bob@trunk.example",
            "{name}"
        );
    }
}

#[test]
fn a_peer_of_rfc_2543_has_no_tag() {
    let mut dialog = uas(&Sent {
        from: "sip:alice@atlanta.example",
        ..INVITE
    })
    .unwrap();
    assert_eq!(text(dialog.remote_tag()), "");
    assert!(begun(&mut dialog, "BYE").contains("\r\nTo: <sip:alice@atlanta.example>\r\n"));
}

#[test]
fn requests_come_in_order() {
    let mut dialog = uas(&INVITE).unwrap();
    for (cseq, method, outcome) in [
        ("314159 INVITE", "INVITE", Err(OutOfOrder)),
        ("314159 ACK", "ACK", Ok(())),
        ("314158 BYE", "BYE", Err(OutOfOrder)),
        ("314161 UPDATE", "UPDATE", Ok(())),
        ("314160 INFO", "INFO", Err(OutOfOrder)),
        ("314161 BYE", "BYE", Err(OutOfOrder)),
        ("314159 CANCEL", "CANCEL", Ok(())),
        ("314162 BYE", "BYE", Ok(())),
    ] {
        let start = format!("{method} sip:x SIP/2.0");
        let octets = text(&octets(&Sent { cseq, ..INVITE }))
            .replace(INVITE.start, &start)
            .into_bytes();
        let message = lex(&octets, Framing::Datagram).unwrap();
        assert_eq!(dialog.receive_request(&message), outcome, "{cseq}");
    }

    let mut asker = uac(&ANSWER).unwrap();
    let low = octets(&Sent {
        cseq: "1 INVITE",
        ..INVITE
    });
    let low = lex(&low, Framing::Datagram).unwrap();
    assert_eq!(
        asker.receive_request(&low),
        Ok(()),
        "the first request sets the mark"
    );
    assert_eq!(asker.receive_request(&low), Err(OutOfOrder));
}

#[test]
fn a_refresh_moves_the_target_and_nothing_else() {
    let mut dialog = uas(&Sent {
        routes: "Record-Route: <sip:p1;lr>\r\n",
        ..INVITE
    })
    .unwrap();
    dialog.confirm();
    for (name, contact, target) in [
        (
            "moved",
            "Contact: <sip:alice@203.0.113.9>\r\n",
            "sip:alice@203.0.113.9",
        ),
        ("unsaid", "", "sip:alice@203.0.113.9"),
        ("unreadable", "Contact: <sip:>\r\n", "sip:alice@203.0.113.9"),
        (
            "moved to a longer one",
            "Contact: sip:alice@very.long.example.com\r\n",
            "sip:alice@very.long.example.com",
        ),
    ] {
        let octets = octets(&Sent {
            contact,
            routes: "Record-Route: <sip:other;lr>\r\n",
            ..INVITE
        });
        dialog.refresh_target(&lex(&octets, Framing::Datagram).unwrap());
        assert_eq!(text(dialog.remote_target()), target, "{name}");
        assert_eq!(text(dialog.next_hop()), "sip:p1;lr", "{name}");
        assert_eq!(
            (text(dialog.local_tag()), text(dialog.remote_tag())),
            ("ours", "a1"),
            "{name}"
        );
    }
}

#[test]
fn the_2xx_brings_the_final_route_set() {
    let mut early = uac(&Sent {
        start: "SIP/2.0 180 Ringing",
        routes: "Record-Route: <sip:p1;lr>\r\n",
        ..ANSWER
    })
    .unwrap();
    assert!(!early.is_confirmed());
    let later = octets(&Sent {
        routes: "Record-Route: <sip:p2;lr>\r\n",
        ..ANSWER
    });
    let later = lex(&later, Framing::Datagram).unwrap();
    early.refresh_target(&later);
    assert_eq!(text(early.next_hop()), "sip:p2;lr");
    early.confirm();
    let bare = octets(&ANSWER);
    early.refresh_target(&lex(&bare, Framing::Datagram).unwrap());
    assert_eq!(text(early.next_hop()), "sip:p2;lr");
}

#[test]
fn a_dialog_is_small() {
    let dialog = uas(&Sent {
        routes: "Record-Route: <sip:p1.example;lr>\r\n",
        ..INVITE
    })
    .unwrap();
    assert!(size_of::<Dialog>() <= 48, "{}", size_of::<Dialog>());
    assert!(dialog.text.len() < 200, "{}", dialog.text.len());
}

#[test]
fn a_dialog_is_written_down_and_read_again() {
    let mut dialog = uas(&Sent {
        routes: "Record-Route: <sip:p1;lr>\r\n",
        ..INVITE
    })
    .unwrap();
    dialog.confirm();
    begun(&mut dialog, "UPDATE");
    let written = dialog.clone();
    let stored = Stored::from(written);
    assert_eq!(Dialog::try_from(stored).unwrap(), dialog);
    let torn = Stored {
        local_tag: b"another".to_vec(),
        ..Stored::from(dialog)
    };
    assert!(Dialog::try_from(torn).is_err());
}

/// The owner of the Call-ID waits longer after glare (RFC 3261 §14.1), also once another node has taken its call over.
#[test]
fn a_dialog_of_ours_owns_its_call_id_when_it_is_read_again() {
    let dialog = uac(&ANSWER).unwrap();
    let read = Dialog::try_from(Stored::from(dialog.clone())).unwrap();
    assert!(read.owns_call_id());
    assert_eq!(read, dialog);
}

#[test]
fn a_target_moves_once_the_request_that_named_it_is_accepted() {
    let mut dialog = uas(&Sent {
        routes: "Record-Route: <sip:p;lr>\r\n",
        ..INVITE
    })
    .unwrap();
    let before = text(dialog.remote_target()).to_owned();
    let moves_to = |dialog: &Dialog, contact| {
        let octets = octets(&Sent { contact, ..INVITE });
        let request = lex(&octets, Framing::Datagram).unwrap();
        dialog.moves_to(&request).map(<[u8]>::to_vec)
    };

    assert_eq!(moves_to(&dialog, INVITE.contact), None, "the same target");
    assert_eq!(moves_to(&dialog, ""), None, "no Contact");
    let moved = moves_to(&dialog, "Contact: <sip:alice@192.0.2.9>\r\n").unwrap();
    assert_eq!(text(&moved), "sip:alice@192.0.2.9");
    assert_eq!(text(dialog.remote_target()), before, "not accepted yet");

    dialog.move_to(&moved);
    assert_eq!(text(dialog.remote_target()), "sip:alice@192.0.2.9");
    let routes: Vec<&str> = dialog.routes().map(text).collect();
    assert_eq!(routes, ["sip:p;lr"]);
    assert_eq!(
        (text(dialog.local_tag()), text(dialog.remote_tag())),
        ("ours", "a1")
    );
}

#[test]
fn who_began_a_dialog_owns_its_call_id() {
    assert!(!uas(&INVITE).unwrap().owns_call_id());
    assert!(uac(&ANSWER).unwrap().owns_call_id());
}

#[test]
fn the_peers_address_has_no_tag() {
    let dialog = uac(&ANSWER).unwrap();
    assert_eq!(text(dialog.remote_address()), "<sip:bob@trunk.example>");
    assert_eq!(text(dialog.local_address()), "<sip:alice@atlanta.example>");
}

#[test]
fn numbers_may_be_skipped() {
    let mut dialog = uas(&INVITE).unwrap();
    begun(&mut dialog, "INFO");
    dialog.skip(100);
    assert!(begun(&mut dialog, "BYE").ends_with("CSeq: 102 BYE\r\n"));
}

/// A BYE can be sent to the source of an answer whose routes can't be read.
#[test]
fn an_answer_with_unreadable_routes_makes_a_dialog_without_them() {
    let broken = octets(&Sent {
        routes: "Record-Route: <\r\n",
        ..ANSWER
    });
    let answer = lex(&broken, Framing::Datagram).unwrap();
    assert!(Dialog::uac(b"sip:bob@trunk.example", &answer).is_none());
    let mut dialog = Dialog::uac_without_routes(b"sip:bob@trunk.example", &answer).unwrap();
    assert!(!dialog.has_route());
    assert_eq!(text(dialog.request_uri()), "sip:bob@198.51.100.7");
    assert!(begun(&mut dialog, "BYE").contains("Call-ID: a84b4c76e66710\r\nCSeq: 314160 BYE\r\n"));
}
