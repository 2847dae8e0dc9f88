//! RTP that ends at the daemon: sources that the echo agent accepts, where it sends, and its SDP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use trunkline_testkit::not_run;

use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use trunkline_testkit::http;
use trunkline_testkit::process::free_range;
use trunkline_testkit::talker::{Rtp, Talker, offer, packet};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline};

/// The caller.
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Neither the caller nor the daemon.
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// An address that a caller behind NAT puts into its SDP.
const PRIVATE: &str = "10.99.0.7:4000";

fn serve() -> Daemon {
    let setup = DaemonSetup::new();
    setup.dedicate(&PEER.to_string());
    setup.serve()
}

fn call(daemon: &Daemon, sdp: &str) -> (Talker, SocketAddr) {
    let (talker, answer) = Talker::call(PEER, daemon.sip(), &daemon.setup.first_number, sdp);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let media = answer.media();
    (talker, media)
}

#[test]
fn a_forged_packet_starts_nothing_between_two_calls() {
    let Some(forger) = Forger::new() else {
        not_run::without("a raw socket, which only root has");
        return;
    };
    let daemon = serve();

    // The callers signal this machine's address, so the other call's port is at a peer's IP.
    let here: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
    let (_one, first) = call(&daemon, &offer(here));
    let (_other, second) = call(&daemon, &offer(here));
    let (_honest, third) = call(&daemon, &offer(here));
    for sequence in 0..40 {
        forger.send(first, second, &packet(0, sequence, 1, &[0xff; 160]));
        forger.send(second, first, &packet(0, sequence, 2, &[0xff; 160]));
    }

    let honest = Rtp::new(PEER);
    let mut said = 0;
    let heard = Deadline::after(Duration::from_secs(10)).poll(|| {
        said += 1;
        honest.speak(third);
        honest.hears()
    });
    assert!(heard.is_some(), "the honest peer is served");

    let echoed = |daemon: &Daemon| {
        let page = http::get(daemon.setup.http, "/metrics", None)
            .expect("metrics")
            .1;
        let line = page.lines().find(|line| {
            line.starts_with("trunkline_media_packets_total") && line.contains("echoed")
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };

    // The counters are published once a second.
    let counted = Deadline::after(Duration::from_secs(10))
        .poll(|| echoed(&daemon).filter(|count| *count > 0.0));
    let counted = counted.expect("what the honest peer was sent is counted");
    let most = f64::from(said);
    assert!(counted <= most, "{counted} packets were echoed, of {said}");
}

#[test]
fn audio_and_keys_are_taken_from_the_callers_address_alone() {
    let daemon = serve();
    daemon.destination("Sales", "phone", "+442071838751");
    let honest = Rtp::new(PEER);
    let (talker, media) = call(&daemon, &offer(honest.address()));
    let attacker = Rtp::new(OTHER);
    for _ in 0..20 {
        attacker.speak(media);
        attacker.press(media, 1);
    }

    let heard = honest.converse(media);
    assert_eq!(
        heard,
        Some(media),
        "the honest peer is served, from the port that SDP names"
    );

    for _ in 0..20 {
        attacker.speak(media);
        attacker.press(media, 1);
        assert_eq!(honest.converse(media), Some(media), "it goes on");
    }

    assert_eq!(attacker.hears(), None, "nothing is sent to another address");
    assert_eq!(daemon.calls()[0]["transfer"], Value::Null, "no key counts");

    honest.press(media, 1);
    let referred = talker
        .asked("REFER")
        .expect("the caller's own key transfers");
    assert!(referred.text().contains("442071838751"), "{referred}");
}

/// A dynamic payload type may carry G.711 (RFC 3551 §3): the answer repeats it, and RTP has it both ways.
#[test]
fn g711_is_spoken_with_the_number_that_the_offer_gives_it() {
    let daemon = serve();
    let caller = UdpSocket::bind((PEER, 0)).expect("a port");
    let patience = Duration::from_millis(20);
    caller.set_read_timeout(Some(patience)).expect("a limit");
    let own = caller.local_addr().expect("an address");
    let ip = own.ip();
    let head = format!("v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\n");
    let offer = |maps: &str| {
        let port = own.port();
        format!("{head}m=audio {port} RTP/AVP 96 0 100\r\na=rtpmap:0 G726-32/8000\r\n{maps}")
    };

    let maps = "a=rtpmap:96 PCMA/8000\r\na=rtpmap:100 telephone-event/8000\r\n";
    let sdp = offer(maps);
    let number = &daemon.setup.first_number;
    let (_talker, answer) = Talker::call(PEER, daemon.sip(), number, &sdp);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    let body = answer.body();
    let has = |end: &str| body.lines().any(|line| line.ends_with(end));
    assert!(has(" RTP/AVP 96 100"), "{body}");
    assert!(has("a=rtpmap:96 PCMA/8000"), "{body}");

    let to = answer.media();
    let mut sequence = 0;
    let echo = Deadline::after(Duration::from_secs(10)).poll(|| {
        sequence += 1;
        for (payload_type, octet) in [(0, 1), (8, 2), (96, 0xd5)] {
            let packet = packet(payload_type, sequence, payload_type.into(), &[octet; 160]);
            caller.send_to(&packet, to).expect("it is sent");
        }
        let mut octets = [0; 2_048];
        let (length, _) = caller.recv_from(&mut octets).ok()?;
        Some(octets[..length].to_vec())
    });
    let echo = echo.expect("an echo");
    assert_eq!((echo[1] & 0x7f, &echo[12..]), (96, &[0xd5; 160][..]));

    // G.726 and stereo are neither.
    let (_talker, refused) = Talker::call(
        PEER,
        daemon.sip(),
        number,
        &offer("a=rtpmap:96 PCMA/8000/2\r\n"),
    );
    assert_eq!(refused.status(), Some(488), "{refused:?}");
}

#[test]
fn peers_behind_nat_and_those_that_move_are_heard() {
    let daemon = serve();
    let (talker, media) = call(&daemon, &offer(PRIVATE.parse().expect("an address")));
    let first = Rtp::new(PEER);
    assert_eq!(
        first.converse(media),
        Some(media),
        "the source of its signalling"
    );

    let second = Rtp::new(PEER);
    let moved = talker.offer(&offer(second.address()));
    assert_eq!(
        (moved.status(), moved.media()),
        (Some(200), media),
        "{moved:?}"
    );
    assert_eq!(
        second.converse(media),
        Some(media),
        "the port that a re-INVITE names"
    );

    // The NAT drops the mapping and makes another one, without any signalling.
    let third = Rtp::new(PEER);
    assert_eq!(
        third.converse(media),
        Some(media),
        "another port, once the first is silent"
    );
}

#[test]
fn rtp_of_another_address_is_heard_where_the_trunk_allows_it() {
    let daemon = serve();
    for allows in [false, true] {
        let setting = serde_json::json!({"rtp_from_any_address": allows});
        let path = "/phone/sip/inbound-trunk";
        let (status, trunk) = daemon.change("PATCH", path, &setting);
        assert_eq!(
            (status, &trunk["rtp_from_any_address"]),
            (200, &allows.into())
        );

        // A media relay in the PBX's network, behind another public address than its signalling.
        let (_talker, media) = call(&daemon, &offer(PRIVATE.parse().expect("an address")));
        let relay = Rtp::new(OTHER);
        let heard = relay.converse(media);
        assert_eq!(heard, allows.then_some(media), "allowed: {allows}");

        let own = Rtp::new(PEER);
        let (_talker, media) = call(&daemon, &offer(own.address()));
        let attacker = Rtp::new(OTHER);
        assert_eq!(attacker.converse(media), None, "SDP says where it is");
        assert_eq!(own.converse(media), Some(media));
    }
}

#[test]
fn nothing_is_sent_to_what_sdp_may_not_name() {
    let reserved = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__RESERVED_PEERS", &reserved.to_string());
    setup.dedicate(&PEER.to_string());
    let listed = format!("127.0.0.1,{PEER}");
    let daemon = setup
        .set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", &listed)
        .serve();
    let private = Rtp::new(OTHER);
    let (_attacker, media) = call(&daemon, &offer(private.address()));
    assert_eq!(
        private.converse(media),
        None,
        "a private peer that isn't listed"
    );

    let source = Rtp::new(PEER);
    let heard = source.converse(media);
    assert_eq!(heard, Some(media), "the source of that call's signalling");

    let victim = Rtp::new(reserved);
    let (_attacker, media) = call(&daemon, &offer(victim.address()));
    assert_eq!(victim.converse(media), None, "a peer of the operator's");
    // Our own SIP listener: no call asked for RTP there.
    let (_attacker, media) = call(&daemon, &offer(daemon.sip()));
    let near = Rtp::new(daemon.sip().ip());
    assert_eq!(near.converse(media), None, "a listener of this node");
    let honest = Rtp::new(PEER);
    let (_honest, media) = call(&daemon, &offer(honest.address()));
    assert_eq!(honest.converse(media), Some(media), "an honest peer");
}

#[test]
fn ports_are_bound_when_calls_need_them_and_run_out_as_503() {
    let range = free_range(2);
    let setup = DaemonSetup::new().set(
        "TRUNKLINE__MEDIA__RTP_PORTS",
        &format!("{range}-{}", range + 1),
    );
    setup.dedicate(&PEER.to_string());
    let daemon = setup.serve();
    let is_bound = |port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_err();
    assert!(!is_bound(range) && !is_bound(range + 1), "no call, no port");

    let honest = Rtp::new(PEER);
    let (_one, first) = call(&daemon, &offer(honest.address()));
    let (_other, second) = call(&daemon, &offer(honest.address()));
    assert!(is_bound(range) && is_bound(range + 1));

    let number = &daemon.setup.first_number;
    let (_, refused) = Talker::call(PEER, daemon.sip(), number, &offer(honest.address()));
    assert_eq!(refused.status(), Some(503), "{refused:?}");
    assert!(refused.header("Retry-After").is_some(), "{refused:?}");

    for media in [first, second] {
        assert_eq!(
            honest.converse(media),
            Some(media),
            "calls that are up go on"
        );
    }
}

/// Sends UDP from addresses that aren't its own.
struct Forger(Socket);

impl Forger {
    fn new() -> Option<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).ok()?;
        Some(Self(socket))
    }

    fn send(&self, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        let (IpAddr::V4(source), IpAddr::V4(target)) = (from.ip(), to.ip()) else {
            panic!("IPv4 only");
        };
        let length = u16::try_from(8 + payload.len()).expect("a short packet");

        // The kernel fills in length and checksum of the IP header; that of UDP may be absent.
        let mut octets = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        octets.extend(source.octets());
        octets.extend(target.octets());
        for word in [from.port(), to.port(), length, 0] {
            octets.extend(word.to_be_bytes());
        }
        octets.extend(payload);
        self.0.send_to(&octets, &to.into()).expect("it is sent");
    }
}
