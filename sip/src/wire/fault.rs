//! Faults of a message, the line they are on, and the parts from which its answer is made (RFC 3261 §7.3, §18.3, §21.4.1).

use std::fmt;

use super::{HeaderName, Message};

/// Fault of a message.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum MessageFault {
    /// No octets but line ends.
    #[error("the message is empty")]
    Empty,
    /// More than 64 KiB.
    #[error("the message is too large")]
    TooLarge,
    /// The header isn't closed by a blank line.
    #[error("no blank line ends the header")]
    NoBlankLine,
    /// A lone carriage return or line feed, or a NUL.
    #[error("a control character breaks a line")]
    Control,
    /// Neither a request line nor a status line.
    #[error("the first line is no start line")]
    StartLine,
    /// Not SIP/2.0.
    #[error("the SIP version is not 2.0")]
    Version,
    /// A Request-URI of more than 8 KiB.
    #[error("the Request-URI is too long")]
    UriTooLong,
    /// A line that begins with the name of a header that is needed, and lacks the colon. Any other line without a name or a colon is skipped.
    #[error("a header line lacks its colon")]
    HeaderLine,
    /// More than 200 header lines.
    #[error("there are too many header lines")]
    TooManyLines,
    /// A header line of more than 8 KiB, folds included.
    #[error("a header line is too long")]
    LineTooLong,
    /// More than 70 Vias.
    #[error("there are too many Vias")]
    TooManyVias,
    /// A header that every message must have is missing.
    #[error("{} is missing", .0.as_str())]
    Missing(HeaderName),
    /// A header that is allowed only once occurs twice.
    #[error("{} occurs twice", .0.as_str())]
    Duplicate(HeaderName),
    /// A value that can't be read.
    #[error("{} cannot be read", .0.as_str())]
    Unreadable(HeaderName),
    /// CSeq names another method than the request line.
    #[error("CSeq names another method")]
    CSeqMethod,
    /// Content-Length is larger than the body received.
    #[error("the body is shorter than Content-Length says")]
    BodyShort,
}

impl MessageFault {
    /// The status of an answer to a request with this fault.
    pub const fn status(self) -> u16 {
        match self {
            Self::Version => 505,
            Self::UriTooLong => 414,
            Self::TooLarge | Self::LineTooLong | Self::TooManyLines | Self::TooManyVias => 513,
            Self::Empty
            | Self::NoBlankLine
            | Self::Control
            | Self::StartLine
            | Self::HeaderLine
            | Self::Missing(_)
            | Self::Duplicate(_)
            | Self::Unreadable(_)
            | Self::CSeqMethod
            | Self::BodyShort => 400,
        }
    }
}

/// A message that is refused.
#[derive(Debug)]
pub struct Malformed<'m> {
    /// The fault; the first if there are several.
    pub fault: MessageFault,
    /// Number of its line, the start line being 1; `None` for a fault that is on no line, such as a missing header.
    pub line: Option<u16>,
    /// The status of the answer.
    pub status: u16,
    /// The parts from which the answer is made: their values may be empty, but the top Via is readable. `None` if the message is to
    /// be dropped: a response, an ACK, or a request whose sender no answer would reach.
    pub answer: Option<Box<Message<'m>>>,
    /// The parts of a response: its top Via, by which the request is found, is readable.
    pub response: Option<Box<Message<'m>>>,
}

/// A response to a request of ours that was dropped, since it can't be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnreadableResponse {
    /// Its status.
    pub status: u16,
    /// The fault.
    pub fault: MessageFault,
    /// Number of its line, the start line being 1.
    pub line: Option<u16>,
}

impl fmt::Display for UnreadableResponse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            status,
            fault,
            line,
        } = self;
        write!(out, "it answered {status}, which can't be read: ")?;
        write_fault(out, *fault, *line)
    }
}

impl fmt::Display for Malformed<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fault(out, self.fault, self.line)
    }
}

fn write_fault(
    out: &mut fmt::Formatter<'_>,
    fault: MessageFault,
    line: Option<u16>,
) -> fmt::Result {
    match line {
        Some(line) => write!(out, "line {line}: {fault}"),
        None => write!(out, "{fault}"),
    }
}

impl<'m> Malformed<'m> {
    /// Refuses a message without an answer.
    pub(super) const fn dropped(fault: MessageFault) -> Self {
        Self {
            fault,
            line: None,
            status: fault.status(),
            answer: None,
            response: None,
        }
    }

    /// Refuses a message with an answer, if it may have one.
    pub(super) fn refused(fault: MessageFault, line: Option<u16>, message: Message<'m>) -> Self {
        let message = Box::new(message);
        let (answer, response) = match message.is_request() {
            true => (Some(message), None),
            false => (None, Some(message)),
        };
        Self {
            fault,
            line,
            status: fault.status(),
            answer: answer.filter(|request| request.method_token() != b"ACK"),
            response,
        }
    }
}
