//! Steps of a proof by its events, and which calls owe one.

use trunkline_sip::endpoint::{self, Endpoint, Owner};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node};
use trunkline_sip::wire::{Framing, lex};

use super::*;

const PEER: &str = "198.51.100.7:5060";
const OURS: &str = "203.0.113.5:5060";

fn flow(transport: Transport, local: &str, peer: &str) -> Flow {
    Flow {
        transport,
        listener: 0,
        connection: 0,
        local: local.parse().expect("an address"),
        peer: peer.parse().expect("an address"),
    }
}

fn invite(lines: &str, body: &str) -> Vec<u8> {
    format!(
        "INVITE sip:1@{OURS} SIP/2.0\r\nVia: SIP/2.0/UDP {PEER};branch=z9hG4bK1\r\nFrom: <sip:a@{PEER}>;tag=a\r\n\
         To: <sip:1@{OURS}>\r\nCall-ID: a\r\nCSeq: 1 INVITE\r\nMax-Forwards: 70\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A transaction, to have the number of one.
fn transaction() -> ServerTx {
    let minter = Minter::new(Node(1), [1; 16]);
    let mut endpoint = Endpoint::new(
        endpoint::Config {
            minter,
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            server: "Trunkline".into(),
            sent_by: vec![OURS.into()],
            max_transactions: 10,
        },
        Entropy::from_seed([1; 32]),
    );
    let octets = invite("", "");
    let message = lex(&octets, Framing::Datagram).expect("an INVITE");
    let flow = flow(Transport::Udp, OURS, PEER);
    let accepted = endpoint.accept(&message, flow, Owner(1), Moment::from_secs(1));
    accepted.expect("room")
}

fn proof(way: ProofWay) -> DialogProof {
    DialogProof::new(way, flow(Transport::Udp, OURS, PEER), transaction())
}

/// Gives a proof these events; the CSeq number of each OPTIONS is 100, then 101. Returns what follows from the events.
fn run(way: ProofWay, events: &[ProofEvent]) -> Vec<(ProofStep, Wake)> {
    let mut proof = proof(way);
    let mut asked = 99;
    let handle = |event: &ProofEvent| {
        let due = proof.handle(*event);
        if due.0 == ProofStep::Ask {
            asked += 1;
            proof.note_question(asked);
        }
        due
    };
    events.iter().map(handle).collect()
}

const BEGINS: ProofEvent = ProofEvent::Begins { is_crowded: false };
const CROWDED: ProofEvent = ProofEvent::Begins { is_crowded: true };
const TIMER: ProofEvent = ProofEvent::TimedOut { is_crowded: false };
const STILL_CROWDED: ProofEvent = ProofEvent::TimedOut { is_crowded: true };

const fn denied(cseq: u32) -> ProofEvent {
    ProofEvent::Denied { cseq }
}

const fn after(millis: u64) -> Wake {
    Wake::After(Duration::from_millis(millis))
}

const NOTHING: (ProofStep, Wake) = (ProofStep::Nothing, Wake::Same);
const CALLS: (ProofStep, Wake) = (ProofStep::CallAgent, Wake::Never);
const ASKS: (ProofStep, Wake) = (ProofStep::Ask, Wake::Never);
const AGAIN: (ProofStep, Wake) = (ProofStep::RingAgain, after(100));

#[test]
fn a_peer_that_acknowledges_18x_and_offers_proves_itself_before_its_agent_is_called() {
    let sdp = "v=0\r\no=- 1 1 IN IP4 198.51.100.7\r\ns=-\r\nt=0 0\r\n";
    let typed = "Content-Type: application/sdp\r\n";
    for (lines, body, way) in [
        ("Supported: 100rel\r\n", sdp, ProofWay::BeforeAgent),
        ("Require: 100rel\r\n", sdp, ProofWay::BeforeAgent),
        ("Supported: timer\r\n", sdp, ProofWay::ByAnswer),
        ("Supported: 100rel\r\n", "", ProofWay::ByAnswer),
        ("Require: 100rel\r\n", "", ProofWay::ByAnswer),
    ] {
        let octets = invite(&format!("{lines}{typed}"), body);
        let message = lex(&octets, Framing::Datagram).expect("an INVITE");
        assert_eq!(ProofWay::of(&message), way, "{lines:?} {body:?}");
    }
}

#[test]
fn steps_follow_from_events() {
    let ring = (ProofStep::Ring, after(8_000));
    let overdue = (ProofStep::Count, after(24_000));
    let count = (ProofStep::Count, Wake::Never);
    let rang = (ProofStep::Nothing, after(200));
    let answered = (ProofStep::Nothing, after(2_000));
    let refused = (ProofStep::Nothing, after(100));
    let ends = |outcome| (ProofStep::End(outcome), Wake::Never);
    let first_denied = [BEGINS, ProofEvent::Rings, TIMER, denied(100)];
    let asked_twice = [&first_denied[..], &[TIMER, TIMER, TIMER, TIMER, TIMER]].concat();
    let of_two = [CALLS, rang, ASKS, refused, AGAIN, AGAIN, AGAIN, AGAIN, ASKS];

    for (case, way, events, steps) in [
        (
            "no PRACK comes",
            ProofWay::BeforeAgent,
            vec![BEGINS, ProofEvent::Rings, TIMER, TIMER],
            vec![ring, NOTHING, overdue, ends(ProofOutcome::Silent)],
        ),
        (
            "a PRACK needs no wait",
            ProofWay::BeforeAgent,
            vec![CROWDED],
            vec![ring],
        ),
        (
            "an answer without an ACK",
            ProofWay::ByAnswer,
            vec![BEGINS, ProofEvent::Answered, TIMER, denied(100)],
            vec![CALLS, answered, count, NOTHING],
        ),
        (
            "the dialog is denied twice",
            ProofWay::ByAnswer,
            [&asked_twice[..], &[denied(101)]].concat(),
            [&of_two[..], &[ends(ProofOutcome::Denied)]].concat(),
        ),
        (
            "a copy of the first 481 is no second one",
            ProofWay::ByAnswer,
            [&asked_twice[..], &[denied(100)]].concat(),
            [&of_two[..], &[NOTHING]].concat(),
        ),
        (
            "a 481 that is late",
            ProofWay::ByAnswer,
            [&asked_twice[..], &[ProofEvent::Answered, denied(101)]].concat(),
            [&of_two[..], &[answered, NOTHING]].concat(),
        ),
        (
            "an answer while the dialog is in doubt",
            ProofWay::ByAnswer,
            [&first_denied[..], &[ProofEvent::Answered, TIMER]].concat(),
            vec![CALLS, rang, ASKS, refused, answered, count],
        ),
        (
            "a 481 to nothing that was asked",
            ProofWay::ByAnswer,
            vec![BEGINS, denied(1), ProofEvent::Rings, denied(1)],
            vec![CALLS, NOTHING, rang, NOTHING],
        ),
        (
            "the second 18x asks nothing",
            ProofWay::ByAnswer,
            vec![BEGINS, ProofEvent::Rings, ProofEvent::Rings],
            vec![CALLS, rang, NOTHING],
        ),
        (
            "it waits until its source has fewer",
            ProofWay::ByAnswer,
            vec![CROWDED, STILL_CROWDED, TIMER],
            vec![
                (ProofStep::Hold, after(250)),
                (ProofStep::Nothing, after(250)),
                CALLS,
            ],
        ),
    ] {
        assert_eq!(run(way, &events), steps, "{case}");
    }
}

#[test]
fn an_invite_waits_for_two_seconds_at_most() {
    let mut events = vec![CROWDED];
    events.extend([STILL_CROWDED; 8]);
    let steps = run(ProofWay::ByAnswer, &events);
    let waited: Duration = steps
        .iter()
        .map(|(_, wake)| match wake {
            Wake::After(after) => *after,
            Wake::Same | Wake::Never => Duration::ZERO,
        })
        .sum();
    assert_eq!(waited, Duration::from_secs(2));
    assert_eq!(steps.last(), Some(&CALLS));
}

#[test]
fn the_second_question_comes_half_a_second_after_the_first_481() {
    let between: Duration = BEFORE_SECOND_QUESTION.iter().sum();
    assert_eq!(between, Duration::from_millis(500));
}

#[test]
fn a_proven_call_owes_nothing_more() {
    for (way, may_begin) in [(ProofWay::BeforeAgent, true), (ProofWay::ByAnswer, false)] {
        let mut proof = proof(way);
        let _ = proof.handle(BEGINS);
        assert!(proof.is_owed());
        assert_eq!(proof.prove(), may_begin, "{way:?}");
        assert!(!proof.is_owed() && !proof.holds_agent());
        for event in [TIMER, ProofEvent::Rings, denied(1), ProofEvent::Answered] {
            assert_eq!(proof.handle(event), NOTHING, "{way:?}, {event:?}");
        }
        assert!(!proof.prove(), "the agent is called once");
    }
}

#[test]
fn a_call_counts_for_its_source_once_its_agent_has_answered() {
    for (way, events, counts) in [
        (ProofWay::BeforeAgent, vec![BEGINS, TIMER], false),
        (
            ProofWay::ByAnswer,
            vec![BEGINS, ProofEvent::Answered, TIMER],
            true,
        ),
    ] {
        let mut proof = proof(way);
        let steps: Vec<_> = events
            .into_iter()
            .map(|event| proof.handle(event).0)
            .collect();
        assert_eq!(steps.last(), Some(&ProofStep::Count), "{way:?}");
        assert_eq!(proof.counts_for_source(), counts, "{way:?}");
    }
}

#[test]
fn only_datagrams_from_a_public_network_owe_a_proof() {
    for (transport, local, peer, is_public, owes) in [
        (Transport::Udp, OURS, PEER, false, true),
        (Transport::Udp, OURS, "10.1.1.1:5060", false, true),
        (Transport::Udp, "10.0.0.5:5060", PEER, false, true),
        (
            Transport::Udp,
            "10.0.0.5:5060",
            "10.1.1.1:5060",
            false,
            false,
        ),
        // Behind a NAT that passes everything on.
        (Transport::Udp, "10.0.0.5:5060", "10.1.1.1:5060", true, true),
        (
            Transport::Udp,
            "127.0.0.1:5060",
            "127.0.0.2:5060",
            false,
            false,
        ),
        (
            Transport::Udp,
            "127.0.0.1:5060",
            "127.0.0.2:5060",
            true,
            true,
        ),
        (Transport::Tcp, OURS, PEER, true, false),
        (Transport::Tls, OURS, PEER, true, false),
    ] {
        let flow = flow(transport, local, peer);
        let found = is_owed_by(&flow, &[is_public]);
        assert_eq!(found, owes, "{transport} {peer} > {local}, {is_public}");
    }
}
