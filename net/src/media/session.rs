//! The echo of one call: the peer that it hears, and the stream that it sends. Pure: packets and time come in, packets go out.
//!
//! Packets go to the address that the peer is heard from (symmetric RTP, RFC 4961), which may differ from the signalled one behind a NAT.
//! That address is learnt from packets in sequence; packets of other addresses are dropped. The sent stream is our own: one SSRC, with
//! continuous sequence numbers and timestamps whatever the peer does.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::NegotiatedMedia;
use super::learning::Learning;
use super::rtp::{self, Header, Packet};
use super::speech::{Speech, SpeechPacket};

/// Most packets sent in any second: a stream of 20 ms packets, a tenth more, and DTMF beside it.
const PER_SECOND: usize = 60;

/// Least time between two key presses of a person.
const KEY: Duration = Duration::from_millis(40);

/// Timestamp units per millisecond: PCMU, PCMA and the telephone-events beside them run at 8 kHz (RFC 3551 §6).
const UNITS_PER_MILLISECOND: u64 = 8;

/// The echo of one call.
#[derive(Debug)]
pub(super) struct Session {
    key: u64,
    agreed: Option<NegotiatedMedia>,
    learning: Learning,
    /// Time at which the peer was last heard, or from which it should be heard.
    heard_at: Moment,
    is_silence_reported: bool,
    stream: Stream,
    keys: Keys,
    pace: Pace,
    /// Audio that the peer hears instead of its echo.
    speech: Option<Speech>,
}

impl Session {
    /// Creates a session that has negotiated nothing. `seed` makes SSRC and first numbers unpredictable (RFC 3550 §5.1).
    pub(super) fn new(key: u64, seed: u64) -> Self {
        Self {
            key,
            agreed: None,
            learning: Learning::default(),
            heard_at: Moment::default(),
            is_silence_reported: false,
            stream: Stream::new(seed),
            keys: Keys::default(),
            pace: Pace::default(),
            speech: None,
        }
    }

    /// Plays this instead of the echo from now on.
    pub(super) fn say(&mut self, speech: Speech) {
        self.speech = Some(speech);
    }

    /// Writes the next packet of speech to `octets`, if it is due, and returns its destination. Sends nothing to a peer on hold.
    pub(super) fn speak<'p>(
        &mut self,
        octets: &'p mut [u8],
        now: Moment,
    ) -> Option<(SocketAddr, &'p [u8])> {
        let agreed = self.agreed.filter(|agreed| !agreed.is_held())?;
        let heard = self.learning.source();
        let said = self.speech.as_mut()?.next(&agreed, heard, now)?;
        let SpeechPacket { to, payload, .. } = &said;
        let header = self.stream.own(agreed.payload, said.is_first);
        Some((*to, rtp::write(octets, &header, payload)?))
    }

    /// Returns whether the peer hears speech instead of its echo.
    pub(super) const fn is_spoken_to(&self) -> bool {
        self.speech.is_some()
    }

    /// Returns whether the speech has ended; true once.
    pub(super) fn take_end(&mut self) -> bool {
        self.speech.as_mut().is_some_and(Speech::take_end)
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// Sets the result of an offer and its answer, and learns the peer's address again. A peer that stays at its address is heard
    /// meanwhile; one that moves, or comes back from hold, is waited for.
    pub(super) fn negotiate(&mut self, agreed: NegotiatedMedia, now: Moment) {
        let moves = self
            .agreed
            .is_none_or(|before| before.remote != agreed.remote);
        if moves {
            self.heard_at = now;
            self.is_silence_reported = false;
        }
        self.learning.restart(&agreed, moves);
        self.agreed = Some(agreed);
    }

    /// Takes a packet and returns the echo and its destination; `None` if nothing is echoed. `is_ours` returns whether an address is an RTP
    /// port of this node.
    pub(super) fn receive<'p>(
        &mut self,
        octets: &'p mut [u8],
        source: SocketAddr,
        is_ours: impl Fn(SocketAddr) -> bool,
        now: Moment,
    ) -> Option<(SocketAddr, &'p [u8])> {
        let agreed = self.agreed.filter(|agreed| !agreed.is_held())?;
        let packet =
            Packet::read(octets).filter(|packet| agreed.accepts(packet.header.payload_type))?;
        let silence = now.since(self.heard_at);
        if !self
            .learning
            .hears(&agreed, source, &packet.header, silence, is_ours)
        {
            return None;
        }

        self.heard_at = now;
        self.is_silence_reported = false;

        if Some(packet.header.payload_type) == agreed.telephone_event {
            self.keys.hear(&packet.header, packet.payload(octets), now);
        }

        if self.speech.is_some() || !self.pace.admits(now) {
            return None;
        }

        let header = self.stream.next(&packet.header, now);
        Some((source, packet.rewrite(octets, &header)))
    }

    /// Returns the digit that the last packet reported for the first time.
    pub(super) const fn take_digit(&mut self) -> Option<u8> {
        self.keys.pressed.take()
    }

    /// Returns whether the peer should be heard and has been silent for `patience`; true once until it is heard again.
    pub(super) fn report_silence(&mut self, patience: Duration, now: Moment) -> bool {
        let is_expected = self.agreed.is_some_and(|agreed| !agreed.is_held());
        let is_news =
            is_expected && !self.is_silence_reported && now.since(self.heard_at) >= patience;
        self.is_silence_reported |= is_news;
        is_news
    }
}

/// Times of the last packets sent, the oldest at the front.
#[derive(Debug, Default)]
struct Pace {
    sent: VecDeque<Moment>,
}

impl Pace {
    fn admits(&mut self, now: Moment) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        if self.sent.len() == PER_SECOND {
            if self
                .sent
                .front()
                .is_some_and(|first| now.since(*first) < SECOND)
            {
                return false;
            }
            self.sent.pop_front();
        }
        self.sent.push_back(now);
        true
    }
}

/// Keys that the peer presses. Many packets report each key press, some of which may be lost or late. The first of them counts; its
/// timestamp identifies the event (RFC 4733 §2.5.1).
#[derive(Debug, Default)]
struct Keys {
    /// SSRC and timestamp of the last event, and the time of its first packet.
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

/// The stream that is sent: the peer's sequence numbers and timestamps, shifted to continue ours.
#[derive(Debug)]
struct Stream {
    ssrc: u32,
    /// Sequence number of the last packet sent.
    sequence: u16,
    timestamp: u32,
    sent_at: Moment,
    incoming: Option<Incoming>,
}

/// The peer's stream, and the offsets from it to ours.
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

    /// Returns the header of an echoed packet. Losses and reordering stay as they are, since the peer's order is kept. Only a new stream of
    /// the peer is appended to the end of ours, with the marker set.
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

    /// Returns the header of a packet of our own, 20 ms after the one before.
    const fn own(&mut self, payload_type: u8, marker: bool) -> Header {
        self.sequence = self.sequence.wrapping_add(1);
        self.timestamp = self
            .timestamp
            .wrapping_add(20 * UNITS_PER_MILLISECOND as u32);
        Header {
            marker,
            payload_type,
            sequence: self.sequence,
            timestamp: self.timestamp,
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

        // Timestamps wrap around at 32 bits, so only the low half of a long pause counts.
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

/// Returns whether a sequence number lies ahead of the last: in the next half of the circle (RFC 3550 §A.1).
const fn is_after(sequence: u16, last: u16) -> bool {
    matches!(sequence.wrapping_sub(last), 1..0x8000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNALLED: &str = "192.0.2.1:4000";
    const MOVED: &str = "192.0.2.1:61000";
    const OTHER: &str = "203.0.113.66:9";

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

    fn agreed(remote: &str) -> NegotiatedMedia {
        let remote = address(remote);
        NegotiatedMedia {
            remote,
            payload: 8,
            telephone_event: Some(101),
            sources: [remote.ip(); 2],
            from_any: false,
        }
    }

    fn negotiated(remote: &str) -> Session {
        let mut session = Session::new(1, 0x1111_1111_0000_0000);
        session.negotiate(agreed(remote), at(0));
        session
    }

    /// A session that has learnt its peer at `remote`, by three packets that aren't echoed and one that is.
    fn learnt(remote: &str) -> Session {
        let mut session = negotiated(remote);
        learn(&mut session, remote, at(0));
        session
    }

    fn learn(session: &mut Session, source: &str, now: Moment) {
        for sequence in 100..104 {
            let mut octets = rtp(8, sequence, 0, 77);
            receive(session, &mut octets, source, now);
        }
        assert_eq!(session.learning.source(), Some(address(source)));
    }

    fn receive<'p>(
        session: &mut Session,
        octets: &'p mut [u8],
        source: &str,
        now: Moment,
    ) -> Option<(SocketAddr, &'p [u8])> {
        session.receive(octets, address(source), |_| false, now)
    }

    fn key(session: &mut Session, event: u8, timestamp: u32, ssrc: u32, now: Moment) -> Option<u8> {
        let mut octets = rtp(101, 1, timestamp, ssrc);
        octets.truncate(12);
        octets.extend([event, 10, 0, 160]);
        receive(session, &mut octets, SIGNALLED, now);
        session.take_digit()
    }

    #[test]
    fn a_key_is_told_of_once() {
        let mut session = learnt(SIGNALLED);
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
        receive(&mut session, &mut other, SIGNALLED, at(900));
        assert_eq!(session.take_digit(), None, "audio is no key");
    }

    /// Where the echo of a good packet from `source` goes.
    fn echoed_to(session: &mut Session, source: &str, now: Moment) -> Option<String> {
        receive(session, &mut rtp(8, 1, 0, 7), source, now).map(|(to, _)| to.to_string())
    }

    #[test]
    fn nothing_of_another_address_is_echoed_or_pressed() {
        let mut session = learnt(SIGNALLED);
        for (name, source) in [("another IP", OTHER), ("another port", MOVED)] {
            assert_eq!(echoed_to(&mut session, source, at(20)), None, "{name}");
            let mut pressed = rtp(101, 1, 800, 7);
            pressed.truncate(12);
            pressed.extend([5, 10, 0, 160]);
            receive(&mut session, &mut pressed, source, at(20));
            assert_eq!(session.take_digit(), None, "{name}");
        }
        assert!(echoed_to(&mut session, SIGNALLED, at(40)).is_some());
    }

    #[test]
    fn no_more_than_sixty_packets_a_second_are_sent() {
        let mut session = learnt(SIGNALLED);
        let mut sent = |milliseconds: std::ops::Range<u64>| {
            milliseconds
                .filter(|time| echoed_to(&mut session, SIGNALLED, at(*time)).is_some())
                .count()
        };
        // One was sent when the peer was learnt.
        assert_eq!(sent(1..1_000), PER_SECOND - 1);
        assert_eq!(sent(1_000..2_000), PER_SECOND);
        let paced: usize = (3_000..5_000)
            .step_by(20)
            .map(|time| sent(time..time + 1))
            .sum();
        assert_eq!(paced, 100, "a stream of 20 ms passes whole");
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
            let mut session = learnt(SIGNALLED);
            assert_eq!(
                receive(&mut session, &mut octets, SIGNALLED, at(0)).is_some(),
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
            session.negotiate(agreed(held), at(0));
            assert_eq!(echoed_to(&mut session, SIGNALLED, at(0)), None, "{held}");
        }
        session.negotiate(agreed(SIGNALLED), at(0));
        learn(&mut session, SIGNALLED, at(0));
        assert_eq!(
            echoed_to(&mut session, SIGNALLED, at(0)).as_deref(),
            Some(SIGNALLED)
        );
    }

    #[test]
    fn a_peer_that_moves_is_learnt_anew() {
        let mut session = learnt(SIGNALLED);
        session.negotiate(agreed(SIGNALLED), at(10));
        assert!(
            echoed_to(&mut session, SIGNALLED, at(20)).is_some(),
            "a re-INVITE that changes nothing interrupts nothing"
        );
        session.negotiate(agreed(MOVED), at(30));
        assert_eq!(echoed_to(&mut session, SIGNALLED, at(40)), None);
        learn(&mut session, MOVED, at(50));
        session.negotiate(agreed(OTHER), at(60));
        assert_eq!(echoed_to(&mut session, MOVED, at(70)), None);
        learn(&mut session, OTHER, at(80));
    }

    #[test]
    fn the_stream_sent_has_no_seam() {
        let mut session = negotiated(SIGNALLED);
        for sequence in 65_531..65_534 {
            let mut octets = rtp(8, sequence, 0, 7);
            assert_eq!(receive(&mut session, &mut octets, SIGNALLED, at(0)), None);
        }
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
            let (_, echo) = receive(&mut session, &mut octets, SIGNALLED, at(time)).expect(name);
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
        session.negotiate(agreed(SIGNALLED), at(0));
        assert!(!session.report_silence(PATIENCE, at(29_999)));
        assert!(session.report_silence(PATIENCE, at(30_000)));
        assert!(!session.report_silence(PATIENCE, at(90_000)), "once");
        assert_eq!(echoed_to(&mut session, OTHER, at(90_000)), None);
        assert!(
            !session.report_silence(PATIENCE, at(119_999)),
            "another address isn't the peer"
        );
        learn(&mut session, SIGNALLED, at(90_000));
        assert!(!session.report_silence(PATIENCE, at(119_999)));
        assert!(session.report_silence(PATIENCE, at(120_000)), "and again");
        session.negotiate(agreed("0.0.0.0:9"), at(130_000));
        assert!(
            !session.report_silence(PATIENCE, at(999_000)),
            "a peer on hold is not missed"
        );
    }
}
