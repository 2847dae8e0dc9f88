//! An RTP packet: parsing, and rewriting its header in place (RFC 3550 §5.1).

/// Length of the fixed header in octets.
const HEADER: usize = 12;

/// Header fields that the media code needs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) marker: bool,
    pub(super) payload_type: u8,
    pub(super) sequence: u16,
    pub(super) timestamp: u32,
    pub(super) ssrc: u32,
}

impl Header {
    /// Header of a later part of the same frame. A sample of G.711 has one octet, and each timestamp unit one sample.
    const fn of_part(self, number: u16, length: usize) -> Self {
        Self {
            marker: self.marker && number == 0,
            sequence: self.sequence.wrapping_add(number),
            timestamp: self.timestamp.wrapping_add(number as u32 * length as u32),
            ..self
        }
    }
}

/// A packet: its header, and the range of its payload.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Packet {
    pub(super) header: Header,
    start: usize,
    end: usize,
}

impl Packet {
    /// Parses a packet; `None` if it isn't RTP, or has no payload. RTCP, whose first octet has the same form, has a payload type from 64
    /// to 95 when parsed as RTP: the caller rejects it by the negotiated types (RFC 5761 §4).
    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        const VERSION: u8 = 2;
        let head: &[u8; HEADER] = octets.first_chunk()?;
        let [first, second, ..] = *head;
        if first >> 6 != VERSION {
            return None;
        }

        let start = payload_start(octets, first)?;
        let end = octets.len() - padding(octets, first)?;

        let header = Header {
            marker: second & 0x80 != 0,
            payload_type: second & 0x7f,
            sequence: u16::from_be_bytes([head[2], head[3]]),
            timestamp: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            ssrc: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        };

        // This also catches sources or an extension that the packet announces but doesn't have.
        (start < end).then_some(Self { header, start, end })
    }

    /// Returns the payload.
    pub(super) fn payload<'p>(&self, octets: &'p [u8]) -> &'p [u8] {
        &octets[self.start..self.end]
    }

    /// Returns the payload, to be changed in place.
    pub(super) fn payload_mut<'p>(&self, octets: &'p mut [u8]) -> &'p mut [u8] {
        &mut octets[self.start..self.end]
    }

    /// Returns the length of the payload in octets.
    pub(super) const fn payload_len(&self) -> usize {
        self.end - self.start
    }

    /// Writes `header` in front of the payload, dropping contributing sources, extension and padding, and returns the new packet.
    pub(super) fn rewrite<'p>(&self, octets: &'p mut [u8], header: &Header) -> &'p [u8] {
        let packet = &mut octets[self.start - HEADER..self.end];
        put(packet, header);
        packet
    }
}

/// Packets that leave together, all of one length: a frame of audio in as many as its peer wants, or a single one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Packets<'p> {
    octets: &'p [u8],
    each: usize,
}

impl<'p> Packets<'p> {
    /// A single packet.
    pub(super) const fn one(packet: &'p [u8]) -> Self {
        Self {
            octets: packet,
            each: packet.len(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'p [u8]> {
        self.octets.chunks_exact(self.each.max(1))
    }

    pub(super) fn count(&self) -> usize {
        self.iter().count()
    }
}

/// Writes new packets of equal length for a payload of G.711, the first of them with this header; `None` if `octets` has no room for them.
pub(super) fn write_parts<'p>(
    octets: &'p mut [u8],
    header: &Header,
    payload: &[u8],
    parts: u8,
) -> Option<Packets<'p>> {
    let length = payload.len() / usize::from(parts.max(1));
    let each = HEADER + length;
    let room = octets.get_mut(..each * usize::from(parts))?;

    let parts = payload.chunks_exact(length.max(1));
    for (number, (packet, part)) in (0..).zip(room.chunks_exact_mut(each).zip(parts)) {
        put(packet, &header.of_part(number, part.len()));
        packet[HEADER..].copy_from_slice(part);
    }
    Some(Packets { octets: room, each })
}

/// Writes a new packet; `None` if `octets` has no room for it.
pub(super) fn write<'p>(octets: &'p mut [u8], header: &Header, payload: &[u8]) -> Option<&'p [u8]> {
    let packet = octets.get_mut(..HEADER + payload.len())?;
    put(packet, header);
    packet[HEADER..].copy_from_slice(payload);
    Some(packet)
}

fn put(packet: &mut [u8], header: &Header) {
    packet[0] = 0x80;
    packet[1] = u8::from(header.marker) << 7 | header.payload_type;
    packet[2..4].copy_from_slice(&header.sequence.to_be_bytes());
    packet[4..8].copy_from_slice(&header.timestamp.to_be_bytes());
    packet[8..12].copy_from_slice(&header.ssrc.to_be_bytes());
}

/// Returns the start of the payload, after contributing sources and the header extension (RFC 3550 §5.3.1).
fn payload_start(octets: &[u8], first: u8) -> Option<usize> {
    let sources = HEADER + usize::from(first & 0x0f) * 4;
    if first & 0x10 == 0 {
        return Some(sources);
    }
    let extension: &[u8; 4] = octets.get(sources..)?.first_chunk()?;
    Some(sources + 4 + usize::from(u16::from_be_bytes([extension[2], extension[3]])) * 4)
}

/// Returns the number of padding octets; `None` if the packet announces more than it has, or an invalid number.
fn padding(octets: &[u8], first: u8) -> Option<usize> {
    if first & 0x20 == 0 {
        return Some(0);
    }
    let padding = usize::from(*octets.last()?);
    (padding > 0 && padding <= octets.len()).then_some(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 14] = [
        0x80, 0x88, 0x12, 0x34, 0, 0, 1, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0x11, 0x22,
    ];

    /// The plain packet with another first octet, `between` after the fixed header, and `behind` after the payload.
    fn packet(first: u8, between: &[u8], behind: &[u8]) -> Vec<u8> {
        [&[first], &PLAIN[1..12], between, &PLAIN[12..], behind].concat()
    }

    #[test]
    fn the_header_is_replaced_and_the_payload_kept() {
        let header = Header {
            marker: true,
            payload_type: 8,
            sequence: 0x1234,
            timestamp: 256,
            ssrc: 0xaabb_ccdd,
        };

        let cases: [(&str, Vec<u8>); 6] = [
            ("plain", PLAIN.to_vec()),
            ("two contributing sources", packet(0x82, &[9; 8], &[])),
            (
                "an extension of one word",
                packet(0x90, &[0xbe, 0xde, 0, 1, 9, 9, 9, 9], &[]),
            ),
            ("an empty extension", packet(0x90, &[0xbe, 0xde, 0, 0], &[])),
            ("padding", packet(0xa0, &[], &[0, 0, 3])),
            (
                "all of them",
                packet(0xb1, &[9, 9, 9, 9, 0xbe, 0xde, 0, 0], &[1]),
            ),
        ];
        for (name, mut octets) in cases {
            let read = Packet::read(&octets).expect(name);
            assert_eq!(read.header, header, "{name}");
            let ours = Header {
                marker: false,
                payload_type: 0,
                sequence: 1,
                timestamp: 2,
                ssrc: 3,
            };
            let expected = [0x80, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0x11, 0x22];
            assert_eq!(read.rewrite(&mut octets, &ours), expected, "{name}");
        }
    }

    #[test]
    fn what_is_no_rtp_is_refused() {
        let cases: [(&str, Vec<u8>); 10] = [
            ("nothing", vec![]),
            ("eleven octets", PLAIN[..11].to_vec()),
            ("no payload", PLAIN[..12].to_vec()),
            ("version 1", packet(0x40, &[], &[])),
            ("STUN", packet(0x00, &[], &[])),
            ("more sources than octets", packet(0x8f, &[], &[])),
            ("an extension cut short", packet(0x90, &[], &[])),
            (
                "an extension longer than the packet",
                packet(0x90, &[0xbe, 0xde, 0xff, 0xff], &[]),
            ),
            ("padding of 0", packet(0xa0, &[], &[0])),
            ("padding into the header", packet(0xa0, &[], &[5])),
        ];
        for (name, octets) in cases {
            assert_eq!(Packet::read(&octets), None, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_octets_make_it_panic(mut octets: Vec<u8>) {
            if let Some(packet) = Packet::read(&octets) {
                let length = packet.rewrite(&mut octets, &packet.header).len();
                assert!(length > HEADER);
            }
        }
    }
}
