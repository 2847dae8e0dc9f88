//! The methods that are served, as Allow names them (RFC 3261 §20.5): outside calls, and on each leg of one.

use trunkline_sip::wire::print::Head;

use super::role::LegRole;

/// Methods outside calls. BYE and those after it match no dialog there and are answered 481.
pub(crate) const OUTSIDE: &[u8] =
    b"INVITE, ACK, CANCEL, OPTIONS, REGISTER, BYE, PRACK, UPDATE, INFO, NOTIFY";

/// Methods on the caller's leg: it sends NOTIFY for our REFER, and never REFER.
pub(crate) const CALLER: &[u8] =
    b"INVITE, ACK, CANCEL, BYE, OPTIONS, PRACK, UPDATE, INFO, MESSAGE, NOTIFY";

/// Methods on the leg of an agent's runtime: REFER requests a transfer. We send nothing reliably there, so PRACK isn't served.
pub(crate) const RUNTIME: &[u8] =
    b"INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, INFO, MESSAGE, REFER";

/// Methods on the leg of a transfer destination.
const DESTINATION: &[u8] = b"INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, INFO, MESSAGE";

/// Methods for the peer of a leg.
pub(crate) const fn to_peer(role: LegRole) -> &'static [u8] {
    match role {
        LegRole::Trunk => CALLER,
        LegRole::Agent => RUNTIME,
        LegRole::Destination => DESTINATION,
    }
}

/// Writes the capabilities in an answer to OPTIONS (RFC 3261 §11.2).
pub(crate) fn capabilities(head: &mut Head<'_>, methods: &[u8]) {
    head.line("Allow", methods);
    head.line("Accept", b"application/sdp");
    head.line("Supported", b"100rel, timer, replaces");
}

/// Writes `Contact`, `Allow` and `Supported` of our side on a leg.
pub(crate) fn own_lines(head: &mut Head<'_>, contact: &str, methods: &[u8]) {
    lines_with(head, contact, methods, b"100rel, timer, replaces");
}

/// Writes them for a request inside a dialog, without 100rel: no provisional answer to it has to be acknowledged.
pub(crate) fn own_request_lines(head: &mut Head<'_>, contact: &str, methods: &[u8]) {
    lines_with(head, contact, methods, b"timer, replaces");
}

fn lines_with(head: &mut Head<'_>, contact: &str, methods: &[u8], supported: &[u8]) {
    head.line("Contact", contact.as_bytes());
    head.line("Allow", methods);
    head.line("Supported", supported);
}
