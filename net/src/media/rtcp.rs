//! RTCP of one call: sender and receiver reports both ways (RFC 3550 §6.4), from which both sides learn losses and the round-trip time.

use std::time::Duration;

use trunkline_sip::moment::Moment;

/// Least interval of reports (RFC 3550 §6.2), before it is varied.
const INTERVAL: Duration = Duration::from_secs(5);

/// e - 3/2, by which a varied interval is divided (RFC 3550 §6.3.1).
const COMPENSATION: f64 = std::f64::consts::E - 1.5;

/// Octets of our longest packet: a sender report with one block, and the name of the source.
pub(super) const MAX_REPORT: usize = 28 + BLOCK + 20;

const BLOCK: usize = 24;

const SENDER_REPORT: u8 = 200;
const RECEIVER_REPORT: u8 = 201;
const SOURCE_DESCRIPTION: u8 = 202;
const GOODBYE: u8 = 203;

/// Seconds from 1900 to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// Figures of the stream that we send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) ssrc: u32,
    /// Timestamp of the RTP stream now.
    pub(super) timestamp: u32,
    pub(super) packets: u32,
    pub(super) octets: u32,
}

/// Reception of the peer's stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct ReceptionReport {
    pub(super) ssrc: u32,
    /// Share lost since the last report, in 256ths.
    pub(super) share_lost: u8,
    /// Packets lost since the stream began.
    pub(super) lost: u32,
    /// Highest sequence number, extended by its wraps.
    pub(super) highest: u32,
    /// In units of the timestamp.
    pub(super) jitter: u32,
}

/// RTCP of one call.
#[derive(Debug, Default)]
pub(super) struct Rtcp {
    /// Time of the next report.
    due_at: Option<Moment>,
    /// Reports scheduled so far.
    scheduled: u32,
    /// Middle 32 bits of the NTP time in the peer's last sender report, and the report's time of arrival.
    heard: Option<(u32, Moment)>,
    round_trip: Option<Duration>,
    /// Reception of our stream at the peer: packets lost, and jitter in units of the timestamp.
    reported: Option<(u32, u32)>,
}

/// Returns whether a packet on an RTP port is RTCP (RFC 5761 §4).
pub(super) fn is_rtcp(octets: &[u8]) -> bool {
    matches!(octets, [first, 192..=223, ..] if first >> 6 == 2)
}

impl Rtcp {
    /// Returns true when a report is due: an interval after the last report, or half an interval after this function was first called
    /// (RFC 3550 §6.2). `ours` is the SSRC of our stream.
    pub(super) fn is_due(&mut self, ours: u32, now: Moment) -> bool {
        match self.due_at {
            Some(at) => at <= now,
            None => {
                self.schedule(INTERVAL / 2, ours, now);
                false
            }
        }
    }

    fn schedule(&mut self, interval: Duration, ours: u32, now: Moment) {
        self.due_at = Some(now + varied(interval, ours, self.scheduled));
        self.scheduled = self.scheduled.wrapping_add(1);
    }

    /// Returns the round trip by the peer's last report.
    pub(super) const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Returns the reception of our stream by the peer's last report: packets lost, and jitter.
    pub(super) fn reported(&self) -> Option<(u64, Duration)> {
        const UNITS_PER_MILLISECOND: u64 = 8;
        let (lost, jitter) = self.reported?;
        let jitter = u64::from(jitter) * 1_000 / UNITS_PER_MILLISECOND;
        Some((lost.into(), Duration::from_micros(jitter)))
    }

    /// Writes a report: a sender report if packets were sent, else a receiver report. Returns its length.
    pub(super) fn write(
        &mut self,
        to: &mut [u8; MAX_REPORT],
        sent: &Sent,
        received: Option<&ReceptionReport>,
        now: Moment,
    ) -> usize {
        self.schedule(INTERVAL, sent.ssrc, now);

        let mut packet = Packet {
            octets: to,
            length: 0,
        };
        let blocks = u8::from(received.is_some());

        if sent.packets > 0 {
            packet.begin(blocks, SENDER_REPORT, 6 + u16::from(blocks) * 6);
            packet.word(sent.ssrc);
            let (seconds, fraction) = ntp(now);
            packet.word(seconds);
            packet.word(fraction);
            packet.word(sent.timestamp);
            packet.word(sent.packets);
            packet.word(sent.octets);
        } else {
            packet.begin(blocks, RECEIVER_REPORT, 1 + u16::from(blocks) * 6);
            packet.word(sent.ssrc);
        }

        if let Some(received) = received {
            packet.word(received.ssrc);
            // The count has 24 bits with a sign, and stays at its greatest value (RFC 3550 §A.3).
            packet.word(u32::from(received.share_lost) << 24 | received.lost.min(0x7f_ffff));
            packet.word(received.highest);
            packet.word(received.jitter);
            let (heard, delay) = self
                .heard
                .map_or((0, 0), |(middle, at)| (middle, units(now.since(at))));
            packet.word(heard);
            packet.word(delay);
        }

        packet.describe_source(sent.ssrc);
        packet.length
    }

    /// Writes the end of our stream (BYE), after a report of its own (RFC 3550 §6.6). Returns its length.
    pub(super) fn write_goodbye(to: &mut [u8; MAX_REPORT], ssrc: u32) -> usize {
        let mut packet = Packet {
            octets: to,
            length: 0,
        };
        packet.begin(0, RECEIVER_REPORT, 1);
        packet.word(ssrc);
        // RFC 3550 §6.1: "an SDES packet including the CNAME item MUST be included in each compound RTCP packet".
        packet.describe_source(ssrc);
        packet.begin(1, GOODBYE, 1);
        packet.word(ssrc);
        packet.length
    }

    /// Takes a compound packet of the peer. `ours` is the SSRC of our stream.
    pub(super) fn hear(&mut self, octets: &[u8], ours: u32, now: Moment) {
        let mut rest = octets;
        while let [first, kind, high, low, ..] = *rest {
            let length = (usize::from(u16::from_be_bytes([high, low])) + 1) * 4;
            let Some(packet) = rest.get(..length).filter(|_| first >> 6 == 2) else {
                // A part that is cut off, or of another version, ends the reading. The parts before it count.
                return;
            };

            let blocks = usize::from(first & 0x1f);
            match kind {
                SENDER_REPORT => {
                    if let (Some(seconds), Some(fraction)) = (word(packet, 8), word(packet, 12)) {
                        self.heard = Some((seconds << 16 | fraction >> 16, now));
                    }
                    self.hear_blocks(packet.get(28..).unwrap_or_default(), blocks, ours, now);
                }
                RECEIVER_REPORT => {
                    self.hear_blocks(packet.get(8..).unwrap_or_default(), blocks, ours, now)
                }
                // RFC 3550 §6.1: packets of unknown types are ignored. So is BYE: the call's end comes by SIP.
                _ => {}
            }

            rest = &rest[length..];
        }
    }

    fn hear_blocks(&mut self, octets: &[u8], blocks: usize, ours: u32, now: Moment) {
        for block in octets.chunks_exact(BLOCK).take(blocks) {
            if word(block, 0) != Some(ours) {
                continue;
            }

            if let (Some(lost), Some(jitter)) = (word(block, 4), word(block, 12)) {
                self.reported = Some((not_negative(lost), jitter));
            }

            let (Some(last), Some(delay)) = (word(block, 16), word(block, 20)) else {
                continue;
            };
            // RFC 3550 §6.4.1: "If no SR has been received yet, the LSR field is set to zero."
            if last == 0 {
                continue;
            }

            let (seconds, fraction) = ntp(now);
            let trip = (seconds << 16 | fraction >> 16)
                .wrapping_sub(last)
                .wrapping_sub(delay);
            self.round_trip = round_trip(trip).or(self.round_trip);
        }
    }
}

/// Returns half to one and a half times the interval, so that the ends of many calls don't report at once (RFC 3550 §6.3.1). The SSRC is random,
/// and multiples of the golden ratio spread the reports of one call evenly.
fn varied(interval: Duration, ssrc: u32, number: u32) -> Duration {
    const GOLDEN: u32 = 0x9e37_79b9;
    let drawn = ssrc.wrapping_add(number.wrapping_mul(GOLDEN));
    let factor = 0.5 + f64::from(drawn) / f64::from(u32::MAX);
    interval.mul_f64(factor / COMPENSATION)
}

/// Returns the packets lost out of a block's second word: 24 bits with a sign, negative where packets came twice (RFC 3550 §6.4.1).
const fn not_negative(word: u32) -> u32 {
    let lost = word & 0xff_ffff;
    if lost < 0x80_0000 { lost } else { 0 }
}

/// Returns the round trip out of its units of 1/65536 s, a difference of two clocks (RFC 3550 §6.4.1).
///
/// Phones count the delay of their report in milliseconds, so that the difference is negative by one on a short path: that is a round trip of zero.
/// Past these bounds a peer has computed its delay wrongly.
fn round_trip(units: u32) -> Option<Duration> {
    const MAX: u32 = 60 << 16;
    const MAX_BELOW_ZERO: u32 = (10 << 16) / 1_000;
    match units {
        0..MAX => Some(Duration::from_micros((u64::from(units) * 1_000_000) >> 16)),
        _ if units.wrapping_neg() <= MAX_BELOW_ZERO => Some(Duration::ZERO),
        _ => None,
    }
}

/// A compound packet being written.
struct Packet<'p> {
    octets: &'p mut [u8; MAX_REPORT],
    length: usize,
}

impl Packet<'_> {
    /// Writes the head of a part with this many words behind it.
    fn begin(&mut self, count: u8, kind: u8, words: u16) {
        let [high, low] = words.to_be_bytes();
        self.put(&[0x80 | count, kind, high, low]);
    }

    /// Writes a source description with a name that repeats the SSRC alone: it must not identify this machine (RFC 7022 §4.2).
    fn describe_source(&mut self, ssrc: u32) {
        const NAME: u8 = 1;
        self.begin(1, SOURCE_DESCRIPTION, 4);
        self.word(ssrc);
        self.put(&[NAME, 8]);
        for nibble in (0..8).rev() {
            let digit = (ssrc >> (nibble * 4) & 0xf) as usize;
            self.put(&b"0123456789abcdef"[digit..=digit]);
        }
        self.put(&[0, 0]);
    }

    fn word(&mut self, word: u32) {
        self.put(&word.to_be_bytes());
    }

    fn put(&mut self, octets: &[u8]) {
        self.octets[self.length..self.length + octets.len()].copy_from_slice(octets);
        self.length += octets.len();
    }
}

fn word(octets: &[u8], at: usize) -> Option<u32> {
    octets
        .get(at..)?
        .first_chunk()
        .map(|word| u32::from_be_bytes(*word))
}

/// Returns NTP's seconds and their fraction.
fn ntp(now: Moment) -> (u32, u32) {
    let micros = now.as_micros();
    let seconds = (micros / 1_000_000 + NTP_EPOCH) as u32;
    let fraction = ((micros % 1_000_000) << 32) / 1_000_000;
    (seconds, fraction as u32)
}

/// Returns a duration in units of 1/65536 s.
fn units(duration: Duration) -> u32 {
    let units = (duration.as_micros() << 16) / 1_000_000;
    u32::try_from(units).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_700_000_000) + Duration::from_millis(milliseconds)
    }

    const SENT: Sent = Sent {
        ssrc: 0xdead_beef,
        timestamp: 4,
        packets: 5,
        octets: 6,
    };

    const RECEIVED: ReceptionReport = ReceptionReport {
        ssrc: 7,
        share_lost: 64,
        lost: 2,
        highest: 0x1_0003,
        jitter: 9,
    };

    fn written(
        rtcp: &mut Rtcp,
        sent: &Sent,
        received: Option<&ReceptionReport>,
        now: Moment,
    ) -> Vec<u8> {
        let mut octets = [0; MAX_REPORT];
        let length = rtcp.write(&mut octets, sent, received, now);
        octets[..length].to_vec()
    }

    #[test]
    fn reports_have_the_form_of_the_rfc() {
        let report = written(&mut Rtcp::default(), &SENT, Some(&RECEIVED), at(500));
        assert_eq!(report.len(), MAX_REPORT);
        assert_eq!(report[..8], [0x81, 200, 0, 12, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(word(&report, 8), Some((1_700_000_000 + NTP_EPOCH) as u32));
        assert_eq!(word(&report, 12), Some(1 << 31), "half a second");
        assert_eq!(report[16..28], [0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6]);
        assert_eq!(
            report[28..52],
            [
                0, 0, 0, 7, 64, 0, 0, 2, 0, 1, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        assert_eq!(
            &report[52..],
            b"\x81\xca\x00\x04\xde\xad\xbe\xef\x01\x08deadbeef\x00\x00"
        );

        let silent = Sent { packets: 0, ..SENT };
        let report = written(&mut Rtcp::default(), &silent, None, at(0));
        assert_eq!(report[..8], [0x80, 201, 0, 1, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(report.len(), 8 + 20);
    }

    /// RFC 3550 §6.1, §6.6: a report comes first, and each compound packet has the name of the source.
    #[test]
    fn a_goodbye_has_a_report_and_a_name_before_it() {
        let mut octets = [0; MAX_REPORT];
        let length = Rtcp::write_goodbye(&mut octets, 0xdead_beef);
        assert_eq!(
            octets[..length],
            *b"\x80\xc9\x00\x01\xde\xad\xbe\xef\x81\xca\x00\x04\xde\xad\xbe\xef\x01\x08deadbeef\x00\x00\
               \x81\xcb\x00\x01\xde\xad\xbe\xef"
        );
    }

    #[test]
    fn two_ends_measure_their_round_trip() {
        let (mut one, mut other) = (Rtcp::default(), Rtcp::default());
        let theirs = Sent { ssrc: 7, ..SENT };
        let of_ours = ReceptionReport {
            ssrc: SENT.ssrc,
            ..RECEIVED
        };

        // 30 ms to the peer, 2 s until its report, 50 ms back.
        other.hear(&written(&mut one, &SENT, None, at(0)), 7, at(30));
        one.hear(
            &written(&mut other, &theirs, Some(&of_ours), at(2_030)),
            SENT.ssrc,
            at(2_080),
        );
        let trip = one.round_trip().unwrap();
        assert!((79_900..80_100).contains(&trip.as_micros()), "{trip:?}");
        assert_eq!(other.round_trip(), None, "nothing came back yet");
    }

    #[test]
    fn a_delay_in_milliseconds_makes_no_round_trip_negative() {
        let milliseconds = |count: u32| (count << 16) / 1_000;
        assert_eq!(round_trip(0), Some(Duration::ZERO));
        assert_eq!(
            round_trip(milliseconds(1).wrapping_neg()),
            Some(Duration::ZERO)
        );
        assert_eq!(round_trip(milliseconds(20).wrapping_neg()), None);
        assert_eq!(round_trip(1 << 15), Some(Duration::from_millis(500)));
        assert_eq!(round_trip(60 << 16), None);
    }

    #[test]
    fn a_block_of_another_source_or_of_no_report_says_nothing() {
        let mut rtcp = Rtcp::default();
        rtcp.hear(
            &written(&mut Rtcp::default(), &SENT, Some(&RECEIVED), at(0)),
            8,
            at(0),
        );
        rtcp.hear(
            &written(&mut Rtcp::default(), &SENT, Some(&RECEIVED), at(0)),
            7,
            at(0),
        );
        assert_eq!(rtcp.round_trip(), None);
    }

    /// The bounds of §6.3.1: half and one and a half of five seconds, divided by e - 3/2; half of that for the first report.
    #[test]
    fn intervals_of_reports_vary_as_the_rfc_says() {
        let mut rtcp = Rtcp::default();
        let mut intervals = Vec::new();
        let mut last = 0;
        for time in (0..4_000_000).step_by(20) {
            if rtcp.is_due(SENT.ssrc, at(time)) {
                written(&mut rtcp, &SENT, None, at(time));
                intervals.push(time - last);
                last = time;
            }
        }

        assert!((1_020..=3_100).contains(&intervals[0]), "{}", intervals[0]);
        let rest = &intervals[1..];
        assert!(
            rest.iter()
                .all(|interval| (2_040..=6_180).contains(interval))
        );
        let mean = rest.iter().sum::<u64>() / rest.len() as u64;
        assert!((4_000..4_250).contains(&mean), "{mean} ms on average");
        let (least, most) = (rest.iter().min().unwrap(), rest.iter().max().unwrap());
        assert!(*least < 2_200 && *most > 6_000, "{least} to {most} ms");
    }

    #[test]
    fn rtcp_is_told_from_rtp() {
        for (octets, expected) in [
            (&[0x81, 200][..], true),
            (&[0x80, 201], true),
            (&[0x80, 0x88], false),
            (&[0x80, 101], false),
            (&[0x40, 200], false),
            (&[0x80], false),
        ] {
            assert_eq!(is_rtcp(octets), expected, "{octets:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_octets_make_it_panic(octets: Vec<u8>) {
            Rtcp::default().hear(&octets, 1, at(0));
        }
    }
}
