//! Bodies that media of our own can't accept: with another type or coding than SDP, or with an offer that can't be met.

use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::content_type;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};

use crate::core::context::Cx;
use crate::has_sdp;

/// Reason why our media can't accept a body.
#[derive(Debug)]
pub(crate) enum UnacceptableBody {
    /// It isn't SDP.
    OtherType,
    /// It has a content coding.
    Encoded,
    /// Its offer can't be met.
    NoCommonMedia(String),
}

impl UnacceptableBody {
    /// Status of the refusal.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::OtherType | Self::Encoded => 415,
            Self::NoCommonMedia(_) => 488,
        }
    }

    /// Writes the cause, and for a 415 the bodies that are accepted (RFC 3261 §21.4.13).
    pub(crate) fn lines(&self, head: &mut Head<'_>) {
        let (warning, cause) = match self {
            Self::OtherType => (399, "Only a body of type application/sdp is accepted here"),
            Self::Encoded => (399, "Only a body without Content-Encoding is accepted here"),
            Self::NoCommonMedia(cause) => (304, cause.as_str()),
        };
        if self.status() == 415 {
            head.line("Accept", b"application/sdp");
            head.line("Accept-Encoding", b"identity");
        }
        head.fmt("Warning", format_args!("{warning} trunkline \"{cause}\""));
    }

    /// Refuses the change that came with it.
    pub(crate) fn reject(&self, cx: &mut Cx<'_>, server: ServerTx) {
        cx.respond(server, self.status(), None, |head| self.lines(head), b"");
    }

    /// A body that isn't SDP and must not be ignored (RFC 3261 §8.2.3).
    pub(crate) fn of(message: &Message<'_>) -> Option<Self> {
        let value = |name| message.first(name).map(str::from_utf8);
        let disposition = message.first(HeaderName::ContentDisposition);
        let is_optional = disposition.is_some_and(content_type::is_optional);
        if message.body().is_empty() || is_optional {
            return None;
        }
        let is_encoded = value(HeaderName::ContentEncoding).is_some_and(|coding| {
            coding.is_ok_and(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity"))
        });
        if is_encoded {
            Some(Self::Encoded)
        } else {
            (!has_sdp(message)).then_some(Self::OtherType)
        }
    }
}
