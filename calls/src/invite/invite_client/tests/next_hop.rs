//! Next hop of the ACK to a 2xx: the Contact, once its name is resolved, or the dialog's connection.

use trunkline_sip::endpoint::Received;

use super::peer::Peer;
use super::*;
use crate::parts::target;
use crate::parts::target::UnresolvedTarget;

/// Contact of the responses of [`Peer::response`].
const CONTACT: &str = "Contact: <sip:them@192.0.2.1>";

/// Where the messages went that were sent since the last look.
fn went_to(peer: &mut Peer) -> Vec<String> {
    let sent = peer.world.endpoint.transmits();
    let went = sent.map(|(flow, octets)| {
        let method = octets.split(|octet| *octet == b' ').next().expect("one");
        let method = String::from_utf8_lossy(method);
        let Flow {
            transport,
            connection,
            peer,
            ..
        } = flow;
        format!("{method} {transport} {peer} {connection}")
    });
    let went = went.collect();
    peer.world.endpoint.clear_transmits();
    went
}

fn cx<'a>(peer: &'a mut Peer, counter: &'a mut AttemptCounter) -> Cx<'a> {
    Cx {
        core: &mut peer.world.core,
        endpoint: &mut peer.world.endpoint,
        attempt_counter: counter,
        now: NOW,
    }
}

/// A client whose 2xx with this Contact has come by `by`, and was acknowledged; where the ACK went.
fn accepted(contact: &str, by: Option<Flow>) -> (Peer, ClientTx, Flow, Vec<String>) {
    let mut peer = Peer::of(client(vec![DialTarget::Resolved(target(1))]), false);
    peer.world.endpoint.clear_transmits();
    let octets = peer
        .response("200", "a", "")
        .replace(CONTACT, &format!("Contact: <{contact}>"));
    let by = by.unwrap_or(flow());
    let Received::Response { message, .. } =
        peer.world.endpoint.receive(octets.as_bytes(), by, NOW)
    else {
        panic!("a response");
    };
    let event = peer.world.act(&mut peer.client, |client, cx, text| {
        client.handle_response(cx, text, by, &message)
    });
    let InviteEvent::Accepted(accepted) = event else {
        panic!("{event:?}");
    };
    peer.world.endpoint.clear_transmits();
    let client = accepted.client;
    accepted.acknowledge(&mut cx(&mut peer, &mut AttemptCounter::default()));
    let went = went_to(&mut peer);
    (peer, client, by, went)
}

#[test]
fn the_ack_to_a_name_waits_for_its_address_at_the_latest_until_the_2xx_is_repeated() {
    let wanted = || match target::dial_target("sip:them@edge.example.com") {
        Some(DialTarget::Unresolved(wanted)) => wanted,
        other => panic!("{other:?}"),
    };
    let learn = |peer: &mut Peer, wanted: &UnresolvedTarget, targets| {
        let mut counter = AttemptCounter::default();
        let mut cx = cx(peer, &mut counter);
        cx.core.resolver_cache.learn(wanted, targets, NOW);
        cx.release_acks_to(wanted);
    };
    let repeat = |peer: &mut Peer, client| {
        let mut counter = AttemptCounter::default();
        cx(peer, &mut counter).release_ack(client, b"a")
    };

    for (case, found, is_repeated, went) in [
        (
            "resolved",
            Some(vec![target(7)]),
            false,
            &["ACK udp 192.0.2.7:5060 0"][..],
        ),
        (
            "without an address",
            Some(vec![]),
            false,
            &["ACK udp 192.0.2.1:5060 0"],
        ),
        ("repeated first", None, true, &["ACK udp 192.0.2.1:5060 0"]),
    ] {
        let (mut peer, client, _, at_once) = accepted("sip:them@edge.example.com", None);
        assert_eq!(at_once, [""; 0], "{case}");
        if let Some(found) = found {
            learn(&mut peer, &wanted(), found);
        }
        assert_eq!(repeat(&mut peer, client), is_repeated, "{case}");
        assert_eq!(went_to(&mut peer), went, "{case}");

        // It was sent, so that nothing else sends it.
        learn(&mut peer, &wanted(), vec![target(8)]);
        assert!(!repeat(&mut peer, client), "{case}");
        assert_eq!(went_to(&mut peer), [""; 0], "{case}");
    }
}

/// RFC 3261 §12.2.1.1.
#[test]
fn over_tcp_the_remote_target_is_followed_where_it_can_be_reached() {
    let tcp = |transport| Flow {
        transport,
        listener: 1,
        connection: 7,
        ..flow()
    };
    for (case, contact, went) in [
        (
            "another host",
            "sip:them@192.0.2.7;transport=tcp",
            "ACK tcp 192.0.2.7:5060 0",
        ),
        (
            "that names no transport",
            "sip:them@192.0.2.7:5090",
            "ACK tcp 192.0.2.7:5090 0",
        ),
        (
            "by UDP",
            "sip:them@192.0.2.7;transport=udp",
            "ACK udp 192.0.2.7:5060 0",
        ),
        (
            "the peer's own address",
            "sip:them@192.0.2.1:5090;transport=tcp",
            "ACK tcp 192.0.2.1:5060 7",
        ),
        (
            "a private one",
            "sip:them@10.0.0.7;transport=tcp",
            "ACK tcp 192.0.2.1:5060 7",
        ),
        (
            "another family",
            "sip:them@[2001:db8::7];transport=tcp",
            "ACK tcp 192.0.2.1:5060 7",
        ),
    ] {
        let (_, _, _, sent) = accepted(contact, Some(tcp(Transport::Tcp)));
        assert_eq!(sent, [went], "{case}");
    }
    let (_, _, _, sent) = accepted("sips:them@edge.example.com", Some(tcp(Transport::Tls)));
    assert_eq!(
        sent,
        ["ACK tls 192.0.2.1:5060 7"],
        "a name isn't waited for"
    );
    let (_, _, _, sent) = accepted("sips:them@192.0.2.7", Some(tcp(Transport::Tls)));
    assert_eq!(
        sent,
        ["ACK tls 192.0.2.1:5060 7"],
        "what TLS has proved stays"
    );

    // An address that takes no connection: the ACK goes by the dialog's, as does everything after it.
    let (mut peer, _, by, _) = accepted(
        "sip:them@192.0.2.7;transport=tcp",
        Some(tcp(Transport::Tcp)),
    );
    let mut counter = AttemptCounter::default();
    cx(&mut peer, &mut counter).note_unreachable(address("192.0.2.8:5060"));
    assert_eq!(went_to(&mut peer), [""; 0], "another one");
    cx(&mut peer, &mut counter).note_unreachable(address("192.0.2.7:5060"));
    assert_eq!(went_to(&mut peer), ["ACK tcp 192.0.2.1:5060 7"]);
    let octets = peer
        .response("200", "b", "")
        .replace(CONTACT, "Contact: <sip:them@192.0.2.7;transport=tcp>");
    let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
    let dialog = Dialog::uac(b"sip:them@192.0.2.1", &message).expect("a dialog");
    assert_eq!(cx(&mut peer, &mut counter).next_flow(&dialog, by), by);
}
