//! The lexer: one bounded pass over a message, no allocation for up to 24 header lines.
//!
//! It applies RFC 3261 §7.3 and §18.3: a blank line is required, Content-Length is checked, and headers that may occur only once
//! occur once. A malformed message is returned with the parts that an answer needs, or with nothing. The lexer knows no header's
//! meaning beyond those that identify every message.
//!
//! A line that is no header is skipped (§8.2.2): it is counted, and nothing reads or passes it on. Only a line that begins with the name of a
//! header that every reader needs is a fault.
//!
//! A final response past a bound is cut rather than refused: if we dropped it, it would be repeated until its request times out.

use super::fault::{Malformed, MessageFault};
use super::message::{self, Line, Lines, Message, SkippedLines, Span, StartLine};
use super::name::HeaderNames;
use super::{CSeq, HeaderName, Method};
use crate::header::name_addr::NameAddr;
use crate::header::text;
use crate::header::via::Via;

/// The longest message.
pub const MAX_MESSAGE: usize = 65_535;
/// The most header lines.
pub const MAX_LINES: usize = 200;
/// The longest line, folds included.
pub const MAX_LINE: usize = 8_192;
/// The most Vias.
pub const MAX_VIAS: usize = 70;

/// Framing of the octets, given by the transport.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Framing {
    /// A datagram: Content-Length may be absent, and octets after the body are ignored.
    Datagram,
    /// A stream: Content-Length says where the message ends.
    Stream,
}

/// Reads one message.
///
/// # Errors
/// A fault, and the parts from which its answer is made.
pub fn lex(octets: &[u8], framing: Framing) -> Result<Message<'_>, Malformed<'_>> {
    let octets = without_leading_lines(octets);
    if octets.is_empty() {
        return Err(Malformed::dropped(MessageFault::Empty));
    }
    if octets.len() > MAX_MESSAGE {
        return Err(Malformed::dropped(MessageFault::TooLarge));
    }

    let mut lexer = Lexer {
        octets,
        at: 0,
        fault: None,
        oversize: None,
        skipped: SkippedLines::default(),
        lines: Lines::new(),
        present: HeaderNames::default(),
        repeated: HeaderNames::default(),
    };
    let start = lexer.start_line().map_err(Malformed::dropped)?;
    lexer.header_lines();
    lexer.finish(start, framing)
}

/// Skips empty lines before the start line (RFC 3261 §7.5).
fn without_leading_lines(mut octets: &[u8]) -> &[u8] {
    while let Some(rest) = octets.strip_prefix(b"\r\n") {
        octets = rest;
    }
    octets
}

/// Content-Length: digits alone. A number past 32 bits is as unreadable as a word.
pub(super) fn content_length(value: &[u8]) -> Option<usize> {
    usize::try_from(text::number(value)?).ok()
}

struct Lexer<'m> {
    octets: &'m [u8],
    at: usize,
    /// The first fault, and the number of its line. The lexer goes on after it, so that an answer can be made.
    fault: Option<(MessageFault, Option<u16>)>,
    /// The first bound that the header exceeds; `lines` ends there.
    oversize: Option<(MessageFault, Option<u16>)>,
    /// Lines that are no headers.
    skipped: SkippedLines,
    lines: Lines,
    present: HeaderNames,
    repeated: HeaderNames,
}

impl<'m> Lexer<'m> {
    /// Notes a fault that is on no line.
    fn note(&mut self, fault: MessageFault) {
        self.fault.get_or_insert((fault, None));
    }

    /// Notes a fault of the line that has this octet.
    fn note_at(&mut self, fault: MessageFault, octet: usize) {
        if self.fault.is_none() {
            self.fault = Some((fault, self.line_number(octet)));
        }
    }

    /// Notes a fault of a header, in its last line of that name.
    fn note_header(&mut self, fault: MessageFault, name: HeaderName) {
        let line = self.lines.iter().rev().find(|line| line.name == name);
        match line.map(|line| line.raw_name.start()) {
            Some(octet) => self.note_at(fault, octet),
            None => self.note(fault),
        }
    }

    fn note_oversize(&mut self, fault: MessageFault, octet: usize) {
        if self.oversize.is_none() {
            self.oversize = Some((fault, self.line_number(octet)));
        }
    }

    /// Number of the line that has this octet, the start line being 1. Counted only for a fault, so that a sound message isn't read twice.
    fn line_number(&self, octet: usize) -> Option<u16> {
        let before = memchr::memchr_iter(b'\n', &self.octets[..octet]).count();
        u16::try_from(before + 1).ok()
    }

    /// Takes the line that begins here, and returns its range without the line end; `None` if it has no end. A lone carriage return or line
    /// feed is a fault. A lone line feed still ends the line, so that the parts of the answer that refuses the message can be read.
    fn line(&mut self) -> Option<(usize, usize)> {
        let start = self.at;
        let mut at = start;
        loop {
            at += text::first_control(&self.octets[at..])?;
            match (self.octets[at], self.octets.get(at + 1)) {
                (b'\r', Some(b'\n')) => {
                    self.at = at + 2;
                    return Some((start, at));
                }
                (b'\n', _) => {
                    self.note_at(MessageFault::Control, at);
                    self.at = at + 1;
                    return Some((start, at));
                }

                // A lone carriage return isn't a line end. If it ended a line for one reader and not for another, it could hide
                // a header from either.
                (b'\r', _) => self.note_at(MessageFault::Control, at),
                // A NUL is allowed only escaped in a quoted string (RFC 3261 §25.1, quoted-pair).
                (0, _) if at == 0 || self.octets[at - 1] != b'\\' => {
                    self.note_at(MessageFault::Control, at)
                }
                _ => {}
            }

            at += 1;
        }
    }

    fn start_line(&mut self) -> Result<StartLine, MessageFault> {
        let (start, end) = self.line().ok_or(MessageFault::NoBlankLine)?;
        let line = &self.octets[start..end];
        let is_response = line
            .get(..4)
            .is_some_and(|name| name.eq_ignore_ascii_case(b"SIP/"));
        if is_response {
            self.status_line(start, end)
        } else {
            self.request_line(start, end)
        }
    }

    /// Reads a request line (RFC 3261 §7.1). A line with a method and two spaces is enough of a request to be refused with an answer.
    fn request_line(&mut self, start: usize, end: usize) -> Result<StartLine, MessageFault> {
        let line = &self.octets[start..end];
        let method = token_length(line);
        if method == 0 || line.get(method) != Some(&b' ') {
            return Err(MessageFault::StartLine);
        }

        let uri = method + 1;
        // The URI ends at the last blank. A URI with a blank in it is then a fault of a request that can be answered.
        let version = uri + memchr::memrchr(b' ', &line[uri..]).ok_or(MessageFault::StartLine)?;
        // RFC 3261 §21.4.12: too long a Request-URI has an answer of its own, 414. Header lines have 513.
        if version - uri > MAX_LINE {
            self.note_at(MessageFault::UriTooLong, start);
        }
        if uri == version || text::holds(&line[uri..version], is_no_uri_octet) {
            self.note_at(MessageFault::StartLine, start);
        }

        self.version(&line[version + 1..]);
        Ok(StartLine::Request {
            method: Method::from_token(&line[..method]),
            token: Span::new(start, start + method),
            uri: Span::new(start + uri, start + version),
        })
    }

    /// Checks the version. Another version of SIP is refused with 505, any other text with 400.
    fn version(&mut self, version: &[u8]) {
        if version.eq_ignore_ascii_case(b"SIP/2.0") {
            return;
        }
        let is_sip = version
            .get(..4)
            .is_some_and(|name| name.eq_ignore_ascii_case(b"SIP/"));
        let fault = if is_sip {
            MessageFault::Version
        } else {
            MessageFault::StartLine
        };
        self.note_at(fault, 0);
    }

    /// Reads a status line (RFC 3261 §7.2). The reason phrase may hold anything. It may be absent, and so may the space before it.
    fn status_line(&mut self, start: usize, end: usize) -> Result<StartLine, MessageFault> {
        let line = &self.octets[start..end];
        let (version, rest) = line.split_at_checked(8).ok_or(MessageFault::StartLine)?;
        let (code, reason) = rest.split_at_checked(3).ok_or(MessageFault::StartLine)?;
        if !version.eq_ignore_ascii_case(b"SIP/2.0 ") || !matches!(reason, [] | [b' ', ..]) {
            return Err(MessageFault::StartLine);
        }
        let status = text::number(code)
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| (100..700).contains(code))
            .ok_or(MessageFault::StartLine)?;
        Ok(StartLine::Response {
            status,
            reason: Span::new((start + 12).min(end), end),
        })
    }

    /// Indexes the header lines up to the blank line.
    fn header_lines(&mut self) {
        // One round more than lines, for the blank line.
        for _ in 0..=MAX_LINES {
            let Some((start, mut end)) = self.line() else {
                return self.note(MessageFault::NoBlankLine);
            };
            if start == end {
                return;
            }
            while matches!(self.octets.get(self.at), Some(b' ' | b'\t')) {
                let Some((_, folded_end)) = self.line() else {
                    return self.note(MessageFault::NoBlankLine);
                };
                end = folded_end;
            }
            // A line that is too long is left out of the index, so that nothing reads it. The lines behind it are still
            // needed, for the answer or as the rest of a cut response.
            if end - start > MAX_LINE {
                self.note_oversize(MessageFault::LineTooLong, start);
            } else {
                self.header_line(start, end);
            }
        }

        self.note_oversize(MessageFault::TooManyLines, self.at);
    }

    /// Indexes one header line (RFC 3261 §7.3.1): a name, blanks, a colon, the value between blanks and folds.
    fn header_line(&mut self, start: usize, end: usize) {
        let line = &self.octets[start..end];
        let (raw_name, mut rest) = line.split_at(token_length(line));
        while let [b' ' | b'\t', behind @ ..] = rest {
            rest = behind;
        }

        let (false, [b':', behind @ ..]) = (raw_name.is_empty(), rest) else {
            return self.skip_line(start, raw_name);
        };

        let behind_colon = end - behind.len();
        let blanks = blanks_before(behind);
        let value = text::trim(&behind[blanks..]);
        let value_start = behind_colon + blanks;
        let name = HeaderName::from_bytes(raw_name);
        if self.present.insert(name) {
            self.repeated.insert(name);
        }

        self.lines.push(Line {
            name,
            raw_name: Span::new(start, start + raw_name.len()),
            value: Span::new(value_start, value_start + value.len()),
        });
    }

    /// Skips a line without a name or a colon. RFC 3261 §8.2.2: a UAS "SHOULD ignore any malformed header fields that are not necessary for
    /// processing requests".
    fn skip_line(&mut self, start: usize, first_word: &[u8]) {
        // Another reader may take such a line for the header, so it isn't ignored. One letter names no header here: words have one too.
        if first_word.len() > 1 && is_needed(HeaderName::from_bytes(first_word)) {
            return self.note_at(MessageFault::HeaderLine, start);
        }
        if self.skipped.count == 0 {
            self.skipped.first = self.line_number(start).unwrap_or(u16::MAX);
        }
        self.skipped.count += 1;
    }

    fn finish(mut self, start: StartLine, framing: Framing) -> Result<Message<'m>, Malformed<'m>> {
        let body = self.body(framing);
        let Some(top_via) = self.top_via() else {
            // Without a Via no answer can find its way.
            let fault = self.fault.map(|(fault, _)| fault);
            let fault = fault.unwrap_or(MessageFault::Missing(HeaderName::Via));
            return Err(Malformed::dropped(fault));
        };

        let call_id = self.call_id();
        let (cseq, cseq_token) = self.cseq(&start);
        let from = self.single(HeaderName::From);
        let to = self.single(HeaderName::To);
        let (from_uri, from_tag) = self.address(HeaderName::From, from);
        let (to_uri, to_tag) = self.address(HeaderName::To, to);
        // No response has one, so that nobody needs it there.
        if matches!(start, StartLine::Request { .. }) {
            self.check_max_forwards();
        }

        // In a final response past a bound, only the lines that were read are judged. In any other message the bound is the fault.
        let is_cut = self.oversize.is_some();
        let fault = match start {
            StartLine::Response { status: 200.., .. } if is_cut => self.fault,
            // The bound comes first: faults such as a missing header may only be due to the lines that were left out.
            StartLine::Request { .. } | StartLine::Response { .. } => self.oversize.or(self.fault),
        };

        let message = Message {
            octets: &self.octets[..body.end()],
            start,
            lines: self.lines,
            present: self.present,
            body,
            top_via,
            call_id,
            cseq,
            cseq_token,
            from,
            to,
            from_uri,
            to_uri,
            from_tag,
            to_tag,
            is_cut,
            skipped: self.skipped,
            keys: None,
        };

        match fault {
            None => Ok(message),
            Some((fault, line)) => Err(Malformed::refused(fault, line, message)),
        }
    }

    /// The body, bounded by Content-Length (RFC 3261 §18.3).
    fn body(&mut self, framing: Framing) -> Span {
        if matches!(self.oversize, Some((MessageFault::TooManyLines, _))) {
            // The header is incomplete, so the body can't be found.
            return Span::new(self.at, self.at);
        }
        let rest = Span::new(self.at, self.octets.len());
        match (self.declared_length(), framing) {
            // RFC 3261 §18.3: octets behind the body of a datagram "MUST be discarded". A stream has been cut here by
            // the framer.
            (Ok(Some(length)), _) if length <= self.octets.len() - self.at => {
                return Span::new(self.at, self.at + length);
            }
            // RFC 3261 §18.3: "If the message is a response, it MUST be discarded", and a request gets 400:
            // `Malformed::refused`.
            (Ok(Some(_)), _) => {
                self.note_header(MessageFault::BodyShort, HeaderName::ContentLength)
            }
            (Ok(None), Framing::Stream) => {
                self.note(MessageFault::Missing(HeaderName::ContentLength))
            }
            (Ok(None), Framing::Datagram) => {}
            (Err(fault), _) => self.note_header(fault, HeaderName::ContentLength),
        }

        rest
    }

    fn declared_length(&self) -> Result<Option<usize>, MessageFault> {
        let mut held = None;
        for value in self.values(HeaderName::ContentLength) {
            let length = content_length(value)
                .ok_or(const { MessageFault::Unreadable(HeaderName::ContentLength) })?;
            // Two lengths that differ would let two readers cut a stream at different places, and so see different
            // messages. Equal ones do no harm.
            if held.is_some_and(|held| held != length) {
                return Err(MessageFault::Duplicate(HeaderName::ContentLength));
            }
            held = Some(length);
        }
        Ok(held)
    }

    fn values(&self, name: HeaderName) -> impl Iterator<Item = &'m [u8]> + '_ {
        message::values(self.octets, &self.lines, self.present, name)
    }

    /// The value of a header that must occur exactly once; empty if it is missing.
    fn single(&mut self, name: HeaderName) -> &'m [u8] {
        if !self.present.contains(name) {
            self.note(MessageFault::Missing(name));
        } else if self.repeated.contains(name) {
            self.note_header(MessageFault::Duplicate(name), name);
        }
        // The first one goes into the answer, also where the fault is that there are two.
        self.values(name).next().unwrap_or_default()
    }

    /// The first Via. The others have to be readable as well: an answer needs them to find its way back.
    fn top_via(&mut self) -> Option<Via<'m>> {
        let mut vias = self
            .values(HeaderName::Via)
            .flat_map(message::elements)
            .map(|via| Via::parse(via).ok());
        let top = vias.next();
        let mut below = 0;
        // Bounded here, since each Via is parsed and one line of 8 KiB holds hundreds.
        let readable = vias
            .take(MAX_VIAS)
            .inspect(|_| below += 1)
            .all(|via| via.is_some());
        match top {
            None => self.note(MessageFault::Missing(HeaderName::Via)),
            Some(Some(_)) if readable && below == MAX_VIAS => {
                self.oversize
                    .get_or_insert((MessageFault::TooManyVias, None));
            }
            Some(Some(_)) if readable => {}
            Some(_) => self.note_header(MessageFault::Unreadable(HeaderName::Via), HeaderName::Via),
        }

        top.flatten()
    }

    fn call_id(&mut self) -> &'m [u8] {
        let call_id = self.single(HeaderName::CallId);
        if call_id.is_empty() || text::holds(call_id, text::is_blank) {
            self.note_header(
                MessageFault::Unreadable(HeaderName::CallId),
                HeaderName::CallId,
            );
        }
        call_id
    }

    /// Reads CSeq. An unreadable one becomes number 0 without a method; an answer repeats it as it came.
    fn cseq(&mut self, start: &StartLine) -> (CSeq, &'m [u8]) {
        let value = self.single(HeaderName::CSeq);
        let Ok((cseq, token)) = CSeq::parse(value) else {
            self.note_header(MessageFault::Unreadable(HeaderName::CSeq), HeaderName::CSeq);
            let none = CSeq {
                number: 0,
                method: Method::Other,
            };
            return (none, b"");
        };

        // A response has no method but that of its CSeq, so nothing can differ.
        if let StartLine::Request { token: method, .. } = start
            && method.of(self.octets) != token
        {
            self.note_header(MessageFault::CSeqMethod, HeaderName::CSeq);
        }
        (cseq, token)
    }

    /// URI and tag of From or To.
    fn address(&mut self, name: HeaderName, value: &'m [u8]) -> (&'m [u8], Option<&'m [u8]>) {
        let Ok(address) = NameAddr::parse(value) else {
            self.note_header(MessageFault::Unreadable(name), name);
            return (b"", None);
        };
        let tag = address.tag();
        if tag.is_some_and(|tag| text::holds(tag, is_no_tag_octet)) {
            self.note_header(MessageFault::Unreadable(name), name);
        }
        (address.uri, tag)
    }

    /// Checks Max-Forwards: 0 to 255 (RFC 3261 §20.22). It may be absent, since RFC 2543 didn't require it.
    fn check_max_forwards(&mut self) {
        const NAME: HeaderName = HeaderName::MaxForwards;
        let Some(hops) = self.values(NAME).next() else {
            return;
        };
        if self.repeated.contains(NAME) {
            self.note_header(MessageFault::Duplicate(NAME), NAME);
        } else if text::number(hops).is_none_or(|hops| hops > 255) {
            self.note_header(MessageFault::Unreadable(NAME), NAME);
        }
    }
}

/// Returns true for a header without which a message isn't served: one that identifies it, bounds it, routes it, or proves its sender.
const fn is_needed(name: HeaderName) -> bool {
    use HeaderName as H;
    matches!(
        name,
        H::Via
            | H::From
            | H::To
            | H::CallId
            | H::CSeq
            | H::ContentLength
            | H::MaxForwards
            | H::Route
            | H::RecordRoute
            | H::Contact
            | H::Authorization
            | H::ProxyAuthorization
            // What a peer demands is never left out.
            | H::Require
            | H::ProxyRequire
            | H::Privacy
    )
}

fn token_length(line: &[u8]) -> usize {
    line.iter()
        .position(|octet| !IS_TOKEN[usize::from(*octet)])
        .unwrap_or(line.len())
}

/// The octets of a token (RFC 3261 §25.1): the lexer looks up each octet of a header name here.
static IS_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut octet = 0;
    while octet < 128 {
        table[octet as usize] = text::is_token_octet(octet);
        octet += 1;
    }
    table
};

fn blanks_before(value: &[u8]) -> usize {
    value
        .iter()
        .take_while(|octet| text::is_blank(**octet))
        .count()
}

/// Returns true for an octet that no Request-URI may hold, which breaks the request line. The URI parser judges the rest.
const fn is_no_uri_octet(octet: u8) -> bool {
    matches!(octet, 0..=b' ' | b'<' | b'>' | b'"' | 0x7f)
}

/// Returns true for an octet that would let two readers find different ends of a tag. Tags are tokens, but harmless others are in use.
const fn is_no_tag_octet(octet: u8) -> bool {
    matches!(octet, 0..b' ' | b'<' | b'>' | b'"' | 0x7f)
}

#[cfg(test)]
#[path = "lex_tests.rs"]
mod tests;
