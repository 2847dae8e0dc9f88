//! A message as the lexer returns it: spans over the octets as received.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::name::HeaderNames;
use super::{CSeq, HeaderName, Method};
use crate::header::text;
use crate::header::via::Via;

/// A range of octets in a message, which is at most 64 KiB long.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a message is at most 65,535 octets"
    )]
    pub(super) const fn new(start: usize, end: usize) -> Self {
        Self {
            start: start as u16,
            end: end as u16,
        }
    }

    pub(super) fn start(self) -> usize {
        usize::from(self.start)
    }

    pub(super) fn end(self) -> usize {
        usize::from(self.end)
    }

    pub(super) fn of(self, octets: &[u8]) -> &[u8] {
        &octets[usize::from(self.start)..usize::from(self.end)]
    }
}

/// The first line.
#[derive(Copy, Clone, Debug)]
pub(super) enum StartLine {
    Request {
        method: Method,
        token: Span,
        uri: Span,
    },
    Response {
        status: u16,
        reason: Span,
    },
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Line {
    pub(super) name: HeaderName,
    pub(super) raw_name: Span,
    pub(super) value: Span,
}

/// Lines between the headers that are none, and were skipped.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SkippedLines {
    /// Their number.
    pub count: u16,
    /// Number of the first, the start line being 1.
    pub first: u16,
}

/// The header lines of a message; up to 24 need no allocation.
pub(super) type Lines = SmallVec<[Line; 24]>;

/// A lexed message. It borrows the octets that it was lexed from.
#[derive(Clone, Debug)]
pub struct Message<'m> {
    pub(super) octets: &'m [u8],
    pub(super) start: StartLine,
    pub(super) lines: Lines,
    pub(super) present: HeaderNames,
    pub(super) body: Span,
    pub(super) top_via: Via<'m>,
    pub(super) call_id: &'m [u8],
    pub(super) cseq: CSeq,
    pub(super) cseq_token: &'m [u8],
    pub(super) from: &'m [u8],
    pub(super) to: &'m [u8],
    pub(super) from_uri: &'m [u8],
    pub(super) to_uri: &'m [u8],
    pub(super) from_tag: Option<&'m [u8]>,
    pub(super) to_tag: Option<&'m [u8]>,
    pub(super) is_cut: bool,
    pub(super) skipped: SkippedLines,
    pub(super) keys: Option<RequestKeys>,
}

/// Keyed hashes of a request, by which tables and shards find it. The endpoint computes them once, when it receives the request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct RequestKeys {
    /// Key of its server transaction.
    pub(crate) transaction: u128,
    /// Key under which merged requests meet; 0 for a request inside a dialog.
    pub(crate) merged: u64,
    /// Slot of its Call-ID.
    pub(crate) slot: u16,
}

/// One header line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header<'m> {
    /// Name of the header.
    pub name: HeaderName,
    /// Its name as sent.
    pub raw_name: &'m [u8],
    /// Its value as sent, without surrounding space; folds are still in it.
    pub value: &'m [u8],
}

impl<'m> Header<'m> {
    /// The value on one line (RFC 3261 §7.3.1).
    pub fn unfolded(&self) -> Cow<'m, [u8]> {
        unfold(self.value)
    }
}

/// A header value on one line: each fold becomes one space.
pub(crate) fn unfold(value: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\n', value).is_none() {
        return Cow::Borrowed(value);
    }
    let lines = value.split(|octet| *octet == b'\n').map(text::trim);
    Cow::Owned(lines.collect::<Vec<_>>().join(&b' '))
}

impl<'m> Message<'m> {
    /// Returns true for a request.
    pub const fn is_request(&self) -> bool {
        matches!(self.start, StartLine::Request { .. })
    }

    /// Returns whether header lines past a bound (in number or length) were left out. Only final responses are cut; any other such
    /// message is refused.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Lines that are no headers and were skipped; `None` if there are none.
    pub fn skipped_lines(&self) -> Option<SkippedLines> {
        (self.skipped.count > 0).then_some(self.skipped)
    }

    /// The method; for a response, the method of its CSeq.
    pub const fn method(&self) -> Method {
        match self.start {
            StartLine::Request { method, .. } => method,
            StartLine::Response { .. } => self.cseq.method,
        }
    }

    /// The method as sent.
    pub fn method_token(&self) -> &'m [u8] {
        match self.start {
            StartLine::Request { token, .. } => token.of(self.octets),
            StartLine::Response { .. } => self.cseq_token,
        }
    }

    /// The Request-URI as sent; empty for a response.
    pub fn request_uri(&self) -> &'m [u8] {
        match self.start {
            StartLine::Request { uri, .. } => uri.of(self.octets),
            StartLine::Response { .. } => b"",
        }
    }

    /// The status code; 0 for a request.
    pub const fn status(&self) -> u16 {
        match self.start {
            StartLine::Request { .. } => 0,
            StartLine::Response { status, .. } => status,
        }
    }

    /// The reason phrase as sent; empty for a request.
    pub fn reason(&self) -> &'m [u8] {
        match self.start {
            StartLine::Request { .. } => b"",
            StartLine::Response { reason, .. } => reason.of(self.octets),
        }
    }

    /// Call-ID.
    pub const fn call_id(&self) -> &'m [u8] {
        self.call_id
    }

    /// CSeq.
    pub const fn cseq(&self) -> CSeq {
        self.cseq
    }

    /// The method token of CSeq.
    pub const fn cseq_method_token(&self) -> &'m [u8] {
        self.cseq_token
    }

    /// The value of From.
    pub const fn from(&self) -> &'m [u8] {
        self.from
    }

    /// The value of To.
    pub const fn to(&self) -> &'m [u8] {
        self.to
    }

    /// The URI in From, as sent.
    pub const fn from_uri(&self) -> &'m [u8] {
        self.from_uri
    }

    /// The URI in To, as sent.
    pub const fn to_uri(&self) -> &'m [u8] {
        self.to_uri
    }

    /// The tag of From.
    pub const fn from_tag(&self) -> Option<&'m [u8]> {
        self.from_tag
    }

    /// The tag of To.
    pub const fn to_tag(&self) -> Option<&'m [u8]> {
        self.to_tag
    }

    /// The first Via.
    pub const fn top_via(&self) -> &Via<'m> {
        &self.top_via
    }

    /// All header lines in their order.
    pub fn headers(&self) -> impl Iterator<Item = Header<'m>> + '_ {
        let octets = self.octets;
        self.lines.iter().map(move |line| Header {
            name: line.name,
            raw_name: line.raw_name.of(octets),
            value: line.value.of(octets),
        })
    }

    /// Returns true if the message has a line of that name.
    pub const fn has(&self, name: HeaderName) -> bool {
        self.present.contains(name)
    }

    /// The value of the first line of that name.
    pub fn first(&self, name: HeaderName) -> Option<&'m [u8]> {
        self.all(name).next()
    }

    /// The values of all lines of that name.
    pub fn all(&self, name: HeaderName) -> impl Iterator<Item = &'m [u8]> + '_ {
        values(self.octets, &self.lines, self.present, name)
    }

    /// The elements of all lines of that name: comma lists are split outside quotes and angle brackets.
    pub fn elements(&self, name: HeaderName) -> impl Iterator<Item = &'m [u8]> + '_ {
        self.all(name).flat_map(elements)
    }

    /// The value of the first line with a name that isn't in [`HeaderName`]; case doesn't matter.
    pub fn other(&self, name: &str) -> Option<&'m [u8]> {
        let named = |header: &Header<'_>| {
            header.name == HeaderName::Other
                && header.raw_name.eq_ignore_ascii_case(name.as_bytes())
        };
        self.headers().find(named).map(|header| header.value)
    }

    /// Returns true if a list of tokens (Supported, Require, Allow, …) holds one; case doesn't matter.
    pub fn has_token(&self, name: HeaderName, token: &str) -> bool {
        let token = token.as_bytes();
        self.all(name).any(|list| {
            // Most lists don't hold the token: a search for its text says so without cutting the list into elements.
            text::holds_text(list, token)
                && elements(list).any(|element| element.eq_ignore_ascii_case(token))
        })
    }

    /// The number that a header begins with, of at most 32 bits; its parameters are ignored.
    pub fn number(&self, name: HeaderName) -> Option<u32> {
        let value = self.first(name)?;
        let digits = value
            .iter()
            .take_while(|octet| octet.is_ascii_digit())
            .count();

        std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
    }

    /// The body, octet for octet.
    pub fn body(&self) -> &'m [u8] {
        self.body.of(self.octets)
    }

    /// Keyed hashes of a request that the endpoint has received.
    pub(crate) const fn keys(&self) -> Option<RequestKeys> {
        self.keys
    }

    /// Keeps the keyed hashes of a request.
    pub(crate) const fn set_keys(&mut self, keys: RequestKeys) {
        self.keys = Some(keys);
    }

    /// The whole message, from its first line to the end of its body.
    pub const fn raw(&self) -> &'m [u8] {
        self.octets
    }

    /// The same message over a copy of its octets.
    pub(super) fn over<'c>(&self, copy: &'c [u8]) -> Message<'c> {
        let begin = self.octets.as_ptr().addr();
        let moved = |part: &[u8]| -> &'c [u8] {
            // An empty part may point outside the octets, so that its position means nothing.
            if part.is_empty() {
                return b"";
            }
            let start = part.as_ptr().addr() - begin;
            &copy[start..start + part.len()]
        };

        Message {
            octets: copy,
            start: self.start,
            lines: Lines::from_slice(&self.lines),
            present: self.present,
            body: self.body,
            top_via: self.top_via.moved(moved),
            call_id: moved(self.call_id),
            cseq: self.cseq,
            cseq_token: moved(self.cseq_token),
            from: moved(self.from),
            to: moved(self.to),
            from_uri: moved(self.from_uri),
            to_uri: moved(self.to_uri),
            from_tag: self.from_tag.map(moved),
            to_tag: self.to_tag.map(moved),
            is_cut: self.is_cut,
            skipped: self.skipped,
            keys: self.keys,
        }
    }
}

/// The values of all lines of a name, in their order.
pub(super) fn values<'a, 'm: 'a>(
    octets: &'m [u8],
    lines: &'a [Line],
    present: HeaderNames,
    name: HeaderName,
) -> impl Iterator<Item = &'m [u8]> + 'a {
    // Most lookups are for absent headers.
    let lines = if present.contains(name) { lines } else { &[] };
    lines
        .iter()
        .filter(move |line| line.name == name)
        .map(move |line| line.value.of(octets))
}

/// The elements of a comma list. Most lists have one element, for which the list isn't searched.
pub(crate) fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (one, many) = match memchr::memchr(b',', list) {
        Some(_) => (b"".as_slice(), list),
        None => (text::trim(list), b"".as_slice()),
    };
    let one = Some(one).filter(|one| !one.is_empty());
    one.into_iter().chain(text::elements(many))
}
