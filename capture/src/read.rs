//! File formats: pcap (micro- and nanoseconds, either byte order), pcapng (several sections and interfaces), and a hex dump of one frame.
//! Streaming: one packet is in memory at a time. Knows nothing of a packet's content.
//!
//! These are our own readers because pcap-file 3.0-rc1 doesn't read the records of the modified pcap format (`0xa1b2cd34`), and holds 8 MB
//! of each file.

use std::io::{self, BufRead, Read};

use super::CaptureFault;

/// Largest packet in octets. A greater length is damage, and never allocated.
const MAX_PACKET: u32 = 1 << 20;
/// Most interfaces of one pcapng section.
const MAX_INTERFACES: usize = 4_096;
/// Link types, as tcpdump.org lists them.
const ETHERNET: u32 = 1;

/// One packet of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Microseconds since 1970.
    pub at: u64,
    /// Link type.
    pub link: u32,
    /// Captured octets.
    pub octets: Vec<u8>,
    /// The packet was longer than the captured octets.
    pub is_cut: bool,
}

/// Kind of a file, by its first octets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Format {
    /// Packets.
    Packets,
    /// A flow.
    Flow,
    /// Hexadecimal digits of one frame.
    Hex,
    /// Perhaps text with messages in it.
    Text,
}

/// Detects the format from the first octets, without consuming them.
///
/// # Errors
/// The file can't be read, is compressed, or has none of these formats.
pub fn format(input: &mut impl BufRead) -> Result<Format, CaptureFault> {
    let head = input.fill_buf()?;
    match head {
        [0x1f, 0x8b, ..] => return Err(CaptureFault::Compressed("gzip")),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(CaptureFault::Compressed("zstd")),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => return Err(CaptureFault::Compressed("xz")),
        [b'P', b'K', 3, 4, ..] => return Err(CaptureFault::Compressed("zip")),
        _ => {}
    }

    if head.starts_with(super::flow::MAGIC.as_bytes()) {
        return Ok(Format::Flow);
    }

    let first = head.first_chunk::<4>().copied().unwrap_or_default();
    if is_packets(first) {
        return Ok(Format::Packets);
    }

    let sample = &head[..head.len().min(512)];
    let is_hex = |octet: &u8| octet.is_ascii_hexdigit() || octet.is_ascii_whitespace();
    // 28 digits are an Ethernet header. Fewer could be a word of a text.
    if sample.len() >= 28 && sample.iter().all(is_hex) {
        return Ok(Format::Hex);
    }

    if sample.is_empty() || sample.contains(&0) {
        return Err(CaptureFault::UnknownFormat);
    }

    Ok(Format::Text)
}

fn is_packets(first: [u8; 4]) -> bool {
    first == SECTION.to_be_bytes()
        || [u32::from_be_bytes(first), u32::from_le_bytes(first)]
            .iter()
            .any(|magic| Resolution::of_magic(*magic).is_some())
}

/// Reads the frame of a hex dump.
///
/// # Errors
/// The digits don't form whole octets, or there are too many.
pub fn hex(mut input: impl BufRead) -> Result<Packet, CaptureFault> {
    let mut text = Vec::new();
    input
        .by_ref()
        .take(u64::from(MAX_PACKET) * 2 + 1)
        .read_to_end(&mut text)?;
    text.retain(|octet| !octet.is_ascii_whitespace());
    let digit = |octet: u8| char::from(octet).to_digit(16);

    let octets: Option<Vec<u8>> = text
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
            _ => None,
        })
        .collect();

    let octets = octets
        .filter(|octets| octets.len() <= MAX_PACKET as usize)
        .ok_or_else(|| CaptureFault::Damaged("its digits are not those of a frame".to_owned()))?;
    Ok(Packet {
        at: 0,
        link: ETHERNET,
        octets,
        is_cut: false,
    })
}

/// Unit of the fraction of a second.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Resolution {
    /// Units per second, a power of ten.
    Decimal(u64),
    /// Bits of fraction.
    Binary(u32),
}

impl Resolution {
    const fn of_magic(magic: u32) -> Option<(Self, bool)> {
        match magic {
            0xa1b2_c3d4 => Some((Self::Decimal(1_000_000), false)),
            0xa1b2_3c4d => Some((Self::Decimal(1_000_000_000), false)),
            // The records of this variant have eight more octets.
            0xa1b2_cd34 => Some((Self::Decimal(1_000_000), true)),
            _ => None,
        }
    }

    const fn of_option(value: u8) -> Self {
        if value & 0x80 == 0 {
            let power = if value > 18 { 18 } else { value };
            Self::Decimal(10_u64.pow(power as u32))
        } else {
            let bits = value & 0x7f;
            Self::Binary(if bits > 63 { 63 } else { bits as u32 })
        }
    }

    fn micros(self, units: u64) -> u64 {
        let micros = match self {
            Self::Decimal(a_second) => u128::from(units) * 1_000_000 / u128::from(a_second),
            Self::Binary(bits) => (u128::from(units) * 1_000_000) >> bits,
        };
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}

#[derive(Copy, Clone, Debug)]
struct Interface {
    link: u32,
    snap: u32,
    resolution: Resolution,
    offset_s: i64,
}

#[derive(Debug)]
enum Kind {
    Pcap {
        link: u32,
        resolution: Resolution,
        is_wide: bool,
    },
    Ng(Vec<Interface>),
}

/// Reader of the packets of a pcap or pcapng file.
#[derive(Debug)]
pub struct Packets<R> {
    input: R,
    is_big: bool,
    kind: Kind,
    /// Packets read so far.
    count: u64,
}

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

impl<R: Read> Packets<R> {
    /// Reads the file's head.
    ///
    /// # Errors
    /// The head is damaged.
    pub fn open(mut input: R) -> Result<Self, CaptureFault> {
        let mut first = [0; 4];
        exactly(&mut input, &mut first, "its head")?;

        if first == SECTION.to_be_bytes() {
            let mut packets = Self {
                input,
                is_big: false,
                kind: Kind::Ng(Vec::new()),
                count: 0,
            };
            packets.section()?;
            return Ok(packets);
        }

        let is_big = Resolution::of_magic(u32::from_be_bytes(first)).is_some();
        let magic = order(is_big, first);
        let (resolution, is_wide) =
            Resolution::of_magic(magic).ok_or(CaptureFault::UnknownFormat)?;
        let mut rest = [0; 20];
        exactly(&mut input, &mut rest, "its head")?;

        // The upper bits are the length of the frame check sequence.
        let link = word(is_big, &rest, 16) & 0xffff;
        Ok(Self {
            input,
            is_big,
            kind: Kind::Pcap {
                link,
                resolution,
                is_wide,
            },
            count: 0,
        })
    }

    /// Reads the next packet; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged at this point, or can't be read.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, CaptureFault> {
        let packet = match self.kind {
            Kind::Pcap {
                link,
                resolution,
                is_wide,
            } => self.record(link, resolution, is_wide),
            Kind::Ng(_) => self.block(),
        }?;
        self.count += u64::from(packet.is_some());
        Ok(packet)
    }

    /// Returns the number of packets so far.
    pub const fn count(&self) -> u64 {
        self.count
    }

    fn damaged(&self, what: impl std::fmt::Display) -> CaptureFault {
        CaptureFault::Damaged(format!("packet {}: {what}", self.count + 1))
    }

    fn record(
        &mut self,
        link: u32,
        resolution: Resolution,
        is_wide: bool,
    ) -> Result<Option<Packet>, CaptureFault> {
        let mut head = [0; 24];
        let head = &mut head[..if is_wide { 24 } else { 16 }];
        match fill(&mut self.input, head)? {
            0 => return Ok(None),
            length if length < head.len() => {
                return Err(self.damaged("the file ends within its head"));
            }
            _ => {}
        }

        let [seconds, fraction, kept, length] = [0, 4, 8, 12].map(|at| word(self.is_big, head, at));
        let octets = self.octets(kept)?;

        Ok(Some(Packet {
            at: u64::from(seconds) * 1_000_000 + resolution.micros(u64::from(fraction)),
            link,
            octets,
            is_cut: length > kept,
        }))
    }

    fn octets(&mut self, length: u32) -> Result<Vec<u8>, CaptureFault> {
        if length > MAX_PACKET {
            return Err(self.damaged(format_args!("a packet can't have {length} octets")));
        }
        let mut octets = vec![0; length as usize];
        if fill(&mut self.input, &mut octets)? < octets.len() {
            return Err(self.damaged("the file ends within it"));
        }
        Ok(octets)
    }

    /// Reads a section header, after its block type.
    fn section(&mut self) -> Result<(), CaptureFault> {
        let mut head = [0; 8];
        exactly(&mut self.input, &mut head, "a section's head")?;
        let order_mark = [head[4], head[5], head[6], head[7]];
        self.is_big = match order_mark {
            mark if u32::from_be_bytes(mark) == BYTE_ORDER => true,
            mark if u32::from_le_bytes(mark) == BYTE_ORDER => false,
            _ => return Err(self.damaged("a section has no byte order")),
        };

        let length = word(self.is_big, &head, 0);
        let rest = length
            .checked_sub(12)
            .filter(|_| length.is_multiple_of(4) && length >= 28)
            .ok_or_else(|| self.damaged("a section's head has no sane length"))?;

        self.kind = Kind::Ng(Vec::new());
        self.skip(u64::from(rest))
    }

    fn skip(&mut self, length: u64) -> Result<(), CaptureFault> {
        let skipped = io::copy(&mut self.input.by_ref().take(length), &mut io::sink())?;
        if skipped < length {
            return Err(self.damaged("the file ends within a block"));
        }
        Ok(())
    }

    fn block(&mut self) -> Result<Option<Packet>, CaptureFault> {
        loop {
            let mut kind = [0; 4];
            match fill(&mut self.input, &mut kind)? {
                0 => return Ok(None),
                4 => {}
                _ => return Err(self.damaged("the file ends within a block's head")),
            }

            // The type of a section reads the same in either byte order. The section states its order only behind the type.
            if kind == SECTION.to_be_bytes() {
                self.section()?;
                continue;
            }

            let mut length = [0; 4];
            exactly(&mut self.input, &mut length, "a block's head")?;
            let (kind, length) = (order(self.is_big, kind), order(self.is_big, length));
            let inner = length
                .checked_sub(12)
                .filter(|_| length.is_multiple_of(4))
                .ok_or_else(|| self.damaged(format_args!("a block of {length} octets")))?;

            if !matches!(kind, 1 | 2 | 3 | 6) {
                // A block repeats its length at its end.
                self.skip(u64::from(inner) + 4)?;
                continue;
            }

            let body = self.octets(inner)?;
            self.skip(4)?;

            if kind == 1 {
                self.interface(&body)?;
            } else if let Some(packet) = self.packet(kind, &body)? {
                return Ok(Some(packet));
            }
        }
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), CaptureFault> {
        let is_big = self.is_big;

        if body.len() < 8 {
            return Err(self.damaged("an interface without a link type"));
        }

        let mut interface = Interface {
            link: u32::from(short(is_big, body, 0)),
            snap: word(is_big, body, 4),
            resolution: Resolution::Decimal(1_000_000),
            offset_s: 0,
        };
        // if_tsresol and if_tsoffset; the other options say nothing about packets.
        for (code, value) in Options(&body[8..], is_big) {
            match (code, value) {
                (9, [resolution, ..]) => interface.resolution = Resolution::of_option(*resolution),
                (14, value) => {
                    if let Some(offset) = value.first_chunk::<8>() {
                        interface.offset_s = if is_big {
                            i64::from_be_bytes(*offset)
                        } else {
                            i64::from_le_bytes(*offset)
                        };
                    }
                }
                _ => {}
            }
        }

        match &mut self.kind {
            Kind::Ng(interfaces) if interfaces.len() < MAX_INTERFACES => {
                interfaces.push(interface);
                Ok(())
            }
            Kind::Ng(_) | Kind::Pcap { .. } => Err(self.damaged("too many interfaces")),
        }
    }

    fn packet(&self, kind: u32, body: &[u8]) -> Result<Option<Packet>, CaptureFault> {
        let is_big = self.is_big;
        let head = if kind == 3 { 4 } else { 20 };
        if body.len() < head {
            return Err(self.damaged("a block too short for a packet"));
        }

        let index = match kind {
            3 => 0,
            2 => u32::from(short(is_big, body, 0)),
            _ => word(is_big, body, 0),
        };

        let Kind::Ng(interfaces) = &self.kind else {
            return Ok(None);
        };

        let interface = interfaces
            .get(index as usize)
            .ok_or_else(|| self.damaged(format_args!("interface {index} isn't described")))?;
        // A Simple Packet Block has no time, and states the length before the interface cut it.
        let (units, kept, length) = if kind == 3 {
            let length = word(is_big, body, 0);
            let snap = if interface.snap == 0 {
                u32::MAX
            } else {
                interface.snap
            };
            (0, length.min(snap), length)
        } else {
            let units = u64::from(word(is_big, body, 4)) << 32 | u64::from(word(is_big, body, 8));
            (units, word(is_big, body, 12), word(is_big, body, 16))
        };

        let octets = body[head..]
            .get(..kept as usize)
            .ok_or_else(|| self.damaged("it is longer than its block"))?;
        let offset = interface.offset_s.saturating_mul(1_000_000);

        Ok(Some(Packet {
            at: interface
                .resolution
                .micros(units)
                .saturating_add_signed(offset),
            link: interface.link,
            octets: octets.to_vec(),
            is_cut: length > kept,
        }))
    }
}

/// Options of a pcapng block: code, length, value padded to four octets.
struct Options<'a>(&'a [u8], bool);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_at_checked(4)?;
        let (code, length) = (short(self.1, head, 0), usize::from(short(self.1, head, 2)));
        let value = rest.get(..length)?;
        self.0 = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        (code != 0).then_some((code, value))
    }
}

const fn order(is_big: bool, octets: [u8; 4]) -> u32 {
    if is_big {
        u32::from_be_bytes(octets)
    } else {
        u32::from_le_bytes(octets)
    }
}

fn word(is_big: bool, octets: &[u8], at: usize) -> u32 {
    order(
        is_big,
        [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]],
    )
}

fn short(is_big: bool, octets: &[u8], at: usize) -> u16 {
    let pair = [octets[at], octets[at + 1]];
    if is_big {
        u16::from_be_bytes(pair)
    } else {
        u16::from_le_bytes(pair)
    }
}

/// Reads until the buffer is full or the file ends; returns the number of octets.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn exactly(input: &mut impl Read, buffer: &mut [u8], what: &str) -> Result<(), CaptureFault> {
    if fill(input, buffer)? < buffer.len() {
        return Err(CaptureFault::Damaged(format!(
            "the file ends within {what}"
        )));
    }
    Ok(())
}
