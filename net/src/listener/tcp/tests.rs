//! Streams on loopback: the messages that arrive, the answers, and the peers that are disconnected.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use trunkline_bounds::Descriptors;
use trunkline_sip::verified::VerifiedNames;

use super::super::connections::SendError;
use super::*;

const MESSAGE: &[u8] = b"OPTIONS sip:a SIP/2.0\r\nContent-Length: 4\r\n\r\nbody";

#[derive(PartialEq, Eq, Debug)]
enum Event {
    Received(Received),
    Closing(Flow),
    Lost(Lost),
}

/// A sink with room for some events.
#[derive(Clone)]
struct Shard(mpsc::Sender<Event>);

impl Sink for Shard {
    async fn deliver(&self, received: Received) {
        self.0
            .send(Event::Received(received))
            .await
            .expect("the test listens");
    }

    async fn closing(&self, flow: Flow, _: u32) {
        let _ = self.0.send(Event::Closing(flow)).await;
    }

    async fn lost(&self, lost: Lost) {
        // The last connections end with the test.
        let _ = self.0.send(Event::Lost(lost)).await;
    }
}

struct Server {
    address: SocketAddr,
    events: mpsc::Receiver<Event>,
    connections: Connections,
    _listeners: TcpListeners,
}

impl Server {
    fn start(settings: StreamSettings, room: usize) -> Self {
        Self::start_at(settings, room, || Moment::from_secs(1_000))
    }

    fn start_at(
        settings: StreamSettings,
        room: usize,
        clock: impl Fn() -> Moment + Copy + Send + Sync + 'static,
    ) -> Self {
        let (to, events) = mpsc::channel(room);
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();

        let (listeners, connections) = TcpListeners::start(
            [(3, Transport::Tcp, socket)],
            settings,
            unsecured(),
            Shard(to),
            clock,
        )
        .unwrap();

        Self {
            address,
            events,
            connections,
            _listeners: listeners,
        }
    }

    async fn event(&mut self) -> Event {
        patiently(self.events.recv()).await.expect("the sink lives")
    }

    async fn received(&mut self) -> Received {
        match self.event().await {
            Event::Received(received) => received,
            other @ (Event::Closing(_) | Event::Lost(_)) => panic!("{other:?}"),
        }
    }

    async fn closing(&mut self) -> Flow {
        match self.event().await {
            Event::Closing(flow) => flow,
            other @ (Event::Received(_) | Event::Lost(_)) => panic!("{other:?}"),
        }
    }

    /// Waits for the next lost connection, whether or not its peer closed it first.
    async fn lost(&mut self) -> Flow {
        loop {
            match self.event().await {
                Event::Lost(lost) => return lost.flow,
                Event::Closing(_) => {}
                Event::Received(received) => panic!("{received:?}"),
            }
        }
    }

    fn flow_to(&self, peer: SocketAddr) -> Flow {
        Flow {
            transport: Transport::Tcp,
            listener: 3,
            connection: 0,
            local: self.address,
            peer,
        }
    }
}

/// TLS settings without a certificate.
fn unsecured() -> Arc<Security> {
    Security::load(super::super::tls::TlsSettings::default(), Arc::default())
        .expect("no file to read")
}

/// Bounds a wait, since a test that waits for ever reports nothing.
async fn patiently<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future)
        .await
        .expect("it comes")
}

fn brief() -> StreamSettings {
    StreamSettings {
        first_octet: Duration::from_millis(100),
        first_message: Duration::from_millis(100),
        message: Duration::from_millis(100),
        ..StreamSettings::default()
    }
}

async fn read_to_end(client: &mut TcpStream) -> Vec<u8> {
    let mut octets = Vec::new();
    // A reset ends it as well.
    let _ = patiently(client.read_to_end(&mut octets)).await;
    octets
}

#[tokio::test]
async fn messages_come_whole_and_answers_go_back() {
    let mut server = Server::start(StreamSettings::default(), 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.set_nodelay(true).unwrap();
    let stream = [b"\r\n\r\n", MESSAGE, MESSAGE].concat();
    for chunk in stream.chunks(20) {
        client.write_all(chunk).await.unwrap();
    }

    let first = server.received().await;
    assert_eq!(
        (first.octets.as_ref(), first.received_at),
        (MESSAGE, Moment::from_secs(1_000))
    );
    assert_eq!(
        (first.flow.local, first.flow.peer),
        (server.address, client.local_addr().unwrap())
    );
    assert_eq!(
        (first.flow.transport, first.flow.listener),
        (Transport::Tcp, 3)
    );
    assert_ne!(first.flow.connection, 0);
    assert_eq!(server.received().await, first);

    server
        .connections
        .send(&first.flow, b"SIP/2.0 200 OK")
        .unwrap();
    let mut answer = [0; 16];
    patiently(client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(
        &answer, b"\r\nSIP/2.0 200 OK",
        "the keep-alive is answered first"
    );

    drop(client);
    assert_eq!(server.lost().await, first.flow);
    assert_eq!(server.connections.count(), 0);
    assert_eq!(
        server.connections.send(&first.flow, b"late"),
        Err(SendError::Closed)
    );
}

#[tokio::test]
async fn what_came_before_the_end_is_handed_over_before_the_loss() {
    let mut server = Server::start(StreamSettings::default(), 1);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&MESSAGE.repeat(5)).await.unwrap();
    drop(client);
    for _ in 0..5 {
        assert_eq!(server.received().await.octets, MESSAGE);
    }
    server.lost().await;
}

#[tokio::test]
async fn who_dawdles_or_babbles_is_cut_off() {
    static LOOKS: AtomicU64 = AtomicU64::new(0);

    /// A case's name, the octets that its client sends first, and those that it then repeats.
    type Habit = (&'static str, &'static [u8], &'static [u8]);

    let cases: [Habit; 6] = [
        ("says nothing", b"", b""),
        ("begins a message", b"OPTIONS sip:a", b""),
        (
            "begins a message after a keep-alive",
            b"\r\n\r\nOPTIONS sip:a",
            b"",
        ),
        ("sends keep-alives alone", b"\r\n\r\n", b"\r\n\r\n"),
        ("drips", b"OPTIONS sip:a SIP/2.0\r\nX: ", b"x"),
        ("talks no SIP", b"GET / HTTP/1.1\r\n\r\n", b""),
    ];
    for (name, first, then) in cases {
        // Each reading of this clock is a tenth of a message's time limit later.
        let clock = || Moment::from_micros(10_000 * LOOKS.fetch_add(1, Ordering::Relaxed));
        let mut server = Server::start_at(brief(), 16, clock);
        let client = TcpStream::connect(server.address).await.unwrap();
        let (mut read, mut write) = client.into_split();
        write.write_all(first).await.unwrap();
        let dripping = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(5));
            while write.write_all(then).await.is_ok() {
                ticks.tick().await;
            }
        });
        let mut octets = Vec::new();
        let _ = patiently(read.read_to_end(&mut octets)).await;
        assert_ne!(server.lost().await.connection, 0, "{name}");
        assert!(
            octets.iter().all(|octet| b"\r\n".contains(octet)),
            "{name}: nothing but answers to keep-alives"
        );
        dripping.abort();
    }
}

#[tokio::test]
async fn a_connection_at_rest_between_messages_has_the_idle_time() {
    let mut server = Server::start(brief(), 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(MESSAGE).await.unwrap();
    let flow = server.received().await.flow;
    // Longer than a message may take.
    tokio::time::sleep(Duration::from_millis(250)).await;
    server.connections.send(&flow, b"still there").unwrap();
    let mut answer = [0; 11];
    patiently(client.read_exact(&mut answer)).await.unwrap();

    let idle = StreamSettings {
        idle: Duration::from_millis(50),
        ..StreamSettings::default()
    };
    let mut server = Server::start(idle, 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(MESSAGE).await.unwrap();
    let flow = server.received().await.flow;
    assert_eq!(read_to_end(&mut client).await, b"");
    assert_eq!(server.lost().await, flow);
}

#[tokio::test]
async fn a_full_sink_stops_the_reading_and_drops_nothing() {
    let mut server = Server::start(brief(), 1);
    let mut client = TcpStream::connect(server.address).await.unwrap();

    // Each message differs, so that a missing one shows.
    let message = |number: u32| {
        format!(
            "A sip:{number} SIP/2.0\r\nl: 50000\r\n\r\n{:050000}",
            number
        )
    };
    let mut written = 0_u32;
    let mut unsent = Vec::new();

    // Sends until the kernel's buffers on both sides are full, because the server no longer reads.
    let stuck = Duration::from_millis(300);
    while unsent.is_empty() {
        let octets = message(written).into_bytes();
        let mut sent = 0;
        while sent < octets.len() {
            match timeout(stuck, client.write(&octets[sent..])).await {
                Ok(count) => sent += count.unwrap(),
                Err(_) => break,
            }
        }
        written += 1;
        unsent = octets[sent..].to_vec();
        assert!(written < 2_000, "the reading never stops");
    }

    let finish = tokio::spawn(async move {
        client.write_all(&unsent).await.unwrap();
        client
    });
    for number in 0..written {
        assert_eq!(
            server.received().await.octets,
            message(number),
            "message {number} of {written}"
        );
    }

    drop(finish.await.unwrap());
    server.lost().await;
}

#[tokio::test]
async fn who_does_not_read_is_cut_off() {
    let limits = StreamSettings {
        outbox_octets: 100_000,
        ..brief()
    };

    let mut server = Server::start(limits, 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(MESSAGE).await.unwrap();
    let flow = server.received().await.flow;
    server.connections.prove(flow.connection);

    let refused = (0..10_000).find(|_| server.connections.send(&flow, &[b'x'; 10_000]).is_err());
    assert!(
        refused.is_some_and(|count| count >= 10),
        "bounded, and not before its bound: {refused:?}"
    );

    assert_eq!(server.lost().await, flow);
    assert_eq!(server.connections.count(), 0);
}

#[tokio::test]
async fn a_connection_is_opened_once_and_used_again() {
    let mut server = Server::start(StreamSettings::default(), 16);
    let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let flow = server.flow_to(peer.local_addr().unwrap());
    // The second message is queued while the connection still opens.
    server.connections.send(&flow, b"one").unwrap();
    server.connections.send(&flow, b"two").unwrap();

    let (mut accepted, from) = patiently(peer.accept()).await.unwrap();
    let mut octets = [0; 6];
    patiently(accepted.read_exact(&mut octets)).await.unwrap();
    assert_eq!((&octets, server.connections.count()), (b"onetwo", 1));

    accepted.write_all(MESSAGE).await.unwrap();
    let received = server.received().await;
    assert_eq!(
        (received.flow.peer, received.flow.local),
        (flow.peer, from),
        "messages come back on it"
    );
    drop(accepted);
    assert_eq!(server.lost().await, received.flow);

    server.connections.send(&flow, b"three").unwrap();
    patiently(peer.accept()).await.unwrap();
}

#[tokio::test]
async fn an_accepted_connection_is_used_for_requests_to_its_peer() {
    let mut server = Server::start(StreamSettings::default(), 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(MESSAGE).await.unwrap();
    server.received().await;
    server
        .connections
        .send(&server.flow_to(client.local_addr().unwrap()), b"BYE")
        .unwrap();
    let mut octets = [0; 3];
    patiently(client.read_exact(&mut octets)).await.unwrap();
    assert_eq!((&octets, server.connections.count()), (b"BYE", 1));
}

#[tokio::test]
async fn nothing_begins_on_a_connection_whose_peer_sends_no_more() {
    let mut server = Server::start(StreamSettings::default(), 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(MESSAGE).await.unwrap();
    let first = server.received().await.flow;
    client.shutdown().await.unwrap();
    assert_eq!(server.closing().await, first);
    server.connections.retire(first.connection);

    // No socket listens at the port that the client came from.
    let anew = server.flow_to(first.peer);
    server.connections.send(&anew, MESSAGE).unwrap();
    let lost = [server.lost().await, server.lost().await];
    let numbers = lost.map(|flow| flow.connection);
    assert!(numbers.contains(&first.connection), "{lost:?}");
    assert_ne!(numbers[0], numbers[1], "a connection of its own");
    assert_eq!(read_to_end(&mut client).await, b"");
}

#[tokio::test]
async fn a_peer_that_cannot_be_reached_is_told_of() {
    let refusing = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let mut server = Server::start(StreamSettings::default(), 16);
    let flow = server.flow_to(refusing);
    server.connections.send(&flow, b"INVITE").unwrap();

    let lost = server.lost().await;
    assert_eq!(
        Flow {
            connection: 0,
            ..lost
        },
        flow
    );
    assert_ne!(lost.connection, 0);
    assert_eq!(server.connections.count(), 0);
}

#[tokio::test]
async fn a_peer_that_does_not_answer_is_given_up() {
    let limits = StreamSettings {
        connect: Duration::from_millis(50),
        ..StreamSettings::default()
    };
    let mut server = Server::start(limits, 16);

    // Its backlog is full, so that it drops further connection requests.
    let peer = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    peer.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    peer.listen(0).unwrap();

    let address = peer.local_addr().unwrap().as_socket().unwrap();
    let mut filling = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        filling.push(stream.unwrap());
    }

    server
        .connections
        .send(&server.flow_to(address), b"INVITE")
        .unwrap();

    assert_eq!(server.lost().await.peer, address);
}

#[tokio::test]
async fn connections_are_bounded_in_all_and_by_source() {
    let cases = [
        (
            "in all",
            StreamSettings {
                accepted: 2,
                ..StreamSettings::default()
            },
        ),
        (
            "from one source",
            StreamSettings {
                accepted_per_source: 2,
                ..StreamSettings::default()
            },
        ),
    ];

    for (name, settings) in cases {
        let mut server = Server::start(settings, 16);
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(server.address).await.unwrap();
            client.write_all(MESSAGE).await.unwrap();
            let flow = server.received().await.flow;
            server.connections.prove(flow.connection);
            held.push(client);
        }
        let mut refused = TcpStream::connect(server.address).await.unwrap();
        assert_eq!(read_to_end(&mut refused).await, b"", "{name}");
        held.pop();
        server.lost().await;
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(MESSAGE).await.unwrap();
        assert_eq!(
            server.received().await.octets,
            MESSAGE,
            "{name}: one that left makes room"
        );
    }
}

#[tokio::test]
async fn the_oldest_connection_that_has_proved_nothing_gives_way() {
    let in_all = StreamSettings {
        accepted: 3,
        ..StreamSettings::default()
    };
    let from_one = StreamSettings {
        accepted_per_source: 3,
        ..StreamSettings::default()
    };

    for (name, settings) in [("in all", in_all), ("from one source", from_one)] {
        let mut server = Server::start(settings, 16);
        let mut clients = Vec::new();
        let mut flows = Vec::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(server.address).await.unwrap();
            client.write_all(MESSAGE).await.unwrap();
            flows.push(server.received().await.flow);
            clients.push(client);
        }
        server.connections.prove(flows[0].connection);

        for turn in 1..=2 {
            let mut next = TcpStream::connect(server.address).await.unwrap();
            next.write_all(MESSAGE).await.unwrap();
            assert_eq!(read_to_end(&mut clients[turn]).await, b"", "{name}");
            for _ in 0..2 {
                match server.event().await {
                    Event::Lost(lost) => assert_eq!(lost.flow.peer, flows[turn].peer, "{name}"),
                    Event::Received(received) => assert_eq!(received.octets, MESSAGE, "{name}"),
                    Event::Closing(flow) => panic!("{name}: {flow:?}"),
                }
            }
            clients.push(next);
        }

        assert_eq!(server.connections.count(), 3, "{name}");
        server.connections.send(&flows[0], b"answer").unwrap();
        let mut answer = [0; 6];
        patiently(clients[0].read_exact(&mut answer)).await.unwrap();
    }
}

#[tokio::test]
async fn connections_that_we_open_are_bounded() {
    let server = Server::start(
        StreamSettings {
            opened: 1,
            ..StreamSettings::default()
        },
        16,
    );

    let peers = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let [first, second] = peers
        .each_ref()
        .map(|peer| server.flow_to(peer.local_addr().unwrap()));

    assert_eq!(server.connections.send(&first, b"one"), Ok(()));
    assert_eq!(
        server.connections.send(&second, b"two"),
        Err(SendError::TooMany)
    );
}

#[tokio::test]
async fn the_first_octet_and_the_first_message_have_times_of_their_own() {
    let limits = |first_octet, first_message| StreamSettings {
        first_octet: Duration::from_millis(first_octet),
        first_message: Duration::from_millis(first_message),
        message: Duration::from_secs(60),
        ..StreamSettings::default()
    };
    for (name, settings, sent) in [
        ("nothing", limits(50, 60_000), &b""[..]),
        ("no whole message", limits(60_000, 50), b"OPTIONS sip:a"),
    ] {
        let mut server = Server::start(settings, 16);
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(sent).await.unwrap();
        assert_eq!(read_to_end(&mut client).await, b"", "{name}");
        server.lost().await;
    }

    // A peer that has sent a complete message in time isn't held to these limits any more.
    let mut server = Server::start(limits(200, 200), 16);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(MESSAGE).await.unwrap();

    let flow = server.received().await.flow;
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.connections.send(&flow, b"still there").unwrap();

    let mut answer = [0; 11];
    patiently(client.read_exact(&mut answer)).await.unwrap();
}

#[test]
fn sources_of_ipv6_are_counted_by_their_64() {
    let connections = Connections::new(
        StreamSettings {
            accepted_per_source: 2,
            ..StreamSettings::default()
        },
        |_, _, _, _| {},
    );

    let from = |peer: &str| {
        let peer = format!("{peer}:5060").parse().unwrap();
        let flow = Flow {
            transport: Transport::Tcp,
            listener: 0,
            connection: 0,
            local: "[2001:db8::ff]:5060".parse().unwrap(),
            peer,
        };
        let accepted = connections.accept(flow);
        accepted
            .inspect(|(flow, _)| connections.prove(flow.connection))
            .is_some()
    };
    for (peer, is_taken) in [
        ("[2001:db8::1]", true),
        ("[2001:db8::1:2:3:4]", true),
        ("[2001:db8::2]", false),
        ("[2001:db8:0:1::1]", true),
        ("192.0.2.1", true),
        ("192.0.2.2", true),
        ("192.0.2.1", true),
        ("[::ffff:192.0.2.1]", false),
    ] {
        assert_eq!(from(peer), is_taken, "{peer}");
    }
}

/// A tenant may name any number of ports, and names, at its own server.
#[test]
fn connections_that_we_open_are_bounded_by_their_peer() {
    let settings = StreamSettings {
        opened_to_one: 2,
        ..StreamSettings::default()
    };
    let connections = Connections::new(settings, |_, _, _, _| {});
    let open = |peer: &str| {
        let flow = Flow {
            transport: Transport::Tcp,
            listener: 0,
            connection: 0,
            local: "[2001:db8::ff]:5060".parse().unwrap(),
            peer: peer.parse().unwrap(),
        };
        connections.send(&flow, b"INVITE")
    };
    for (peer, opened) in [
        ("192.0.2.1:5060", Ok(())),
        ("192.0.2.1:5061", Ok(())),
        ("192.0.2.1:5062", Err(SendError::TooMany)),
        ("[::ffff:192.0.2.1]:5063", Err(SendError::TooMany)),
        // The same connection again.
        ("192.0.2.1:5061", Ok(())),
        ("192.0.2.2:5060", Ok(())),
        ("[2001:db8::1]:5060", Ok(())),
        ("[2001:db8::2]:5060", Ok(())),
        ("[2001:db8::3]:5060", Err(SendError::TooMany)),
        ("[2001:db8:0:1::1]:5060", Ok(())),
    ] {
        assert_eq!(open(peer), opened, "{peer}");
    }

    // The first opened connection has number 1, and frees its place.
    connections.remove(1);
    assert_eq!(open("192.0.2.1:5062"), Ok(()));
}

/// A message may find its connection closed before anybody has reported the end. Its next connection has to prove the same name.
#[test]
fn the_name_of_a_connection_outlives_it() {
    let connections = Connections::new(StreamSettings::default(), |_, _, _, _| {});
    let name = VerifiedNames::default()
        .connection("bot.example")
        .expect("a number");
    for connection in [name, 0] {
        let flow = Flow {
            transport: Transport::Tls,
            listener: 0,
            connection,
            local: "192.0.2.9:5061".parse().unwrap(),
            peer: "192.0.2.1:5061".parse().unwrap(),
        };
        connections.send(&flow, b"INVITE").expect("it is opened");
    }
    let named = |numbers: [u32; 3]| numbers.map(|number| connections.required_name(number));
    assert_eq!(named([1, 2, 3]), [name, 0, 0]);

    connections.remove(1);
    connections.remove(2);
    assert_eq!(connections.count(), 0);
    assert_eq!(named([1, 2, 3]), [name, 0, 0]);
}

#[test]
fn without_descriptors_a_peer_that_has_proved_nothing_gives_way_and_none_is_opened() {
    let descriptors = Descriptors::new(2);
    let settings = StreamSettings {
        descriptors: Arc::clone(&descriptors),
        ..StreamSettings::default()
    };
    let connections = Connections::new(settings, |_, _, _, _| {});
    let flow = |peer: &str| Flow {
        transport: Transport::Tcp,
        listener: 0,
        connection: 0,
        local: "192.0.2.9:5060".parse().unwrap(),
        peer: peer.parse().unwrap(),
    };
    let accept = |peer| connections.accept(flow(peer));

    let first = accept("192.0.2.1:1").expect("room");
    let second = accept("192.0.2.1:2").expect("room");
    let to_carrier = connections.send(&flow("192.0.2.8:5060"), b"INVITE");
    assert_eq!(to_carrier, Err(SendError::TooMany));
    let third = accept("192.0.2.1:3").expect("the first gives way");
    assert_eq!(connections.required_name(first.0.connection), 0);
    assert_eq!(connections.count(), 2);
    assert_eq!(
        descriptors.held(),
        3,
        "its task hasn't closed the socket yet"
    );
    drop(first);
    assert_eq!(descriptors.held(), 2);

    for (flow, _) in [&second, &third] {
        connections.prove(flow.connection);
    }
    assert!(accept("192.0.2.1:4").is_none());
    connections.remove(second.0.connection);
    drop(second);
    assert!(accept("192.0.2.1:4").is_some());
}
