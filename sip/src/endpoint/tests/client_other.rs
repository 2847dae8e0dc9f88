//! RFC 3261 §17.1.2.

use super::*;

use Do::{Answer, Cancel, Lose, Send};

const BYE: Do = Send(Method::Bye);

#[test]
fn over_udp() {
    check(
        Transport::Udp,
        &[
            (
                "no answer: E up to T2, until F",
                &[(0, BYE)],
                "0 > BYE, 500 > BYE, 1500 > BYE, 3500 > BYE, 7500 > BYE, 11500 > BYE, 15500 > BYE, 19500 > BYE,
                23500 > BYE, 27500 > BYE, 31500 > BYE, 32000 ! timeout",
            ),
            (
                "proceeding: each T2, until F",
                &[(0, BYE), (600, Answer(100, "a")), (700, Answer(180, "a"))],
                "0 > BYE, 500 > BYE, 600 < 100 BYE, 700 < 180 BYE, 1500 > BYE, 5500 > BYE, 9500 > BYE,
                13500 > BYE, 17500 > BYE, 21500 > BYE, 25500 > BYE, 29500 > BYE, 32000 ! timeout",
            ),
            (
                "answered: repetitions are absorbed until K",
                &[
                    (0, BYE),
                    (600, Answer(200, "a")),
                    (700, Answer(200, "a")),
                    (5_590, Answer(100, "a")),
                    (5_610, Answer(200, "a")),
                ],
                "0 > BYE, 500 > BYE, 600 < 200 BYE",
            ),
            (
                "an answer after proceeding",
                &[(0, BYE), (100, Answer(100, "a")), (200, Answer(481, "a"))],
                "0 > BYE, 100 < 100 BYE, 200 < 481 BYE",
            ),
            (
                "it can't be cancelled",
                &[(0, BYE), (100, Cancel), (200, Answer(200, "a"))],
                "0 > BYE, 200 < 200 BYE",
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
                "no answer: F alone",
                &[(0, BYE)],
                "0 > BYE, 32000 ! timeout",
            ),
            (
                "answered: K is zero",
                &[
                    (0, BYE),
                    (100, Answer(100, "a")),
                    (200, Answer(200, "a")),
                    (300, Answer(200, "a")),
                ],
                "0 > BYE, 100 < 100 BYE, 200 < 200 BYE",
            ),
        ],
    );
}

#[test]
fn a_lost_flow_fails_what_is_unanswered() {
    for transport in [Transport::Udp, Transport::Tcp] {
        check(
            transport,
            &[
                (
                    "trying",
                    &[(0, BYE), (100, Lose)],
                    "0 > BYE, 100 ! transport error",
                ),
                (
                    "proceeding",
                    &[(0, BYE), (100, Answer(100, "a")), (200, Lose)],
                    "0 > BYE, 100 < 100 BYE, 200 ! transport error",
                ),
                (
                    "answered",
                    &[(0, BYE), (100, Answer(200, "a")), (200, Lose)],
                    "0 > BYE, 100 < 200 BYE",
                ),
            ],
        );
    }
}

#[test]
fn a_response_of_another_method_is_none() {
    let mut bench = Bench::new(Transport::Udp);
    bench.perform(BYE);
    bench.answer(200, "a", Method::Info);
    assert_eq!(bench.log, ["0 > BYE"]);
    assert_eq!(bench.endpoint.stats().dropped, 1);
}

#[test]
fn a_repeated_request_is_the_same_octets() {
    let mut bench = Bench::new(Transport::Udp);
    bench.perform(BYE);
    bench.run_until(1_500);
    assert_eq!(bench.sent.len(), 3);
    assert!(bench.sent.iter().all(|sent| *sent == bench.sent[0]));
    assert_eq!(bench.endpoint.stats().retransmissions_sent, 2);
}

#[test]
fn the_via_asks_for_rport_on_udp_alone() {
    let via = |transport| {
        let mut bench = Bench::new(transport);
        bench.perform(BYE);
        bench.via
    };
    let (udp, tls) = (via(Transport::Udp), via(Transport::Tls));
    assert!(
        udp.starts_with("Via: SIP/2.0/UDP 198.51.100.1:5060;branch=z9hG4bK"),
        "{udp}"
    );
    assert!(udp.ends_with(";rport"), "{udp}");
    assert!(
        tls.starts_with("Via: SIP/2.0/TLS 198.51.100.1:5060;branch=z9hG4bK"),
        "{tls}"
    );
    assert!(!tls.contains("rport"), "{tls}");
}

#[test]
fn answers_come_to_the_slot_of_our_tag_or_else_of_the_call_id() {
    let mut bench = Bench::new(Transport::Udp);
    let minter = bench.endpoint.minter().clone();
    let slot = crate::slot::Slot::new(321).expect("below COUNT");
    let tag = minter.tag(slot, bench.endpoint.entropy());
    let by_call_id = minter.slot_of_call_id(b"ours");
    let cases = [("us".to_owned(), by_call_id), (tag.to_string(), slot)];
    for (tag, expected) in cases {
        let head = our_head("BYE").replace("tag=us", &format!("tag={tag}"));
        let request = our_request(Method::Bye, &head);
        let sent = bench.endpoint.request(bench.flow, &request, OWNER, START);
        assert!(sent.is_ok());
        let (_, octets) = bench
            .endpoint
            .transmits()
            .last()
            .expect("it is sent at once");
        let message = lex(octets, Framing::Stream).expect("what we print is in order");
        let branch = message.top_via().branch.expect("it has a branch");
        assert_eq!(
            minter.read_branch(branch).map(|key| key.slot),
            Some(expected)
        );
    }
}

/// A branch proves nothing: anyone who has seen the request knows it.
#[test]
fn an_answer_comes_from_where_the_request_went() {
    let from = |flow: Flow, peer: &str, transport| Flow {
        peer: peer.parse().unwrap(),
        transport,
        ..flow
    };

    for (name, asked_by, peer, transport, log) in [
        (
            "the same",
            Transport::Udp,
            "192.0.2.1:5060",
            Transport::Udp,
            "<",
        ),
        (
            "another port",
            Transport::Udp,
            "192.0.2.1:9",
            Transport::Udp,
            "<",
        ),
        (
            "mapped",
            Transport::Udp,
            "[::ffff:192.0.2.1]:9",
            Transport::Udp,
            "<",
        ),
        (
            "another IP",
            Transport::Udp,
            "192.0.2.2:5060",
            Transport::Udp,
            "~",
        ),
        (
            "more secure",
            Transport::Udp,
            "192.0.2.1:5060",
            Transport::Tls,
            "<",
        ),
        (
            "less secure",
            Transport::Tls,
            "192.0.2.1:5060",
            Transport::Udp,
            "",
        ),
        (
            "less secure",
            Transport::Tls,
            "192.0.2.1:5060",
            Transport::Tcp,
            "",
        ),
        (
            "another connection",
            Transport::Tls,
            "192.0.2.1:9",
            Transport::Tls,
            "<",
        ),
    ] {
        let mut bench = Bench::new(asked_by);
        bench.flow.peer = "192.0.2.1:5060".parse().unwrap();
        bench.perform(BYE);
        bench.note_output();

        let (flow, before) = (bench.flow, bench.log.len());
        let octets = bench.answer_text(200, "a", Method::Bye);
        bench.arrive_by(from(flow, peer, transport), octets.as_bytes());
        let heard: Vec<&str> = bench.log[before..].iter().map(|line| &line[2..3]).collect();

        assert_eq!(heard.concat(), log, "{name}: {asked_by}, {transport}");
        assert_eq!(
            bench.endpoint.stats().less_secure,
            u64::from(log.is_empty()),
            "{name}"
        );
        if log != "<" {
            assert_eq!(
                bench.counts().client_other,
                1,
                "{name}: nothing has happened"
            );
        }
    }
}
