//! RFC 3261 §17.2.1, RFC 6026 §7.1, the 2xx of §13.3.1.4 and CANCEL (§9.2).

use super::*;

use Do::{Acknowledged, Arrive, Doubt, Lose, Respond, RingAgain, Trust};

const INVITE: Do = Arrive(arrival("INVITE"));
/// The ACK of a refusal has its INVITE's branch; the ACK of a 2xx has its own.
const ACK: Do = Arrive(arrival("ACK"));
const ACK_OF_2XX: Do = Arrive(Arrival {
    branch: "z9hG4bKack",
    to: ";tag=us",
    ..arrival("ACK")
});
const CANCEL: Do = Arrive(arrival("CANCEL"));

#[test]
fn over_udp() {
    check(
        Transport::Udp,
        &[
            (
                "a repeated INVITE gets the last provisional response",
                &[
                    (0, INVITE),
                    (500, INVITE),
                    (900, Respond(180)),
                    (1_500, INVITE),
                    (1_600, Respond(183)),
                    (3_500, INVITE),
                    (4_000, Respond(486)),
                    (4_100, ACK),
                ],
                "0 < INVITE, 0 > 100 INVITE, 500 > 100 INVITE, 900 > 180 INVITE, 1500 > 180 INVITE,
                1600 > 183 INVITE, 3500 > 183 INVITE, 4000 > 486 INVITE",
            ),

            (
                "a refusal without ACK: G up to T2, until H",
                &[(0, INVITE), (0, Respond(486))],
                "0 < INVITE, 0 > 100 INVITE, 0 > 486 INVITE, 500 > 486 INVITE, 1500 > 486 INVITE, 3500 > 486 INVITE,
                7500 > 486 INVITE, 11500 > 486 INVITE, 15500 > 486 INVITE, 19500 > 486 INVITE, 23500 > 486 INVITE,
                27500 > 486 INVITE, 31500 > 486 INVITE",
            ),
            (
                "a repeated INVITE gets the refusal; the ACK ends it; both are absorbed until I",
                &[
                    (0, INVITE),
                    (0, Respond(503)),
                    (400, INVITE),
                    (600, ACK),
                    (700, INVITE),
                    (800, ACK),
                    (5_590, INVITE),
                    (5_610, INVITE),
                    (5_620, Respond(503)),
                    (5_630, ACK),
                ],
                "0 < INVITE, 0 > 100 INVITE, 0 > 503 INVITE, 400 > 503 INVITE, 500 > 503 INVITE, 5610 < INVITE,
                5610 > 100 INVITE, 5620 > 503 INVITE",
            ),

            (
                "an ACK before any answer is nobody's",
                &[(0, INVITE), (10, ACK), (20, Respond(404)), (30, ACK)],
                "0 < INVITE, 0 > 100 INVITE, 20 > 404 INVITE",
            ),
            (
                "nothing follows a final response",
                &[(0, INVITE), (0, Respond(404)), (10, Respond(180)), (20, Respond(200)), (30, ACK)],
                "0 < INVITE, 0 > 100 INVITE, 0 > 404 INVITE",
            ),
        ],
    );
}

/// A source that may be forged gets a bounded number of messages.
#[test]
fn of_an_unproven_source() {
    check(
        Transport::Udp,
        &[
            (
                "a 2xx is sent eight times; a copy of its INVITE begins nothing",
                &[
                    (0, Doubt),
                    (0, INVITE),
                    (100, Respond(200)),
                    (9_000, INVITE),
                    (9_100, ACK_OF_2XX),
                ],
                "0 < INVITE, 0 > 100 INVITE, 100 > 200 INVITE, 600 > 200 INVITE, 1100 > 200 INVITE, 2100 > 200 INVITE,
                3100 > 200 INVITE, 4100 > 200 INVITE, 5100 > 200 INVITE, 6100 > 200 INVITE, 8100 ! no ack, 9100 < ACK",
            ),
            (
                "it is proven by another request than the ACK: the 2xx goes on as any other",
                &[
                    (0, Doubt),
                    (0, INVITE),
                    (0, Respond(200)),
                    (7_500, Trust),
                    (7_600, Trust),
                    (16_000, ACK_OF_2XX),
                    (16_000, Acknowledged),
                ],
                "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 500 > 200 INVITE, 1000 > 200 INVITE, 2000 > 200 INVITE,
                3000 > 200 INVITE, 4000 > 200 INVITE, 5000 > 200 INVITE, 6000 > 200 INVITE, 11500 > 200 INVITE,
                15500 > 200 INVITE, 16000 < ACK",
            ),
            (
                "it is proven before its answer",
                &[(0, Doubt), (0, INVITE), (0, Trust), (0, Respond(200)), (3_000, Acknowledged)],
                "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 500 > 200 INVITE, 1500 > 200 INVITE",
            ),
            (
                "a refusal is sent four times",
                &[(0, Doubt), (0, INVITE), (0, Respond(480)), (5_000, INVITE)],
                "0 < INVITE, 0 > 100 INVITE, 0 > 480 INVITE, 500 > 480 INVITE, 1000 > 480 INVITE, 2000 > 480 INVITE,
                5000 > 480 INVITE",
            ),
            (
                "18x is repeated once there is one, and before the answer",
                &[
                    (0, INVITE),
                    (10, RingAgain),
                    (20, Respond(180)),
                    (30, RingAgain),
                    (40, Respond(404)),
                    (50, RingAgain),
                    (60, ACK),
                ],
                "0 < INVITE, 0 > 100 INVITE, 20 > 180 INVITE, 30 > 180 INVITE, 40 > 404 INVITE",
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
                "a refusal is sent once; H",
                &[
                    (0, INVITE),
                    (0, Respond(486)),
                    (31_000, ACK),
                    (31_100, Arrive(arrival("BYE"))),
                ],
                "0 < INVITE, 0 > 100 INVITE, 0 > 486 INVITE, 31100 < BYE",
            ),
            (
                "the ACK of a refusal ends it at once: I is zero",
                &[
                    (0, INVITE),
                    (0, Respond(486)),
                    (100, ACK),
                    (200, INVITE),
                    (200, Respond(486)),
                    (300, ACK),
                ],
                "0 < INVITE, 0 > 100 INVITE, 0 > 486 INVITE, 200 < INVITE, 200 > 100 INVITE, 200 > 486 INVITE",
            ),
        ],
    );
}

#[test]
fn accepted_on_every_transport() {
    let cases: &[Case<'_>] = &[
        (
            "a 2xx is repeated by its timer alone, until 64*T1",
            &[(0, INVITE), (0, Respond(200)), (100, INVITE)],
            "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 500 > 200 INVITE, 1500 > 200 INVITE, 3500 > 200 INVITE,
            7500 > 200 INVITE, 11500 > 200 INVITE, 15500 > 200 INVITE, 19500 > 200 INVITE, 23500 > 200 INVITE,
            27500 > 200 INVITE, 31500 > 200 INVITE, 32000 ! no ack",
        ),
        (
            "acknowledged: no more; INVITEs are absorbed until L, ACKs handed out",
            &[
                (0, INVITE),
                (0, Respond(200)),
                (600, ACK_OF_2XX),
                (600, Acknowledged),
                (700, INVITE),
                (800, ACK_OF_2XX),
                (32_590, INVITE),
            ],
            "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 500 > 200 INVITE, 600 < ACK, 800 < ACK",
        ),
        (
            "an ACK alone changes nothing: its user matches it",
            &[(0, INVITE), (0, Respond(200)), (100, ACK_OF_2XX), (600, ACK), (700, Acknowledged), (800, ACK)],
            "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 100 < ACK, 500 > 200 INVITE, 600 < ACK, 800 < ACK",
        ),
        (
            "acknowledged before its answer it is not",
            &[(0, INVITE), (0, Acknowledged), (100, Respond(200)), (200, Acknowledged)],
            "0 < INVITE, 0 > 100 INVITE, 100 > 200 INVITE",
        ),
    ];

    check(Transport::Udp, cases);
    check(Transport::Tcp, cases);
    check(Transport::Tls, cases);
}

#[test]
fn after_l_an_invite_is_new() {
    check(
        Transport::Udp,
        &[(
            "",
            &[
                (0, INVITE),
                (0, Respond(200)),
                (100, Acknowledged),
                (32_110, INVITE),
                (32_110, Respond(486)),
                (32_120, ACK),
            ],
            "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 32110 < INVITE, 32110 > 100 INVITE, 32110 > 486 INVITE",
        )],
    );
}

#[test]
fn cancel() {
    check(
        Transport::Udp,
        &[
            (
                "is answered at once and told once",
                &[
                    (0, INVITE),
                    (100, CANCEL),
                    (100, Respond(487)),
                    (110, ACK),
                    (600, CANCEL),
                ],
                "0 < INVITE, 0 > 100 INVITE, 100 < CANCEL, 100 > 200 CANCEL, 100 > 487 INVITE, 600 > 200 CANCEL",
            ),
            (
                "repeated before the 487",
                &[
                    (0, INVITE),
                    (100, CANCEL),
                    (600, CANCEL),
                    (700, Respond(487)),
                    (800, ACK),
                ],
                "0 < INVITE, 0 > 100 INVITE, 100 < CANCEL, 100 > 200 CANCEL, 600 > 200 CANCEL, 700 > 487 INVITE",
            ),
            (
                "after a refusal it changes nothing",
                &[(0, INVITE), (0, Respond(486)), (100, CANCEL), (200, ACK)],
                "0 < INVITE, 0 > 100 INVITE, 0 > 486 INVITE, 100 > 200 CANCEL",
            ),
            (
                "after a 2xx it changes nothing",
                &[
                    (0, INVITE),
                    (0, Respond(200)),
                    (100, CANCEL),
                    (200, Acknowledged),
                    (300, CANCEL),
                ],
                "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 100 > 200 CANCEL, 300 > 200 CANCEL",
            ),
            ("of nothing", &[(0, CANCEL)], "0 > 481 CANCEL"),
            (
                "of another request than an INVITE",
                &[
                    (0, Arrive(arrival("INFO"))),
                    (10, CANCEL),
                    (20, Respond(200)),
                ],
                "0 < INFO, 10 > 481 CANCEL, 20 > 200 INFO",
            ),
        ],
    );
}

fn to_tag(octets: &[u8]) -> Option<Vec<u8>> {
    lex(octets, Framing::Stream)
        .expect("what we print is in order")
        .to_tag()
        .map(<[u8]>::to_vec)
}

#[test]
fn all_answers_have_one_tag_even_where_none_is_chosen() {
    let mut bench = Bench::new(Transport::Udp);
    for action in [INVITE, CANCEL, Respond(180), Respond(487), ACK, CANCEL] {
        bench.perform(action);
    }

    let tags: Vec<_> = bench.sent.iter().map(|octets| to_tag(octets)).collect();
    let [trying, ours @ ..] = &tags[..] else {
        panic!("nothing was sent")
    };

    assert_eq!(*trying, None);
    assert_eq!(ours.len(), 4);

    let tag = ours[0].as_ref().expect("the CANCEL's answer has a tag");
    assert!(ours.iter().all(|other| other.as_ref() == Some(tag)));

    let slot = bench.endpoint.minter().slot_of_call_id(b"call@192.0.2.1");
    assert_eq!(
        bench.endpoint.minter().read_tag(tag).map(|key| key.slot),
        Some(slot)
    );
}

#[test]
fn a_chosen_tag_is_used_and_remembered() {
    let mut bench = Bench::new(Transport::Udp);
    bench.perform(INVITE);
    bench.respond(&Response {
        to_tag: Some(b"early"),
        ..Response::bare(180)
    });
    bench.respond(&Response {
        to_tag: Some(b"other"),
        ..Response::bare(183)
    });
    bench.respond(&Response::bare(486));
    bench.note_output();

    let tags: Vec<_> = bench
        .sent
        .iter()
        .skip(1)
        .map(|octets| to_tag(octets))
        .collect();
    assert_eq!(
        tags,
        [
            Some(b"early".to_vec()),
            Some(b"other".to_vec()),
            Some(b"other".to_vec())
        ]
    );
}

#[test]
fn an_old_peers_request_is_known_without_a_cookie() {
    const OLD: Arrival<'static> = Arrival {
        branch: "1",
        ..arrival("INVITE")
    };
    const OLD_ACK: Arrival<'static> = Arrival {
        branch: "1",
        to: ";tag=us",
        ..arrival("ACK")
    };

    check(
        Transport::Udp,
        &[
            (
                "its ACK of a refusal",
                &[
                    (0, Arrive(OLD)),
                    (10, Arrive(OLD)),
                    (20, Respond(486)),
                    (30, Arrive(OLD_ACK)),
                ],
                "0 < INVITE, 0 > 100 INVITE, 10 > 100 INVITE, 20 > 486 INVITE",
            ),
            (
                "its ACK of a 2xx",
                &[
                    (0, Arrive(OLD)),
                    (20, Respond(200)),
                    (30, Arrive(OLD_ACK)),
                    (30, Acknowledged),
                ],
                "0 < INVITE, 0 > 100 INVITE, 20 > 200 INVITE, 30 < ACK",
            ),
        ],
    );
}

#[test]
fn a_lost_connection_is_opened_anew_for_the_answer() {
    check(
        Transport::Tcp,
        &[
            (
                "not answered yet",
                &[(0, INVITE), (10, Lose), (20, Respond(486)), (30, ACK)],
                "0 < INVITE, 0 > 100 INVITE, 20 } 486 INVITE",
            ),
            (
                "a 2xx goes out again at once",
                &[
                    (0, INVITE),
                    (0, Respond(200)),
                    (100, Lose),
                    (600, Acknowledged),
                ],
                "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 100 } 200 INVITE, 500 } 200 INVITE",
            ),
        ],
    );
}

#[test]
fn an_unreachable_datagram_peer_does_not_end_an_answer() {
    check(
        Transport::Udp,
        &[(
            "",
            &[
                (0, INVITE),
                (0, Respond(200)),
                (100, Lose),
                (600, Acknowledged),
            ],
            "0 < INVITE, 0 > 100 INVITE, 0 > 200 INVITE, 500 > 200 INVITE",
        )],
    );
}

#[test]
fn the_new_connection_goes_to_the_port_of_sent_by() {
    let mut bench = Bench::new(Transport::Tcp);
    bench.flow.peer.set_port(41_234);
    bench.perform(INVITE);
    bench.perform(Lose);
    bench.respond(&Response::bare(486));
    let (flow, _) = bench
        .endpoint
        .transmits()
        .last()
        .expect("the answer is sent");
    assert_eq!(flow.connection, 0);
    assert_eq!(flow.peer, SocketAddr::from(([192, 0, 2, 1], 5070)));
}

#[test]
fn a_cancel_comes_from_where_its_invite_came_from() {
    let mut bench = Bench::new(Transport::Udp);
    bench.perform(INVITE);

    let home = bench.flow.peer;
    bench.flow.peer = SocketAddr::from(([203, 0, 113, 66], 5070));
    bench.perform(Arrive(arrival("CANCEL")));
    bench.flow.peer = SocketAddr::new(home.ip(), 61_000);
    bench.perform(Arrive(arrival("CANCEL")));

    assert_eq!(
        bench.log,
        [
            "0 < INVITE",
            "0 > 100 INVITE",
            "0 > 481 CANCEL",
            "0 < CANCEL",
            "0 > 200 CANCEL"
        ]
    );
}
