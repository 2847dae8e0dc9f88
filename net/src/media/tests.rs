//! The echo over sockets on loopback.

use std::net::{Ipv4Addr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::mpsc;
use std::time::Duration;

use trunkline_sip::dialog::sdp::{AudioPayload, Direction, PacketTime, PayloadTypes};

use super::*;

fn now() -> Moment {
    Moment::from_secs(1_000)
}

/// A loopback address that tests of no other process use: 127/8 is free for use, and a process id is unique.
fn loopback(test: u8) -> IpAddr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, high | 0x80, low, test))
}

fn media(test: u8, ports: RangeInclusive<u16>) -> Media {
    let settings = MediaSettings {
        ports,
        ips: vec![loopback(test)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 2,
        descriptors: std::sync::Arc::default(),
    };
    Media::new(&settings, Entropy::from_seed([7; 32]), now, |_, _| {}).unwrap()
}

/// An org of its own for each call.
fn holder(key: u64) -> Holder {
    Holder::alone(uuid::Uuid::from_u64_pair(7, key))
}

fn peer(test: u8) -> UdpSocket {
    let socket = UdpSocket::bind((loopback(test), 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

fn agreed(remote: SocketAddr, telephone_event: Option<u8>) -> NegotiatedMedia {
    NegotiatedMedia {
        remote,
        payload: AudioPayload::PCMA,
        telephone_event,
        received: PayloadTypes::of(AudioPayload::PCMA, telephone_event),
        direction: Direction::SendRecv,
        packet_time: PacketTime::default(),
        rtcp: None,
        sources: [remote.ip(); 2],
        from_any: false,
        peer: MediaPeer {
            silence: Some(Duration::from_secs(30)),
            ..MediaPeer::default()
        },
    }
}

fn packet(sequence: u8) -> [u8; 14] {
    [0x80, 8, 0, sequence, 0, 0, 0, 0, 1, 2, 3, 4, 0xde, 0xad]
}

#[test]
fn what_a_peer_sends_comes_back() {
    let media = media(1, 20_000..=20_009);
    assert_eq!(media.ports.bound(), 0, "no call, no port");

    let peers: Vec<_> = (0..4_u64).map(|key| (key, peer(1))).collect();
    for (key, peer) in &peers {
        let ours = media.open(*key, loopback(1), holder(*key)).unwrap();
        assert_eq!(
            media.open(*key, loopback(1), holder(*key)),
            Ok(ours),
            "opening twice is once"
        );
        media.update(*key, agreed(peer.local_addr().unwrap(), None), now());
        // More than one turn's worth, so that the worker returns to a partly read socket. The first three packets get no echo.
        for sequence in 0..43 {
            peer.send_to(&packet(sequence), ours).unwrap();
        }
    }

    for (key, peer) in &peers {
        let mut echo = [0; 100];
        for _ in 0..40 {
            let (length, from) = peer.recv_from(&mut echo).unwrap();
            assert_eq!(
                (Ok(from), &echo[12..length]),
                (
                    media.open(*key, loopback(1), holder(*key)),
                    [0xde, 0xad].as_slice()
                )
            );
        }
    }
}

/// One thread serves both calls. What handles the key of the first one's caller panics, as a fault of ours would.
#[test]
fn a_panic_ends_the_media_of_its_call_alone() {
    const FAULTY: u64 = 1;
    let settings = MediaSettings {
        ports: 20_000..=20_003,
        ips: vec![loopback(9)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 1,
        descriptors: std::sync::Arc::default(),
    };
    let (failed, failures) = mpsc::channel();
    let on_event = move |key, event| {
        let is_faulty = key == FAULTY && matches!(event, MediaEvent::Digit(_));
        assert!(!is_faulty, "a fault of ours");
        if matches!(event, MediaEvent::Failed) {
            failed.send(key).expect("somebody listens");
        }
    };
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), now, on_event).unwrap();
    let (faulty, good) = (peer(9), peer(9));
    let [to_faulty, to_good] = [(FAULTY, &faulty), (2, &good)].map(|(key, peer)| {
        let ours = media.open(key, loopback(9), holder(key)).unwrap();
        media.update(key, agreed(peer.local_addr().unwrap(), Some(101)), now());
        ours
    });

    for sequence in 0..8 {
        faulty.send_to(&packet(sequence), to_faulty).unwrap();
    }
    for sequence in 8..16 {
        // The end of a key, RFC 4733 §2.3.
        let key = [
            0x80, 101, 0, sequence, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0x8a, 0, 160,
        ];
        faulty.send_to(&key, to_faulty).unwrap();
    }
    let reported = failures.recv_timeout(Duration::from_secs(10));
    assert_eq!(reported, Ok(FAULTY));

    for sequence in 0..8 {
        good.send_to(&packet(sequence), to_good).unwrap();
    }
    let mut echo = [0; 100];
    let (length, from) = good
        .recv_from(&mut echo)
        .expect("the honest call is served");
    assert_eq!((from, &echo[12..length]), (to_good, &[0xde, 0xad][..]));

    // The port of the call that failed serves another one.
    media.close(FAULTY, now());
    let next = peer(9);
    let ours = media.open(3, loopback(9), holder(3)).unwrap();
    media.update(3, agreed(next.local_addr().unwrap(), None), now());
    for sequence in 0..8 {
        next.send_to(&packet(sequence), ours).unwrap();
    }
    assert!(next.recv_from(&mut echo).is_ok());
    assert_eq!(failures.try_recv(), Err(mpsc::TryRecvError::Empty));
}

/// The clock of these tests doesn't move, so that of each call's packets only the burst is served, and no rate after it. The packets are sent as
/// fast as loopback takes them.
#[test]
fn a_flood_of_the_learnt_address_is_cut_and_others_are_served() {
    let media = media(4, 20_000..=20_003);
    let (loud, good) = (peer(4), peer(4));
    let [to_loud, to_good] = [(1, &loud), (2, &good)].map(|(key, peer)| {
        let ours = media.open(key, loopback(4), holder(key)).unwrap();
        media.update(key, agreed(peer.local_addr().unwrap(), None), now());
        ours
    });

    for sequence in 0..=u8::MAX {
        for _ in 0..100 {
            loud.send_to(&packet(sequence), to_loud).unwrap();
        }
    }
    for sequence in 0..43 {
        good.send_to(&packet(sequence), to_good).unwrap();
    }

    let mut echo = [0; 100];
    for _ in 0..40 {
        good.recv_from(&mut echo).unwrap();
    }
    let served = media.statistics(1).unwrap().packets_received;
    assert!(served <= 200, "{served} of 25,600 were read");
    assert!(media.close(1, now()).is_some());
}

/// The clock doesn't move here either, so that the filter stays.
#[test]
fn a_flood_of_other_addresses_leaves_the_peer_served() {
    let media = media(11, 20_000..=20_003);
    let (good, loud) = (peer(11), peer(13));
    let ours = media.open(1, loopback(11), holder(1)).unwrap();
    media.update(1, agreed(good.local_addr().unwrap(), None), now());

    let mut echo = [0; 100];
    let mut sequence = 0;
    let mut speak = || {
        good.send_to(&packet(sequence), ours).unwrap();
        sequence += 1;
    };
    let flood = |packets| {
        for _ in 0..packets {
            loud.send_to(&packet(1), ours).unwrap();
        }
    };
    for _ in 0..4 {
        speak();
    }
    good.recv_from(&mut echo).expect("it is learnt");

    // The first packets may be lost, while the flood fills the buffer.
    flood(2_000);
    good.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let is_served = (0..50).any(|_| {
        speak();
        good.recv_from(&mut echo).is_ok()
    });
    assert!(is_served);

    good.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for _ in 0..20 {
        flood(500);
        speak();
        good.recv_from(&mut echo).expect("none is lost");
    }
}

/// RTCP goes to the port above the peer's RTP port. A peer that sends from the port below a listener's must not make us send reports to the
/// listener.
#[test]
fn no_report_goes_to_a_listener() {
    let here = loopback(5);
    let listener = UdpSocket::bind((here, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let below = listener.local_addr().unwrap().port() - 1;
    let Ok(rtp) = UdpSocket::bind((here, below)) else {
        return no_report_goes_to_a_listener();
    };
    rtp.set_read_timeout(Some(Duration::from_secs(5))).unwrap();

    for (is_listener, expected) in [(true, 0), (false, 1)] {
        let mut call = call::Call::new(
            1,
            Arc::new(UdpSocket::bind((here, 0)).unwrap()),
            session::Session::new(7),
            Arc::default(),
        );
        call.become_heard_at(rtp.local_addr().unwrap(), now());
        call.stop(|_| is_listener, &mut bot_leg::Scratch::default(), now());

        let heard = std::iter::from_fn(|| {
            std::thread::sleep(Duration::from_millis(20));
            listener.recv_from(&mut [0; 100]).ok()
        });
        assert_eq!(heard.count(), expected, "{is_listener}");
    }
}

/// An echo that sent more than it received would be a means of flooding others; a peer that sends reports gets them.
#[test]
fn an_echo_reports_for_what_it_did_not_return() {
    let here = loopback(6);
    let (rtp, rtcp) = loop {
        let rtp = UdpSocket::bind((here, 0)).unwrap();
        let above = rtp.local_addr().unwrap().port().checked_add(1);
        if let Some(Ok(rtcp)) = above.map(|above| UdpSocket::bind((here, above))) {
            break (rtp.local_addr().unwrap(), rtcp);
        }
    };
    rtcp.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let heard = || rtcp.recv(&mut [0; 100]).ok();
    let theirs = rtcp.local_addr().unwrap();

    let own = Arc::new(UdpSocket::bind((here, 0)).unwrap());
    let session = session::Session::new(7);
    let mut call = call::Call::new(1, own, session, Arc::default());
    call.negotiate(agreed(rtp, None), now());
    let mut scratch = bot_leg::Scratch::default();
    let mut sequence = 0_u8;
    let mut speak = |call: &mut call::Call, from: u64, to: u64| {
        for milliseconds in (from..to).step_by(20) {
            let at = now() + Duration::from_millis(milliseconds);
            sequence = sequence.wrapping_add(1);
            let mut octets = packet(sequence);
            call.receive(&mut octets, rtp, |_| false, &mut scratch, at);
            call.report(|_| false, at);
        }
    };

    speak(&mut call, 0, 6_000);
    assert_eq!(heard(), None, "all that came was returned");
    let at = now() + Duration::from_secs(6);
    let report = [0x80, 201, 0, 1, 0, 0, 0, 9].repeat(10);
    call.receive_rtcp(&report, theirs, at);
    // Room for the goodbye, which has no more octets than came either.
    call.receive_rtcp(&report[..32], theirs, at);
    speak(&mut call, 6_000, 12_000);
    assert_eq!(heard(), Some(72), "a report for a report");
    assert_eq!(heard(), None, "and no more octets than came");
    call.stop(|_| false, &mut scratch, now() + Duration::from_secs(12));
    assert_eq!(heard(), Some(36), "the goodbye");
}

#[test]
fn ports_run_out_and_come_back_even_ones_first() {
    let media = media(2, 20_001..=20_006);
    let open = |key| {
        let address = media.open(key, loopback(2), holder(key)).ok();
        address.map(|address| address.port())
    };
    let ports: Vec<u16> = (0..6).filter_map(open).collect();
    assert_eq!(ports, [20_002, 20_004, 20_006, 20_001, 20_003, 20_005]);
    assert_eq!(open(6), None);
    assert_eq!(media.open_calls(), 6);
    media.close(4, now());
    media.close(4, now());
    assert_eq!(open(6), Some(20_003));
    assert_eq!(open(7), None);
}

#[test]
fn each_call_has_a_port_at_the_address_it_asks_for() {
    let media = media(90, 20_002..=20_004);
    let here = |key| media.open(key, loopback(90), holder(key)).ok();
    let there = |key| media.open(key, loopback(91), holder(key)).ok();
    let at = |ip, port| Some(SocketAddr::new(ip, port));
    assert_eq!(here(1), at(loopback(90), 20_002));
    assert_eq!(there(2), at(loopback(91), 20_004));
    media.close(1, now());

    assert_eq!(
        here(3),
        at(loopback(90), 20_002),
        "a free socket is used again"
    );
    media.close(3, now());

    assert_eq!(there(4), at(loopback(91), 20_003));
    assert_eq!(
        there(5),
        at(loopback(91), 20_002),
        "the last free port moves to the address"
    );
    assert_eq!(there(6), None);
}

#[test]
fn a_port_of_another_program_is_passed_over() {
    let taken = UdpSocket::bind((loopback(3), 20_002)).unwrap();
    let media = media(3, 20_002..=20_003);
    let open = |key| {
        let address = media.open(key, loopback(3), holder(key)).ok();
        address.map(|address| address.port())
    };
    assert_eq!(open(1), Some(20_003));
    assert_eq!(open(2), None);
    drop(taken);
    assert_eq!(open(2), Some(20_002), "once it is free it is used");
}

#[test]
fn an_org_leaves_ports_to_others() {
    // Held before the range is tried, so that the shares are of the ports that there are.
    let foreign: Vec<_> = (0..20)
        .map(|at| UdpSocket::bind((loopback(13), 20_000 + at)).unwrap())
        .collect();
    let media = media(13, 20_000..=20_059);
    let open = |key, org| media.open(key, loopback(13), holder(org));
    assert!(open(1, 2).is_ok());

    // Its share is twenty of forty, but it may have more while 15 % are free.
    let greedy: Vec<_> = (100..200).map(|key| open(key, 1)).collect();
    assert_eq!(greedy.iter().flatten().count(), 34);
    assert_eq!(greedy.last(), Some(&Err(NoShare::UsedUp)));
    assert!(media.port_shares().refused() > 0);

    // It ends calls and begins others at once, as a flood does.
    for key in 100..110 {
        media.close(key, now());
        assert!(open(key + 1_000, 1).is_ok());
        assert_eq!(open(key + 2_000, 1), Err(NoShare::UsedUp));
    }
    let others: Vec<_> = (300..305).map(|key| open(key, 2)).collect();
    assert!(others.iter().all(Result::is_ok), "{others:?}");
    assert_eq!(open(305, 2), Err(NoShare::Full));
    drop(foreign);
    assert!(open(305, 2).is_ok(), "another program has left");
}

#[test]
fn a_range_without_a_free_port_or_a_foreign_address_is_an_error() {
    let taken = UdpSocket::bind((loopback(14), 20_002)).unwrap();
    let cases = [
        (
            "all taken",
            taken.local_addr().unwrap().ip(),
            io::ErrorKind::AddrInUse,
        ),
        (
            "not our address",
            "192.0.2.1".parse().unwrap(),
            io::ErrorKind::AddrNotAvailable,
        ),
    ];

    for (name, ip, expected) in cases {
        let settings = MediaSettings {
            ports: 20_002..=20_002,
            ips: vec![ip],
            own: Vec::new(),
            listeners: Vec::new(),
            workers: 1,
            descriptors: std::sync::Arc::default(),
        };
        let refused =
            Media::new(&settings, Entropy::from_seed([7; 32]), now, |_, _| {}).unwrap_err();
        assert_eq!(refused.kind(), expected, "{name}");
    }
}

#[test]
fn a_load_that_has_ended_leaves_few_sockets() {
    let media = media(5, 20_000..=21_999);
    let ports: std::collections::HashSet<u16> = (0..1_500)
        .map(|key| media.open(key, loopback(5), holder(key)).unwrap().port())
        .collect();
    assert_eq!((ports.len(), media.open_calls()), (1_500, 1_500));
    for key in 0..1_500 {
        media.close(key, now());
    }
    for _ in 0..100 {
        media.ports.shrink();
    }
    assert_eq!((media.open_calls(), media.ports.bound()), (0, ports::KEPT));
}

#[test]
fn a_call_that_falls_silent_is_reported_by_its_key() {
    let (reports, silent) = mpsc::channel();
    let settings = MediaSettings {
        ports: 20_000..=20_001,
        ips: vec![loopback(6)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 1,
        descriptors: std::sync::Arc::default(),
    };

    // Each reading of this clock is another hour later: rounds and silence come at once.
    static HOURS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    let clock =
        || Moment::from_secs(3_600 * HOURS.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let report = move |key, news| reports.send((key, news)).unwrap_or_default();
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), clock, report).unwrap();
    let ours = media.open(77, loopback(6), holder(77)).unwrap();
    let remote = "192.0.2.1:4000".parse().unwrap();
    let mut agreed = agreed(remote, None);
    agreed.peer.silence = Some(Duration::ZERO);
    media.update(77, agreed, Moment::default());

    // Any packet wakes the worker.
    peer(6).send_to(b"?", ours).unwrap();

    let told = silent.recv_timeout(Duration::from_secs(5));
    assert_eq!(told, Ok((77, MediaEvent::Silent)));
}

#[test]
fn a_silence_that_was_reported_ends_with_the_next_packet() {
    static SECONDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1_000);

    let settings = MediaSettings {
        ports: 20_000..=20_003,
        ips: vec![loopback(12)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 1,
        descriptors: std::sync::Arc::default(),
    };
    let (reports, silent) = mpsc::channel();
    let clock = || Moment::from_secs(SECONDS.load(std::sync::atomic::Ordering::Relaxed));
    let report = move |key, news| reports.send((key, news)).unwrap_or_default();
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), clock, report).unwrap();
    let (ours, peer) = (media.open(5, loopback(12), holder(5)).unwrap(), peer(12));
    let agreed = agreed(peer.local_addr().unwrap(), None);
    media.update(5, agreed, clock());
    assert!(!media.is_silent(5));

    // Any packet wakes the worker, whose thread may not have begun when the first one comes.
    let reported = (0..50).find_map(|_| {
        SECONDS.fetch_add(1_000, std::sync::atomic::Ordering::Relaxed);
        peer.send_to(b"?", ours).unwrap();
        silent.recv_timeout(Duration::from_millis(100)).ok()
    });
    assert_eq!(reported, Some((5, MediaEvent::Silent)));
    assert!(media.is_silent(5));

    for sequence in 0..10 {
        peer.send_to(&packet(sequence), ours).unwrap();
    }
    peer.recv_from(&mut [0; 100]).expect("an echo");
    assert!(!media.is_silent(5));
    let is_back = |told: &(u64, MediaEvent)| *told == (5, MediaEvent::Heard);
    let told = std::iter::from_fn(|| silent.recv_timeout(Duration::from_secs(5)).ok());
    assert!(told.into_iter().any(|told| is_back(&told)));
}

#[test]
fn a_key_is_told_with_its_call() {
    let (reports, pressed) = mpsc::channel();
    let settings = MediaSettings {
        ports: 20_000..=20_001,
        ips: vec![loopback(8)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 1,
        descriptors: std::sync::Arc::default(),
    };

    let report = move |key, news| reports.send((key, news)).unwrap_or_default();
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), now, report).unwrap();
    let (ours, peer) = (media.open(5, loopback(8), holder(5)).unwrap(), peer(8));
    media.update(5, agreed(peer.local_addr().unwrap(), Some(101)), now());

    let mut key = [0x80, 101, 0, 1, 0, 0, 3, 32, 1, 2, 3, 4, 7, 10, 1, 64];
    for sequence in 1..7 {
        key[3] = sequence;
        peer.send_to(&key, ours).unwrap();
    }

    let told = pressed.recv_timeout(Duration::from_secs(5));
    assert_eq!(told, Ok((5, MediaEvent::Digit(7))));

    let mut echo = [0; 100];
    for _ in 1..4 {
        peer.recv_from(&mut echo).unwrap();
    }

    assert_eq!(pressed.try_recv(), Err(mpsc::TryRecvError::Empty));
}

#[test]
fn the_last_handle_dropped_ends_the_threads() {
    let (held, ended) = mpsc::channel::<u64>();
    let settings = MediaSettings {
        ports: 20_000..=20_001,
        ips: vec![loopback(7)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 2,
        descriptors: std::sync::Arc::default(),
    };
    let report = move |key, _| held.send(key).expect("nobody is silent");
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), now, report).unwrap();
    drop(media.clone());

    assert!(media.open(1, loopback(7), holder(1)).is_ok());
    assert_eq!(
        ended.try_recv(),
        Err(mpsc::TryRecvError::Empty),
        "the threads run"
    );
    drop(media);

    assert_eq!(
        ended.recv_timeout(Duration::from_secs(5)),
        Err(mpsc::RecvTimeoutError::Disconnected),
        "each has dropped its end"
    );
}

#[test]
fn a_listener_of_this_node_is_never_a_peer() {
    let (listener, honest) = (peer(12), peer(12));
    let settings = MediaSettings {
        ports: 20_100..=20_109,
        ips: vec![loopback(12)],
        own: Vec::new(),
        listeners: vec![listener.local_addr().unwrap()],
        workers: 1,
        descriptors: std::sync::Arc::default(),
    };

    let media = Media::new(&settings, Entropy::from_seed([7; 32]), now, |_, _| {}).unwrap();
    let ours = media.open(1, loopback(12), holder(1)).unwrap();
    media.update(1, agreed(honest.local_addr().unwrap(), None), now());
    for sequence in 0..10 {
        listener.send_to(&packet(sequence), ours).unwrap();
    }

    for sequence in 0..10 {
        honest.send_to(&packet(sequence), ours).unwrap();
    }

    assert!(
        honest.recv_from(&mut [0; 99]).is_ok(),
        "the honest one is heard"
    );
    listener.set_nonblocking(true).unwrap();

    assert!(listener.recv_from(&mut [0; 99]).is_err());
}

mod bots;
mod impaired;
mod packets;
mod recommendation;

/// A socket of an ended call is closed for the next call, since it may be at another address.
#[test]
fn calls_beyond_the_descriptors_have_no_port() {
    let descriptors = trunkline_bounds::Descriptors::new(2);
    let settings = MediaSettings {
        ports: 20_000..=20_099,
        ips: vec![loopback(23)],
        own: Vec::new(),
        listeners: Vec::new(),
        workers: 1,
        descriptors: std::sync::Arc::clone(&descriptors),
    };
    let media = Media::new(&settings, Entropy::from_seed([7; 32]), now, |_, _| {}).unwrap();
    let open = |key, at| media.open(key, loopback(at), holder(key));
    assert!(open(1, 23).is_ok() && open(2, 23).is_ok());
    assert_eq!(open(3, 23), Err(trunkline_bounds::NoShare::Full));
    assert_eq!(descriptors.held(), 2);
    media.close(1, now());
    assert!(open(3, 24).is_ok());
    assert_eq!(descriptors.held(), 2);
}
