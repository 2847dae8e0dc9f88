//! Messages out of a stream (RFC 3261 §18.3): cut by Content-Length, keep-alives between them, bounded. The buffer grows
//! with the octets received, never with an announced length, and is freed when nothing waits. The framer knows only where a message
//! ends.

use super::HeaderName;
use super::lex::{MAX_MESSAGE, content_length};
use crate::header::text;

/// Next piece of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Frame<'s> {
    /// A whole message.
    Message(&'s [u8]),
    /// A double line end; answer it with a single one (RFC 5626 §3.5.1).
    Ping,
}

/// Reason why a stream can't be read any further.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameFault {
    /// A message of more than 64 KiB.
    #[error("a message on the stream is too large")]
    TooLarge,
    /// The stream isn't SIP: another protocol, or unexpected TLS.
    #[error("the stream doesn't carry SIP")]
    NotSip,
    /// Without Content-Length the end of the message can't be found.
    #[error("a message on the stream has no usable Content-Length")]
    NoLength,
}

/// The largest buffer that an idle stream keeps.
const KEPT: usize = 4_096;

/// Cuts a stream into messages. Octets go in by [`Framer::push`], frames come out of [`Framer::next_frame`].
#[derive(Debug, Default)]
pub struct Framer {
    octets: Vec<u8>,
    /// Octets of frames already returned.
    used: usize,
    /// Octets after `used` already searched for the end of the header.
    searched: usize,
    /// The length of the message that begins at `used`, once its header is complete.
    length: Option<usize>,
}

impl Framer {
    /// An empty framer.
    pub const fn new() -> Self {
        Self {
            octets: Vec::new(),
            used: 0,
            searched: 0,
            length: None,
        }
    }

    /// Takes octets from the stream. Frames already returned are dropped.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.drain(..self.used);
        self.used = 0;
        self.octets.extend_from_slice(octets);
    }

    /// Returns true if a message has begun and not ended, so that its sender has to send the rest.
    pub fn is_within_message(&self) -> bool {
        self.octets[self.used..]
            .iter()
            .any(|octet| !matches!(octet, b'\r' | b'\n'))
    }

    /// Number of octets that wait for the rest of their message.
    pub const fn len(&self) -> usize {
        self.octets.len() - self.used
    }

    /// Returns true if nothing waits.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next frame, if it is complete.
    ///
    /// # Errors
    /// The stream can't be read any further; close it.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameFault> {
        loop {
            match &self.octets[self.used..] {
                [b'\r', b'\n', b'\r', b'\n', ..] => {
                    self.used += 4;
                    return Ok(Some(Frame::Ping));
                }
                [] => {
                    self.give_back();
                    return Ok(None);
                }
                // An incomplete keep-alive, or an empty line before a message.
                [b'\r'] | [b'\r', b'\n'] | [b'\r', b'\n', b'\r'] => return Ok(None),
                // RFC 3261 §7.5: an empty line before a start line is ignored.
                [b'\r', b'\n', ..] => self.used += 2,
                // For instance a TLS handshake. Waiting for more of it would hold the connection open for nothing.
                [first, ..] if !text::is_token_octet(*first) => return Err(FrameFault::NotSip),
                _ => return self.message(),
            }
        }
    }

    /// Header, as far as it has come, of a message whose end can't be found. The refusal of that message is made from it.
    pub fn unfinished(&self) -> &[u8] {
        let rest = &self.octets[self.used..];
        let blank_line = memchr::memmem::find(rest, b"\r\n\r\n");
        &rest[..blank_line.map_or(rest.len(), |at| at + 4)]
    }

    fn give_back(&mut self) {
        // Many connections may be idle at once: each may keep a small buffer, not that of its largest message.
        if self.octets.capacity() > KEPT {
            self.octets = Vec::new();
            self.used = 0;
        }
    }

    fn message(&mut self) -> Result<Option<Frame<'_>>, FrameFault> {
        if self.length.is_none() {
            self.length = self.find_length()?;
        }
        let Some(length) = self.length.filter(|length| *length <= self.len()) else {
            return Ok(None);
        };

        let start = self.used;
        self.used += length;
        self.searched = 0;
        self.length = None;
        Ok(Some(Frame::Message(&self.octets[start..start + length])))
    }

    /// The length of the message, header and body, if its header is complete.
    fn find_length(&mut self) -> Result<Option<usize>, FrameFault> {
        let rest = &self.octets[self.used..];
        // The blank line may straddle two reads. Only new octets are searched, so a peer that sends one at a time costs
        // no more.
        let from = self.searched.saturating_sub(3);
        let Some(blank_line) = memchr::memmem::find(&rest[from..], b"\r\n\r\n") else {
            self.searched = rest.len();
            return if rest.len() > MAX_MESSAGE {
                Err(FrameFault::TooLarge)
            } else {
                Ok(None)
            };
        };

        let header = from + blank_line + 4;
        // Without a length the start of the next message is unknown too: the whole stream ends, not just this message.
        let body = body_length(&rest[..header]).ok_or(FrameFault::NoLength)?;
        // Judged before the body has come, so that its sender can't fill a buffer first.
        if body > MAX_MESSAGE || header + body > MAX_MESSAGE {
            return Err(FrameFault::TooLarge);
        }

        Ok(Some(header + body))
    }
}

/// Content-Length of a header; several of them must agree.
fn body_length(header: &[u8]) -> Option<usize> {
    let mut found = None;
    let mut lines = header.split(|octet| *octet == b'\n').peekable();
    while let Some(line) = lines.next() {
        // Faults of other lines are the lexer's to judge. Here only the end of the message matters.
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        if HeaderName::from_bytes(line[..colon].trim_ascii_end()) != HeaderName::ContentLength {
            continue;
        }

        let mut value = text::trim(&line[colon + 1..]);
        // Folds are read as the lexer reads them: both must find the same end of the message.
        while let Some(fold) = lines.next_if(|line| matches!(line, [b' ' | b'\t', ..])) {
            match (value, text::trim(fold)) {
                ([], digits) => value = digits,
                (_, []) => {}
                _ => return None,
            }
        }

        let length = content_length(value)?;
        // The lexer refuses these too. Taking either one would let a peer hide a message in a body.
        if found.is_some_and(|held| held != length) {
            return None;
        }
        found = Some(length);
    }

    found
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
