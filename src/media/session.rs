//! One call's echo: whom it hears, and the stream it sends. Pure: packets and time come in, packets go out.
//!
//! The peer is answered where it is heard from (symmetric RTP, RFC 4961), which may differ from what it signalled when a
//! NAT is between. The stream sent is our own: one SSRC, numbers and timestamps without a seam whatever the peer does.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::rtp::{Header, Packet};

/// How long the source that is heard must be silent before another one may take its place.
const RELATCH: Duration = Duration::from_secs(2);

/// Nobody presses keys faster.
const KEY: Duration = Duration::from_millis(40);

/// Timestamp units a millisecond: PCMU, PCMA and telephone-event beside them run at 8 kHz (RFC 3551 §6).
const UNITS_PER_MILLISECOND: u64 = 8;

/// What was negotiated.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Negotiated {
    remote: SocketAddr,
    payload: u8,
    telephone_event: Option<u8>,
}

impl Negotiated {
    fn is_held(&self) -> bool {
        self.remote.port() == 0 || self.remote.ip().is_unspecified()
    }

    fn accepts(&self, payload_type: u8) -> bool {
        payload_type == self.payload || Some(payload_type) == self.telephone_event
    }
}

/// The echo of one call.
#[derive(Debug)]
pub(super) struct Session {
    key: u64,
    negotiated: Option<Negotiated>,
    /// The source that is heard.
    source: Option<SocketAddr>,
    /// When it was heard last, or since when it should be.
    heard_at: Moment,
    is_silence_reported: bool,
    stream: Stream,
    keys: Keys,
}

impl Session {
    /// A call without anything negotiated. `seed` makes SSRC and first numbers unpredictable (RFC 3550 §5.1).
    pub(super) fn new(key: u64, seed: u64) -> Self {
        Self {
            key,
            negotiated: None,
            source: None,
            heard_at: Moment::default(),
            is_silence_reported: false,
            stream: Stream::new(seed),
            keys: Keys::default(),
        }
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// Takes what was negotiated. A peer that moves, or comes back from hold, is waited for anew.
    pub(super) fn negotiate(
        &mut self,
        remote: SocketAddr,
        payload: u8,
        telephone_event: Option<u8>,
        now: Moment,
    ) {
        let negotiated = Negotiated {
            remote,
            payload,
            telephone_event,
        };
        if self.negotiated.is_none_or(|before| before.remote != remote) {
            self.source = None;
            self.heard_at = now;
            self.is_silence_reported = false;
        }
        self.negotiated = Some(negotiated);
    }

    /// Takes a packet and returns what is to be sent where; `None` for what is not echoed.
    pub(super) fn receive<'p>(
        &mut self,
        octets: &'p mut [u8],
        source: SocketAddr,
        now: Moment,
    ) -> Option<(SocketAddr, &'p [u8])> {
        let negotiated = self.negotiated.filter(|negotiated| !negotiated.is_held())?;
        let packet =
            Packet::read(octets).filter(|packet| negotiated.accepts(packet.header.payload_type))?;
        if !self.hears(source, negotiated.remote, now) {
            return None;
        }
        self.source = Some(source);
        self.heard_at = now;
        self.is_silence_reported = false;
        if Some(packet.header.payload_type) == negotiated.telephone_event {
            self.keys.hear(&packet.header, packet.payload(octets), now);
        }
        let header = self.stream.next(&packet.header, now);
        Some((source, packet.rewrite(octets, &header)))
    }

    /// The digit that the last packet was the first to tell of.
    pub(super) const fn take_digit(&mut self) -> Option<u8> {
        self.keys.pressed.take()
    }

    /// The signalled address is always heard; another one only as the first, or once the one that was heard is silent,
    /// so that a stranger can't take over a stream that is alive.
    fn hears(&self, source: SocketAddr, signalled: SocketAddr, now: Moment) -> bool {
        source == signalled
            || self.source.is_none_or(|heard| heard == source)
            || now.since(self.heard_at) >= RELATCH
    }

    /// Whether the peer should be heard and has not been for `patience`; true once until it is heard again.
    pub(super) fn report_silence(&mut self, patience: Duration, now: Moment) -> bool {
        let is_expected = self
            .negotiated
            .is_some_and(|negotiated| !negotiated.is_held());
        let is_news =
            is_expected && !self.is_silence_reported && now.since(self.heard_at) >= patience;
        self.is_silence_reported |= is_news;
        is_news
    }
}

/// The keys that the peer presses. Each is told of by many packets, some of which may be lost or late: it is the first of them
/// that counts, and its timestamp names the key's event (RFC 4733 §2.5.1).
#[derive(Debug, Default)]
struct Keys {
    /// SSRC and timestamp of the last event, and when it was first heard of.
    last: Option<(u32, u32, Moment)>,
    pressed: Option<u8>,
}

impl Keys {
    fn hear(&mut self, header: &Header, payload: &[u8], now: Moment) {
        let &[event, _, _, _] = payload else { return };
        let (ssrc, timestamp) = (header.ssrc, header.timestamp);
        let is_new = self.last.is_none_or(|(of, last, at)| {
            let later = matches!(timestamp.wrapping_sub(last), 1..0x8000_0000);
            (of != ssrc || later) && now.since(at) >= KEY
        });
        if is_new {
            self.last = Some((ssrc, timestamp, now));
            self.pressed = (event <= 9).then_some(event);
        }
    }
}

/// The stream we send: the peer's numbers and timestamps, moved to where ours stand.
#[derive(Debug)]
struct Stream {
    ssrc: u32,
    /// The last packet sent.
    sequence: u16,
    timestamp: u32,
    sent_at: Moment,
    incoming: Option<Incoming>,
}

/// The peer's stream, and how far ours is from it.
#[derive(Copy, Clone, Debug)]
struct Incoming {
    ssrc: u32,
    sequence_offset: u16,
    timestamp_offset: u32,
}

impl Stream {
    fn new(seed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = seed.to_be_bytes();
        Self {
            ssrc: u32::from_be_bytes([a, b, c, d]),
            sequence: u16::from_be_bytes([e, f]) >> 1,
            timestamp: u32::from_be_bytes([e, f, g, h]),
            sent_at: Moment::default(),
            incoming: None,
        }
    }

    /// The header under which a packet is sent back. Losses and reordering stay what they are: the peer's order is
    /// kept, and only a new stream of the peer's is joined to the end of ours, with the marker set.
    fn next(&mut self, header: &Header, now: Moment) -> Header {
        let known = self
            .incoming
            .filter(|incoming| incoming.ssrc == header.ssrc);
        let incoming = known.unwrap_or_else(|| self.join(header, now));
        let sequence = header.sequence.wrapping_add(incoming.sequence_offset);
        let timestamp = header.timestamp.wrapping_add(incoming.timestamp_offset);
        if is_after(sequence, self.sequence) {
            self.sequence = sequence;
            self.timestamp = timestamp;
            self.sent_at = now;
        }
        Header {
            marker: header.marker || known.is_none(),
            payload_type: header.payload_type,
            sequence,
            timestamp,
            ssrc: self.ssrc,
        }
    }

    fn join(&mut self, header: &Header, now: Moment) -> Incoming {
        let pause = match self.incoming {
            Some(_) => {
                u64::try_from(now.since(self.sent_at).as_millis()).unwrap_or(0)
                    * UNITS_PER_MILLISECOND
            }
            None => 0,
        };
        // Timestamps wrap around at 32 bits, so that the low half of a pause of any length is what counts.
        let timestamp = self
            .timestamp
            .wrapping_add((pause & u64::from(u32::MAX)) as u32);
        let incoming = Incoming {
            ssrc: header.ssrc,
            sequence_offset: self.sequence.wrapping_add(1).wrapping_sub(header.sequence),
            timestamp_offset: timestamp.wrapping_sub(header.timestamp),
        };
        self.incoming = Some(incoming);
        incoming
    }
}

/// RFC 3550 appendix A.1: in the half of the circle that lies ahead.
const fn is_after(sequence: u16, last: u16) -> bool {
    matches!(sequence.wrapping_sub(last), 1..0x8000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNALLED: &str = "192.0.2.1:4000";
    const NATTED: &str = "198.51.100.9:61000";
    const STRANGER: &str = "203.0.113.66:9";

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn rtp(payload_type: u8, sequence: u16, timestamp: u32, ssrc: u32) -> Vec<u8> {
        let mut octets = vec![0x80, payload_type];
        octets.extend(sequence.to_be_bytes());
        octets.extend(timestamp.to_be_bytes());
        octets.extend(ssrc.to_be_bytes());
        octets.extend(b"audio");
        octets
    }

    fn negotiated(remote: &str) -> Session {
        let mut session = Session::new(1, 0x1111_1111_0000_0000);
        session.negotiate(address(remote), 8, Some(101), at(0));
        session
    }

    fn key(session: &mut Session, event: u8, timestamp: u32, ssrc: u32, now: Moment) -> Option<u8> {
        let mut octets = rtp(101, 1, timestamp, ssrc);
        octets.truncate(12);
        octets.extend([event, 10, 0, 160]);
        session.receive(&mut octets, address(SIGNALLED), now);
        session.take_digit()
    }

    #[test]
    fn a_key_is_told_of_once() {
        let mut session = negotiated(SIGNALLED);
        for (case, event, timestamp, ssrc, time, told) in [
            ("its first packet", 5, 800, 7, 0, Some(5)),
            ("again", 5, 800, 7, 20, None),
            ("its end", 5, 800, 7, 40, None),
            ("the next key", 5, 2_400, 7, 200, Some(5)),
            ("a late packet of the first", 5, 800, 7, 220, None),
            ("no digit", 11, 4_000, 7, 400, None),
            ("faster than anybody can", 6, 4_100, 7, 410, None),
            ("of another stream", 0, 100, 8, 600, Some(0)),
        ] {
            assert_eq!(
                key(&mut session, event, timestamp, ssrc, at(time)),
                told,
                "{case}"
            );
        }
        let mut other = rtp(8, 2, 9_000, 8);
        session.receive(&mut other, address(SIGNALLED), at(900));
        assert_eq!(session.take_digit(), None, "audio is no key");
    }

    /// Where the echo of a good packet from `source` goes.
    fn echoed_to(session: &mut Session, source: &str, now: Moment) -> Option<String> {
        session
            .receive(&mut rtp(8, 1, 0, 7), address(source), now)
            .map(|(to, _)| to.to_string())
    }

    #[test]
    fn the_peer_is_answered_where_it_is_heard() {
        /// Milliseconds, source, whether it is heard.
        type Steps = &'static [(u64, &'static str, bool)];
        let cases: [(&str, Steps); 5] = [
            (
                "as signalled",
                &[(0, SIGNALLED, true), (20, SIGNALLED, true)],
            ),
            ("behind a NAT", &[(0, NATTED, true), (20, NATTED, true)]),
            (
                "a stranger beside a live stream",
                &[(0, NATTED, true), (20, STRANGER, false), (40, NATTED, true)],
            ),
            (
                "a stranger who came first gives way",
                &[
                    (0, STRANGER, true),
                    (20, SIGNALLED, true),
                    (40, STRANGER, false),
                ],
            ),
            (
                "a NAT that forgot",
                &[
                    (0, NATTED, true),
                    (1_999, STRANGER, false),
                    (2_000, STRANGER, true),
                    (2_020, NATTED, false),
                ],
            ),
        ];
        for (name, steps) in cases {
            let mut session = negotiated(SIGNALLED);
            for &(time, source, is_heard) in steps {
                let expected = is_heard.then(|| source.to_owned());
                assert_eq!(
                    echoed_to(&mut session, source, at(time)),
                    expected,
                    "{name}, at {time} ms"
                );
            }
        }
    }

    #[test]
    fn only_what_was_negotiated_is_echoed() {
        let cases = [
            ("audio", rtp(8, 1, 0, 7), true),
            ("telephone-event", rtp(101, 1, 0, 7), true),
            ("another codec", rtp(0, 1, 0, 7), false),
            ("comfort noise", rtp(13, 1, 0, 7), false),
            ("RTCP", rtp(200, 1, 0, 7), false),
            ("no RTP", b"OPTIONS sip:a SIP/2.0".to_vec(), false),
        ];
        for (name, mut octets, is_echoed) in cases {
            let mut session = negotiated(SIGNALLED);
            assert_eq!(
                session
                    .receive(&mut octets, address(SIGNALLED), at(0))
                    .is_some(),
                is_echoed,
                "{name}"
            );
        }
    }

    #[test]
    fn nothing_is_echoed_before_negotiation_or_on_hold() {
        let mut session = Session::new(1, 0);
        assert_eq!(echoed_to(&mut session, SIGNALLED, at(0)), None);
        for held in ["0.0.0.0:4000", "192.0.2.1:0", "[::]:4000"] {
            session.negotiate(address(held), 8, None, at(0));
            assert_eq!(echoed_to(&mut session, SIGNALLED, at(0)), None, "{held}");
        }
        session.negotiate(address(SIGNALLED), 8, None, at(0));
        assert_eq!(
            echoed_to(&mut session, SIGNALLED, at(0)).as_deref(),
            Some(SIGNALLED)
        );
    }

    #[test]
    fn a_peer_that_moves_is_heard_at_its_new_place() {
        let mut session = negotiated(SIGNALLED);
        assert!(echoed_to(&mut session, NATTED, at(0)).is_some());
        session.negotiate(address("192.0.2.1:5000"), 8, None, at(10));
        assert!(
            echoed_to(&mut session, STRANGER, at(20)).is_some(),
            "the first to be heard"
        );
        session.negotiate(address("192.0.2.1:5000"), 0, None, at(30));
        assert_eq!(
            echoed_to(&mut session, NATTED, at(40)),
            None,
            "another codec is no other place"
        );
    }

    #[test]
    fn the_stream_sent_has_no_seam() {
        let mut session = negotiated(SIGNALLED);
        // Milliseconds; sequence, timestamp and SSRC that came; sequence, timestamp and marker that left.
        let cases = [
            ("the first", 0, (65_534, 1_000, 7), (1, 0, true)),
            (
                "the next, over the wrap",
                20,
                (65_535, 1_160, 7),
                (2, 160, false),
            ),
            ("one lost", 60, (1, 1_480, 7), (4, 480, false)),
            ("the lost one late", 61, (0, 1_320, 7), (3, 320, false)),
            ("again", 61, (0, 1_320, 7), (3, 320, false)),
            (
                "a new source, 40 ms later",
                100,
                (500, 90_000, 8),
                (5, 800, true),
            ),
            ("its next", 120, (501, 90_160, 8), (6, 960, false)),
        ];
        for (name, time, (sequence, timestamp, ssrc), expected) in cases {
            let mut octets = rtp(8, sequence, timestamp, ssrc);
            let (_, echo) = session
                .receive(&mut octets, address(SIGNALLED), at(time))
                .expect(name);
            let header = Packet::read(echo).expect(name).header;
            assert_eq!(
                (header.sequence, header.timestamp, header.marker),
                expected,
                "{name}"
            );
            assert_eq!(
                (header.ssrc, header.payload_type),
                (0x1111_1111, 8),
                "{name}"
            );
            assert!(echo.ends_with(b"audio"), "{name}");
        }
    }

    #[test]
    fn silence_is_reported_once_until_the_peer_is_heard() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let mut session = Session::new(1, 0);
        assert!(
            !session.report_silence(PATIENCE, at(3_600_000)),
            "nobody is expected before negotiation"
        );
        session.negotiate(address(SIGNALLED), 8, None, at(0));
        assert!(!session.report_silence(PATIENCE, at(29_999)));
        assert!(session.report_silence(PATIENCE, at(30_000)));
        assert!(!session.report_silence(PATIENCE, at(90_000)), "once");
        assert!(echoed_to(&mut session, SIGNALLED, at(90_000)).is_some());
        assert!(!session.report_silence(PATIENCE, at(119_999)));
        assert!(session.report_silence(PATIENCE, at(120_000)), "and again");
        session.negotiate(address("0.0.0.0:9"), 8, None, at(130_000));
        assert!(
            !session.report_silence(PATIENCE, at(999_000)),
            "a peer on hold is not missed"
        );
    }
}
