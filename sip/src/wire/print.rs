//! The printer: messages into one growing buffer (RFC 3261 §7, §8.2.6). It copies its input, body octets untouched. No value can end
//! its line, as line ends and NUL become spaces. The printer decides nothing.

use std::fmt::{self, Write};
use std::net::IpAddr;
use std::ops::Range;

use super::message::unfold;
use super::{HeaderName, Message};
use crate::flow::Flow;
use crate::header::name_addr::NameAddr;
use crate::header::text;

/// Writes header lines into a buffer.
#[derive(Debug)]
pub struct Head<'b> {
    out: &'b mut Vec<u8>,
}

impl<'b> Head<'b> {
    /// Appends to `out`.
    pub const fn new(out: &'b mut Vec<u8>) -> Self {
        Self { out }
    }

    /// One line.
    pub fn line(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.value(value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// One line from format arguments.
    pub fn fmt(&mut self, name: &str, value: fmt::Arguments<'_>) {
        self.name(name);
        // Writing into a vector can't fail.
        let _ = Scrubbed(self.out).write_fmt(value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// One line whose value is made of these parts.
    pub fn concat(&mut self, name: &str, parts: &[&[u8]]) {
        self.name(name);
        for part in parts {
            self.value(part);
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// The line CSeq.
    pub fn cseq(&mut self, number: u32, method: &str) {
        self.name("CSeq");
        decimal(self.out, number.into());
        self.out.push(b' ');
        self.value(method.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// One line with a number.
    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        decimal(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Complete lines, each with its line end, printed by another `Head`.
    pub fn raw(&mut self, lines: &[u8]) {
        self.out.extend_from_slice(lines);
    }

    /// One line with a value from another message: each fold becomes one space.
    pub fn unfolded(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        unfolded(self.out, value);
        self.out.extend_from_slice(b"\r\n");
    }

    fn name(&mut self, name: &str) {
        scrub(self.out, name.as_bytes());
        self.out.extend_from_slice(b": ");
    }

    fn value(&mut self, value: &[u8]) {
        scrub(self.out, value);
    }
}

/// Replaces line ends and NUL by spaces. A NUL behind a backslash stays: it ends no line, and a value that is repeated has to be the same.
fn scrub(out: &mut Vec<u8>, value: &[u8]) {
    if text::first_control(value).is_none() {
        return out.extend_from_slice(value);
    }
    let mut before = 0;
    out.extend(value.iter().map(|octet| {
        let breaks = matches!(octet, b'\r' | b'\n') || (*octet == 0 && before != b'\\');
        before = *octet;
        if breaks { b' ' } else { *octet }
    }));
}

/// Prints a value of another message on one line. Hardly any is folded, so one search covers both line-end octets.
fn unfolded(out: &mut Vec<u8>, value: &[u8]) {
    match text::first_control(value) {
        None => out.extend_from_slice(value),
        Some(_) => scrub(out, &unfold(value)),
    }
}

struct Scrubbed<'b>(&'b mut Vec<u8>);

impl Write for Scrubbed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        scrub(self.0, text.as_bytes());
        Ok(())
    }
}

/// Decimal digits of a number.
fn decimal(out: &mut Vec<u8>, number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).expect("a remainder of ten");
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Prints an answer to `request` (RFC 3261 §8.2.6): its Vias, the first with the source as we saw it
/// (RFC 3581 §4), From, To with our tag, Call-ID and CSeq; Record-Route if the answer may create a dialog; then
/// `head`, `Server`, and the body.
#[expect(clippy::too_many_arguments, reason = "what a response is made of")]
pub fn response(
    out: &mut Vec<u8>,
    request: &Message<'_>,
    flow: &Flow,
    status: u16,
    reason: Option<&str>,
    to_tag: Option<&[u8]>,
    server: &str,
    head: &[u8],
    body: &[u8],
) {
    status_line(out, status, reason.unwrap_or(reason_phrase(status)));
    // RFC 3261 §12.1.1: a response that makes a dialog "MUST copy all Record-Route header field values from the
    // request".
    let has_routes = (101..300).contains(&status);
    copied(out, request, flow, has_routes, to_tag);
    let mut lines = Head::new(out);
    lines.raw(head);
    if !server.is_empty() {
        lines.line("Server", server.as_bytes());
    }
    end(out, body);
}

pub(crate) fn status_line(out: &mut Vec<u8>, status: u16, reason: &str) {
    out.extend_from_slice(b"SIP/2.0 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    scrub(out, reason.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends a tag to a To without one.
pub(crate) fn tag(out: &mut Vec<u8>, tag: &[u8]) {
    out.extend_from_slice(b";tag=");
    scrub(out, tag);
}

/// Positions in the output of [`copied`], counted from the start of the buffer.
pub(crate) struct CopiedLines {
    pub(crate) record_route: Range<usize>,
    /// End of the To value, where a tag may follow.
    pub(crate) to_end: usize,
}

/// Prints the header lines that an answer copies from its request.
pub(crate) fn copied(
    out: &mut Vec<u8>,
    request: &Message<'_>,
    flow: &Flow,
    has_routes: bool,
    to_tag: Option<&[u8]>,
) -> CopiedLines {
    vias(out, request, flow);
    let routes = out.len();
    let mut lines = Head::new(out);
    if has_routes {
        for route in request.all(HeaderName::RecordRoute) {
            lines.unfolded("Record-Route", route);
        }
    }

    let record_route = routes..lines.out.len();
    repeated(&mut lines, request, HeaderName::From, request.from());

    let to_end = to(&mut lines, request, to_tag);
    repeated(&mut lines, request, HeaderName::CallId, request.call_id());
    // From its line, since a CSeq that can't be read has no parsed value and is still repeated.
    if let Some(cseq) = request.first(HeaderName::CSeq) {
        lines.unfolded("CSeq", cseq);
    }

    CopiedLines {
        record_route,
        to_end,
    }
}

/// Repeats a header; leaves it out of the answer if a malformed request lacks it.
fn repeated(lines: &mut Head<'_>, request: &Message<'_>, name: HeaderName, value: &[u8]) {
    if request.has(name) {
        lines.unfolded(name.as_str(), value);
    }
}

fn to(lines: &mut Head<'_>, request: &Message<'_>, to_tag: Option<&[u8]>) -> usize {
    if !request.has(HeaderName::To) {
        return lines.out.len();
    }
    lines.name("To");
    // RFC 3261 §8.2.6.2: a To with a tag is repeated unchanged, and only one without gets ours.
    let is_untagged = request.to_tag().is_none();
    let chosen = to_tag.filter(|_| is_untagged);

    // Left out even if no tag follows here: a response that is printed later from what is copied gets one (`sketch`).
    match Some(request.to())
        .filter(|_| is_untagged)
        .and_then(empty_tag)
    {
        Some(address) => without_tag(lines.out, request.to(), &address),
        None => unfolded(lines.out, request.to()),
    }

    let end = lines.out.len();
    if let Some(chosen) = chosen {
        tag(lines.out, chosen);
    }
    lines.out.extend_from_slice(b"\r\n");
    end
}

/// Returns the address if it has a tag without a value, in whose place ours goes.
fn empty_tag(to: &[u8]) -> Option<NameAddr<'_>> {
    // Nearly every To ends with its URI.
    if to.ends_with(b">") {
        return None;
    }
    let address = NameAddr::parse(to).ok()?;
    address.param("tag").is_some().then_some(address)
}

fn without_tag(out: &mut Vec<u8>, to: &[u8], address: &NameAddr<'_>) {
    let to = text::trim(to);
    unfolded(out, &to[..to.len() - address.params.len()]);
    for param in address.params().filter(|param| !param.is("tag")) {
        out.push(b';');
        unfolded(out, param.name);
        if let Some(value) = param.value {
            out.push(b'=');
            unfolded(out, value);
        }
    }
}

fn vias(out: &mut Vec<u8>, request: &Message<'_>, flow: &Flow) {
    let mut is_top = true;
    for line in request.all(HeaderName::Via) {
        let mut elements = super::message::elements(line);
        // The top Via is the first element, which the first line may lack: `Via: ,`.
        if elements.next().is_none() {
            continue;
        }

        // RFC 3261 §8.2.6.2: the Vias of a response "MUST equal" those of the request. Only the source of the request
        // is added, to the first Via.
        if !std::mem::take(&mut is_top) {
            Head::new(out).unfolded("Via", line);
            continue;
        }

        out.extend_from_slice(b"Via: ");
        top_via(out, request, flow);
        for below in elements {
            out.extend_from_slice(b", ");
            unfolded(out, below);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Prints the first Via. Adds `received` if sent-by isn't the source or `rport` was asked for, and then the source's port as the value
/// of `rport` (RFC 3261 §18.2.1, RFC 3581 §4).
fn top_via(out: &mut Vec<u8>, request: &Message<'_>, flow: &Flow) {
    let via = request.top_via();
    unfolded(out, via.head);
    for param in via.parameters() {
        // The source is stated below, as we saw it. What the sender wrote about itself isn't repeated beside it.
        if param.is("received") || param.is("rport") {
            continue;
        }
        out.push(b';');
        scrub(out, param.name);
        if let Some(value) = param.value {
            out.push(b'=');
            scrub(out, value);
        }
    }

    let source = flow.peer.ip().to_canonical();
    // RFC 3581 §4: asked for rport, "the server MUST insert a "received" parameter […] even if it is identical to the
    // value of the "sent-by" component".
    if via.rport.is_some() || !via.names(source) {
        out.extend_from_slice(b";received=");
        address(out, source);
    }

    if via.rport.is_some() {
        out.extend_from_slice(b";rport=");
        decimal(out, u64::from(flow.peer.port()));
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                decimal(out, u64::from(octet));
            }
        }
        IpAddr::V6(v6) => {
            // Writing into a vector can't fail.
            let _ = write!(Scrubbed(out), "{v6}");
        }
    }
}

/// Prints a request: `via` as the first line, then `head`, Content-Length and the body.
pub fn request(out: &mut Vec<u8>, method: &str, uri: &[u8], via: &str, head: &[u8], body: &[u8]) {
    scrub(out, method.as_bytes());
    out.push(b' ');
    scrub(out, uri);
    out.extend_from_slice(b" SIP/2.0\r\n");
    let mut lines = Head::new(out);
    lines.line("Via", via.as_bytes());
    lines.raw(head);
    end(out, body);
}

fn end(out: &mut Vec<u8>, body: &[u8]) {
    Head::new(out).number("Content-Length", body.len() as u64);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

/// The standard reason phrase of a status code.
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        181 => "Call Is Being Forwarded",
        182 => "Queued",
        183 => "Session Progress",
        199 => "Early Dialog Terminated",
        200 => "OK",
        202 => "Accepted",
        204 => "No Notification",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        305 => "Use Proxy",
        380 => "Alternative Service",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        412 => "Conditional Request Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Unsupported URI Scheme",
        420 => "Bad Extension",
        421 => "Extension Required",
        422 => "Session Interval Too Small",
        423 => "Interval Too Brief",
        428 => "Use Identity Header",
        433 => "Anonymity Disallowed",
        436 => "Bad Identity Info",
        437 => "Unsupported Credential",
        438 => "Invalid Identity Header",
        439 => "First Hop Lacks Outbound Support",
        440 => "Max-Breadth Exceeded",
        469 => "Bad Info Package",
        470 => "Consent Needed",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        482 => "Loop Detected",
        483 => "Too Many Hops",
        484 => "Address Incomplete",
        485 => "Ambiguous",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        489 => "Bad Event",
        491 => "Request Pending",
        493 => "Undecipherable",
        494 => "Security Agreement Required",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Server Time-out",
        505 => "Version Not Supported",
        513 => "Message Too Large",
        555 => "Push Notification Service Not Supported",
        580 => "Precondition Failure",
        600 => "Busy Everywhere",
        603 => "Decline",
        604 => "Does Not Exist Anywhere",
        606 => "Not Acceptable",
        607 => "Unwanted",
        608 => "Rejected",
        _ => class_phrase(status / 100),
    }
}

const fn class_phrase(class: u16) -> &'static str {
    match class {
        1 => "Progress",
        2 => "Success",
        3 => "Redirection",
        4 => "Request Failure",
        5 => "Server Failure",
        _ => "Global Failure",
    }
}

#[cfg(test)]
#[path = "print_tests.rs"]
mod tests;
