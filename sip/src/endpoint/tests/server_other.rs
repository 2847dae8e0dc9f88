//! RFC 3261 §17.2.2, and the tombstones that replace its Completed state.

use super::*;

use Do::{Arrive, Lose, Respond, RespondWith};

const INFO: Do = Arrive(arrival("INFO"));
const CONTACT: &str = "Contact: <sip:us@198.51.100.1>\r\n";

#[test]
fn over_udp() {
    check(
        Transport::Udp,
        &[
            (
                "before an answer a repetition is absorbed",
                &[(0, INFO), (500, INFO), (600, Respond(200))],
                "0 < INFO, 600 > 200 INFO",
            ),
            (
                "then it gets the provisional response",
                &[
                    (0, INFO),
                    (100, Respond(100)),
                    (500, INFO),
                    (600, Respond(200)),
                ],
                "0 < INFO, 100 > 100 INFO, 500 > 100 INFO, 600 > 200 INFO",
            ),
            (
                "a bare answer is given again until J",
                &[
                    (0, INFO),
                    (10, Respond(481)),
                    (500, INFO),
                    (32_000, INFO),
                    (32_010, INFO),
                    (32_020, Respond(200)),
                ],
                "0 < INFO, 10 > 481 INFO, 500 > 481 INFO, 32000 > 481 INFO, 32010 < INFO, 32020 > 200 INFO",
            ),
            (
                "and so is one with headers of its own",
                &[
                    (0, INFO),
                    (10, RespondWith(200, CONTACT)),
                    (500, INFO),
                    (32_000, INFO),
                    (32_010, INFO),
                    (32_020, Respond(200)),
                ],
                "0 < INFO, 10 > 200 INFO, 500 > 200 INFO, 32000 > 200 INFO, 32010 < INFO, 32020 > 200 INFO",
            ),
            (
                "nothing follows the final response",
                &[
                    (0, INFO),
                    (0, RespondWith(200, CONTACT)),
                    (10, Respond(500)),
                ],
                "0 < INFO, 0 > 200 INFO",
            ),
            (
                "what nobody answers ends with F",
                &[(0, INFO), (32_010, Respond(200))],
                "0 < INFO",
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
                "the answer ends it: J is zero",
                &[
                    (0, INFO),
                    (10, RespondWith(200, CONTACT)),
                    (20, INFO),
                    (30, Respond(200)),
                ],
                "0 < INFO, 10 > 200 INFO, 20 < INFO, 30 > 200 INFO",
            ),
            (
                "provisional responses are sent once",
                &[
                    (0, INFO),
                    (10, Respond(100)),
                    (20, INFO),
                    (30, Respond(200)),
                ],
                "0 < INFO, 10 > 100 INFO, 30 > 200 INFO",
            ),
            (
                "a lost connection is opened anew for the answer",
                &[(0, INFO), (10, Lose), (20, Respond(200))],
                "0 < INFO, 20 } 200 INFO",
            ),
        ],
    );
}

#[test]
fn a_repeated_answer_is_the_same_octets() {
    let cases = [
        ("bare", arrival("INFO"), Response::bare(404)),
        (
            "bare, inside a dialog",
            Arrival {
                to: ";tag=us",
                ..arrival("INFO")
            },
            Response::bare(404),
        ),
        (
            "with a tag",
            arrival("INFO"),
            Response {
                to_tag: Some(b"chosen"),
                ..Response::bare(200)
            },
        ),
        (
            "with a body",
            arrival("INFO"),
            Response {
                body: b"hello",
                ..Response::bare(200)
            },
        ),
    ];

    for (name, request, answer) in cases {
        let mut bench = Bench::new(Transport::Udp);
        bench.perform(Arrive(request));
        bench.respond(&answer);
        bench.note_output();
        bench.perform(Arrive(request));
        assert_eq!(bench.sent.len(), 2, "{name}");
        assert_eq!(bench.sent[0], bench.sent[1], "{name}");
    }
}

#[test]
fn only_a_bare_answer_leaves_no_octets() {
    for (head, tombstones, alive) in [("", 1, 0), (CONTACT, 0, 1)] {
        let mut bench = Bench::new(Transport::Udp);
        bench.perform(INFO);
        bench.perform(RespondWith(200, head));
        let counts = bench.counts();
        assert_eq!(
            (counts.tombstones, counts.server_other),
            (tombstones, alive),
            "{head}"
        );
        let tx = bench.server.expect("a request was accepted");
        assert_eq!(bench.endpoint.server_exists(tx), alive == 1, "{head}");
    }
}
