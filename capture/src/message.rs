//! A tolerant parser of SIP for captures: messages that the daemon would refuse can still be shown, stored octet for octet and sent again.
//! Header lines can be rewritten one by one; others stay as they were.

use std::borrow::Cow;

use trunkline_sip::header::text::{find_outside, is_token, trim};
use trunkline_sip::wire::HeaderName;

/// A message as lines and a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The first line, with its end.
    start: Vec<u8>,
    lines: Vec<Line>,
    /// The empty line that ends the header, if there is one.
    end: Vec<u8>,
    /// The body, octet for octet.
    pub body: Vec<u8>,
}

/// A header line with its folds and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    raw: Vec<u8>,
    /// Position of the colon.
    colon: Option<usize>,
}

impl Line {
    fn new(raw: Vec<u8>) -> Self {
        let colon = raw.iter().position(|octet| *octet == b':');
        Self { raw, colon }
    }

    /// Returns the name in canonical spelling, or as sent if unknown; empty without a colon.
    pub fn name(&self) -> Cow<'_, str> {
        let raw = self.colon.map_or(&b""[..], |at| trim(&self.raw[..at]));
        let name = HeaderName::from_bytes(raw);
        if name == HeaderName::Other {
            String::from_utf8_lossy(raw)
        } else {
            Cow::Borrowed(name.as_str())
        }
    }

    fn is(&self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }

    /// Returns the value, unfolded.
    pub fn value(&self) -> String {
        let Some(at) = self.colon else {
            return String::new();
        };
        let pieces = self.raw[at + 1..].split(|octet| *octet == b'\n').map(trim);
        let pieces: Vec<_> = pieces.filter(|piece| !piece.is_empty()).collect();
        String::from_utf8_lossy(&pieces.join(&b' ')).into_owned()
    }

    /// Replaces the value, keeping the name as sent.
    pub fn set(&mut self, value: &str) {
        let name = self.colon.map_or(&b""[..], |at| &self.raw[..at]);
        let mut raw = name.to_vec();
        raw.extend_from_slice(b": ");
        raw.extend(
            value
                .bytes()
                .filter(|octet| !matches!(octet, b'\r' | b'\n')),
        );
        raw.extend_from_slice(b"\r\n");
        *self = Self::new(raw);
    }
}

/// Returns whether octets begin like a message, after any empty lines.
pub fn is_sip(octets: &[u8]) -> bool {
    let octets = without_empty_lines(octets);
    let line = octets
        .split(|octet| *octet == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() == octets.len() {
        return false; // no line end at all
    }

    if line.len() >= 12 && line[..8].eq_ignore_ascii_case(b"SIP/2.0 ") {
        return line[8..11].iter().all(u8::is_ascii_digit);
    }

    let Some(method) = line.split(|octet| *octet == b' ').next() else {
        return false;
    };

    line.len() > method.len() + 8
        && line[line.len() - 8..].eq_ignore_ascii_case(b" SIP/2.0")
        && is_token(method)
}

/// Skips empty lines before a message (RFC 3261 §7.5) and keep-alives (RFC 5626 §3.5.1).
pub fn without_empty_lines(mut octets: &[u8]) -> &[u8] {
    while let [b'\r' | b'\n', rest @ ..] = octets {
        octets = rest;
    }
    octets
}

/// Returns the end of the header, including its empty line.
pub(crate) fn header_end(octets: &[u8]) -> Option<usize> {
    memchr::memmem::find(octets, b"\r\n\r\n").map(|at| at + 4)
}

/// Returns the length of the message at the start of a stream; `None` while its header is incomplete. Without Content-Length it has no
/// body.
pub fn length_on_stream(octets: &[u8]) -> Option<usize> {
    let header = header_end(octets)?;
    let body = Message::parse(&octets[..header])
        .content_length()
        .unwrap_or(0);
    Some(header.saturating_add(body))
}

impl Message {
    /// Splits octets into lines. Accepts any input.
    pub fn parse(octets: &[u8]) -> Self {
        let octets = without_empty_lines(octets);
        let mut rest = octets;
        let start = cut_line(&mut rest).to_vec();
        let mut lines: Vec<Line> = Vec::new();
        let mut end = Vec::new();

        while !rest.is_empty() {
            let line = cut_line(&mut rest);
            if matches!(line, b"\r\n" | b"\n") {
                end = line.to_vec();
                break;
            }

            match lines.last_mut() {
                Some(last) if matches!(line, [b' ' | b'\t', ..]) => {
                    last.raw.extend_from_slice(line);
                }
                _ => lines.push(Line::new(line.to_vec())),
            }
        }

        Self {
            start,
            lines,
            end,
            body: rest.to_vec(),
        }
    }

    /// Returns the octets to send.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut octets = self.start.clone();
        for line in &self.lines {
            octets.extend_from_slice(&line.raw);
        }
        octets.extend_from_slice(&self.end);
        octets.extend_from_slice(&self.body);
        octets
    }

    /// Returns the first line without its end.
    pub fn start_line(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(trim(&self.start))
    }

    /// Replaces the first line.
    pub fn set_start_line(&mut self, line: &str) {
        self.start = line
            .bytes()
            .filter(|octet| !matches!(octet, b'\r' | b'\n'))
            .collect();
        self.start.extend_from_slice(b"\r\n");
    }

    /// Returns the status of a response.
    pub fn status(&self) -> Option<u16> {
        let line = self.start_line();
        let (version, rest) = line.split_once(' ')?;
        if !version.eq_ignore_ascii_case("SIP/2.0") {
            return None;
        }
        rest.get(..3)?.parse().ok()
    }

    /// Returns the method of a request, or of a response's CSeq.
    pub fn method(&self) -> String {
        if self.status().is_some() {
            return self.cseq().map(|(_, method)| method).unwrap_or_default();
        }
        let line = self.start_line();
        line.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Returns the Request-URI; empty for a response.
    pub fn request_uri(&self) -> String {
        if self.status().is_some() {
            return String::new();
        }
        let line = self.start_line();
        let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
        rest.rsplit_once(' ').map_or("", |(uri, _)| uri).to_owned()
    }

    /// Returns number and method of CSeq.
    pub fn cseq(&self) -> Option<(u32, String)> {
        let value = self.first("CSeq")?;
        let (number, method) = value.split_once([' ', '\t'])?;
        Some((number.parse().ok()?, method.trim().to_owned()))
    }

    /// Returns the value of the first line of this name, compact forms included.
    pub fn first(&self, name: &str) -> Option<String> {
        self.lines
            .iter()
            .find(|line| line.is(name))
            .map(Line::value)
    }

    /// Returns the values of all lines of this name.
    pub fn all(&self, name: &str) -> Vec<String> {
        let lines = self.lines.iter().filter(|line| line.is(name));
        lines.map(Line::value).collect()
    }

    /// Returns all header lines in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns all header lines mutably.
    pub fn lines_mut(&mut self) -> &mut [Line] {
        &mut self.lines
    }

    /// Removes every line of this name.
    pub fn remove(&mut self, name: &str) {
        self.lines.retain(|line| !line.is(name));
    }

    /// Sets the first line of this name, or adds one at the end.
    pub fn set(&mut self, name: &str, value: &str) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.is(name)) {
            line.set(value);
            return;
        }
        let mut line = Line::new(format!("{name}:").into_bytes());
        line.set(value);
        self.lines.push(line);
        // The header was cut before its empty line. A message that is sent needs one.
        if self.end.is_empty() {
            self.end = b"\r\n".to_vec();
        }
    }

    /// Replaces all lines of this name by these, at the place of the first one or else in front.
    pub fn replace_all(&mut self, name: &str, values: &[String]) {
        let at = self
            .lines
            .iter()
            .position(|line| line.is(name))
            .unwrap_or(0);
        self.remove(name);
        let lines = values.iter().map(|value| {
            let mut line = Line::new(format!("{name}:").into_bytes());
            line.set(value);
            line
        });
        self.lines.splice(at..at, lines);
    }

    /// Returns Content-Length, if it is a number.
    pub fn content_length(&self) -> Option<usize> {
        self.first("Content-Length")?.parse().ok()
    }

    /// Returns whether Content-Length matches the body.
    pub fn is_length_right(&self) -> bool {
        self.content_length() == Some(self.body.len())
    }

    /// Returns the `tag` of From or To.
    pub fn tag(&self, name: &str) -> Option<String> {
        parameter(&self.first(name)?, "tag")
    }

    /// Returns the user part of a header's URI, such as From or To.
    pub fn user(&self, name: &str) -> Option<String> {
        let value = self.first(name)?;
        user_of(&value)
    }
}

fn cut_line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
    let (line, behind) = rest.split_at(end);
    *rest = behind;
    line
}

/// Returns the value of a parameter behind the URI, outside of quotes and angle brackets.
pub fn parameter(value: &str, name: &str) -> Option<String> {
    let mut rest = value;
    while let Some(at) = find_outside(rest.as_bytes(), b';') {
        rest = &rest[at + 1..];
        let end = find_outside(rest.as_bytes(), b';').unwrap_or(rest.len());
        let (key, value) = rest[..end].split_once('=').unwrap_or((&rest[..end], ""));
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value.trim().to_owned());
        }
    }
    None
}

/// Returns the user part of the first URI in a value; for `tel:` the number.
pub fn user_of(value: &str) -> Option<String> {
    let lower = value.to_ascii_lowercase();
    let scheme = ["sip:", "sips:", "tel:"]
        .iter()
        .filter_map(|scheme| lower.find(scheme).map(|at| (at, *scheme)))
        .min()?;
    let rest = &value[scheme.0 + scheme.1.len()..];
    let end = rest.find(['>', ';', '?', ' ', ',']).unwrap_or(rest.len());
    match rest[..end].split_once('@') {
        Some((user, _)) => Some(user.split(':').next().unwrap_or(user).to_owned()),
        None if scheme.1 == "tel:" => Some(rest[..end].to_owned()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &[u8] = b"INVITE sip:bob@h SIP/2.0\r\nv: SIP/2.0/UDP a;branch=z9hG4bK1\r\nf: \"A;B\" <sip:+44123@x>;tag=9\r\n\
        Subject: one\r\n two\r\nbroken line\r\nl: 3\r\n\r\nabc";

    #[test]
    fn a_message_is_kept_octet_for_octet() {
        for octets in [
            INVITE,
            b"",
            b"x",
            b"SIP/2.0 200 OK\r\n",
            b"BYE sip:a SIP/2.0\nTo: x\n\nbody\xff\0",
        ] {
            assert_eq!(Message::parse(octets).to_octets(), octets);
        }
    }

    #[test]
    fn its_parts_are_found_in_any_form() {
        let message = Message::parse(INVITE);
        assert_eq!(message.method(), "INVITE");
        assert_eq!(message.request_uri(), "sip:bob@h");
        assert_eq!(message.first("Subject").as_deref(), Some("one two"));
        assert_eq!(message.tag("From").as_deref(), Some("9"));
        assert_eq!(message.user("From").as_deref(), Some("+44123"));
        assert!(message.is_length_right());
        assert_eq!(length_on_stream(INVITE), Some(INVITE.len()));
    }

    #[test]
    fn what_begins_like_a_message_is_one() {
        for (octets, expected) in [
            (&b"SIP/2.0 200 OK\r\n"[..], true),
            (b"\r\n\r\nOPTIONS sip:a SIP/2.0\r\n", true),
            (b"GET / HTTP/1.1\r\n", false),
            (b"INVITE sip:a SIP/2.0", false),
            (b"\x80\x00", false),
            (b"", false),
        ] {
            assert_eq!(is_sip(octets), expected, "{}", octets.escape_ascii());
        }
    }

    #[test]
    fn a_line_is_rewritten_and_cannot_be_broken_out_of() {
        let mut message = Message::parse(INVITE);
        message.set("From", "<sip:x@y>\r\nEvil: 1");
        assert_eq!(message.first("From").as_deref(), Some("<sip:x@y>Evil: 1"));
        assert!(message.first("Evil").is_none());
    }
}
