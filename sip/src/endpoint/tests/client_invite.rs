//! RFC 3261 §17.1.1, RFC 6026 §7.2, and CANCEL (RFC 3261 §9.1).

use super::*;

use Do::{Ack, Answer, AnswerCancel, Cancel, Lose, Send};

const INVITE: Do = Send(Method::Invite);

#[test]
fn over_udp() {
    check(
        Transport::Udp,
        &[
            (
                "no answer: A doubles until B",
                &[(0, INVITE)],
                "0 > INVITE, 500 > INVITE, 1500 > INVITE, 3500 > INVITE, 7500 > INVITE, 15500 > INVITE,
                31500 > INVITE, 32000 ! timeout",
            ),
            (
                "a refusal is acknowledged, and again for each repetition until D",
                &[
                    (0, INVITE),
                    (100, Answer(100, "a")),
                    (900, Answer(180, "a")),
                    (1_000, Answer(486, "a")),
                    (1_500, Answer(486, "a")),
                    (32_990, Answer(486, "a")),
                    (33_010, Answer(486, "a")),
                ],
                "0 > INVITE, 100 < 100 INVITE, 900 < 180 INVITE, 1000 < 486 INVITE, 1000 > ACK, 1500 > ACK,
                32990 > ACK",
            ),
            (
                "an answer that can't be read: the INVITE goes on",
                &[
                    (0, INVITE),
                    (100, Answer(200, "a\"b")),
                    (700, Answer(486, "a")),
                ],
                "0 > INVITE, 100 ! unreadable, 500 > INVITE, 700 < 486 INVITE, 700 > ACK",
            ),
            (
                "a refusal without a provisional response",
                &[(0, INVITE), (700, Answer(503, "a")), (800, Answer(180, "a"))],
                "0 > INVITE, 500 > INVITE, 700 < 503 INVITE, 700 > ACK",
            ),
            (
                "a fork answers although the INVITE has failed",
                &[(0, INVITE), (100, Answer(486, "a")), (200, Answer(200, "b"))],
                "0 > INVITE, 100 < 486 INVITE, 100 > ACK, 200 ? 200 INVITE",
            ),
        ],
    );
}

#[test]
fn over_tcp() {
    check(
        Transport::Tcp,
        &[
            (
                "no answer: B alone",
                &[(0, INVITE)],
                "0 > INVITE, 32000 ! timeout",
            ),
            (
                "a refusal ends it: D is zero",
                &[
                    (0, INVITE),
                    (100, Answer(100, "a")),
                    (200, Answer(486, "a")),
                    (300, Answer(486, "a")),
                ],
                "0 > INVITE, 100 < 100 INVITE, 200 < 486 INVITE, 200 > ACK",
            ),
            (
                "a cancelled one is not sent again",
                &[
                    (0, INVITE),
                    (10, Cancel),
                    (100, Answer(100, "a")),
                    (200, AnswerCancel(200)),
                    (5_000, Answer(487, "a")),
                ],
                "0 > INVITE, 100 < 100 INVITE, 100 > CANCEL, 5000 < 487 INVITE, 5000 > ACK",
            ),
        ],
    );
}

#[test]
fn accepted_on_every_transport() {
    let cases: &[Case<'_>] = &[
        (
            "a repeated 2xx gets its ACK again, those of forks their own, until M",
            &[
                (0, INVITE),
                (100, Answer(200, "a")),
                (200, Answer(200, "a")),
                (300, Ack("a")),
                (600, Answer(200, "a")),
                (700, Answer(200, "b")),
                (800, Ack("b")),
                (900, Answer(200, "b")),
                (32_090, Answer(200, "a")),
                (32_110, Answer(200, "a")),
            ],
            "0 > INVITE, 100 < 200 INVITE, 200 < 200 INVITE, 300 > ACK, 600 > ACK, 700 < 200 INVITE,
            800 > ACK, 900 > ACK, 32090 > ACK, 32110 ? 200 INVITE",
        ),
        (
            "what else arrives after a 2xx is absorbed",
            &[
                (0, INVITE),
                (100, Answer(200, "a")),
                (200, Answer(180, "b")),
                (300, Answer(486, "b")),
            ],
            "0 > INVITE, 100 < 200 INVITE",
        ),
        (
            "an ACK for a transaction that is gone is sent all the same",
            &[(0, INVITE), (100, Answer(200, "a")), (40_000, Ack("a"))],
            "0 > INVITE, 100 < 200 INVITE, 40000 > ACK",
        ),
    ];

    check(Transport::Udp, cases);
    check(Transport::Tcp, cases);
    check(Transport::Tls, cases);
}

#[test]
fn cancel() {
    check(
        Transport::Udp,
        &[
            (
                "before a 1xx it waits for one, and is repeated by E until answered",
                &[
                    (0, INVITE),
                    (100, Cancel),
                    (600, Answer(100, "a")),
                    (2_200, AnswerCancel(200)),
                    (2_300, Answer(487, "a")),
                ],
                "0 > INVITE, 500 > INVITE, 600 < 100 INVITE, 600 > CANCEL, 1100 > CANCEL, 2100 > CANCEL,
                2300 < 487 INVITE, 2300 > ACK",
            ),
            (
                "without any answer nothing is ever cancelled",
                &[(0, INVITE), (100, Cancel)],
                "0 > INVITE, 500 > INVITE, 1500 > INVITE, 3500 > INVITE, 7500 > INVITE, 15500 > INVITE,
                31500 > INVITE, 32000 ! timeout",
            ),

            (
                "answered, but the INVITE is not: 64*T1 from the CANCEL",
                &[
                    (0, INVITE),
                    (100, Answer(180, "a")),
                    (20_000, Cancel),
                    (20_100, AnswerCancel(200)),
                    (52_500, Answer(200, "a")),
                ],
                "0 > INVITE, 100 < 180 INVITE, 20000 > CANCEL, 52000 ! timeout, 52500 ? 200 INVITE",
            ),
            (
                "never answered: E up to T2, then 64*T1",
                &[(0, INVITE), (100, Answer(180, "a")), (1_000, Cancel)],
                "0 > INVITE, 100 < 180 INVITE, 1000 > CANCEL, 1500 > CANCEL, 2500 > CANCEL, 4500 > CANCEL,
                8500 > CANCEL, 12500 > CANCEL, 16500 > CANCEL, 20500 > CANCEL, 24500 > CANCEL, 28500 > CANCEL,
                32500 > CANCEL, 33000 ! timeout",
            ),
            (
                "a provisional response to the CANCEL slows it to T2",
                &[
                    (0, INVITE),
                    (100, Answer(180, "a")),
                    (1_000, Cancel),
                    (1_100, AnswerCancel(100)),
                    (6_000, AnswerCancel(481)),
                    (7_000, Answer(487, "a")),
                ],
                "0 > INVITE, 100 < 180 INVITE, 1000 > CANCEL, 1500 > CANCEL, 5500 > CANCEL,
                7000 < 487 INVITE, 7000 > ACK",
            ),

            (
                "a 200 crosses it",
                &[
                    (0, INVITE),
                    (100, Answer(180, "a")),
                    (1_000, Cancel),
                    (1_010, Answer(200, "a")),
                    (1_020, Ack("a")),
                    (1_030, AnswerCancel(481)),
                ],
                "0 > INVITE, 100 < 180 INVITE, 1000 > CANCEL, 1010 < 200 INVITE, 1020 > ACK",
            ),
            (
                "asked twice it is sent once",
                &[
                    (0, INVITE),
                    (10, Cancel),
                    (20, Cancel),
                    (100, Answer(180, "a")),
                    (150, Cancel),
                    (200, AnswerCancel(200)),
                    (250, Cancel),
                    (300, Answer(487, "a")),
                ],
                "0 > INVITE, 100 < 180 INVITE, 100 > CANCEL, 300 < 487 INVITE, 300 > ACK",
            ),
            (
                "after the answer it is too late",
                &[(0, INVITE), (100, Answer(200, "a")), (200, Cancel)],
                "0 > INVITE, 100 < 200 INVITE",
            ),
        ],
    );
}

#[test]
fn a_cancel_is_the_invites_but_for_method_and_body() {
    let mut bench = Bench::new(Transport::Udp);
    for action in [INVITE, Answer(100, "a"), Cancel] {
        bench.perform(action);
    }
    let [invite, cancel] =
        [0, 1].map(|at| lex(&bench.sent[at], Framing::Stream).expect("in order"));
    assert_eq!(cancel.top_via().branch, invite.top_via().branch);
    assert_eq!(cancel.request_uri(), invite.request_uri());
    assert_eq!((cancel.from(), cancel.to()), (invite.from(), invite.to()));
    assert_eq!(cancel.cseq().number, invite.cseq().number);
    assert_eq!(
        cancel.first(crate::wire::HeaderName::Reason),
        Some(&b"SIP;cause=487"[..])
    );
}

#[test]
fn the_ack_of_a_refusal_has_its_to_tag_and_the_invites_branch() {
    let mut bench = Bench::new(Transport::Udp);
    for action in [INVITE, Answer(486, "theirs"), Answer(486, "theirs")] {
        bench.perform(action);
    }
    let [invite, ack] = [0, 1].map(|at| lex(&bench.sent[at], Framing::Stream).expect("in order"));
    assert_eq!(ack.top_via().branch, invite.top_via().branch);
    assert_eq!(ack.to_tag(), Some(&b"theirs"[..]));
    assert_eq!(bench.sent[1], bench.sent[2]);
}

#[test]
fn the_ack_of_a_2xx_has_a_branch_of_its_own_and_is_repeated_as_it_was() {
    let mut bench = Bench::new(Transport::Udp);
    for action in [INVITE, Answer(200, "a"), Ack("a"), Answer(200, "a")] {
        bench.perform(action);
    }
    let [invite, ack] = [0, 1].map(|at| lex(&bench.sent[at], Framing::Stream).expect("in order"));
    assert_ne!(ack.top_via().branch, invite.top_via().branch);
    assert_eq!(bench.sent[1], bench.sent[2]);
}

#[test]
fn acks_are_kept_for_a_bounded_number_of_forks() {
    let mut bench = Bench::new(Transport::Udp);
    bench.perform(INVITE);

    let tags = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    for tag in tags {
        bench.perform(Answer(200, tag));
        bench.perform(Ack(tag));
    }

    bench.log.clear();
    tags.iter().for_each(|tag| bench.perform(Answer(200, tag)));

    let acked = bench
        .log
        .iter()
        .filter(|line| line.ends_with("> ACK"))
        .count();
    let passed = bench
        .log
        .iter()
        .filter(|line| line.ends_with("< 200 INVITE"))
        .count();

    assert_eq!((acked, passed), (8, 1));
}

#[test]
fn a_lost_flow_fails_what_is_unanswered() {
    let cases: &[Case<'_>] = &[
        (
            "calling",
            &[(0, INVITE), (100, Lose)],
            "0 > INVITE, 100 ! transport error",
        ),
        (
            "a 100; its late 2xx is a stray",
            &[
                (0, INVITE),
                (100, Answer(100, "a")),
                (200, Lose),
                (300, Answer(200, "a")),
            ],
            "0 > INVITE, 100 < 100 INVITE, 200 ! transport error, 300 ? 200 INVITE",
        ),
        (
            "accepted",
            &[
                (0, INVITE),
                (100, Answer(200, "a")),
                (150, Ack("a")),
                (200, Lose),
            ],
            "0 > INVITE, 100 < 200 INVITE, 150 > ACK",
        ),
    ];
    check(Transport::Udp, cases);
    check(Transport::Tcp, cases);
    // RFC 3261 §18.2.2: the peer answers over a new connection.
    let rings: &[(u64, Do)] = &[
        (0, INVITE),
        (100, Answer(180, "a")),
        (200, Lose),
        (300, Answer(200, "a")),
    ];
    let waits = "0 > INVITE, 100 < 180 INVITE, 300 < 200 INVITE";
    check(Transport::Tcp, &[("a 180 over TCP", rings, waits)]);
    let fails = "0 > INVITE, 100 < 180 INVITE, 200 ! transport error, 300 ? 200 INVITE";
    check(Transport::Udp, &[("a 180 over UDP", rings, fails)]);
}
