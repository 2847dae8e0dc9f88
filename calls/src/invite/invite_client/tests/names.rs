//! Targets that are names: looked up before the INVITE or on its way, refused where they are reserved.

use trunkline_model::address::AddressPolicy;
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_model::reserved::ReservedPeers;

use super::peer::Peer;
use super::*;

/// Name in `name()`, as that party names it.
fn named(named: NamedBy) -> DialTarget {
    name().named(named)
}

/// A client that has not begun, where the operator reserves the name.
fn reserving(dial_targets: Vec<DialTarget>) -> Peer {
    let mut peer = Peer::idle(client(dial_targets));
    let reserved = ReservedPeers::new(vec![PeerPattern::Host("agents.example.com".into())]);
    let config = Arc::get_mut(&mut peer.world.core.config).expect("no one else's");
    config.addresses = Arc::new(AddressPolicy::default().reserving(reserved));
    peer
}

#[test]
fn a_reserved_name_is_looked_up_for_the_operator_alone() {
    for (case, party, ahead, begun) in [
        (
            "the operator",
            NamedBy::Operator,
            "waits; resolve agents.example.com",
            "waits; resolve agents.example.com",
        ),
        (
            "a tenant",
            NamedBy::Tenant,
            "waits",
            "waits; INVITE sip:them@192.0.2.9 1; tried sip:them@agents.example.com: not_allowed; over after not_allowed",
        ),
    ] {
        let targets = || vec![named(party), DialTarget::Resolved(target(9))];
        let mut peer = reserving(targets());
        let looked = peer.on(|client, cx, _| {
            client.look_ahead(cx);
            InviteEvent::Waits
        });
        assert_eq!(looked, ahead, "{case}");

        let mut peer = reserving(targets());
        let event = peer.on(|client, cx, text| client.begin(cx, text));
        assert_eq!(event, begun, "{case}");
    }

    let mut peer = reserving(vec![named(NamedBy::Tenant)]);
    let event = peer.on(|client, cx, text| client.begin(cx, text));
    let forbidden = format!("failed {}; tried", FORBIDDEN.sip_code);
    assert!(event.starts_with(&forbidden), "{event}");
}

#[test]
fn the_first_flow_is_that_of_the_first_known_address() {
    let two = || DialTarget::Resolved(target(2));
    for (case, dial_targets, found, peer) in [
        ("an address", vec![two()], None, Some("192.0.2.2:5060")),
        ("a name, not looked up", vec![name(), two()], None, None),
        (
            "a name that was looked up",
            vec![name(), two()],
            Some(3),
            Some("192.0.2.3:5060"),
        ),
        ("nothing", vec![], None, None),
    ] {
        let mut ahead = Peer::idle(client(dial_targets));
        if let Some(found) = found {
            ahead.on(|client, cx, text| {
                client.look_ahead(cx);
                client.handle_resolved(cx, text, Ok(vec![target(found)]))
            });
        }
        let flow = ahead.first_flow();
        assert_eq!(flow.map(|flow| flow.peer), peer.map(address), "{case}");
    }
}

#[test]
fn addresses_of_a_name_are_tried_in_their_order_and_are_the_peers() {
    let mut peer = Peer::idle(client(vec![name(), DialTarget::Resolved(target(9))]));
    let begun = peer.on(|client, cx, text| client.begin(cx, text));
    assert_eq!(begun, "waits; resolve agents.example.com");

    let found = || vec![target(3), target(4)];
    let event = peer.on(|client, cx, text| client.handle_resolved(cx, text, Ok(found())));
    assert_eq!(event, "waits; INVITE sip:them@192.0.2.3 1");
    for (last, knows) in [(3, true), (4, true), (9, false)] {
        assert_eq!(
            peer.client
                .knows(address(&format!("192.0.2.{last}:1")).ip()),
            knows,
            "{last}"
        );
    }
    for last in [4, 9] {
        let event = peer.on(|client, cx, text| client.handle_silence(cx, text));
        let next = format!("waits; INVITE sip:them@192.0.2.{last} 1;");
        assert!(event.starts_with(&next), "{event}");
    }
}
