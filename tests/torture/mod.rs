//! The built daemon under torture: each message of `fixtures/messages` and of the RFCs over UDP and TCP, and attacks by unauthenticated peers,
//! tenants and call parties.
//!
//! With one shard, answers come in the order of their requests: an OPTIONS after each message shows that the daemon is well and that no further
//! response follows.

mod agent_lost;
mod bridged_first;
mod caller;
mod crossed;
mod daemon_requests;
mod descriptors;
mod foreign_traces;
mod forked;
mod fuzz;
mod gone;
mod handed_over;
mod intruders;
mod joined;
mod kept;
mod media_taken_back;
mod races;
mod relayed;
mod replaced;
mod settled;
mod streams;
mod subscribed;
mod tenants;
mod tied;
mod unauthenticated;
mod unproven;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use trunkline_sip::wire::{Framing, lex};
use trunkline_testkit::corpus::{Case, Lexed, StreamState, cases};
use trunkline_testkit::message::statuses_of;
use trunkline_testkit::peer::{TRIES, is_shed};
use trunkline_testkit::{Daemon, DaemonSetup, Message, Peer};

/// Checks that the answer to a valid request matches it.
fn assert_known_again(case: &Case, answer: &Message) {
    let (Ok(request), Ok(answer)) = (
        lex(&case.octets, Framing::Datagram),
        lex(answer.as_ref(), Framing::Datagram),
    ) else {
        assert_ne!(case.lexer, Lexed::Valid, "{}", case.name);
        return;
    };
    assert_eq!(
        answer.top_via().branch,
        request.top_via().branch,
        "{}",
        case.name
    );
    assert_eq!(answer.from_tag(), request.from_tag(), "{}", case.name);
    assert!(answer.to_tag().is_some(), "{}", case.name);
}

/// With one shard, answers come in the order of their requests.
fn one_shard(setup: DaemonSetup) -> DaemonSetup {
    setup.set("TRUNKLINE__SIP__SHARDS", "1")
}

fn served_by_one() -> Daemon {
    one_shard(DaemonSetup::new()).serve()
}

#[test]
fn each_datagram_gets_its_answer() {
    let daemon = served_by_one();
    let stranger = Peer::on(LISTENING, daemon.sip());
    let cases = cases();
    let ports = cases.iter().map(|case| sent_by_port(&case.octets));
    let ports: BTreeSet<u16> = ports.filter(|port| *port != 0).collect();
    let open = |port| {
        let socket = UdpSocket::bind((LISTENING, port)).expect("a port of this test's");
        Peer::bound(socket, None)
    };
    let listening: Vec<Peer> = ports.into_iter().map(open).collect();
    let mut wrong = Vec::new();

    for case in cases {
        let Case {
            set,
            name,
            octets,
            udp,
            ..
        } = &case;
        let answers = answers_to(&stranger, &listening, octets);
        if let [answer] = &answers[..] {
            assert_known_again(&case, answer);
        }
        let statuses = statuses_of(&answers);
        if statuses != *udp {
            wrong.push(format!("{set}/{name}: {statuses:?} instead of {udp:?}"));
        }
    }

    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(daemon.calls().is_empty(), "strangers leave no call");
}

/// Returns the responses to a datagram of `sender`, at any of the ports.
fn answers_to(sender: &Peer, listening: &[Peer], octets: &[u8]) -> Vec<Message> {
    for _ in 0..TRIES {
        let mut answers = sender.answers_to(octets);
        let at_once = |at: &Peer| at.receive_within(Duration::ZERO);
        while let Some(answer) = listening.iter().find_map(at_once) {
            answers.push(answer);
        }
        if !matches!(&answers[..], [answer] if is_shed(answer)) {
            return answers;
        }
    }
    panic!("no turn for a new INVITE");
}

/// An address whose ports nothing else uses.
const LISTENING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 99);

/// The port of sent-by, where an answer to a request without `rport` goes.
fn sent_by_port(request: &[u8]) -> u16 {
    let port = match &lex(request, Framing::Datagram) {
        Ok(message) => message.top_via().port,
        Err(malformed) => malformed
            .answer
            .as_ref()
            .and_then(|request| request.top_via().port),
    };
    port.unwrap_or(5060)
}

#[test]
fn each_stream_gets_its_answer() {
    let daemon = served_by_one();
    let stranger = Peer::new(daemon.sip());
    let mut wrong = Vec::new();
    for Case {
        set,
        name,
        octets,
        tcp,
        ..
    } in cases()
    {
        let (expected, end) = &tcp;
        let peer = Peer::tcp(Ipv4Addr::LOCALHOST, daemon.sip());
        peer.send(&octets);
        let answers = match end {
            StreamState::Open => peer.answers_until_probed(),
            StreamState::Closed => peer.answers_until_closed(),
            StreamState::Waits => peer.answers_then_hang_up(expected.len()),
        };
        let statuses = statuses_of(&answers);
        if statuses != *expected {
            wrong.push(format!(
                "{set}/{name}: {statuses:?} instead of {expected:?}"
            ));
        }
        assert!(stranger.answers_to(b"\r\n\r\n").is_empty(), "{set}/{name}");
    }

    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(daemon.calls().is_empty(), "strangers leave no call");
}
