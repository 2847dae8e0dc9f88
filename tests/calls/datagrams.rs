//! UDP: INVITEs that are too large for a datagram, answers to requests without `rport`, and amplification by forged datagrams.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_testkit::http;
use trunkline_testkit::link::Stream;
use trunkline_testkit::peer::FOREVER;
use trunkline_testkit::probe::Probe;
use trunkline_testkit::referred::Step::{Answer, Bye, Pause, Refer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Peer, Responder, tools};

const CALLER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);
/// Largest request that may go by UDP, in octets (RFC 3261 §18.1.1).
const LARGEST: usize = 1_300;

/// A runtime that takes datagrams and, if the test says so, connections on the same port. It answers each call with busy.
struct Port {
    address: SocketAddr,
    /// Transport and text of each INVITE.
    invites: Arc<Mutex<Vec<(&'static str, String)>>>,
    tcp: TcpListener,
}

impl Port {
    fn open() -> Self {
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("an address")) {
                break (tcp, udp);
            }
        };
        let port = Self {
            address: tcp.local_addr().expect("an address"),
            invites: Arc::default(),
            tcp,
        };
        let invites = Arc::clone(&port.invites);
        Responder::on(udp, move |request| take(request, "UDP", &invites));
        port
    }

    /// Accepts and reads connections from now on.
    fn take_connections(&self) {
        let (tcp, invites) = (
            self.tcp.try_clone().expect("a handle"),
            self.invites.clone(),
        );

        std::thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                let invites = Arc::clone(&invites);
                let peer = Peer::over(Stream::Tcp(stream));
                std::thread::spawn(move || {
                    while let Some(request) = peer.receive_within(FOREVER) {
                        if let Some(busy) = take(&request, "TCP", &invites) {
                            peer.send(busy);
                        }
                    }
                });
            }
        });
    }

    /// Accepts connections from now on and sends nothing on them; returns their count.
    fn hold_connections(&self) -> Arc<AtomicUsize> {
        let tcp = self.tcp.try_clone().expect("a handle");
        let taken: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&taken);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok((stream, _)) = tcp.accept() {
                held.push(stream);
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        taken
    }

    fn last(&self) -> (&'static str, String) {
        let invites = self.invites.lock().expect("nobody panics with it");
        invites.last().expect("an INVITE").clone()
    }
}

fn take(
    request: &Message,
    transport: &'static str,
    invites: &Mutex<Vec<(&'static str, String)>>,
) -> Option<String> {
    match request.method()? {
        "ACK" => None,
        "INVITE" => {
            let mut invites = invites.lock().expect("nobody panics with it");
            invites.push((transport, request.text()));
            Some(request.reply("486 Busy Here", ""))
        }
        _ => Some(request.reply("200 OK", "")),
    }
}

/// Starts a node with an agent whose runtime isn't set yet.
fn node() -> (Daemon, Probe) {
    let setup = DaemonSetup::new();
    setup.dedicate(&CALLER.to_string());
    let daemon = setup.serve();
    let probe = Probe::new(CALLER, daemon.sip());
    (daemon, probe)
}

/// Calls the runtime at `uri` with an INVITE that is so many octets longer.
fn call(daemon: &Daemon, probe: &Probe, uri: &str, pad: usize) -> Option<u16> {
    let agent = &daemon.setup.first_agent;
    let path = format!("/phone/{agent}");
    if daemon.shown(&path)["runtime"]["uri"] != uri {
        let change = serde_json::json!({ "runtime": { "type": "sip", "uri": uri } });
        let (status, body) = daemon.change("PATCH", &path, &change);
        assert_eq!(status, 200, "{uri}: {body}");
        daemon.setup.settle();
    }
    let line = format!("X-PLATFORM-AGENT-ID: {agent}\r\nX-Pad: {}", "p".repeat(pad));
    probe.call("someone", &line)
}

fn metric(daemon: &Daemon, name: &str) -> u64 {
    let (_, text) = http::get(daemon.setup.http, "/metrics", None).expect("the metrics");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    value.unwrap_or_default() as u64
}

#[test]
fn a_large_invite_leaves_by_tcp_where_the_peer_takes_it() {
    let (daemon, probe) = node();
    let port = Port::open();
    port.take_connections();
    let uri = format!("sip:x@{}", port.address);

    // A small one goes by UDP, as always.
    assert_eq!(call(&daemon, &probe, &uri, 0), Some(486));
    let (transport, invite) = port.last();
    assert_eq!(transport, "UDP");
    assert!(invite.contains("\r\nContact: <sip:trunkline@"), "{invite}");
    let usual = invite.len();

    // An INVITE that only the long header names make too large.
    assert_eq!(call(&daemon, &probe, &uri, LARGEST + 20 - usual), Some(486));
    let (transport, invite) = port.last();
    assert_eq!(transport, "UDP", "{invite}");
    assert!(invite.len() <= LARGEST, "{} octets: {invite}", invite.len());
    assert!(invite.contains("\r\nm:<sip:trunkline@"), "{invite}");

    // An INVITE that no datagram carries whole: Via and Contact name the transport.
    assert_eq!(call(&daemon, &probe, &uri, 1_000), Some(486));
    let (transport, invite) = port.last();
    assert_eq!(transport, "TCP", "{}", daemon.log());
    let message = Message::of(&invite);
    let via = message.value("Via");
    assert!(via.starts_with("SIP/2.0/TCP "), "{invite}");
    let contact = message.value("Contact");
    assert!(contact.contains("transport=tcp"), "{invite}");

    // A transport in the URI applies to every INVITE; a large one is counted, and logged once.
    for _ in 0..2 {
        let by_udp = format!("{uri};transport=udp");
        assert_eq!(call(&daemon, &probe, &by_udp, 1_000), Some(486));
        assert_eq!(port.last().0, "UDP");
    }
    let counted = || (metric(&daemon, "trunkline_sip_large_requests_total") >= 2).then_some(());
    assert!(Deadline::after(PATIENCE).poll(counted).is_some());
    let warned = || daemon.log().matches("too large for UDP").count();
    let is_told = Deadline::after(PATIENCE).poll(|| (warned() > 0).then_some(()));
    assert!(is_told.is_some(), "{}", daemon.log());
    assert_eq!(warned(), 1, "{}", daemon.log());
}

#[test]
fn a_large_invite_goes_on_by_udp_where_no_connection_comes_about() {
    let (daemon, probe) = node();

    // The port is closed for TCP.
    let closed = Port::open();
    let uri = format!("sip:x@{}", closed.address);
    let udp_only = UdpOnly::from(closed);
    assert_eq!(
        call(&daemon, &probe, &uri, 1_000),
        Some(486),
        "{}",
        daemon.log()
    );
    assert_eq!(udp_only.last().0, "UDP");

    // Nothing comes back: the accept queue is full, so the kernel drops SYNs.
    let silent = Port::open();
    let held = silent.fill();
    let uri = format!("sip:x@{}", silent.address);
    assert_eq!(
        call(&daemon, &probe, &uri, 1_000),
        Some(486),
        "{}",
        daemon.log()
    );
    assert_eq!(silent.last().0, "UDP");

    // The failure is cached: TCP isn't tried again, although the runtime would accept now.
    drop(held);
    silent.take_connections();
    assert_eq!(call(&daemon, &probe, &uri, 1_000), Some(486));
    assert_eq!(silent.last().0, "UDP");
}

/// As behind a load balancer whose server is gone.
#[test]
fn a_large_invite_goes_on_by_udp_where_nothing_answers_on_the_connection() {
    let (daemon, probe) = node();
    let port = Port::open();
    let taken = port.hold_connections();
    let uri = format!("sip:x@{}", port.address);
    let log = || daemon.log();
    assert_eq!(call(&daemon, &probe, &uri, 1_000), Some(486), "{}", log());
    assert_eq!(port.last().0, "UDP");
    assert_eq!(taken.load(Ordering::SeqCst), 1, "it was tried");

    // The record has both attempts.
    let record = daemon.record();
    let routing = daemon.routing(&record);
    let attempts = routing["attempts"].as_array().expect("attempts");
    let shown: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt["transport"].as_str(), attempt["outcome"].as_str()))
        .collect();
    assert_eq!(shown.len(), 2, "{routing}");
    assert_eq!(shown[0], (Some("tcp"), Some("timeout")), "{routing}");
    assert_eq!(shown[1].0, Some("udp"), "{routing}");

    // And the failure is cached.
    assert_eq!(call(&daemon, &probe, &uri, 1_000), Some(486), "{}", log());
    assert_eq!(port.last().0, "UDP");
    assert_eq!(taken.load(Ordering::SeqCst), 1, "it isn't tried again");
}

/// The same for the destination of a transfer, which is called as callees are.
#[test]
fn a_large_invite_to_a_callee_goes_on_by_udp_where_nothing_answers_on_the_connection() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let port = Port::open();
    let taken = port.hold_connections();
    // The long name is in the Request-URI and in To.
    let name = "d".repeat(300);
    daemon.destination("Desk", "sip", &format!("sip:{name}@{}", port.address));
    let refused = Answer("405 Method Not Allowed", "");
    let pbx = daemon.caller().takes(&[Refer, refused, Pause(4_000), Bye]);
    let path = format!("/phone/calls/{}/transfer", daemon.answered_call());
    let ask = serde_json::json!({"destination": "desk"});
    let (status, body) = daemon.change("POST", &path, &ask);
    assert_eq!(status, 202, "{body}");
    pbx.finish();

    let record = daemon.record();
    assert_eq!(record["transfer"]["sip_code"], 486, "{record}");
    let (transport, invite) = port.last();
    assert_eq!(transport, "UDP", "{invite}");
    assert!(invite.len() > LARGEST, "{} octets: {invite}", invite.len());
    assert_eq!(taken.load(Ordering::SeqCst), 1, "it was tried");
}

/// A port whose TCP listener is gone.
struct UdpOnly(Arc<Mutex<Vec<(&'static str, String)>>>);

impl From<Port> for UdpOnly {
    fn from(port: Port) -> Self {
        Self(port.invites)
    }
}

impl UdpOnly {
    fn last(&self) -> (&'static str, String) {
        let invites = self.0.lock().expect("nobody panics with it");
        invites.last().expect("an INVITE").clone()
    }
}

impl Port {
    /// Fills the accept queue.
    fn fill(&self) -> Vec<TcpStream> {
        let listener = socket2::SockRef::from(&self.tcp);
        listener.listen(0).expect("a shorter queue");
        let connect = || TcpStream::connect_timeout(&self.address, Duration::from_millis(200)).ok();
        let held: Vec<_> = std::iter::from_fn(connect).take(64).collect();
        assert!(held.len() < 64, "the queue is never full");
        held
    }
}

/// Returns a request without credentials from `via`, with further lines.
fn request(method: &str, via: &str, id: &str, daemon: &Daemon) -> String {
    let sip = daemon.sip();
    format!(
        "{method} sip:x@{sip} SIP/2.0\r\nVia: SIP/2.0/UDP {via};branch=z9hG4bK{id}\r\nMax-Forwards: 70\r\n\
         From: <sip:a@{sip}>;tag={id}\r\nTo: <sip:x@{sip}>\r\nCall-ID: {id}\r\nCSeq: 1 {method}\r\n\
         Contact: <sip:a@{sip}>\r\nContent-Length: 0\r\n\r\n"
    )
}

#[test]
fn answers_go_to_the_port_where_the_peer_listens() {
    let daemon = DaemonSetup::new().serve();
    let (sends, listens) = (Peer::new(daemon.sip()), Peer::new(daemon.sip()));
    let port = listens.own.port();

    for (number, (via, at_listener)) in [
        (format!("127.0.0.1:{port}"), true),
        (format!("127.0.0.1:{port};rport"), false),
        (format!("pbx.example.com:{port}"), true),
        // A NAT is between them.
        (format!("10.11.12.13:{port}"), false),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("rport{number}");
        let asks = request("OPTIONS", &via, &id, &daemon);
        let answered = (0..20).find_map(|_| {
            sends.send(&asks);
            let to = if at_listener { &listens } else { &sends };
            to.receive_within(AGAIN)
        });
        let answer = answered.expect("an answer");
        assert_eq!(
            (answer.status(), answer.header("Call-ID")),
            (Some(200), Some(&*id)),
            "{via}"
        );
        // Discards retransmissions.
        while listens.receive_within(AGAIN).is_some() || sends.receive_within(AGAIN).is_some() {}
    }
}

/// Returns the number of octets that come back to a peer until none has come for [`AGAIN`].
fn octets_back(peer: &Peer) -> usize {
    let came = std::iter::from_fn(|| peer.receive_within(AGAIN));
    came.map(|message| message.as_ref().len()).sum()
}

#[test]
fn a_forged_datagram_brings_at_most_twice_its_size() {
    // Calls from here wait while the daemon probes their source.
    let allowed = Ipv4Addr::new(127, 0, 0, 3);
    let setup = DaemonSetup::with(
        Ipv4Addr::LOCALHOST.into(),
        vec![("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", allowed.to_string())],
    );
    // Retransmissions, the last of them 32 × T1 after the one before, come before `octets_back` has waited long enough.
    let setup = setup.set("TRUNKLINE__SIP__T1_MS", "10");
    let number = setup.first_number.clone();
    let daemon = setup.serve();
    let change = serde_json::json!({ "allowed_addresses": [allowed] });
    let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &change);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();
    let sip = daemon.sip();

    let smallest = |method: &str, lines: &str| {
        format!(
            "{method} sip:{sip} SIP/2.0\r\nv:SIP/2.0/UDP h;branch=z9hG4bK1;rport\r\nf:<sip:a@h>;tag=1\r\nt:<sip:b>\r\ni:1\r\n\
             CSeq:1 {method}\r\n{lines}\r\n"
        )
    };

    let mut cases: Vec<(String, String)> = Vec::new();
    for method in [
        "INVITE",
        "REGISTER",
        "OPTIONS",
        "BYE",
        "CANCEL",
        "REFER",
        "SUBSCRIBE",
        "MESSAGE",
        "PUBLISH",
        "NOTHING",
    ] {
        cases.push((format!("the smallest {method}"), smallest(method, "")));
        let usual = request(
            method,
            "127.0.0.1:9;rport",
            &format!("usual{method}"),
            &daemon,
        );
        cases.push((format!("a usual {method}"), usual));
    }

    for (case, lines) in [
        ("an extension", "Require:x\r\n"),
        ("a body that is short", "l:99\r\n"),
        ("two Call-IDs", "i:2\r\n"),
        ("a line that is none", "hello\r\n"),
        (
            "a foreign realm",
            "Authorization:Digest username=\"a\",realm=\"b\"\r\n",
        ),
        ("a tag of nobody's", "To:<sip:b>;tag=x\r\n"),
    ] {
        for method in ["INVITE", "REGISTER", "OPTIONS"] {
            cases.push((format!("{method} with {case}"), smallest(method, lines)));
        }
    }

    let version = smallest("OPTIONS", "").replacen("SIP/2.0", "SIP/9.0", 1);
    cases.push(("another version".to_owned(), version));
    cases.push(("no SIP".to_owned(), "hello\r\n\r\n".to_owned()));

    for pad in [0, 60, 110, 200, 400] {
        let to = format!("INVITE sip:{number}@{sip}");
        let invite = request(
            "INVITE",
            "127.0.0.3:9;rport",
            &format!("asked{pad}"),
            &daemon,
        );
        let invite = invite.replacen(&format!("INVITE sip:x@{sip}"), &to, 1);
        let pad = format!("Subject: {}\r\n\r\n", "s".repeat(pad));
        cases.push((
            "from an allowed address".to_owned(),
            invite.replacen("\r\n\r\n", &format!("\r\n{pad}"), 1),
        ));
    }

    let mut answered = 0;
    for (case, datagram) in &cases {
        let from = match case.starts_with("from an allowed") {
            true => allowed,
            false => Ipv4Addr::LOCALHOST,
        };

        let peer = Peer::on(from, sip);
        peer.send(datagram);
        // Calls that wait for the probe are challenged after a second.
        std::thread::sleep(Duration::from_millis(if from == allowed {
            1_500
        } else {
            0
        }));
        let back = octets_back(&peer);
        answered += usize::from(back > 0);
        assert!(
            back <= 2 * datagram.len(),
            "{case}: {back} octets for {}:\n{datagram}",
            datagram.len()
        );
    }
    assert!(
        answered > cases.len() / 2,
        "{answered} of {} are answered",
        cases.len()
    );

    // A flood gets fewer octets than it sends, and delays no other peer.
    let forged = Ipv4Addr::new(127, 0, 0, 4);
    let flood = Peer::on(forged, sip);
    let (mut sent, mut back) = (0, 0);

    for round in 0..800 {
        for number in 0..25 {
            let id = format!("{round}x{number}");
            let asks = smallest("REGISTER", "m:<sip:a@192.0.2.1>\r\nMax-Forwards:70\r\n")
                .replace("i:1", &format!("i:{id}"));
            flood.send(&asks);
            sent += asks.len();
        }
        if round % 40 == 39 {
            back += octets_back(&flood);
        }
    }
    assert!(back > 0, "something is answered");
    assert!(back <= sent, "{back} octets for {sent}");

    let withheld = || (metric(&daemon, "trunkline_sip_answers_withheld_total") > 0).then_some(());
    assert!(Deadline::after(PATIENCE).poll(withheld).is_some());
    let honest = Probe::new(CALLER, sip);
    assert_eq!(honest.ask("OPTIONS", "").status(), Some(200));
    let answer = honest.ask("REGISTER", "Contact: <sip:a@127.0.0.2>\r\n");
    assert_eq!(answer.status(), Some(401));
}
