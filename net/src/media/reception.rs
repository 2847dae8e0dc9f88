//! Reception of the peer's packets: numbers of expected and of lost ones, and the jitter of their arrival (RFC 3550 §A.1, §A.3, §A.8).

use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::rtcp::ReceptionReport;
use super::rtp::Header;

/// Most sequence numbers that a packet may skip before the sender counts as restarted (RFC 3550 §A.1).
const MAX_DROPOUT: u16 = 3_000;

/// Most sequence numbers by which a packet may be late. One packet beyond either bound isn't counted; two in sequence are a restart.
const MAX_MISORDER: u16 = 100;

/// Microseconds per timestamp unit at 8 kHz.
const MICROS: i64 = 125;

/// Reception of the peer's streams.
#[derive(Debug, Default)]
pub(super) struct Reception {
    stream: Option<Stream>,
    continuity: Continuity,
    /// Packets expected of streams that have ended.
    expected: u64,
    received: u64,
    /// Jitter in sixteenths of a timestamp unit.
    jitter: u64,
    transit: Option<u32>,
    /// Packets received of streams that have ended.
    past_received: u64,
    /// Expected and received of this stream at the last report.
    reported: (u64, u64),
}

/// Relation of the next packet to those before it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Continuity {
    /// It follows them: sequence numbers between them are losses.
    #[default]
    Follows,
    /// It is the first after a new agreement or at a new address. Asterisk skips sequence numbers while it is held.
    Anew,
    /// The peer has nothing to send, so that no packet says anything about those before it.
    Held,
}

#[derive(Copy, Clone, Debug)]
struct Stream {
    ssrc: u32,
    /// First sequence number, and the highest one with its wraps in the upper bits.
    base: u64,
    highest: u64,
    /// Sequence number behind the last packet out of range. If it comes next, the sender has restarted.
    restart: Option<u16>,
}

impl Reception {
    /// Begins a new count: of an agreement by which the peer sends, or of one by which it doesn't.
    pub(super) const fn renegotiate(&mut self, receives: bool) {
        self.continuity = match receives {
            true => Continuity::Anew,
            false => Continuity::Held,
        };
    }

    /// Begins a new count with the next packet, which comes from another address.
    pub(super) const fn relocate(&mut self) {
        self.continuity = match self.continuity {
            Continuity::Follows | Continuity::Anew => Continuity::Anew,
            Continuity::Held => Continuity::Held,
        };
    }

    /// Counts a packet of the peer. `is_timed` is true if its timestamp is the time of sending, as for audio.
    pub(super) fn hear(&mut self, header: &Header, is_timed: bool, now: Moment) {
        // The first packet of a new count, extended by the wraps of its source so far: reports go on with them (RFC 3550 §6.4.1).
        let mut first = u64::from(header.sequence);
        let is_new = match &mut self.stream {
            Some(stream) if stream.ssrc == header.ssrc => {
                let ahead = header.sequence.wrapping_sub(stream.highest as u16);
                let is_far = (MAX_DROPOUT..=MAX_MISORDER.wrapping_neg()).contains(&ahead);
                // RFC 3550 §A.1: one packet out of range may be forged or very late; two in sequence are a restart.
                let may_be_stray = self.continuity == Continuity::Follows;
                if is_far && may_be_stray && stream.restart != Some(header.sequence) {
                    stream.restart = Some(header.sequence.wrapping_add(1));
                    return;
                }

                match self.continuity {
                    Continuity::Anew | Continuity::Held if !is_far => {
                        let behind = u64::from(ahead.wrapping_neg());
                        first = match ahead < MAX_DROPOUT {
                            true => stream.highest + u64::from(ahead),
                            false => stream.highest.saturating_sub(behind),
                        };
                        true
                    }
                    Continuity::Follows | Continuity::Anew | Continuity::Held => {
                        if ahead < MAX_DROPOUT {
                            stream.highest += u64::from(ahead);
                        }
                        is_far
                    }
                }
            }
            Some(_) | None => true,
        };
        if self.continuity == Continuity::Anew {
            self.continuity = Continuity::Follows;
        }

        if is_new {
            self.expected += self.stream.as_ref().map_or(0, Stream::expected);
            self.past_received = self.received;
            self.reported = (0, 0);
            self.transit = None;
            self.stream = Some(Stream {
                ssrc: header.ssrc,
                base: first,
                highest: first,
                restart: None,
            });
        }
        self.received += 1;

        if is_timed {
            self.time(header.timestamp, now);
        }
    }

    fn time(&mut self, timestamp: u32, now: Moment) {
        let arrival = i64::try_from(now.as_micros()).unwrap_or(i64::MAX) / MICROS;
        // Both wrap at 32 bits.
        let transit = (arrival as u32).wrapping_sub(timestamp);
        if let Some(before) = self.transit.replace(transit) {
            let difference = u64::from((transit.wrapping_sub(before) as i32).unsigned_abs());
            // RFC 3550 §A.8 in integers: the jitter moves a sixteenth of the way to the new difference, rounded.
            self.jitter = (self.jitter + difference).saturating_sub((self.jitter + 8) >> 4);
        }
    }

    /// Returns the number of packets expected so far.
    pub(super) fn expected(&self) -> u64 {
        self.expected + self.stream.as_ref().map_or(0, Stream::expected)
    }

    /// Returns the number of packets that never came.
    pub(super) fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    /// Returns the reception of the current stream, and its losses since the last report; `None` before anything was received.
    pub(super) fn report(&mut self) -> Option<ReceptionReport> {
        let stream = self.stream?;
        let now = (stream.expected(), self.received - self.past_received);
        let expected = now.0.saturating_sub(self.reported.0);
        // Duplicates count as received, so an interval may have lost less than nothing: reported as 0 (RFC 3550 §A.3).
        let lost = expected.saturating_sub(now.1 - self.reported.1);
        self.reported = now;

        let share = (lost << 8).checked_div(expected).unwrap_or(0).min(255);
        Some(ReceptionReport {
            ssrc: stream.ssrc,
            share_lost: share as u8,
            lost: u32::try_from(now.0.saturating_sub(now.1)).unwrap_or(u32::MAX),
            highest: stream.highest as u32,
            jitter: (self.jitter >> 4) as u32,
        })
    }

    pub(super) const fn jitter(&self) -> Duration {
        Duration::from_micros((self.jitter >> 4) * MICROS as u64)
    }
}

impl Stream {
    const fn expected(&self) -> u64 {
        self.highest - self.base + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_micros(1_000_000_000 + micros)
    }

    fn header(ssrc: u32, sequence: u16, timestamp: u32) -> Header {
        Header {
            marker: false,
            payload_type: 0,
            sequence,
            timestamp,
            ssrc,
        }
    }

    #[test]
    fn losses_are_counted_over_wraps_and_streams() {
        /// Source and number of packets.
        type Packets = &'static [(u32, u16)];

        let cases: [(&str, Packets, (u64, u64)); 8] = [
            ("nothing", &[], (0, 0)),
            ("all", &[(1, 65_534), (1, 65_535), (1, 0), (1, 1)], (4, 0)),
            ("one lost", &[(1, 65_535), (1, 1)], (3, 1)),
            ("one late", &[(1, 5), (1, 7), (1, 6)], (3, 0)),
            ("twice", &[(1, 5), (1, 5), (1, 7)], (3, 0)),
            (
                "one out of range",
                &[(1, 500), (1, 100), (1, 501), (1, 60_000), (1, 502)],
                (3, 0),
            ),
            ("a restart", &[(1, 500), (1, 9), (1, 10), (1, 12)], (4, 1)),
            (
                "another stream",
                &[(1, 5), (1, 7), (2, 900), (2, 903)],
                (7, 3),
            ),
        ];
        for (name, packets, expected) in cases {
            let mut reception = Reception::default();
            for (ssrc, sequence) in packets {
                reception.hear(&header(*ssrc, *sequence, 0), false, at(0));
            }
            assert_eq!((reception.expected(), reception.lost()), expected, "{name}");
        }
    }

    /// Asterisk skips the sequence numbers of what it would have sent while it was held.
    #[test]
    fn what_is_skipped_around_a_hold_or_a_move_is_no_loss() {
        enum Step {
            Packet(u16),
            Agreed(bool),
            Moved,
        }
        use Step::{Agreed, Moved, Packet};

        for (name, steps, expected) in [
            (
                "a hold",
                vec![
                    Packet(1),
                    Packet(2),
                    Agreed(false),
                    Agreed(true),
                    Packet(83),
                    Packet(84),
                ],
                (4, 0),
            ),
            (
                "a loss before it and one behind it",
                vec![
                    Packet(1),
                    Packet(3),
                    Agreed(false),
                    Agreed(true),
                    Packet(83),
                    Packet(85),
                ],
                (6, 2),
            ),
            (
                "it speaks before the answer that ends the hold",
                vec![
                    Packet(1),
                    Agreed(false),
                    Packet(2),
                    Packet(83),
                    Agreed(true),
                    Packet(84),
                ],
                (4, 0),
            ),
            (
                "a re-INVITE",
                vec![Packet(1), Agreed(true), Packet(50)],
                (2, 0),
            ),
            (
                "a move",
                vec![Packet(1), Moved, Packet(50), Packet(52)],
                (4, 1),
            ),
            (
                "a move while it is held",
                vec![Agreed(false), Packet(1), Moved, Packet(50), Packet(90)],
                (3, 0),
            ),
            ("neither", vec![Packet(1), Packet(50)], (50, 48)),
        ] {
            let mut reception = Reception::default();
            for step in steps {
                match step {
                    Packet(sequence) => reception.hear(&header(1, sequence, 0), false, at(0)),
                    Agreed(receives) => reception.renegotiate(receives),
                    Moved => reception.relocate(),
                }
            }
            assert_eq!((reception.expected(), reception.lost()), expected, "{name}");
        }
    }

    /// A peer computes what it has sent since the last report from the extended sequence number.
    #[test]
    fn a_new_count_of_the_same_source_keeps_its_wraps() {
        let mut reception = Reception::default();
        for sequence in [65_535, 0] {
            reception.hear(&header(9, sequence, 0), false, at(0));
        }
        reception.renegotiate(true);
        reception.hear(&header(9, 80, 0), false, at(0));
        let report = reception.report().expect("a stream");
        assert_eq!((report.highest, report.lost), ((1 << 16) + 80, 0));
    }

    /// Two packets 5 ms too late, by the formula of A.8: 40 units make 40/16, then 40 more, less a sixteenth.
    #[test]
    fn jitter_is_that_of_the_rfc() {
        let mut reception = Reception::default();
        for (sequence, micros) in [(0, 0), (1, 25_000), (2, 40_000)] {
            reception.hear(
                &header(1, sequence, u32::from(sequence) * 160),
                true,
                at(micros),
            );
        }
        // 40/16 = 2.5, then 2.5 + (40 - 2.5)/16 = 4.84 units.
        assert_eq!(reception.jitter(), Duration::from_micros(4 * 125));
    }

    #[test]
    fn jitter_is_unmoved_where_the_transit_wraps() {
        let mut reception = Reception::default();
        let arrival = at(0).as_micros() as u32 / 125;
        // The transit is the greatest positive number, and one more a packet later.
        let first = arrival.wrapping_sub(i32::MAX as u32);
        reception.hear(&header(1, 0, first), true, at(0));
        reception.hear(&header(1, 1, first.wrapping_sub(1)), true, at(0));
        assert_eq!(reception.jitter(), Duration::ZERO);
    }

    #[test]
    fn a_report_tells_of_the_time_since_the_last() {
        let mut reception = Reception::default();
        assert_eq!(reception.report(), None);
        for sequence in [1, 2, 4] {
            reception.hear(&header(9, sequence, 0), false, at(0));
        }

        let report = ReceptionReport {
            ssrc: 9,
            share_lost: 64,
            lost: 1,
            highest: 4,
            jitter: 0,
        };
        assert_eq!(reception.report(), Some(report), "one of four");

        reception.hear(&header(9, 5, 0), false, at(0));
        let after = ReceptionReport {
            share_lost: 0,
            highest: 5,
            ..report
        };
        assert_eq!(reception.report(), Some(after));
    }

    /// A block of a report is about one source (RFC 3550 §6.4.1).
    #[test]
    fn a_report_is_about_the_current_stream() {
        let mut reception = Reception::default();
        for (ssrc, sequence) in [(9, 1), (9, 5), (3, 70), (3, 72)] {
            reception.hear(&header(ssrc, sequence, 0), false, at(0));
        }
        let report = ReceptionReport {
            ssrc: 3,
            share_lost: 85,
            lost: 1,
            highest: 72,
            jitter: 0,
        };

        assert_eq!(reception.report(), Some(report), "one of three");
        assert_eq!(reception.lost(), 4, "of both");
    }
}
