//! Answers to requests, as octets on the wire (RFC 3261 §8.2.6).

use trunkline_sip::wire::{HeaderName, Message};

/// An answer without a body. `status` is the code with its reason phrase, `lines` are whole header lines.
pub fn reply(request: &Message<'_>, status: &str, lines: &str) -> String {
    answer(request, status, "peer", lines, "")
}

/// An answer with this To-tag, unless the request brings one.
pub fn answer(request: &Message<'_>, status: &str, tag: &str, lines: &str, body: &str) -> String {
    let value = |name| {
        let value = request.first(name).expect("a request has it");
        String::from_utf8_lossy(value)
    };
    let tag = match request.to_tag() {
        Some(_) => String::new(),
        None => format!(";tag={tag}"),
    };
    format!(
        "SIP/2.0 {status}\r\nVia: {}\r\nFrom: {}\r\nTo: {}{tag}\r\nCall-ID: {}\r\nCSeq: {}\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        value(HeaderName::Via),
        value(HeaderName::From),
        value(HeaderName::To),
        value(HeaderName::CallId),
        value(HeaderName::CSeq),
        body.len()
    )
}
