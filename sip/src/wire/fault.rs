//! Faults of a message, and the parts from which its answer is made (RFC 3261 §7.3, §18.3, §21.4.1).

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
    /// A line without a name or a colon.
    #[error("a header line has no name")]
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
    /// The status of the answer.
    pub status: u16,
    /// The parts from which the answer is made: their values may be empty, but the top Via is readable. `None` if the message is to
    /// be dropped: a response, an ACK, or a request whose sender no answer would reach.
    pub answer: Option<Box<Message<'m>>>,
}

impl<'m> Malformed<'m> {
    /// Refuses a message without an answer.
    pub(super) const fn dropped(fault: MessageFault) -> Self {
        Self {
            fault,
            status: fault.status(),
            answer: None,
        }
    }

    /// Refuses a message with an answer, if it may have one.
    pub(super) fn refused(fault: MessageFault, message: Message<'m>) -> Self {
        let answerable = message.is_request() && message.method_token() != b"ACK";
        Self {
            fault,
            status: fault.status(),
            answer: answerable.then(|| Box::new(message)),
        }
    }
}
