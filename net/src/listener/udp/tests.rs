//! A socket on loopback: addresses, order, batches, ICMP.

use super::*;

const NOW: Moment = Moment::from_secs(1_000);

/// A wall clock far ahead of the kernel's stamps would make every packet old; at the epoch none has waited.
const WALL: SystemTime = SystemTime::UNIX_EPOCH;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn client(bound: &str) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind(address(bound)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

/// Receives until `enough` datagrams or lost peers have come.
async fn receive(socket: &UdpSocket, enough: usize) -> (Vec<(Flow, Vec<u8>)>, Vec<Lost>) {
    let (mut batch, mut received, mut lost) = (Batch::new(), Vec::new(), Vec::new());
    while received.len() + lost.len() < enough {
        tokio::time::timeout(Duration::from_secs(5), socket.readable())
            .await
            .expect("something comes")
            .unwrap();
        socket
            .receive_batch(&mut batch, &mut lost, NOW, WALL)
            .unwrap();
        received.extend(
            batch
                .datagrams()
                .map(|datagram| (datagram.flow, datagram.octets.to_vec())),
        );
    }

    (received, lost)
}

/// Returns whether this machine has IPv6 on loopback. If it must have it and hasn't, the test fails.
fn has_ipv6() -> bool {
    let has = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        trunkline_testkit::not_run::without("IPv6 on loopback");
    }
    has
}

#[tokio::test]
async fn an_answer_leaves_from_the_address_that_was_asked() {
    let cases = [
        (
            "one IPv4 address",
            "127.0.0.1:0",
            "127.0.0.1",
            "127.0.0.1:0",
        ),
        (
            "IPv4 wildcard, asked at another loopback address",
            "0.0.0.0:0",
            "127.0.0.2",
            "127.0.0.1:0",
        ),
        ("one IPv6 address", "[::1]:0", "::1", "[::1]:0"),
        ("IPv6 wildcard", "[::]:0", "::1", "[::1]:0"),
    ];
    for (name, bound, asked, from) in cases {
        if bound.starts_with('[') && !has_ipv6() {
            continue;
        }
        let server = UdpSocket::bind(address(bound), 7, false).unwrap();
        let asked = SocketAddr::new(asked.parse().unwrap(), server.local_address().port());
        let client = client(from);
        client.send_to(b"OPTIONS", asked).unwrap();
        let (received, lost) = receive(&server, 1).await;
        let expected = Flow {
            transport: Transport::Udp,
            listener: 7,
            connection: 0,
            local: asked,
            peer: client.local_addr().unwrap(),
        };
        assert_eq!(
            (received, lost),
            (vec![(expected, b"OPTIONS".to_vec())], vec![]),
            "{name}"
        );

        let sent = server.send_batch([(expected, b"SIP/2.0 200 OK".as_slice())], &mut Vec::new());
        assert_eq!(
            sent,
            Sent {
                sent: 1,
                dropped: 0
            },
            "{name}"
        );
        let mut answer = [0; 100];
        let (length, source) = client.recv_from(&mut answer).unwrap();
        assert_eq!(
            (&answer[..length], source),
            (b"SIP/2.0 200 OK".as_slice(), asked),
            "{name}"
        );
    }
}

#[tokio::test]
async fn more_than_a_batch_goes_out_and_comes_in_in_order() {
    let (ours, theirs) = (
        UdpSocket::bind(address("127.0.0.1:0"), 0, false).unwrap(),
        UdpSocket::bind(address("127.0.0.1:0"), 0, false).unwrap(),
    );
    let flow = Flow {
        peer: theirs.local_address(),
        ..ours.lost(ours.local_address(), Unreachable::Port).flow
    };

    // Empty, short and the longest possible datagram are among them.
    let messages: Vec<Vec<u8>> = (0..150_u8)
        .map(|n| vec![n; if n == 70 { 65_507 } else { usize::from(n) * 7 }])
        .collect();
    let sent = ours.send_batch(
        messages.iter().map(|message| (flow, message.as_slice())),
        &mut Vec::new(),
    );

    assert_eq!(
        sent,
        Sent {
            sent: 150,
            dropped: 0
        }
    );

    let (received, _) = receive(&theirs, 150).await;
    assert_eq!(
        received
            .into_iter()
            .map(|(_, octets)| octets)
            .collect::<Vec<_>>(),
        messages
    );
}

#[tokio::test]
async fn an_icmp_message_names_the_peer_and_harms_no_other() {
    let cases = [("IPv4", "127.0.0.1:0"), ("IPv6", "[::1]:0")];
    for (name, loopback) in cases {
        if loopback.starts_with('[') && !has_ipv6() {
            continue;
        }

        let server = UdpSocket::bind(address(loopback), 3, false).unwrap();
        let gone = client(loopback).local_addr().unwrap();
        let alive = client(loopback);
        let to = |peer| Flow {
            peer,
            ..server.lost(peer, Unreachable::Port).flow
        };

        let mut lost = Vec::new();
        server.send_batch([(to(gone), b"to nobody".as_slice())], &mut lost);

        // The pending error of the first datagram is reported when the second is sent, which must leave all the same.
        let sent = server.send_batch(
            [(to(alive.local_addr().unwrap()), b"to a server".as_slice())],
            &mut lost,
        );
        assert_eq!(
            sent,
            Sent {
                sent: 1,
                dropped: 0
            },
            "{name}"
        );

        let mut octets = [0; 100];
        assert_eq!(
            alive.recv(&mut octets).unwrap(),
            b"to a server".len(),
            "{name}"
        );
        if lost.is_empty() {
            lost = receive(&server, 1).await.1;
        }

        assert_eq!(
            lost,
            [Lost {
                flow: to(gone),
                proved: 0,
                was_closing: false,
                fault: Fault::Unreachable(Unreachable::Port),
            }],
            "{name}"
        );
    }
}

#[tokio::test]
async fn word_of_a_lost_peer_wakes_an_idle_socket() {
    let server = UdpSocket::bind(address("127.0.0.1:0"), 0, false).unwrap();
    let gone = client("127.0.0.1:0").local_addr().unwrap();
    let mut lost = Vec::new();
    server.send_batch(
        [(
            server.lost(gone, Unreachable::Port).flow,
            b"to nobody".as_slice(),
        )],
        &mut lost,
    );

    assert_eq!(lost, [], "the message itself left");
    assert_eq!(
        receive(&server, 1).await,
        (vec![], vec![server.lost(gone, Unreachable::Port)])
    );

    // The error is reported once: the socket is quiet again.
    let mut batch = Batch::new();
    assert_eq!(
        server
            .receive_batch(&mut batch, &mut lost, NOW, WALL)
            .unwrap(),
        0
    );

    let waiting = tokio::time::timeout(Duration::from_millis(50), server.readable()).await;
    assert!(waiting.is_err(), "nothing more to read");
}

#[tokio::test]
async fn what_cannot_be_sent_is_dropped_alone() {
    let server = UdpSocket::bind(address("127.0.0.1:0"), 0, false).unwrap();
    let alive = client("127.0.0.1:0");
    let flow = server
        .lost(alive.local_addr().unwrap(), Unreachable::Port)
        .flow;
    let nowhere = server.lost(address("127.0.0.1:0"), Unreachable::Port).flow;
    let too_long = vec![0; 65_508];
    let cases: [(&str, Flow, &[u8], &[Lost]); 2] = [
        (
            "too long, which is no fault of the peer's",
            flow,
            &too_long,
            &[],
        ),
        (
            "to a port that can't be",
            nowhere,
            b"x",
            &[Lost {
                flow: nowhere,
                proved: 0,
                was_closing: false,
                fault: Fault::Unreachable(Unreachable::Other),
            }],
        ),
    ];

    for (name, to, octets, expected) in cases {
        let mut lost = Vec::new();
        let messages = [(flow, b"one".as_slice()), (to, octets), (flow, b"two")];
        let sent = server.send_batch(messages, &mut lost);
        assert_eq!(
            sent,
            Sent {
                sent: 2,
                dropped: 1
            },
            "{name}"
        );
        assert_eq!(lost, expected, "{name}");
    }
}

#[tokio::test]
async fn the_time_in_the_socket_is_taken_off_the_time_of_arrival() {
    let server = UdpSocket::bind(address("127.0.0.1:0"), 0, false).unwrap();
    client("127.0.0.1:0")
        .send_to(b"x", server.local_address())
        .unwrap();
    server.readable().await.unwrap();

    let (mut batch, mut lost) = (Batch::new(), Vec::new());
    server
        .receive_batch(&mut batch, &mut lost, NOW, WALL)
        .unwrap();

    assert_eq!(
        batch.datagrams().next().unwrap().received_at,
        NOW,
        "never later than now"
    );

    // The wall clock is far in the future, so the packet seems to have waited since before our epoch.
    batch.wall = Duration::MAX;

    assert_eq!(
        batch.datagrams().next().unwrap().received_at,
        Moment::default()
    );
}

#[tokio::test]
async fn sockets_of_several_shards_share_an_address() {
    let first = UdpSocket::bind(address("127.0.0.1:0"), 0, true).unwrap();
    assert!(UdpSocket::bind(first.local_address(), 0, true).is_ok());
    assert!(
        UdpSocket::bind(first.local_address(), 0, false).is_err(),
        "an address of another program is not shared"
    );
}
