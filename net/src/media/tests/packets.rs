//! Packets as the peer's SDP asks for them: their length (`a=maxptime`), and the address of RTCP (`a=rtcp`); and the marker of those that begin a talk
//! spurt. Without sockets, by a clock that jumps.

use super::super::rtp::{self, Header, Packet};
use super::super::session::Session;
use super::*;

const PEER: &str = "192.0.2.1:4000";
const TICK: Duration = Duration::from_millis(20);

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn wanting(packet_time: PacketTime, rtcp: Option<&str>) -> NegotiatedMedia {
    NegotiatedMedia {
        packet_time,
        rtcp: rtcp.map(address),
        ..agreed(address(PEER), Some(101))
    }
}

/// A session whose peer is heard.
fn heard(agreed: NegotiatedMedia) -> Session {
    let mut session = Session::new(7);
    session.negotiate(agreed, now());
    for sequence in 0..4 {
        let header = Header {
            marker: false,
            payload_type: 8,
            sequence,
            timestamp: u32::from(sequence) * 160,
            ssrc: 9,
        };
        let mut octets = [0; 200];
        let sent = rtp::write(&mut octets, &header, &[0xd5; 160]).expect("room");
        session.accept(sent, address(PEER), |_| false, now());
    }
    assert_eq!(session.peer(), Some(address(PEER)));
    session
}

/// Headers and lengths of the packets of one frame.
fn frame(session: &mut Session, at: Moment) -> Vec<(Header, usize)> {
    let mut octets = [0; 300];
    let sent = session.frame(&mut octets, &[0x23; 160], false, at);
    let packets = sent.map(|(_, packets)| packets.iter().map(Packet::read).collect::<Vec<_>>());
    let packets = packets.into_iter().flatten().flatten();
    packets
        .map(|packet| (packet.header, packet.payload_len()))
        .collect()
}

#[test]
fn packets_are_as_long_as_the_peer_takes() {
    for (packet_time, parts, octets) in [
        (PacketTime::Ms20, 1, 160),
        (PacketTime::Ms10, 2, 80),
        (PacketTime::Ms5, 4, 40),
    ] {
        let mut session = heard(wanting(packet_time, None));
        let mut at = now();
        let frames: Vec<_> = (0..3)
            .flat_map(|_| {
                at = at + TICK;
                let packets = frame(&mut session, at);
                assert_eq!(packets.len(), parts, "{packet_time:?}");
                packets
            })
            .collect();

        let (first, _) = frames[0];
        for (number, (header, length)) in (0..).zip(&frames) {
            assert_eq!(*length, octets, "{packet_time:?}");
            assert_eq!(header.sequence, first.sequence.wrapping_add(number));
            let samples = u32::from(number) * octets as u32;
            assert_eq!(header.timestamp, first.timestamp.wrapping_add(samples));
            assert_eq!(header.marker, number == 0, "{packet_time:?}: {number}");
        }
    }
}

/// RFC 3551 §4.1: the marker is for "the first packet after a silence period during which packets have not been transmitted contiguously".
#[test]
fn the_first_packet_after_a_pause_has_the_marker() {
    let talks = wanting(PacketTime::Ms20, None);
    let holds = NegotiatedMedia {
        direction: Direction::RecvOnly,
        ..talks
    };
    let mut session = heard(talks);
    let mut at = now();
    let mut marked = |session: &mut Session| {
        at = at + TICK;
        let packets = frame(session, at);
        // As a tick does in which nothing is sent.
        if packets.is_empty() {
            session.pass();
        }
        packets.first().map(|(header, _)| header.marker)
    };

    assert_eq!(marked(&mut session), Some(true), "the first of all");
    assert_eq!(marked(&mut session), Some(false));
    session.negotiate(holds, now());
    assert_eq!(marked(&mut session), None, "on hold");
    session.negotiate(talks, now());
    assert_eq!(marked(&mut session), Some(true), "resumed");
    assert_eq!(marked(&mut session), Some(false));

    // An echo is of packets that the peer sends without a pause.
    let echoed = |session: &mut Session, sequence: u16| {
        let header = Header {
            marker: false,
            payload_type: 8,
            sequence,
            timestamp: u32::from(sequence) * 160,
            ssrc: 9,
        };
        let mut octets = [0; 200];
        let length = rtp::write(&mut octets, &header, &[0xd5; 160])
            .expect("room")
            .len();
        let octets = &mut octets[..length];
        let packet = session.accept(octets, address(PEER), |_| false, now())?;
        let echo = session.echo(&packet, octets, now())?;
        Some(Packet::read(echo).expect("a packet").header.marker)
    };
    let mut session = heard(talks);
    assert_eq!(echoed(&mut session, 4), Some(true));
    assert_eq!(echoed(&mut session, 5), Some(false));
    session.negotiate(holds, now());
    assert_eq!(echoed(&mut session, 6), None, "on hold");
    session.negotiate(talks, now());
    assert_eq!(echoed(&mut session, 7), Some(true), "resumed");
    assert_eq!(echoed(&mut session, 8), Some(false));
}

#[test]
fn rtcp_goes_where_the_sdp_says_if_that_is_the_peers() {
    const REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 1];
    for (case, named, before, after) in [
        ("nothing", None, "192.0.2.1:4001", "192.0.2.1:4001"),
        (
            "another port",
            Some("192.0.2.1:53020"),
            "192.0.2.1:53020",
            "192.0.2.1:53020",
        ),
        (
            "another host, which may be a third party",
            Some("192.0.2.9:53020"),
            "192.0.2.1:4001",
            "192.0.2.9:53020",
        ),
    ] {
        let mut session = heard(wanting(PacketTime::Ms20, named));
        assert_eq!(session.rtcp_peer(), Some(address(before)), "{case}");
        assert!(!session.hears_rtcp(address("192.0.2.9:53021")), "{case}");
        assert_eq!(session.rtcp_peer(), Some(address(before)), "{case}");

        // Once RTCP has come from there, it is the peer's.
        let source = address(named.unwrap_or("192.0.2.1:4001"));
        session.notice(&REPORT, source, now());
        assert!(session.hears_rtcp(source), "{case}");
        assert_eq!(session.rtcp_peer(), Some(address(after)), "{case}");
    }
}
