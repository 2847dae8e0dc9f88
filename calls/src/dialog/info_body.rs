//! INFO that ends at media of ours (RFC 6086): a key that was pressed is taken, everything else is refused, so that its sender needn't take it for
//! done.

use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::content_type;
use trunkline_sip::wire::{HeaderName, Message};

use crate::core::context::Cx;

/// Body of an INFO that brings a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyBody {
    /// `application/dtmf-relay`: `Signal=5`.
    Relay,
    /// `application/dtmf`: the bare key.
    Bare,
}

impl KeyBody {
    /// The kind of body that a Content-Type names.
    pub(crate) fn of(content_type: &[u8]) -> Option<Self> {
        let kind = content_type.split(|octet| *octet == b';').next()?;
        let kinds = [
            (&b"application/dtmf-relay"[..], Self::Relay),
            (b"application/dtmf", Self::Bare),
        ];
        let named = kinds
            .iter()
            .find(|(name, _)| kind.trim_ascii().eq_ignore_ascii_case(name));
        named.map(|(_, kind)| *kind)
    }
}

/// Answers an INFO.
pub(crate) fn answer(cx: &mut Cx<'_>, server: ServerTx, message: &Message<'_>) {
    match status(message) {
        // RFC 6086 §4.2.2: a 469 "contains a Recv-Info header field with Info Packages for which the UA is willing to receive INFO requests".
        469 => cx.respond(server, 469, None, |head| head.line("Recv-Info", b""), b""),
        // RFC 3261 §21.4.13.
        415 => {
            let accepted = b"application/dtmf-relay, application/dtmf";
            cx.respond(server, 415, None, |head| head.line("Accept", accepted), b"");
        }
        status => cx.respond(server, status, None, |_| {}, b""),
    }
}

fn status(message: &Message<'_>) -> u16 {
    if message.other("Info-Package").is_some() {
        return 469;
    }
    let kind = message.first(HeaderName::ContentType).unwrap_or_default();
    let disposition = message.first(HeaderName::ContentDisposition);
    let is_optional = disposition.is_some_and(content_type::is_optional);
    match message.body().is_empty() || is_optional || KeyBody::of(kind).is_some() {
        true => 200,
        false => 415,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    #[test]
    fn a_key_is_taken_and_what_nobody_reads_is_refused() {
        for (case, lines, body, expected) in [
            ("no body", "", "", 200),
            (
                "a key",
                "Content-Type: Application/DTMF-Relay;x=y\r\n",
                "Signal=5",
                200,
            ),
            ("a bare key", "c: application/dtmf\r\n", "5", 200),
            ("a text", "Content-Type: text/plain\r\n", "d=1", 415),
            ("no type", "", "d=1", 415),
            (
                "a picture that is wanted",
                "c: application/media_control+xml\r\n",
                "<x/>",
                415,
            ),
            (
                "one that may be ignored",
                "c: text/plain\r\nContent-Disposition: render; Handling=Optional\r\n",
                "x",
                200,
            ),
            (
                "a package",
                "Info-Package: infoDtmf\r\nc: application/dtmf\r\n",
                "5",
                469,
            ),
        ] {
            let octets = format!(
                "INFO sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 INFO\r\n{lines}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).expect(case);
            assert_eq!(status(&message), expected, "{case}");
        }
    }
}
