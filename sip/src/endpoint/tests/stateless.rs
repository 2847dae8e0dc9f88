//! Requests answered, absorbed or dropped without a transaction, and merged requests (RFC 3261 §8.2.2.2, §8.2.7).

use super::*;

use Do::{Acknowledged, Arrive, Respond};

const INVITE: Arrival<'static> = arrival("INVITE");
const OTHER_PATH: Arrival<'static> = Arrival {
    branch: "z9hG4bKtwo",
    ..INVITE
};

#[test]
fn a_request_that_came_by_two_paths_is_merged() {
    check(
        Transport::Udp,
        &[
            (
                "while the first is open",
                &[(0, Arrive(INVITE)), (10, Arrive(OTHER_PATH)), (20, Respond(486)), (30, Arrive(arrival("ACK")))],
                "0 < INVITE, 0 > 100 INVITE, 10 > 482 INVITE, 20 > 486 INVITE",
            ),
            (
                "while the first is known, and no longer",
                &[
                    (0, Arrive(INVITE)),
                    (10, Respond(200)),
                    (20, Acknowledged),
                    (31_000, Arrive(OTHER_PATH)),
                    (34_000, Arrive(OTHER_PATH)),
                    (34_010, Respond(486)),
                    (34_020, Arrive(Arrival { branch: "z9hG4bKtwo", ..arrival("ACK") })),
                ],
                "0 < INVITE, 0 > 100 INVITE, 10 > 200 INVITE, 31000 > 482 INVITE, 34000 < INVITE, 34000 > 100 INVITE,
                34010 > 486 INVITE",
            ),
            (
                "another method with that CSeq is another request",
                &[(0, Arrive(arrival("INFO"))), (10, Respond(200)), (20, Arrive(Arrival { branch: "z9hG4bKtwo", ..arrival("OPTIONS") })), (30, Respond(200))],
                "0 < INFO, 10 > 200 INFO, 20 < OPTIONS, 30 > 200 OPTIONS",
            ),
            (
                "inside a dialog there is but one path",
                &[
                    (0, Arrive(Arrival { to: ";tag=us", ..arrival("INFO") })),
                    (10, Respond(200)),
                    (20, Arrive(Arrival { to: ";tag=us", branch: "z9hG4bKtwo", ..arrival("INFO") })),
                    (30, Respond(200)),
                ],
                "0 < INFO, 10 > 200 INFO, 20 < INFO, 30 > 200 INFO",
            ),
        ],
    );
}

/// Receives a request and answers it statelessly; returns the answer.
fn refuse(bench: &mut Bench, octets: &[u8]) -> Vec<u8> {
    let Received::Request(message) = bench.endpoint.receive(octets, bench.flow, START) else {
        panic!("it is a new request");
    };
    bench
        .endpoint
        .respond_stateless(&message, &bench.flow, &Response::bare(401));
    let (_, answer) = bench.endpoint.transmits().last().expect("it is answered");
    let answer = answer.to_vec();
    bench.endpoint.clear_transmits();
    answer
}

#[test]
fn a_stateless_answer_is_the_same_each_time_costs_nothing_and_its_ack_is_absorbed() {
    let mut bench = Bench::new(Transport::Udp);
    let answer = refuse(&mut bench, &INVITE.print());
    assert_eq!(answer, refuse(&mut bench, &INVITE.print()));
    assert_eq!(bench.counts(), Counts::default());

    let message = lex(&answer, Framing::Stream).expect("what we print is in order");
    let tag = message.to_tag().expect("it has a tag");
    let to = format!(";tag={}", String::from_utf8_lossy(tag));
    bench.arrive(
        &Arrival {
            to: &to,
            ..arrival("ACK")
        }
        .print(),
    );

    assert!(bench.log.is_empty(), "{:?}", bench.log);

    bench.perform(Arrive(Arrival {
        to: ";tag=guessed",
        ..arrival("ACK")
    }));
    assert_eq!(
        bench.log,
        ["0 < ACK"],
        "one that isn't ours is its user's to judge"
    );
}

#[test]
fn an_ack_is_never_answered() {
    let mut bench = Bench::new(Transport::Udp);
    let octets = arrival("ACK").print();
    let message = lex(&octets, Framing::Datagram).expect("the request is in order");
    bench
        .endpoint
        .respond_stateless(&message, &bench.flow, &Response::bare(481));
    assert_eq!(bench.endpoint.transmits().count(), 0);
}

#[test]
fn what_is_not_ours_is_dropped() {
    let response = |via: &str, method: &str| {
        format!(
            "SIP/2.0 200 OK\r\n{via}From: <sip:a@b>;tag=x\r\nTo: <sip:c@d>;tag=y\r\nCall-ID: z\r\n\
             CSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let mut bench = Bench::new(Transport::Udp);

    let (minter, slot) = (bench.endpoint.minter().clone(), crate::slot::Slot::new(5));
    let ours = minter.branch_of(slot.expect("below COUNT"), 4711);
    let elsewhere = Minter::new(Node(2), [9; 16]).branch_of(slot.expect("below COUNT"), 4711);

    let via = |branch: &str| format!("Via: SIP/2.0/UDP us;branch={branch}\r\n");
    let two = via(ours.as_str()) + "Via: SIP/2.0/UDP them;branch=z9hG4bKx\r\n";
    let cases = [
        (
            "a stranger's branch",
            response(&via("z9hG4bKnobody"), "INVITE"),
            "",
        ),
        (
            "another node's",
            response(&via(elsewhere.as_str()), "INVITE"),
            "",
        ),
        ("a finished BYE", response(&via(ours.as_str()), "BYE"), ""),
        (
            "one that someone else is to forward",
            response(&two, "INVITE"),
            "",
        ),
        (
            "a finished INVITE",
            response(&via(ours.as_str()), "INVITE"),
            "0 ? 200 INVITE",
        ),
    ];

    for (name, octets, expected) in cases {
        bench.log.clear();
        let before = bench.endpoint.stats().dropped;
        bench.arrive(octets.as_bytes());
        assert_eq!(bench.log.join(","), expected, "{name}");
        let dropped = bench.endpoint.stats().dropped - before;
        assert_eq!(dropped == 1, expected.is_empty(), "{name}");
    }
}

#[test]
fn what_is_no_message_is_answered_if_it_can_be() {
    let mut bench = Bench::new(Transport::Udp);
    let bad = String::from_utf8(arrival("INFO").print()).expect("all of it is text");
    let cases = [
        ("keep-alive", "\r\n\r\n".to_owned(), 0, None),
        ("zeros", "\0\0\0\0".to_owned(), 0, None),
        ("noise", "hello".to_owned(), 1, None),
        (
            "too long a body announced",
            bad.replace("Length: 0", "Length: 9"),
            1,
            Some(400),
        ),
        (
            "another version",
            bad.replacen(" SIP/2.0", " SIP/3.0", 1),
            1,
            Some(505),
        ),
    ];

    for (name, octets, malformed, answer) in cases {
        let before = bench.endpoint.stats().malformed;
        bench.arrive(octets.as_bytes());
        assert_eq!(
            bench.endpoint.stats().malformed - before,
            malformed,
            "{name}"
        );

        let status = bench.endpoint.transmits().last().map(|(_, octets)| {
            lex(octets, Framing::Stream)
                .expect("what we print is in order")
                .status()
        });
        assert_eq!(status, answer, "{name}");
        bench.endpoint.clear_transmits();
        assert_eq!(bench.counts(), Counts::default(), "{name}");
    }
}
