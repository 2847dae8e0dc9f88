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

    /// Returns the header of our own packet, 20 ms after the previous one.
    pub(super) const fn own(&mut self, payload_type: u8, marker: bool) -> Header {
        self.sequence = self.sequence.wrapping_add(1);
        self.pass();

        Header {
            marker,
            payload_type,
            sequence: self.sequence,
            timestamp: self.timestamp,
            ssrc: self.ssrc,
        }
    }

    /// Returns the header of a telephone-event's packet: all of one event have the timestamp of its beginning (RFC 4733 §2.5.1.2).
    pub(super) const fn event(&mut self, payload_type: u8, is_first: bool) -> Header {
        // The clock goes on beneath the event, so that audio after the key has the timestamp of its own time.
        let header = self.own(payload_type, is_first);
        if is_first {
            self.event_at = header.timestamp;
        }
        Header {
            timestamp: self.event_at,
            ..header
        }
    }

    /// Advances the timestamp by 20 ms.
    pub(super) const fn pass(&mut self) {
        self.timestamp = self
            .timestamp
            .wrapping_add(20 * UNITS_PER_MILLISECOND as u32);
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
