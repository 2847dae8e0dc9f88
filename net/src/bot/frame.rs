//! Frames of RFC 6455 §5, the client's side: ours are masked, the bot's are not.
//!
//! We don't use tungstenite's codec. Its `WebSocketContext` keeps each message in a buffer of its own, so that a frame of audio costs an
//! allocation and two copies. It also checks that a text is UTF-8, which the JSON parser checks again. Here a frame is built in a reused
//! buffer, and an unfragmented message is read from the buffer that received it.

/// Longest message of a bot in octets.
pub(crate) const MAX_MESSAGE: usize = 1 << 20;

/// Longest payload of a control frame (RFC 6455 §5.5).
pub(crate) const MAX_CONTROL: usize = 125;

/// Longest header of an unmasked frame.
const MAX_HEADER: usize = 10;

/// Size of a receive buffer that is kept when it is empty.
const KEPT: usize = 4 * 1_024;

/// Frame type.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const fn read(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The bot broke RFC 6455, or sent a message that is too long.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct FrameFault;

/// Appends a whole message in one masked frame.
pub(crate) fn write(to: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    const LAST: u8 = 0x80;
    const MASKED: u8 = 0x80;

    to.push(LAST | opcode.bits());
    match payload.len() {
        short @ 0..=125 => to.push(MASKED | short as u8),
        middle @ 126..=0xffff => {
            to.push(MASKED | 126);
            to.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            to.push(MASKED | 127);
            to.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    to.extend_from_slice(&mask);

    let start = to.len();
    to.extend_from_slice(payload);
    for four in to[start..].chunks_mut(4) {
        for (octet, mask) in four.iter_mut().zip(mask) {
            *octet ^= mask;
        }
    }
}

/// Header of a received frame.
struct Header {
    is_last: bool,
    opcode: Opcode,
    /// Length of the header itself, in octets.
    length: usize,
    /// Length of the payload, in octets.
    payload: usize,
}

/// Reads a header; `None` if more octets are needed.
fn read_header(octets: &[u8]) -> Result<Option<Header>, FrameFault> {
    let &[first, second, ref rest @ ..] = octets else {
        return Ok(None);
    };
    let (reserved, masked) = (first & 0x70, second & 0x80);
    let opcode = Opcode::read(first & 0x0f).ok_or(FrameFault)?;
    // RFC 6455 §5.2: reserved bits "MUST be 0 unless an extension is negotiated", and we offer none.
    // §5.1: "A client MUST close a connection if it detects a masked frame."
    if reserved != 0 || masked != 0 {
        return Err(FrameFault);
    }

    // A length in more octets than it needs is read as well, although RFC 6455 §5.2 forbids it: it misleads no reader.
    let (length, payload) = match second {
        126 => match rest.first_chunk() {
            Some(octets) => (4, usize::from(u16::from_be_bytes(*octets))),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(octets) => (
                MAX_HEADER,
                usize::try_from(u64::from_be_bytes(*octets)).map_err(|_| FrameFault)?,
            ),
            None => return Ok(None),
        },
        short => (2, usize::from(short)),
    };

    let is_last = first & 0x80 != 0;
    let is_bad_control = opcode.is_control() && (!is_last || payload > MAX_CONTROL);
    // Judged by the header, so that we never wait for the rest of a message that is too long.
    if payload > MAX_MESSAGE || is_bad_control {
        return Err(FrameFault);
    }

    Ok(Some(Header {
        is_last,
        opcode,
        length,
        payload,
    }))
}

/// Message of a bot, or one of its control frames.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum BotFrame<'r> {
    Text(&'r [u8]),
    Binary,
    Ping(&'r [u8]),
    Pong,
    Close,
}

impl<'r> BotFrame<'r> {
    /// Returns a whole message; its content matters only if it is text.
    fn whole(opcode: Opcode, payload: &'r [u8]) -> Self {
        if opcode == Opcode::Text {
            Self::Text(payload)
        } else {
            Self::Binary
        }
    }
}

/// Received octets, until they are whole messages.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    octets: Vec<u8>,
    /// Octets at the front that have been returned as messages.
    read: usize,
    /// Fragments of the message that `fragmented` names, or else of the one that was returned last.
    fragments: Vec<u8>,
    /// Type of the message whose fragments are still coming.
    fragmented: Option<Opcode>,
    /// Frames read since they were last counted.
    frames: u32,
}

impl Reader {
    pub(crate) const fn new(octets: Vec<u8>) -> Self {
        Self {
            octets,
            read: 0,
            fragments: Vec::new(),
            fragmented: None,
            frames: 0,
        }
    }

    /// Returns the number of octets of messages that aren't whole.
    pub(crate) fn held(&self) -> usize {
        let fragments = match self.fragmented {
            Some(_) => self.fragments.len(),
            None => 0,
        };
        self.octets.len() - self.read + fragments
    }

    /// Returns the number of frames since the last call, fragments and control frames included.
    pub(crate) const fn take_frames(&mut self) -> u32 {
        std::mem::replace(&mut self.frames, 0)
    }

    /// Returns the buffer to append received octets to, after dropping those already returned as messages.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        // The fragments of the last message are cleared here, since the result of `next` borrows them.
        if self.fragmented.is_none() {
            self.fragments.clear();
            self.fragments.shrink_to(KEPT);
        }
        if self.read == self.octets.len() {
            self.octets.clear();
            self.octets.shrink_to(KEPT);
        } else if self.read > 0 {
            self.octets.drain(..self.read);
        }
        self.read = 0;
        &mut self.octets
    }

    /// Returns the next message; `None` if more octets are needed.
    pub(crate) fn next(&mut self) -> Result<Option<BotFrame<'_>>, FrameFault> {
        loop {
            let Some(header) = read_header(&self.octets[self.read..])? else {
                return Ok(None);
            };
            let start = self.read + header.length;
            let end = start + header.payload;
            if self.octets.len() < end {
                return Ok(None);
            }
            self.read = end;
            self.frames += 1;

            let whole = match header.opcode {
                Opcode::Close => return Ok(Some(BotFrame::Close)),
                Opcode::Ping => return Ok(Some(BotFrame::Ping(&self.octets[start..end]))),
                Opcode::Pong => return Ok(Some(BotFrame::Pong)),
                opcode @ (Opcode::Text | Opcode::Binary) => {
                    // RFC 6455 §5.4: control frames may come between the fragments of a message, other messages not.
                    if self.fragmented.is_some() {
                        return Err(FrameFault);
                    }
                    if header.is_last {
                        return Ok(Some(BotFrame::whole(opcode, &self.octets[start..end])));
                    }
                    self.fragments.clear();
                    self.fragmented = Some(opcode);
                    opcode
                }
                Opcode::Continuation => self.fragmented.ok_or(FrameFault)?,
            };

            if self.fragments.len() + header.payload > MAX_MESSAGE {
                return Err(FrameFault);
            }
            self.fragments.extend_from_slice(&self.octets[start..end]);

            // A fragmented message is rare, so its buffer isn't kept beyond the next message.
            if header.is_last {
                self.fragmented = None;
                return Ok(Some(BotFrame::whole(whole, &self.fragments)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unmasked frame, as a server sends it.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut octets = vec![first];
        match payload.len() {
            short @ 0..=125 => octets.push(short as u8),
            middle @ 126..=0xffff => {
                octets.push(126);
                octets.extend((middle as u16).to_be_bytes());
            }
            long => {
                octets.push(127);
                octets.extend((long as u64).to_be_bytes());
            }
        }

        octets.extend(payload);
        octets
    }

    fn all(octets: Vec<u8>) -> Vec<String> {
        let mut reader = Reader::new(octets);
        let mut seen = Vec::new();
        loop {
            match reader.next() {
                Ok(Some(BotFrame::Text(text))) => {
                    seen.push(format!("text {}", String::from_utf8_lossy(text)))
                }
                Ok(Some(BotFrame::Ping(data))) => seen.push(format!("ping {}", data.len())),
                Ok(Some(other)) => seen.push(format!("{other:?}").to_lowercase()),
                Ok(None) => return seen,
                Err(FrameFault) => {
                    seen.push("fault".to_owned());
                    return seen;
                }
            }
        }
    }

    #[test]
    fn messages_are_read() {
        let join = |frames: &[Vec<u8>]| frames.concat();
        let cases: [(&str, Vec<u8>, &[&str]); 15] = [
            ("text", frame(0x81, b"a"), &["text a"]),
            ("nothing yet", vec![0x81], &[]),
            ("cut short", frame(0x81, b"abc")[..4].to_vec(), &[]),
            (
                "two",
                join(&[frame(0x81, b"a"), frame(0x81, b"b")]),
                &["text a", "text b"],
            ),
            ("binary", frame(0x82, b"a"), &["binary"]),
            (
                "fragments with a ping between",
                join(&[
                    frame(0x01, b"a"),
                    frame(0x89, b"!"),
                    frame(0x00, b"b"),
                    frame(0x80, b"c"),
                ]),
                &["ping 1", "text abc"],
            ),
            (
                "pong and close",
                join(&[frame(0x8a, b""), frame(0x88, b"\x03\xe8")]),
                &["pong", "close"],
            ),
            // Frames that RFC 6455 §5 forbids, and a bound of ours.
            ("a continuation of nothing", frame(0x80, b"a"), &["fault"]),
            (
                "text inside of text",
                join(&[frame(0x01, b"a"), frame(0x81, b"b")]),
                &["fault"],
            ),
            ("masked", vec![0x81, 0x81, 0, 0, 0, 0, 1], &["fault"]),
            ("reserved bit", frame(0xc1, b"a"), &["fault"]),
            ("unknown opcode", frame(0x83, b"a"), &["fault"]),
            ("a long ping", frame(0x89, &[0; 126]), &["fault"]),
            ("a fragmented ping", frame(0x09, b"a"), &["fault"]),
            (
                "longer than 1 MiB by its header",
                [&[0x81, 127][..], &(MAX_MESSAGE as u64 + 1).to_be_bytes()].concat(),
                &["fault"],
            ),
        ];

        for (name, octets, expected) in cases {
            assert_eq!(all(octets), expected, "{name}");
        }
        assert_eq!(all(frame(0x81, &vec![b'x'; MAX_MESSAGE])).len(), 1);
    }

    #[test]
    fn endless_fragments_are_a_fault() {
        let mut reader = Reader::default();
        let part = vec![b'x'; 60_000];
        for count in 0_usize.. {
            let first = if count == 0 { 0x01 } else { 0x00 };
            reader.buffer().extend(frame(first, &part));
            match reader.next() {
                Ok(None) => assert!(count * part.len() <= MAX_MESSAGE),
                Ok(Some(other)) => panic!("{other:?}"),
                Err(FrameFault) => return,
            }
        }
    }

    #[test]
    fn what_is_written_is_masked_and_whole() {
        for length in [0, 1, 125, 126, 0xffff, 0x1_0000] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut octets = Vec::new();
            write(&mut octets, Opcode::Text, &payload, [1, 2, 3, 4]);
            assert_eq!(octets[0], 0x81);
            let mask_at = match octets[1] & 0x7f {
                126 => 4,
                127 => 10,
                _ => 2,
            };
            assert_eq!(octets[mask_at..mask_at + 4], [1, 2, 3, 4]);
            let unmasked = octets[mask_at + 4..]
                .iter()
                .enumerate()
                .map(|(at, octet)| octet ^ (at % 4 + 1) as u8);
            assert_eq!(unmasked.collect::<Vec<_>>(), payload, "{length}");
        }
    }

    #[test]
    fn a_read_buffer_gives_its_memory_back() {
        let mut reader = Reader::default();
        reader
            .buffer()
            .extend(frame(0x81, &vec![b'x'; MAX_MESSAGE]));
        assert!(matches!(reader.next(), Ok(Some(BotFrame::Text(_)))));
        assert!(reader.buffer().capacity() <= KEPT);
    }

    proptest::proptest! {
        #[test]
        fn no_octets_make_it_panic(octets: Vec<u8>) {
            all(octets);
        }
    }
}
