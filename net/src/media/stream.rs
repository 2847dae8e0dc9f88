//! The RTP stream that a call sends: one SSRC, with continuous sequence numbers and timestamps (RFC 3550 §5.1).

use trunkline_sip::moment::Moment;

use super::rtp::Header;

/// Timestamp units per millisecond: PCMU, PCMA and the telephone-events beside them run at 8 kHz (RFC 3551 §6).
const UNITS_PER_MILLISECOND: u64 = 8;

/// The stream that is sent: packets of our own, or the peer's with their sequence numbers and timestamps shifted to continue ours.
#[derive(Debug)]
pub(super) struct Stream {
    ssrc: u32,
    /// Sequence number of the last packet sent.
    sequence: u16,
    timestamp: u32,
    /// Timestamp at which the last key began.
    event_at: u32,
    /// Nothing was sent in the last slot, so the next audio begins a talk spurt (RFC 3551 §4.1).
    has_paused: bool,
    /// Time of the last echoed packet that wasn't late. Packets of our own don't change it.
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
    pub(super) fn new(seed: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = seed.to_be_bytes();
        Self {
            ssrc: u32::from_be_bytes([a, b, c, d]),
            sequence: u16::from_be_bytes([e, f]) >> 1,
            timestamp: u32::from_be_bytes([e, f, g, h]),
            event_at: 0,
            has_paused: true,
            sent_at: Moment::default(),
            incoming: None,
        }
    }

    pub(super) const fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// Returns the timestamp of the last slot, in which a packet was sent or nothing was.
    pub(super) const fn timestamp(&self) -> u32 {
        self.timestamp
    }

    /// Returns the header of an echoed packet. Losses and reordering of the peer's stream show in ours too. A new stream of the peer continues
    /// at the end of ours, with the marker set.
    pub(super) fn next(&mut self, header: &Header, now: Moment) -> Header {
        let known = self
            .incoming
            .filter(|incoming| incoming.ssrc == header.ssrc);
        let incoming = known.unwrap_or_else(|| self.join(header, now));
        let sequence = header.sequence.wrapping_add(incoming.sequence_offset);
        let timestamp = header.timestamp.wrapping_add(incoming.timestamp_offset);

        // A late packet is echoed with its own numbers, but a new stream must not continue from them.
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

    /// Returns the header of the first of so many packets of our own, which fill the 20 ms after the previous ones. It has the marker where asked for, and
    /// where nothing was sent before.
    pub(super) const fn own(&mut self, payload_type: u8, marker: bool, parts: u8) -> Header {
        let has_paused = self.take_pause();
        let header = Header {
            marker: marker || has_paused,
            payload_type,
            sequence: self.sequence.wrapping_add(1),
            timestamp: self.advance(),
            ssrc: self.ssrc,
        };
        self.sequence = self.sequence.wrapping_add(parts as u16);
        header
    }

    /// Notes that nothing is sent, by the peer's wish.
    pub(super) const fn pause(&mut self) {
        self.has_paused = true;
    }

    /// Returns whether nothing was sent before the audio that is sent now; true once.
    pub(super) const fn take_pause(&mut self) -> bool {
        std::mem::replace(&mut self.has_paused, false)
    }

    /// Returns the header of a telephone-event's packet: all of one event have the timestamp of its beginning (RFC 4733 §2.5.1.2).
    pub(super) const fn event(&mut self, payload_type: u8, is_first: bool) -> Header {
        // The clock goes on beneath the event, so that audio after the key has the timestamp of its own time.
        let header = self.own(payload_type, is_first, 1);
        if is_first {
            self.event_at = header.timestamp;
        }
        Header {
            // That of a later packet would begin another event (RFC 4733 §2.5.1.1).
            marker: is_first,
            timestamp: self.event_at,
            ..header
        }
    }

    /// Skips 20 ms in which nothing is sent.
    pub(super) const fn pass(&mut self) {
        self.pause();
        self.advance();
    }

    const fn advance(&mut self) -> u32 {
        self.timestamp = self
            .timestamp
            .wrapping_add(20 * UNITS_PER_MILLISECOND as u32);
        self.timestamp
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

/// Returns whether a sequence number is at most half of the number range after the last (RFC 3550 §A.1).
const fn is_after(sequence: u16, last: u16) -> bool {
    matches!(sequence.wrapping_sub(last), 1..0x8000)
}
