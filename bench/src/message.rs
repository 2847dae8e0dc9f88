//! Reading of messages: the lexer of `trunkline_sip`, and two things that it lets pass, though no server has a reason to send them.

use std::fmt;

use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::wire::{Framing, HeaderName, Message, MessageFault, lex};

/// Header that names the call at the callee.
pub const MARK: &str = "X-Bench-Call";
/// Headers that the daemon adds for the agent.
const CONTEXT: [&str; 2] = ["X-PLATFORM-SESSION-ID", "X-PLATFORM-AGENT-ID"];

/// Reason why a datagram isn't a message that a server should send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Defect {
    /// It can't be read.
    Malformed(MessageFault),
    /// Octets follow the body.
    Longer,
    /// A line between the headers is none.
    NoHeader,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(fault) => fault.fmt(f),
            Self::Longer => f.write_str("octets follow the body"),
            Self::NoHeader => f.write_str("a line is no header"),
        }
    }
}

/// Reads a datagram.
///
/// # Errors
/// It isn't a message, or not one that a server should send.
pub fn read(datagram: &[u8]) -> Result<Message<'_>, Defect> {
    let message =
        lex(datagram, Framing::Datagram).map_err(|malformed| Defect::Malformed(malformed.fault))?;
    if message.raw().len() != datagram.len() {
        return Err(Defect::Longer);
    }
    match message.skipped_lines() {
        Some(_) => Err(Defect::NoHeader),
        None => Ok(message),
    }
}

/// Returns the URI in Contact.
pub fn contact_uri<'m>(message: &Message<'m>) -> Option<&'m [u8]> {
    let contact = message.first(HeaderName::Contact)?;
    NameAddr::parse(contact).ok().map(|address| address.uri)
}

/// Returns true if the headers with session and agent are present and not empty.
pub fn has_context(message: &Message<'_>) -> bool {
    CONTEXT
        .iter()
        .all(|name| message.other(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=c1\r\n\
        To: <sip:b@c>;tag=yes\r\nCall-ID: 1@a\r\nCSeq: 7 INVITE\r\nContact: <sip:me@1.2.3.4:5060;x=y>;q=1\r\n\
        Content-Length: 3\r\n\r\nabc";

    #[test]
    fn what_no_server_should_send_is_refused() {
        let read = |from: &str, to: &str| read(OK.replacen(from, to, 1).as_bytes()).map(drop);
        assert_eq!(read("", ""), Ok(()));
        assert_eq!(read("\r\n\r\nabc", "\r\n\r\nabcd"), Err(Defect::Longer));
        assert_eq!(read("CSeq", "what is this\r\nCSeq"), Err(Defect::NoHeader));
        let short = Err(Defect::Malformed(MessageFault::BodyShort));
        assert_eq!(read("\r\n\r\nabc", "\r\n\r\nab"), short);
    }

    #[test]
    fn the_target_is_in_contact() {
        let message = read(OK.as_bytes()).expect("a response");
        let target: &[u8] = b"sip:me@1.2.3.4:5060;x=y";
        assert_eq!(contact_uri(&message), Some(target));
    }

    #[test]
    fn context_needs_both_headers() {
        let with = |extra: &str| {
            let text = OK.replacen("Contact", &format!("{extra}Contact"), 1);
            read(text.as_bytes()).map(|message| has_context(&message))
        };
        assert_eq!(with(""), Ok(false));
        assert_eq!(with("X-Platform-Session-Id: a\r\n"), Ok(false));
        assert_eq!(
            with("X-PLATFORM-SESSION-ID: a\r\nX-PLATFORM-AGENT-ID:\r\n"),
            Ok(false)
        );
        assert_eq!(
            with("X-PLATFORM-SESSION-ID: a\r\nX-PLATFORM-AGENT-ID: b\r\n"),
            Ok(true)
        );
    }
}
