//! A flood must not cost us memory: tables stay bounded, and are empty again afterwards.

use super::*;

fn numbered(method: &str, number: u32) -> Vec<u8> {
    format!(
        "{method} sip:us@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK{number}\r\n\
         From: <sip:peer@example.org>;tag={number}\r\nTo: <sip:us@example.com>\r\nCall-ID: {number}\r\n\
         CSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

fn small() -> Endpoint {
    Endpoint::new(config(100), Entropy::from_seed([5; 32]))
}

#[test]
fn a_flood_that_nobody_accepts_leaves_nothing() {
    let mut endpoint = small();
    for number in 0..5_000 {
        for method in ["INVITE", "OPTIONS", "CANCEL", "ACK"] {
            let octets = numbered(method, number);
            let flow = flow(Transport::Udp);
            if let Received::Request(message) = endpoint.receive(&octets, flow, START) {
                endpoint.respond_stateless(&message, &flow, &Response::bare(401));
            }
        }
        endpoint.clear_transmits();
    }

    assert_eq!(endpoint.counts(), Counts::default());
    let stats = endpoint.stats();
    assert_eq!(stats.responses_sent[4] + stats.withheld, 15_000);
    assert!(stats.withheld > 0, "one source gets no more than it sends");
}

#[test]
fn a_peer_that_was_entered_gets_an_answer_to_every_options() {
    for is_entered in [false, true] {
        let mut endpoint = small();
        let flow = flow(Transport::Udp);
        if is_entered {
            endpoint.expect_probes(&flow);
        }
        for number in 0..2_000 {
            let octets = numbered("OPTIONS", number);
            let Received::Request(message) = endpoint.receive(&octets, flow, START) else {
                panic!("no request");
            };
            // The answer is larger than the request, as one is that lists what can be done here.
            let head = format!("Allow: {}\r\n", "A".repeat(octets.len() / 2));
            let answer = Response {
                head: head.as_bytes(),
                ..Response::bare(200)
            };
            endpoint.respond_stateless(&message, &flow, &answer);
            endpoint.clear_transmits();
        }
        let stats = endpoint.stats();
        assert_eq!(stats.withheld == 0, is_entered, "{stats:?}");
    }
}

#[test]
fn accepted_transactions_and_their_tombstones_are_bounded() {
    let mut endpoint = small();
    let flow = flow(Transport::Udp);
    let mut refused = 0;
    for number in 0..5_000 {
        let octets = numbered(if number % 2 == 0 { "INVITE" } else { "OPTIONS" }, number);
        let Received::Request(message) = endpoint.receive(&octets, flow, START) else {
            panic!("each is a request of its own");
        };
        match endpoint.accept(&message, flow, OWNER, START) {
            Ok(tx) => endpoint.respond(tx, &Response::bare(486), START),
            Err(TableFull) => refused += 1,
        }
        endpoint.clear_transmits();
    }

    let counts = endpoint.counts();
    assert_eq!(counts.server_invite, 100, "INVITEs stay for their ACK");
    assert!(refused > 4_000, "{refused} refused");
    assert!(counts.tombstones <= 400, "{counts:?}");

    drain(&mut endpoint);
}

#[test]
fn a_connection_is_proven_by_a_request_that_is_accepted() {
    let mut endpoint = small();
    let flow = flow(Transport::Tcp);
    for (number, is_accepted) in [(1, false), (2, true), (3, false)] {
        let octets = numbered("INVITE", number);
        let Received::Request(message) = endpoint.receive(&octets, flow, START) else {
            panic!("each is a request of its own");
        };
        match is_accepted {
            true => drop(endpoint.accept(&message, flow, OWNER, START)),
            false => endpoint.respond_stateless(&message, &flow, &Response::bare(401)),
        }
        let proven = is_accepted.then_some(flow.connection);
        assert_eq!(endpoint.poll_proven_connection(), proven, "{number}");
        assert_eq!(endpoint.poll_proven_connection(), None, "{number}");
    }
}

#[test]
fn a_full_table_has_room_for_a_bye() {
    let mut endpoint = small();
    let flow = flow(Transport::Udp);
    let mut accept = |method: &str, number: u32| {
        let octets = numbered(method, number);
        let Received::Request(message) = endpoint.receive(&octets, flow, START) else {
            panic!("each is a request of its own");
        };
        endpoint.accept(&message, flow, OWNER, START).is_ok()
    };

    let accepted = (0..200).filter(|number| accept("OPTIONS", *number)).count();
    assert_eq!(accepted, 100);
    assert!(accept("BYE", 1_000), "a call can end");
    let byes = (1_001..1_100)
        .filter(|number| accept("BYE", *number))
        .count();
    assert_eq!(byes, 6, "the reserve has a bound too");
    drain(&mut endpoint);
}

#[test]
fn tombstones_yield_to_newer_ones() {
    let mut endpoint = small();
    let flow = flow(Transport::Udp);
    for number in 0..5_000 {
        let octets = numbered("OPTIONS", number);
        let Received::Request(message) = endpoint.receive(&octets, flow, START) else {
            panic!("each is a request of its own");
        };
        let tx = endpoint
            .accept(&message, flow, OWNER, START)
            .expect("the others have ended");
        endpoint.respond(tx, &Response::bare(200), START);
        endpoint.clear_transmits();
    }
    assert_eq!(endpoint.counts().tombstones, 400);

    let known = |endpoint: &mut Endpoint, number| {
        matches!(
            endpoint.receive(&numbered("OPTIONS", number), flow, START),
            Received::Handled
        )
    };

    assert!(known(&mut endpoint, 4_999));
    assert!(!known(&mut endpoint, 0));
    drain(&mut endpoint);
}

#[test]
fn repeated_answers_are_charged_to_the_source_that_asks_again() {
    let mut endpoint = small();
    let octets = numbered("OPTIONS", 1);
    let here = flow(Transport::Udp);
    let Received::Request(message) = endpoint.receive(&octets, here, START) else {
        panic!("it is new");
    };
    let tx = endpoint.accept(&message, here, OWNER, START);
    endpoint.respond(tx.expect("the table has room"), &Response::bare(200), START);
    endpoint.clear_transmits();

    let mut forged = here;
    forged.peer.set_ip([203, 0, 113, 66].into());
    let mut repeat = |flow, times: usize| {
        let mut sent = 0;
        for _ in 0..times {
            let received = endpoint.receive(&octets, flow, START);
            assert!(matches!(received, Received::Handled));
            sent += endpoint
                .transmits()
                .map(|(_, octets)| octets.len())
                .sum::<usize>();
            endpoint.clear_transmits();
        }
        sent
    };

    let sent = repeat(forged, 5_000);
    assert!(sent > 0 && sent < 5_000 * octets.len(), "{sent}");
    assert!(repeat(here, 1) > 0, "another source is answered");
    let stats = endpoint.stats();
    assert_eq!(stats.withheld + stats.retransmissions_sent, 5_001);
}

#[test]
fn requests_of_ours_are_bounded() {
    let mut endpoint = small();
    let head = our_head("OPTIONS");
    let request = our_request(Method::Options, &head);
    let sent = (0..150)
        .map(|_| endpoint.request(flow(Transport::Udp), &request, OWNER, START))
        .filter(Result::is_ok)
        .count();
    assert_eq!(sent, 100);
    assert_eq!(
        endpoint.transmits().count(),
        100,
        "what is refused isn't sent"
    );
    drain(&mut endpoint);
}

#[test]
fn one_turn_sends_a_bounded_number_and_says_there_is_more() {
    let mut endpoint = Endpoint::new(config(10_000), Entropy::from_seed([5; 32]));
    let head = our_head("OPTIONS");
    let request = our_request(Method::Options, &head);
    for _ in 0..5_000 {
        let sent = endpoint.request(flow(Transport::Udp), &request, OWNER, START);
        assert!(sent.is_ok());
    }
    endpoint.clear_transmits();

    let now = START + Duration::from_millis(500);
    let mut turns = 0;
    while endpoint.next_timeout().is_some_and(|next| next <= now) {
        endpoint.handle_timeout(now);
        assert!(endpoint.transmits().count() <= TIMEOUTS_PER_TURN);
        endpoint.clear_transmits();
        turns += 1;
    }

    assert_eq!(turns, 5);
    assert_eq!(endpoint.stats().retransmissions_sent, 5_000);
}

#[test]
fn a_lost_peer_fails_its_own_requests_alone() {
    let mut endpoint = small();
    let head = our_head("OPTIONS");
    let request = our_request(Method::Options, &head);
    let (here, mut there) = (flow(Transport::Udp), flow(Transport::Udp));
    there.peer.set_port(9);
    for flow in [here, there, here, there] {
        assert!(endpoint.request(flow, &request, OWNER, START).is_ok());
    }
    endpoint.handle_flow_lost(&there, &Fault::Closed, START);
    assert_eq!(std::iter::from_fn(|| endpoint.poll_event()).count(), 2);
    assert_eq!(endpoint.counts().client_other, 2);
}

#[test]
fn a_lost_connection_fails_what_was_to_open_or_find_one_to_its_peer() {
    let mut endpoint = small();
    let head = our_head("OPTIONS");
    let request = our_request(Method::Options, &head);
    let by_number = flow(Transport::Tcp);
    let by_peer = Flow {
        connection: 0,
        ..by_number
    };
    let mut elsewhere = by_peer;

    elsewhere.peer.set_port(9);
    for (lost, failed) in [(by_number, 2), (by_peer, 1), (elsewhere, 1)] {
        for flow in [by_number, by_peer, elsewhere] {
            assert!(endpoint.request(flow, &request, OWNER, START).is_ok());
        }

        endpoint.handle_flow_lost(&lost, &Fault::Closed, START);
        let events = std::iter::from_fn(|| endpoint.poll_event());
        assert_eq!(events.count(), failed, "{lost:?}");

        for flow in [by_number, elsewhere] {
            endpoint.handle_flow_lost(&flow, &Fault::Closed, START);
        }
        while endpoint.poll_event().is_some() {}
    }
}

#[test]
fn a_transaction_is_small() {
    use crate::transaction::table::Entry;
    assert!(
        size_of::<Entry<Client>>() <= 256,
        "{}",
        size_of::<Entry<Client>>()
    );
    assert!(
        size_of::<Entry<Server>>() <= 288,
        "{}",
        size_of::<Entry<Server>>()
    );
}

#[test]
fn an_owner_can_change() {
    let mut endpoint = small();
    let head = our_head("OPTIONS");
    let tx = endpoint.request(
        flow(Transport::Udp),
        &our_request(Method::Options, &head),
        OWNER,
        START,
    );
    let tx = tx.expect("the table has room");
    endpoint.set_owner(tx, Owner(5));
    endpoint.handle_flow_lost(&flow(Transport::Udp), &Fault::Closed, START);

    assert_eq!(
        endpoint.poll_event(),
        Some(Event::TransportError {
            tx,
            owner: Owner(5),
            fault: Fault::Closed,
        })
    );
}

/// Lets time run out; nothing may be left.
fn drain(endpoint: &mut Endpoint) {
    while let Some(next) = endpoint.next_timeout() {
        endpoint.handle_timeout(next);
        endpoint.clear_transmits();
        while endpoint.poll_event().is_some() {}
    }
    assert_eq!(endpoint.counts(), Counts::default());
}
