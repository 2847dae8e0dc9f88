//! Reliable and unreliable responses of several forks to one caller, their PRACKs, and the 2xx that waits for one.

use trunkline_sip::flow::Transport;
use trunkline_sip::wheel::Wheel;
use trunkline_sip::wire::{Framing, lex};

use super::*;
use crate::leg::delayed_ack::tests::transactions;

/// A caller that records what it gets: fork, status and RSeq.
struct Recorder {
    now: Moment,
    wheel: Wheel<u8>,
    got: Vec<(u8, u16, Option<u32>)>,
}

impl Recorder {
    fn new() -> Self {
        let now = Moment::from_secs(1_790_000_000);
        Self {
            now,
            wheel: Wheel::new(now),
            got: Vec::new(),
        }
    }
}

impl ProvisionalSink for Recorder {
    fn now(&self) -> Moment {
        self.now
    }

    fn send(&mut self, fork: u8, answer: &Provisional, rseq: Option<u32>) {
        self.got.push((fork, answer.status, rseq));
    }

    fn wake(&mut self, fork: u8, after: Duration) -> TimerId {
        self.wheel.schedule(self.now + after, fork)
    }

    fn cancel(&mut self, timer: TimerId) {
        self.wheel.cancel(timer);
    }
}

fn request(method: &str, lines: &str) -> String {
    format!(
        "{method} sip:a@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKa\r\nFrom: <sip:c@h>;tag=c\r\nTo: <sip:a@h>\r\n\
         Call-ID: i\r\nCSeq: 1 {method}\r\n{lines}"
    )
}

const OFFER: &str = "Content-Type: application/sdp\r\nContent-Length: 5\r\n\r\nv=0\r\n";
const EMPTY: &str = "Content-Length: 0\r\n\r\n";

fn relay(rest: &str) -> ProvisionalRelay {
    let invite = request("INVITE", &format!("Supported: 100rel\r\n{rest}"));
    ProvisionalRelay::new(&lex(invite.as_bytes(), Framing::Datagram).expect("an INVITE"))
}

fn answer(status: u16, has_sdp: bool) -> Provisional {
    Provisional {
        status,
        has_sdp,
        head: Box::default(),
        body: Box::default(),
    }
}

fn acknowledge(
    relay: &mut ProvisionalRelay,
    to: &mut Recorder,
    fork: u8,
    rack: &str,
) -> Option<Option<u32>> {
    let prack = request("PRACK", &format!("RAck: {rack}\r\n{EMPTY}"));
    let prack = lex(prack.as_bytes(), Framing::Datagram).expect("a PRACK");
    let acknowledged = relay.handle_prack(to, fork, &prack)?;
    assert!(relay.go_on(to, fork).is_none(), "nothing is held");
    Some(acknowledged.rseq)
}

#[test]
fn an_unreliable_sdp_is_no_offer_to_a_caller_that_made_none() {
    let ours = Delivery::UntilPrack { rseq: None };
    let theirs = Delivery::UntilPrack { rseq: Some(7) };
    for (rest, delivery, is_bare) in [
        (EMPTY, ours, true),
        (EMPTY, theirs, false),
        (EMPTY, Delivery::Once, false),
        (OFFER, ours, false),
    ] {
        assert_eq!(
            relay(rest).is_bare(delivery),
            is_bare,
            "{rest} {delivery:?}"
        );
    }
}

#[test]
fn a_caller_hears_nothing_until_the_first_response() {
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    assert!(relay.is_silent());

    relay.handle_provisional(&mut to, 1, Delivery::Once, answer(180, false));
    assert!(!relay.is_silent());
}

#[test]
fn a_fork_that_the_caller_has_hung_up_on_says_nothing_more() {
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    for (fork, rseq, status) in [(0, 7, 180), (0, 8, 183), (1, 40, 180)] {
        let delivery = relay.delivery(Some(rseq));
        relay.handle_provisional(&mut to, fork, delivery, answer(status, true));
    }
    relay.end_fork(&mut to, 0);
    assert_eq!([0, 1].map(|fork| relay.has_ended(fork)), [true, false]);
    assert!(!relay.owes_answer(0));
    assert_eq!(relay.timers().count(), 1, "that of the other fork");

    to.got.clear();
    let goes_on = relay.handle_timer(&mut to, 0);
    assert_eq!(goes_on, Retransmission::GoesOn);
    assert_eq!(acknowledge(&mut relay, &mut to, 0, "1 1 INVITE"), None);
    for fork in [0, 1] {
        relay.handle_provisional(&mut to, fork, Delivery::Once, answer(182, false));
    }
    assert_eq!(to.got, [(1, 182, None)]);
}

#[test]
fn each_fork_counts_by_itself_and_has_one_answer_out() {
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    for (fork, rseq, status) in [(0, 7, 180), (1, 40, 181), (0, 8, 183), (0, 9, 184)] {
        let delivery = relay.delivery(Some(rseq));
        relay.handle_provisional(&mut to, fork, delivery, answer(status, false));
    }
    relay.handle_provisional(&mut to, 0, Delivery::Once, answer(182, false));
    let plain = (0, 182, None);
    assert_eq!(to.got, [(0, 180, Some(1)), (1, 181, Some(1)), plain]);

    to.got.clear();
    for (case, fork, rack, theirs, got) in [
        (
            "the one that is out",
            0,
            "1 1 INVITE",
            Some(7),
            Some((0, 183, Some(2))),
        ),
        ("the same again", 0, "1 1 INVITE", None, None),
        ("another INVITE's", 0, "2 9 INVITE", None, None),
        ("another fork's", 1, "2 1 INVITE", None, None),
        (
            "the second",
            0,
            "2 1 INVITE",
            Some(8),
            Some((0, 184, Some(3))),
        ),
        ("the other fork's first", 1, "1 1 INVITE", Some(40), None),
        ("the last", 0, "3 1 INVITE", Some(9), None),
    ] {
        let acknowledged = acknowledge(&mut relay, &mut to, fork, rack);
        assert_eq!(acknowledged, theirs.map(Some), "{case}");
        assert_eq!(to.got.pop(), got, "{case}");
    }
    assert!(to.wheel.is_empty(), "no timer is left");
}

#[test]
fn an_answer_is_repeated_for_64_t1_and_then_given_up_with_those_behind_it() {
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    for rseq in [1, 2] {
        let delivery = relay.delivery(Some(rseq));
        relay.handle_provisional(&mut to, 3, delivery, answer(180, true));
    }

    let start = to.now;
    let mut sent = Vec::new();
    let given_up = loop {
        to.now = to.wheel.next_deadline().expect("a timer runs");
        // The wheel may wake up only to move to its next level.
        let Some(fork) = to.wheel.pop(to.now) else {
            continue;
        };
        if relay.handle_timer(&mut to, fork) == Retransmission::GivenUp {
            break to.now.since(start);
        }
        sent.push(to.now.since(start).as_millis());
    };

    assert_eq!(sent, [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    assert_eq!(given_up, PATIENCE);
    assert!(!relay.owes_answer(3), "the second isn't owed either");
    assert!(to.got.iter().all(|got| *got == (3, 180, Some(1))));
}

#[test]
fn few_answers_wait_in_one_call() {
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    for number in 0..30 {
        let delivery = relay.delivery(Some(u32::from(number)));
        relay.handle_provisional(&mut to, number % 2, delivery, answer(183, false));
    }
    let waiting: usize = relay.forks.iter().map(|fork| fork.queued.len()).sum();
    assert_eq!((to.got.len(), waiting), (2, MAX_QUEUED));
    relay.drop_queued();
    acknowledge(&mut relay, &mut to, 0, "1 1 INVITE").expect("it is out");
    assert_eq!(to.got.len(), 2, "nothing is sent of what was dropped");
}

#[test]
fn media_are_agreed_on_by_an_sdp_in_an_acknowledged_answer() {
    for (case, invite, has_sdp, agreed) in [
        ("offer and answer", OFFER, true, true),
        ("offer alone", OFFER, false, false),
        ("an offer that the PRACK doesn't answer", EMPTY, true, false),
    ] {
        let (mut relay, mut to) = (relay(invite), Recorder::new());
        let delivery = relay.delivery(Some(1));
        relay.handle_provisional(&mut to, 0, delivery, answer(183, has_sdp));
        assert_eq!(
            (relay.owes_answer(0), relay.is_agreed(0)),
            (has_sdp, false),
            "{case}"
        );
        acknowledge(&mut relay, &mut to, 0, "1 1 INVITE").expect(case);
        assert_eq!(
            (relay.owes_answer(0), relay.is_agreed(0)),
            (false, agreed),
            "{case}"
        );
    }
}

#[test]
fn a_caller_gets_reliable_answers_only_as_it_wants_them() {
    let until_prack = |rseq| Delivery::UntilPrack { rseq };
    let once = Delivery::Once;

    for (case, lines, plain, reliable) in [
        ("nothing said", "", once, once),
        (
            "supported",
            "Supported: timer, 100rel\r\n",
            once,
            until_prack(Some(7)),
        ),
        (
            "required",
            "Require: 100rel\r\n",
            until_prack(None),
            until_prack(Some(7)),
        ),
    ] {
        let invite = request("INVITE", &format!("{lines}{EMPTY}"));
        let invite = lex(invite.as_bytes(), Framing::Datagram).expect(case);
        let caller = Reliability::of(&invite);
        assert_eq!(caller.delivery(None), plain, "{case}");
        assert_eq!(caller.delivery(Some(7)), reliable, "{case}");
    }
}

#[test]
fn a_late_prack_is_that_of_its_fork_and_answer() {
    let late = LatePrack { fork: 2, rseq: 3 };
    for (case, fork, rack, rest, is_it) in [
        ("the one", 2, "3 1 INVITE", EMPTY, true),
        ("with an offer", 2, "3 1 INVITE", OFFER, false),
        ("another fork's", 1, "3 1 INVITE", EMPTY, false),
        ("of another answer", 2, "4 1 INVITE", EMPTY, false),
        ("of another method", 2, "3 1 UPDATE", EMPTY, false),
        ("unreadable", 2, "3", EMPTY, false),
    ] {
        let prack = request("PRACK", &format!("RAck: {rack}\r\n{rest}"));
        let prack = lex(prack.as_bytes(), Framing::Datagram).expect(case);
        assert_eq!(late.is_brought_by(fork, &prack), is_it, "{case}");
    }
}

fn flow() -> Flow {
    let local = std::net::SocketAddr::from(([192, 0, 2, 1], 5060));
    Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local,
        peer: local,
    }
}

fn held(client: ClientTx, fork: u8) -> HeldAnswer {
    let ok = format!(
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bKa\r\nFrom: <sip:c@h>;tag=c\r\nTo: <sip:a@h>;tag=a\r\n\
         Call-ID: i\r\nCSeq: 1 INVITE\r\n{EMPTY}"
    );
    let ok = lex(ok.as_bytes(), Framing::Datagram).expect("a 2xx");
    HeldAnswer {
        won: WinningAnswer {
            client,
            flow: flow(),
            fork,
            cseq: 1,
            acknowledged: false,
        },
        answer: (&ok).into(),
    }
}

/// RFC 3262 §3: a final response may come before the PRACKs "unless the final response is 2xx and any of the unacknowledged reliable
/// provisional responses contained a session description".
#[test]
fn a_2xx_waits_for_the_prack_of_its_sdp() {
    let [client, other] = transactions();
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    for (fork, rseq) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let delivery = relay.delivery(Some(rseq));
        relay.handle_provisional(&mut to, fork, delivery, answer(183, true));
    }
    assert_eq!(relay.held_fork(), None);
    assert!(!relay.holds(client));
    assert_eq!(relay.timers().count(), 2, "one for each fork");

    relay.hold_back(held(client, 1));
    assert_eq!(relay.held_fork(), Some(1));
    assert!(relay.holds(client) && !relay.holds(other));

    to.got.clear();
    for (case, fork, rack, got, is_free) in [
        // Once a fork has won, the others get nothing more.
        ("another fork's", 0, "1 1 INVITE", None, false),
        (
            "its first SDP",
            1,
            "1 1 INVITE",
            Some((1, 183, Some(2))),
            false,
        ),
        ("its second SDP", 1, "2 1 INVITE", None, true),
    ] {
        let prack = request("PRACK", &format!("RAck: {rack}\r\n{EMPTY}"));
        let prack = lex(prack.as_bytes(), Framing::Datagram).expect("a PRACK");
        relay.handle_prack(&mut to, fork, &prack).expect(case);
        let freed = relay.go_on(&mut to, fork);
        assert_eq!(
            freed.map(|held| held.won.fork),
            is_free.then_some(1),
            "{case}"
        );
        assert_eq!(to.got.pop(), got, "{case}");
    }
    assert!(!relay.holds(client));
    assert_eq!(relay.timers().count(), 0);
}

#[test]
fn a_held_2xx_may_be_taken_away() {
    let [client, _] = transactions();
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    let delivery = relay.delivery(Some(1));
    relay.handle_provisional(&mut to, 2, delivery, answer(183, true));
    relay.hold_back(held(client, 2));

    assert!(relay.take_held().is_some_and(|held| held.won.fork == 2));
    assert!(relay.take_held().is_none() && !relay.holds(client));
}

#[test]
fn a_prack_is_missing_while_a_response_of_the_fork_is_out() {
    let (mut relay, mut to) = (relay(OFFER), Recorder::new());
    let delivery = relay.delivery(Some(1));
    relay.handle_provisional(&mut to, 2, delivery, answer(183, false));
    assert_eq!(relay.late_prack(2), Some(LatePrack { fork: 2, rseq: 1 }));
    assert_eq!(relay.late_prack(0), None, "another fork");

    acknowledge(&mut relay, &mut to, 2, "1 1 INVITE").expect("it is out");
    assert_eq!(relay.late_prack(2), None);
}
