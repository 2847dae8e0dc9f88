//! `sips:` (RFC 3261 §26.2.2, RFC 5630): a leg that began with such a URI gets a `sips:` Contact from us, and needs TLS. The other leg is a call of
//! our own, and follows its own URI.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::uri::{Scheme, Uri};

use super::refusal::Reason;

/// Returns whether this is a `sips:` URI.
pub(crate) fn is_sips(uri: &[u8]) -> bool {
    Scheme::of(uri) == Some(Scheme::Sips) && Uri::parse(uri).is_ok()
}

/// Returns whether an INVITE to `request_uri` that makes `dialog` requires a `sips:` Contact: its Request-URI is `sips:`, or its top Record-Route, or
/// without Record-Route its Contact (RFC 3261 §12.1.1).
pub(crate) fn wants_sips(request_uri: &[u8], dialog: &Dialog) -> bool {
    is_sips(request_uri) || is_sips(dialog.next_hop())
}

/// Checks that an INVITE to a `sips:` URI has come over TLS on the last hop, which ends here.
pub(crate) fn came_securely(request_uri: Option<&Uri<'_>>, flow: &Flow) -> Result<(), Reason> {
    let is_sips = request_uri.is_some_and(|uri| uri.scheme == Scheme::Sips);
    if is_sips && flow.transport != Transport::Tls {
        return Err(Reason::NotSecured);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    #[test]
    fn the_uri_that_a_contact_follows_is_found() {
        for (case, uri, lines, expected) in [
            ("neither", "sip:a@h", "Contact: <sip:b@h>", false),
            ("the Request-URI", "sips:a@h", "Contact: <sip:b@h>", true),
            ("the Contact", "sip:a@h", "Contact: <sips:b@h>", true),
            (
                "the first Record-Route",
                "sip:a@h",
                "Record-Route: <sips:p;lr>, <sip:q;lr>\r\nContact: <sip:b@h>",
                true,
            ),
            (
                "not what is behind a Record-Route",
                "sip:a@h",
                "Record-Route: <sip:p;lr>, <sips:q;lr>\r\nContact: <sips:b@h>",
                false,
            ),
        ] {
            let text = format!(
                "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/TLS h;branch=z9hG4bK1\r\nFrom: <sip:b@h>;tag=1\r\nTo: <{uri}>\r\n\
                 Call-ID: 1\r\nCSeq: 1 INVITE\r\n{lines}\r\nContent-Length: 0\r\n\r\n"
            );
            let invite = lex(text.as_bytes(), Framing::Stream).expect("an INVITE");
            let dialog = Dialog::uas(&invite, b"t").expect("a dialog");
            assert_eq!(
                wants_sips(invite.request_uri(), &dialog),
                expected,
                "{case}"
            );
        }
    }
}
