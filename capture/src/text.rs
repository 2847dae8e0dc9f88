//! Text captures: files that sngrep saves as text, and exports of Homer (HEP). A line with time, source and destination precedes each
//! message:
//!
//! `2024/05/06 11:22:33.123456 10.0.0.1:5060 -> 10.0.0.2:5060` (sngrep), and
//! `proto:UDP 2024-05-06T11:22:33.123Z  10.0.0.1:5060 ---> 10.0.0.2:5060` (Homer).

use std::io::{BufRead, Read};
use std::net::SocketAddr;

use super::message::{Message, is_sip};
use super::{CaptureFault, Captured, Transport};

/// Longest line, and longest message, in octets. A longer line is read in pieces, and what follows such a message is dropped.
const MAX_LINE: u64 = 64 * 1024;
const MAX_MESSAGE: usize = 256 * 1024;

/// Reader of the messages of a text file, one at a time.
#[derive(Debug)]
pub struct Messages<R> {
    input: R,
    /// Message being read: its line has come, its end hasn't.
    opened: Option<Captured>,
    /// Lines read so far.
    pub lines: u64,
    /// Texts behind a line with time, source and destination that are no SIP message.
    pub strange: u64,
}

impl<R: BufRead> Messages<R> {
    /// Creates a reader of a file.
    pub const fn new(input: R) -> Self {
        Self {
            input,
            opened: None,
            lines: 0,
            strange: 0,
        }
    }

    /// Reads the next message; `None` at the end.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn next_message(&mut self) -> Result<Option<Captured>, CaptureFault> {
        loop {
            let mut line = Vec::new();
            let read = Read::take(&mut self.input, MAX_LINE).read_until(b'\n', &mut line)?;
            self.lines += 1;
            let opening = opening(&line);

            if read > 0 && opening.is_none() {
                if let Some(open) = self.opened.as_mut()
                    && open.octets.len() < MAX_MESSAGE
                {
                    open.octets.extend_from_slice(&line);
                }
                continue;
            }

            let closed = std::mem::replace(&mut self.opened, opening);
            match closed.map(trimmed) {
                Some(Some(message)) => return Ok(Some(message)),
                Some(None) => self.strange += 1,
                None => {}
            }

            if read == 0 {
                return Ok(None);
            }
        }
    }
}

/// Removes the empty lines that the tool put around the message, and restores carriage returns that the text has lost. `None` if it isn't SIP.
fn trimmed(mut captured: Captured) -> Option<Captured> {
    if !captured.octets.windows(2).any(|pair| pair == b"\r\n") {
        let with_ends = captured.octets.split(|octet| *octet == b'\n');
        captured.octets = with_ends.collect::<Vec<_>>().join(&b"\r\n"[..]);
    }

    if !is_sip(&captured.octets) {
        return None;
    }

    let message = Message::parse(&captured.octets);
    let mut octets = message.to_octets();
    match message.content_length() {
        // Content-Length decides, if that many octets exist.
        Some(length) if length <= message.body.len() => {
            octets.truncate(octets.len() - message.body.len() + length);
        }
        Some(_) | None => {
            let end = octets.trim_ascii_end().len();
            let ends_body = !message.body.trim_ascii().is_empty();
            octets.truncate(end);
            octets.extend_from_slice(if ends_body { b"\r\n" } else { b"\r\n\r\n" });
        }
    }

    captured.octets = octets;
    Some(captured)
}

fn opening(line: &[u8]) -> Option<Captured> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let words: Vec<&str> = line.split_whitespace().collect();
    let (transport, at, source, arrow, target) = match words.as_slice() {
        [proto, time, source, arrow, target] if proto.starts_with("proto:") => (
            Transport::parse(&proto["proto:".len()..]).unwrap_or(Transport::Udp),
            time.parse::<jiff::Timestamp>().ok()?,
            source,
            arrow,
            target,
        ),
        [date, time, source, arrow, target] => {
            // The text names no time zone. Only the differences of times matter, and taken as UTC they are right.
            let time = format!("{}T{time}Z", date.replace('/', "-"));
            (Transport::Udp, time.parse().ok()?, source, arrow, target)
        }
        _ => return None,
    };
    if !matches!(*arrow, "->" | "--->") {
        return None;
    }

    Some(Captured {
        at: u64::try_from(at.as_microsecond()).unwrap_or(0),
        source: address(source)?,
        target: address(target)?,
        transport,
        octets: Vec::new(),
    })
}

/// Parses `10.0.0.1:5060`, `[::1]:5060`, or an IPv6 address without the brackets.
fn address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let (ip, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Captured> {
        let mut messages = Messages::new(text.as_bytes());
        std::iter::from_fn(|| messages.next_message().unwrap()).collect()
    }

    #[test]
    fn sngrep_and_homer_are_read() {
        let text = "2024/05/06 11:22:33.123456 10.0.0.1:5060 -> 10.0.0.2:5061\nOPTIONS sip:a SIP/2.0\r\nl: 2\r\n\r\nhi\n\n\
            proto:TCP 2024-05-06T11:22:34.000Z  [::1]:5060 ---> [::2]:5060\n\nSIP/2.0 200 OK\nX: 1\n\n\n\
            2024/05/06 11:22:35.000000 10.0.0.1:5060 -> 10.0.0.2:5061\nrubbish\n";
        let found = read(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].octets, b"OPTIONS sip:a SIP/2.0\r\nl: 2\r\n\r\nhi");
        assert_eq!(found[0].target.port(), 5061);
        assert_eq!(found[1].at - found[0].at, 876_544);
        assert_eq!(found[1].octets, b"SIP/2.0 200 OK\r\nX: 1\r\n\r\n");
        assert_eq!(found[1].transport, Transport::Tcp);
    }
}
