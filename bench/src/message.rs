//! A SIP reader for a peer that knows which messages to expect: one pass, slices of the datagram, no allocation.
//! It checks the daemon's output: a blank line, a correct Content-Length, one Call-ID, one CSeq.

use memchr::memchr;

/// Most lines of one kind that are stored; a message with more of them counts as malformed.
const LINES: usize = 8;

/// Whole header lines of one kind, with their line ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines<'a> {
    lines: [&'a [u8]; LINES],
    count: usize,
}

impl<'a> Lines<'a> {
    fn push(&mut self, line: &'a [u8]) -> Option<()> {
        *self.lines.get_mut(self.count)? = line;
        self.count += 1;
        Some(())
    }

    /// The lines in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lines.into_iter().take(self.count)
    }
}

/// The start line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start<'a> {
    /// A request, with its method.
    Request(&'a [u8]),
    /// A response, with its status.
    Response(u16),
}

/// One message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Method or status.
    pub start: Start<'a>,
    /// Via lines.
    pub via: Lines<'a>,
    /// Record-Route lines.
    pub record_route: Lines<'a>,
    /// WWW-Authenticate lines.
    pub authenticate: Lines<'a>,
    /// From.
    pub from: &'a [u8],
    /// To.
    pub to: &'a [u8],
    /// Call-ID.
    pub call_id: &'a [u8],
    /// CSeq's number.
    pub cseq: u32,
    /// CSeq's method.
    pub method: &'a [u8],
    /// Contact; empty if there is none.
    pub contact: &'a [u8],
    /// Authorization; empty if there is none.
    pub authorization: &'a [u8],
    /// X-Bench-Call; empty if there is none.
    pub mark: &'a [u8],
    /// True if the session and agent headers are present and not empty.
    pub has_context: bool,
    /// Octets after the blank line.
    pub body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a datagram; the error says why it isn't a valid message.
    pub fn read(datagram: &'a [u8]) -> Result<Self, &'static str> {
        let (first, mut rest) = line(datagram).ok_or("no start line")?;

        let mut reader = Reader {
            message: Self::empty(start(first).ok_or("start line")?),
            length: None,
            context: 0,
        };
        loop {
            let (header, after) = line(rest).ok_or("no blank line")?;
            let whole = &rest[..rest.len() - after.len()];
            rest = after;

            if header.is_empty() {
                return reader.finish(rest);
            }
            reader.header(header, whole)?;
        }
    }

    fn empty(start: Start<'a>) -> Self {
        let none = Lines::default();
        Self {
            start,
            via: none,
            record_route: none,
            authenticate: none,
            from: b"",
            to: b"",
            call_id: b"",
            cseq: 0,
            method: b"",
            contact: b"",
            authorization: b"",
            mark: b"",
            has_context: false,
            body: b"",
        }
    }

    /// The tag in To; `None` if there is none.
    pub fn to_tag(&self) -> Option<&'a [u8]> {
        // A URI in angle brackets may have a parameter of that name.
        let after = self
            .to
            .iter()
            .position(|octet| *octet == b'>')
            .map_or(self.to, |at| &self.to[at..]);
        let at = memchr::memmem::find(after, b";tag=")?;
        let tag = &after[at + 5..];
        Some(&tag[..memchr(b';', tag).unwrap_or(tag.len())])
    }

    /// The URI inside Contact.
    pub fn contact_uri(&self) -> Option<&'a [u8]> {
        let from = memchr(b'<', self.contact)? + 1;
        let until = from + memchr(b'>', &self.contact[from..])?;
        Some(&self.contact[from..until])
    }
}

struct Reader<'a> {
    message: Message<'a>,
    length: Option<usize>,
    context: u8,
}

impl<'a> Reader<'a> {
    fn header(&mut self, header: &'a [u8], whole: &'a [u8]) -> Result<(), &'static str> {
        let colon = memchr(b':', header).ok_or("a header without a colon")?;
        let (name, value) = (
            header[..colon].trim_ascii(),
            header[colon + 1..].trim_ascii(),
        );
        let message = &mut self.message;

        let fits = match Name::read(name) {
            Name::Via => message.via.push(whole),
            Name::RecordRoute => message.record_route.push(whole),
            Name::Authenticate => message.authenticate.push(value),
            Name::From => once(&mut message.from, value),
            Name::To => once(&mut message.to, value),
            Name::CallId => once(&mut message.call_id, value),
            Name::Contact => once(&mut message.contact, value),
            Name::Authorization => once(&mut message.authorization, value),
            Name::Mark => once(&mut message.mark, value),
            Name::CSeq => self.cseq(value),
            Name::ContentLength => number(value).map(|length| self.length = Some(length as usize)),
            Name::Session => (!value.is_empty()).then(|| self.context |= 1),
            Name::Agent => (!value.is_empty()).then(|| self.context |= 2),
            Name::Other => Some(()),
        };
        fits.ok_or("a header that is empty, repeated or no number")
    }

    fn cseq(&mut self, value: &'a [u8]) -> Option<()> {
        let space = memchr(b' ', value)?;
        self.message.cseq = number(&value[..space])?;
        once(&mut self.message.method, value[space + 1..].trim_ascii())
    }

    fn finish(mut self, rest: &'a [u8]) -> Result<Message<'a>, &'static str> {
        let message = &mut self.message;
        if message.via.count == 0
            || [message.from, message.to, message.call_id, message.method].contains(&b"".as_slice())
        {
            return Err("a mandatory header is missing");
        }
        message.body = rest;
        message.has_context = self.context == 3;
        if self.length.is_some_and(|length| length != rest.len()) {
            return Err("Content-Length differs from the body");
        }
        Ok(self.message)
    }
}

enum Name {
    Via,
    RecordRoute,
    Authenticate,
    From,
    To,
    CallId,
    CSeq,
    Contact,
    Authorization,
    ContentLength,
    Mark,
    Session,
    Agent,
    Other,
}

impl Name {
    /// Recognises a header name. Compares the length first, since most names differ in it.
    fn read(name: &[u8]) -> Self {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match name.len() {
            1 => Self::compact(name[0]),
            2 if is("To") => Self::To,
            3 if is("Via") => Self::Via,
            4 if is("From") => Self::From,
            4 if is("CSeq") => Self::CSeq,
            7 if is("Call-ID") => Self::CallId,
            7 if is("Contact") => Self::Contact,
            12 if is("Record-Route") => Self::RecordRoute,
            12 if is("X-Bench-Call") => Self::Mark,
            13 if is("Authorization") => Self::Authorization,
            14 if is("Content-Length") => Self::ContentLength,
            16 if is("WWW-Authenticate") => Self::Authenticate,
            19 if is("X-PLATFORM-AGENT-ID") => Self::Agent,
            21 if is("X-PLATFORM-SESSION-ID") => Self::Session,
            _ => Self::Other,
        }
    }

    /// Recognises a compact name (RFC 3261 §7.3.3).
    fn compact(letter: u8) -> Self {
        match letter.to_ascii_lowercase() {
            b'v' => Self::Via,
            b'f' => Self::From,
            b't' => Self::To,
            b'i' => Self::CallId,
            b'm' => Self::Contact,
            b'l' => Self::ContentLength,
            _ => Self::Other,
        }
    }
}

/// Stores `value` in `place`; `None` if the place is taken or the value is empty.
fn once<'a>(place: &mut &'a [u8], value: &'a [u8]) -> Option<()> {
    (place.is_empty() && !value.is_empty()).then(|| *place = value)
}

/// Splits at the next line end.
fn line(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b'\n', octets)?;
    let line = octets[..end].strip_suffix(b"\r")?;
    Some((line, &octets[end + 1..]))
}

fn start(line: &[u8]) -> Option<Start<'_>> {
    if let Some(rest) = line.strip_prefix(b"SIP/2.0 ") {
        return Some(Start::Response(
            u16::try_from(number(rest.get(..3)?)?).ok()?,
        ));
    }
    line.ends_with(b" SIP/2.0")
        .then_some(Start::Request(&line[..memchr(b' ', line)?]))
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `name=value` pairs of a list, separated by commas outside quotes.
pub fn attributes(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let mut quoted = false;
        let end = rest.iter().position(|octet| {
            quoted ^= *octet == b'"';
            *octet == b',' && !quoted
        });
        let part = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(b"", |end| &rest[end + 1..]);
        let equals = memchr(b'=', part)?;
        Some((part[..equals].trim_ascii(), part[equals + 1..].trim_ascii()))
    })
}

/// The value without the quotes around it.
pub fn unquoted(value: &[u8]) -> &[u8] {
    value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=1\r\nv: SIP/2.0/UDP b\r\nFrom: <sip:a@b>;tag=c1\r\n\
        To: \"x\" <sip:b;tag=no@c>;tag=yes;x=y\r\nCall-ID: 1@a\r\nCSeq: 7 INVITE\r\nContact: <sip:me@1.2.3.4:5060;x=y>;q=1\r\n\
        Content-Length: 3\r\n\r\nabc";

    #[test]
    fn a_response_is_taken_apart() {
        let message = Message::read(OK.as_bytes()).expect("well-formed");
        assert_eq!(message.start, Start::Response(200));
        assert_eq!(
            message.via.iter().collect::<Vec<_>>(),
            [
                b"Via: SIP/2.0/UDP a;branch=1\r\n".as_slice(),
                b"v: SIP/2.0/UDP b\r\n"
            ]
        );
        assert_eq!(message.to_tag(), Some(b"yes".as_slice()));
        assert_eq!((message.cseq, message.method), (7, b"INVITE".as_slice()));
        assert_eq!(
            message.contact_uri(),
            Some(b"sip:me@1.2.3.4:5060;x=y".as_slice())
        );
        assert_eq!(message.body, b"abc");
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for (name, from, to) in [
            ("body shorter than said", "\r\n\r\nabc", "\r\n\r\nab"),
            ("no blank line", "\r\n\r\nabc", "\r\n"),
            ("bare line feed", "\r\nFrom", "\nFrom"),
            ("two Call-IDs", "CSeq", "Call-ID: 2@a\r\nCSeq"),
            ("CSeq no number", "7 INVITE", "x INVITE"),
            ("no To", "To: ", "X-To: "),
            ("no status", "200 OK", "OK"),
        ] {
            assert!(
                Message::read(OK.replacen(from, to, 1).as_bytes()).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn every_cut_of_a_message_is_refused() {
        for end in 0..OK.len() {
            assert!(
                Message::read(&OK.as_bytes()[..end]).is_err(),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn context_needs_both_headers() {
        let with = |extra: &str| {
            let request = OK
                .replacen("SIP/2.0 200 OK", "INVITE sip:a SIP/2.0", 1)
                .replacen("Contact", &format!("{extra}Contact"), 1);
            Message::read(request.as_bytes()).map(|message| message.has_context)
        };
        assert_eq!(with(""), Ok(false));
        assert_eq!(with("X-Platform-Session-Id: a\r\n"), Ok(false));
        assert_eq!(
            with("X-PLATFORM-SESSION-ID: a\r\nX-PLATFORM-AGENT-ID: b\r\n"),
            Ok(true)
        );
    }
}
