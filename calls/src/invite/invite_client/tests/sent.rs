//! The INVITEs that a client sends: to whom, how often, and how long each may stay without an answer.

use trunkline_model::settings::TransferWay;
use trunkline_model::view::{OutboundRoute, PeerLogin};
use trunkline_routing::E164;

use super::peer::{Peer, line_of};
use super::*;
use crate::parts::refusal::Reason;
use crate::registrar::tests::{is_unreachable, registered};
use crate::trust::credentials::LegCredentials;

fn to(lasts: impl IntoIterator<Item = u8>) -> InviteClient {
    let targets = lasts
        .into_iter()
        .map(|last| DialTarget::Resolved(target(last)));
    client(targets.collect())
}

fn login() -> Arc<PeerLogin> {
    Arc::new(PeerLogin {
        user: "u".into(),
        password: "p".into(),
    })
}

fn challenge(realm: &str) -> String {
    format!("WWW-Authenticate: Digest realm=\"{realm}\", nonce=\"1\", qop=\"auth\"\r\n")
}

#[test]
fn a_target_may_be_silent_for_long_only_if_it_is_the_last() {
    let leading = |mut client: InviteClient| {
        client.lead_on();
        client
    };
    let with_name = || client(vec![DialTarget::Resolved(target(1)), name()]);

    for (case, client, seconds) in [
        ("the only target", to([1]), None),
        ("another address is left", to([1, 9]), Some(4)),
        ("a name is left", with_name(), Some(4)),
        ("a bot is tried after it", leading(to([1])), Some(4)),
    ] {
        let is_last = seconds.is_none();
        let mut peer = Peer::of(client, false);
        assert_eq!(peer.client.has_another(), !is_last, "{case}");
        assert_eq!(peer.client.timer().is_none(), is_last, "{case}");
        assert_eq!(peer.timer(), seconds, "{case}");
    }

    let mut peer = Peer::of(client(vec![name()]), false);
    peer.on(|client, cx, text| client.handle_resolved(cx, text, Ok(vec![target(3), target(4)])));
    assert_eq!(peer.timer(), Some(4), "a second address of the name");
}

#[test]
fn only_a_100_leaves_the_timer_running() {
    for (status, seconds) in [("100", Some(4)), ("180", None), ("183", None)] {
        let mut peer = Peer::of(to([1, 9]), false);
        peer.answer(status, "b", "");
        assert_eq!(peer.timer(), seconds, "{status}");
    }
}

/// RFC 3261 §18.1.1: a connection is tried for a large INVITE, and given up after two seconds of silence.
#[test]
fn a_connection_that_stays_silent_is_left_for_the_datagram() {
    let stream = || {
        let flow = Flow {
            transport: Transport::Tcp,
            listener: 1,
            connection: 5,
            ..flow()
        };
        target(1).reached_by(flow)
    };
    let connected = |targets: &[u8]| {
        let mut peer = Peer::of(to(targets.iter().copied()), true);
        let event =
            peer.on(|client, cx, text| client.handle_resolved(cx, text, Ok(vec![stream()])));
        assert_eq!(event, "waits; INVITE sip:them@192.0.2.1 1");
        peer
    };

    let mut silent = connected(&[1]);
    assert_eq!(silent.timer(), Some(2));
    let event = silent.on(|client, cx, text| client.handle_silence(cx, text));
    assert_eq!(
        event,
        "waits; INVITE sip:them@192.0.2.1 1; tried sip:them@192.0.2.1: timeout; the connection is silent; over after timeout"
    );

    for (case, targets, rest) in [
        ("the only target", &[1][..], None),
        ("another is left", &[1, 9], Some(2)),
    ] {
        let mut heard = connected(targets);
        heard.answer("100", "b", "");
        assert_eq!(heard.timer(), Some(2), "{case}");
        let event = heard.on(|client, cx, text| client.handle_silence(cx, text));
        assert_eq!(event, "waits", "{case}: it has the INVITE");
        assert_eq!(heard.timer(), rest, "{case}");
    }
}

#[test]
fn three_redirections_are_followed() {
    let mut peer = Peer::of(to([1, 9]), false);
    for (number, followed) in [("2", true), ("3", true), ("4", true), ("5", false)] {
        let octets = peer.response("302", "b", "").replace(
            "<sip:them@192.0.2.1>\r\nContent",
            &format!("<sip:{number}@192.0.2.1>\r\nContent"),
        );
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
        let event = peer.on(|client, cx, text| client.handle_response(cx, text, flow(), &message));
        let next = match followed {
            true => format!("waits; INVITE sip:{number}@192.0.2.1 1"),
            false => "failed 302".to_owned(),
        };
        assert!(event.starts_with(&next), "{number}: {event}");
    }
}

#[test]
fn each_target_is_asked_so_often() {
    let asked_at_most = |most: u32| {
        let mut client = to([1]);
        client.plan.max_requests = most;
        client.plan.credentials = smallvec![LegCredentials::of_runtime(login())];
        Peer::of(client, false)
    };

    let mut peer = asked_at_most(2);
    let first = peer.invite.clone();
    let event = peer.answer("401", "b", &challenge("pbx"));
    assert_eq!(
        event,
        "waits; ACK sip:them@192.0.2.1 1; INVITE sip:them@192.0.2.1 2"
    );
    // RFC 3261 §8.1.3.5.
    assert_eq!(line_of(&peer.invite, "Call-ID"), line_of(&first, "Call-ID"));
    assert!(line_of(&peer.invite, "Authorization").contains("realm=\"pbx\""));
    let event = peer.answer("401", "b", &challenge("proxy"));
    assert!(event.starts_with("failed 401; ACK"), "{event}");

    let mut peer = asked_at_most(1);
    let event = peer.answer("401", "b", &challenge("pbx"));
    assert!(event.starts_with("failed 401; ACK"), "{event}");

    let mut peer = asked_at_most(2);
    let event = peer.answer("422", "b", "Min-SE: 1800\r\n");
    assert_eq!(
        event,
        "waits; ACK sip:them@192.0.2.1 1; INVITE sip:them@192.0.2.1 2"
    );
    assert_eq!(line_of(&peer.invite, "Min-SE"), "Min-SE: 1800");
    let event = peer.answer("422", "b", "Min-SE: 3600\r\n");
    assert!(event.starts_with("failed 422; ACK"), "{event}");
}

#[test]
fn a_refusal_that_lacks_what_was_missing_ends_the_client() {
    for (case, status, lines) in [
        ("no challenge", "401", ""),
        (
            "no pair for the challenge",
            "407",
            "Proxy-Authenticate: Digest realm=\"pbx\", nonce=\"1\"\r\n",
        ),
        ("no Min-SE", "422", ""),
    ] {
        let mut peer = Peer::of(to([1]), false);
        let event = peer.answer(status, "b", lines);
        assert!(
            event.starts_with(&format!("failed {status}; ACK")),
            "{case}: {event}"
        );
    }
}

#[test]
fn a_client_that_is_given_up_says_how_far_it_came() {
    for (case, status, reason, requests) in [
        ("no answer", None, Reason::TrunkUnreachable, ""),
        (
            "100",
            Some("100"),
            Reason::RingingTimeout,
            "; CANCEL sip:them@192.0.2.1 1",
        ),
        (
            "180",
            Some("180"),
            Reason::RingingTimeout,
            "; CANCEL sip:them@192.0.2.1 1",
        ),
    ] {
        let mut peer = Peer::of(to([1]), false);
        if let Some(status) = status {
            peer.answer(status, "b", "");
        }
        let mut why = None;
        let event = peer.on(|client, cx, _| {
            let failed = client.give_up(cx);
            why = Some(failed.failure.reason);
            InviteEvent::Failed(failed)
        });
        assert_eq!(why, Some(reason), "{case}");
        assert!(
            event.starts_with(&format!("failed 408{requests}; tried")),
            "{case}: {event}"
        );
    }
}

#[test]
fn a_failure_is_reported_as_a_fail_over_once_something_else_is_tried() {
    let mut peer = Peer::of(to([1]), false);
    peer.answer("503", "b", "");
    let pass_on = |peer: &mut Peer| {
        peer.on(|client, cx, _| {
            client.pass_on(cx);
            InviteEvent::Waits
        })
    };
    assert_eq!(pass_on(&mut peer), "waits; over after sip_status");
    assert_eq!(pass_on(&mut peer), "waits");
}

#[test]
fn a_leg_whose_first_target_rings_has_no_failed_attempt_when_it_is_cancelled() {
    for (follows, tried) in [(false, ""), (true, "; tried sip:them@192.0.2.1: canceled")] {
        let mut client = to([1]);
        if follows {
            client.follow();
        }
        let mut peer = Peer::of(client, false);
        peer.answer("180", "b", "");
        let event = peer.on(|client, cx, _| {
            client.cancel(cx, b"");
            InviteEvent::Waits
        });
        assert_eq!(
            event,
            format!("waits; CANCEL sip:them@192.0.2.1 1{tried}"),
            "{follows}"
        );
    }
}

/// A peer may close an idle connection while the INVITE is on its way.
#[test]
fn an_invite_whose_connection_closed_unheard_is_sent_once_more() {
    let closed = || NoAnswer::Broken(Fault::Closed);
    let by = Flow {
        transport: Transport::Tcp,
        connection: 5,
        ..flow()
    };
    let tcp = Target {
        transport: Transport::Tcp,
        ..target(1)
    };
    for (case, target, heard, why, again) in [
        ("closed", tcp.clone(), None, closed(), true),
        (
            "closed after a 100",
            tcp.clone(),
            Some("100"),
            closed(),
            false,
        ),
        (
            "refused",
            tcp.clone(),
            None,
            NoAnswer::Broken(Fault::Refused),
            false,
        ),
        ("silent", tcp, None, NoAnswer::Silence, false),
        ("a datagram", target(1), None, closed(), false),
        (
            "a connection of the PBX",
            target(1).reached_by(by),
            None,
            closed(),
            false,
        ),
    ] {
        let mut peer = Peer::of(client(vec![DialTarget::Resolved(target)]), false);
        if let Some(status) = heard {
            peer.answer(status, "b", "");
        }
        let mut ends = || peer.on(|client, cx, text| client.handle_no_answer(cx, text, &why));
        let first = ends();
        match again {
            true => assert_eq!(first, "waits; INVITE sip:them@192.0.2.1 2", "{case}"),
            false => assert!(first.starts_with("failed"), "{case}: {first}"),
        }
        if again {
            let second = ends();
            assert!(second.starts_with("failed 503"), "{case}: {second}");
        }
    }
}

#[test]
fn a_registered_pbx_that_is_silent_counts_as_unreachable() {
    let no_answer: Ends = |peer| {
        peer.on(|client, cx, text| client.handle_no_answer(cx, text, &NoAnswer::Silence));
    };
    let given_up: Ends = |peer| {
        peer.on(|client, cx, _| InviteEvent::Failed(client.give_up(cx)));
    };

    for (case, heard, ends, expected) in [
        ("no answer", None, no_answer, true),
        ("no answer after a 100", Some("100"), no_answer, false),
        ("given up", None, given_up, true),
        ("given up after a 100", Some("100"), given_up, false),
    ] {
        let (bindings, by) = registered();
        let target = target(1).reached_by(by);
        let mut peer = Peer::idle(client(vec![DialTarget::Resolved(target)]));
        peer.world.core.bindings = Arc::clone(&bindings);
        peer.on(|client, cx, text| client.begin(cx, text));
        if let Some(status) = heard {
            peer.answer(status, "b", "");
        }
        assert!(!is_unreachable(&bindings), "{case}");
        ends(&mut peer);
        assert_eq!(is_unreachable(&bindings), expected, "{case}");
    }
}

/// An end of the INVITE.
type Ends = fn(&mut Peer);

#[test]
fn a_target_that_is_silent_until_the_call_ends_is_recorded() {
    for (case, is_large, tried) in [
        (
            "the INVITE is out",
            false,
            "waits; tried sip:them@192.0.2.1: timeout",
        ),
        (
            "a connection is opened",
            true,
            "waits; tried sip:them@192.0.2.1: timeout",
        ),
    ] {
        let mut peer = Peer::of(to([1]), is_large);
        let event = peer.on(|client, cx, _| {
            client.note_silence(cx);
            InviteEvent::Waits
        });
        assert_eq!(event, tried, "{case}");
    }

    let mut idle = Peer::idle(to([1]));
    let event = idle.on(|client, cx, _| {
        client.note_silence(cx);
        InviteEvent::Waits
    });
    assert_eq!(event, "waits", "nothing was tried");
}

/// A realm that has offered `qop` must offer it again: without `qop`, the digest fits any nonce that the challenger chooses.
#[test]
fn a_realm_that_was_seen_with_qop_is_held_to_it() {
    let way = OutboundRoute {
        org: Uuid::nil(),
        id: Uuid::nil(),
        peer: None,
        named: NamedBy::Operator,
        transport: Transport::Udp,
        login: Some(login()),
        realms: Arc::default(),
        caller_number: E164::parse("+442071838750").expect("a number"),
        from_host: None,
        p_asserted_identity: false,
        user_phone: false,
        register: false,
        max_concurrent_calls: None,
        calls_per_second: None,
        transfer_way: TransferWay::default(),
        keeps_caller: false,
    };
    let mut client = to([1]);
    client.plan.credentials = LegCredentials::of_trunk(&way).into_iter().collect();
    let mut peer = Peer::of(client, false);

    let event = peer.answer("401", "b", &challenge("pbx"));
    assert!(event.ends_with("INVITE sip:them@192.0.2.1 2"), "{event}");
    let without = "WWW-Authenticate: Digest realm=\"pbx\", nonce=\"2\", stale=true\r\n";
    let event = peer.answer("401", "b", without);
    assert!(event.starts_with("failed 401"), "{event}");
}
