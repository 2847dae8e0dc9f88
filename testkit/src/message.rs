//! One message, as it was on the wire, and the answers to it. Single lines are read by splitting text, independently of the reader under
//! test; `wire` reads the rest.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

use trunkline_sip::wire::{self, Framing, HeaderName, lex};

/// An SDP for offers and answers.
pub const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n";

/// A message received or sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    octets: Vec<u8>,
    /// The lines before the body, unfolded, each ending in a bare line feed.
    head: String,
    /// The body, with the same line ends.
    body: String,
}

impl Message {
    pub fn of(octets: impl AsRef<[u8]>) -> Self {
        let octets = octets.as_ref().to_vec();
        let text = String::from_utf8_lossy(&octets).replace("\r\n", "\n");
        let (lines, body) = text.split_once("\n\n").unwrap_or((&text, ""));
        let mut head = String::new();

        for line in lines.lines() {
            let is_fold = line.starts_with([' ', '\t']);
            head.push_str(if is_fold { " " } else { "\n" });
            head.push_str(if is_fold { line.trim() } else { line });
        }
        Self {
            head: head.trim_start().to_owned(),
            body: body.to_owned(),
            octets,
        }
    }

    /// The whole message.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.octets).into_owned()
    }

    /// The message as the daemon's own reader sees it; panics if that refuses it.
    pub fn wire(&self) -> wire::Message<'_> {
        lex(&self.octets, Framing::Datagram)
            .unwrap_or_else(|refused| panic!("{}: {self:?}", refused.fault))
    }

    pub fn start_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The method of a request.
    pub fn method(&self) -> Option<&str> {
        let is_request = self.status().is_none();
        let method = self.start_line().split(' ').next();
        method.filter(|_| is_request)
    }

    pub fn is_request(&self, method: &str) -> bool {
        self.method() == Some(method)
    }

    /// The status of a response.
    pub fn status(&self) -> Option<u16> {
        let digits = self.start_line().strip_prefix("SIP/2.0 ")?.get(..3)?;
        digits.parse().ok()
    }

    pub fn is_final(&self) -> bool {
        self.status() >= Some(200)
    }

    /// Returns true for a response to a request of this method, or of this CSeq.
    pub fn answers(&self, cseq: &str) -> bool {
        let of = self.header("CSeq").unwrap_or_default();
        let method = of.split(' ').next_back();
        self.status().is_some() && (of == cseq || method == Some(cseq))
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).first().copied()
    }

    /// The first header of this name, which must be present.
    pub fn value(&self, name: &str) -> String {
        let value = self.header(name);
        value
            .unwrap_or_else(|| panic!("no {name}: {self:?}"))
            .to_owned()
    }

    /// Names of the headers, in their order.
    pub fn header_names(&self) -> Vec<&str> {
        self.header_lines().map(|(name, _)| name.trim()).collect()
    }

    /// All headers of this name, full or compact.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let of = HeaderName::from_bytes(name.as_bytes());
        let is_it = |found: &str| {
            // All names that the reader doesn't know are `Other`, so these are compared as text.
            let is_known =
                of != HeaderName::Other && HeaderName::from_bytes(found.as_bytes()) == of;
            is_known || found.eq_ignore_ascii_case(name)
        };
        let found = self.header_lines().filter(|(found, _)| is_it(found.trim()));
        found.map(|(_, value)| value.trim()).collect()
    }

    fn header_lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.head.lines().skip(1);
        lines.filter_map(|line| line.split_once(':'))
    }

    /// The URI in angle brackets of a header that must be present.
    pub fn uri(&self, name: &str) -> String {
        let value = self.value(name);
        let uri = value.split(['<', '>']).nth(1);
        uri.unwrap_or_else(|| panic!("no URI: {self:?}")).to_owned()
    }

    pub fn to_tag(&self) -> String {
        let value = self.value("To");
        let tag = value.split_once(";tag=").map(|(_, tag)| tag);
        tag.unwrap_or_default().to_owned()
    }

    /// The body. Its lines end in a bare line feed.
    pub fn body(&self) -> &str {
        self.body.trim_end()
    }

    /// The address and port that its SDP names.
    pub fn media(&self) -> SocketAddr {
        let after = |prefix: &str| {
            let line = self.body.lines().find_map(|line| line.strip_prefix(prefix));
            line.and_then(|line| line.split(' ').next())
        };
        let ip = after("c=IN IP6 ").or_else(|| after("c=IN IP4 "));
        let (ip, port) = ip.zip(after("m=audio ")).expect("an SDP");
        SocketAddr::new(
            ip.parse().expect("an address"),
            port.parse().expect("a port"),
        )
    }

    /// An answer without a body. `status` is the code with its reason phrase, `lines` are whole header lines.
    pub fn reply(&self, status: &str, lines: &str) -> String {
        self.answer(status, "peer", lines, "")
    }

    /// An answer with this To-tag, unless the request brings one (RFC 3261 §8.2.6).
    pub fn answer(&self, status: &str, tag: &str, lines: &str, body: &str) -> String {
        answer(&self.wire(), status, tag, lines, body)
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

impl fmt::Display for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n\n{}", self.head, self.body)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.octets.escape_ascii())
    }
}

/// An answer to a request, with this To-tag if the request brings none and the tag isn't empty (RFC 3261 §8.2.6).
pub fn answer(
    request: &wire::Message<'_>,
    status: &str,
    tag: &str,
    lines: &str,
    body: &str,
) -> String {
    let via = |via| format!("Via: {}\r\n", String::from_utf8_lossy(via));
    let vias: String = request.all(HeaderName::Via).map(via).collect();
    let tag = match request.to_tag() {
        None if !tag.is_empty() => format!(";tag={tag}"),
        None | Some(_) => String::new(),
    };
    format!(
        "SIP/2.0 {status}\r\n{vias}From: {}\r\nTo: {}{tag}\r\nCall-ID: {}\r\nCSeq: {}\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        value(request, HeaderName::From),
        value(request, HeaderName::To),
        value(request, HeaderName::CallId),
        value(request, HeaderName::CSeq),
        body.len()
    )
}

/// The CANCEL of an INVITE, or the ACK of its refusal: hop by hop, with the INVITE's branch (RFC 3261 §9.1, §17.1.1.3).
pub fn hop_request(invite: &wire::Message<'_>, method: &str, to: &str) -> String {
    format!(
        "{method} {} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: {}\r\nTo: {to}\r\nCall-ID: {}\r\nCSeq: {} {method}\r\n\
         Content-Length: 0\r\n\r\n",
        String::from_utf8_lossy(invite.request_uri()),
        value(invite, HeaderName::Via),
        value(invite, HeaderName::From),
        value(invite, HeaderName::CallId),
        invite.cseq().number,
    )
}

fn value<'m>(request: &wire::Message<'m>, name: HeaderName) -> Cow<'m, str> {
    String::from_utf8_lossy(request.first(name).expect("a request has it"))
}

/// The status of a response.
pub fn status_of(response: &Message) -> u16 {
    let status = response.status();
    status.unwrap_or_else(|| panic!("no response: {response:?}"))
}

/// The statuses of responses, in their order.
pub fn statuses_of<'m>(responses: impl IntoIterator<Item = &'m Message>) -> Vec<u16> {
    responses.into_iter().map(status_of).collect()
}
