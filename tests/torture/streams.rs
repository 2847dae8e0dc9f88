//! Abuse of connections: too many, too much on one, half a message, no reading.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::torture::caller::Dialling;
use crate::torture::daemon_requests::{memory, until};
use crate::torture::{one_shard, served_by_one};
use trunkline_testkit::message::statuses_of;
use trunkline_testkit::{Daemon, DaemonSetup, Peer};

fn options(number: u32) -> Vec<u8> {
    let daemon: SocketAddr = "127.0.0.1:5060".parse().expect("an address");
    Dialling::new(&format!("stream-{number}"), "100", daemon).request("OPTIONS", number, "", daemon)
}

fn connect(daemon: &Daemon) -> Peer {
    Peer::tcp(Ipv4Addr::LOCALHOST, daemon.sip())
}

#[test]
fn a_ping_is_answered_and_half_a_message_is_waited_for() {
    let daemon = served_by_one();
    let mut stream = TcpStream::connect(daemon.sip()).expect("the daemon listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");

    let mut pong = [0; 2];
    for ping in [&b"\r\n\r\n"[..], b"\r\n", b"\r\n"] {
        stream.write_all(ping).expect("open");
    }
    for _ in 0..2 {
        stream.read_exact(&mut pong).expect("an answer to a ping");
        assert_eq!(&pong, b"\r\n");
    }

    let peer = connect(&daemon);
    for octet in options(1) {
        peer.send([octet]);
    }

    let answers = peer.answers_until_probed();
    assert_eq!(statuses_of(&answers), [200]);
}

#[test]
fn what_is_sent_in_one_piece_is_answered_in_its_order() {
    // Their answers may all wait for this peer, which reads none before it has sent all.
    const MESSAGES: u32 = 500;
    let daemon = served_by_one();
    let peer = connect(&daemon);
    let all: Vec<u8> = (1..=MESSAGES).flat_map(options).collect();
    peer.send(&all);
    let answers = peer.answers_until_probed();
    let order: Vec<u32> = answers
        .iter()
        .map(|answer| answer.wire().cseq().number)
        .collect();
    assert_eq!(order, (1..=MESSAGES).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_a_message_closes_the_connection() {
    let daemon = served_by_one();
    let endless_header = [
        b"OPTIONS sip:a SIP/2.0\r\n".to_vec(),
        b"X-Line: 1\r\n".repeat(8_000),
    ]
    .concat();
    let huge_body = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 70000\r\n\r\n".to_vec();
    let one_line = vec![b'a'; 70_000];

    for (case, octets) in [
        ("an endless header", endless_header),
        ("a huge body", huge_body),
        ("one line", one_line),
    ] {
        let peer = connect(&daemon);
        peer.send(&octets);
        assert!(peer.answers_until_closed().is_empty(), "{case}");
    }

    assert!(Peer::new(daemon.sip()).answers_until_probed().is_empty());
}

#[test]
fn connections_of_one_source_are_bounded() {
    const ALLOWED: usize = 20;

    let setup =
        one_shard(DaemonSetup::new()).set("TRUNKLINE__LIMITS__MAX_CONNECTIONS_PER_SOURCE", "20");
    let daemon = setup.serve();

    // Half a message each, so that the daemon waits for all of them.
    let held: Vec<Peer> = (0..ALLOWED).map(|_| connect(&daemon)).collect();
    for peer in &held {
        peer.send(b"OPTIONS sip:a SIP/2.0\r\n");
    }

    // None of them has proved anything: the oldest gives way to a new one.
    let new = connect(&daemon);
    assert!(new.is_served(), "a new connection has a place");
    assert!(held[0].answers_until_closed().is_empty(), "one too many");

    let elsewhere = Peer::tcp(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    assert!(
        elsewhere.answers_until_probed().is_empty(),
        "another source is served"
    );

    drop(held);
    until(|| connect(&daemon).is_served().then_some(()));
}

/// Answers that nobody reads are queued up to a bound, then the connection is closed; other peers notice nothing.
#[test]
fn who_never_reads_is_cut_off() {
    const BATCHES: u32 = 200;
    const BATCH: u32 = 500;
    let daemon = served_by_one();
    let stranger = Peer::new(daemon.sip());
    let peer = Peer::with_small_window(daemon.sip());
    let before = memory(&daemon);
    let is_cut_off = (0..BATCHES).any(|batch| {
        let octets: Vec<u8> = (batch * BATCH..(batch + 1) * BATCH)
            .flat_map(options)
            .collect();
        assert!(stranger.answers_until_probed().is_empty());
        !peer.takes(&octets)
    });
    assert!(is_cut_off, "all of it was taken");

    let after = memory(&daemon);
    assert!(
        after <= before + 24 * 1_024,
        "{before} KiB before, {after} KiB after"
    );
    assert!(stranger.answers_until_probed().is_empty());
}
