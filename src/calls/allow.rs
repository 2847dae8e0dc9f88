//! The methods that are served, as Allow names them (RFC 3261 §20.5): outside calls, and on each leg of one.

use trunkline_sip::wire::print::Head;

use super::call::{Call, Side};

/// Outside calls. BYE and those after it find no dialog there, and are answered 481.
pub(crate) const OUTSIDE: &[u8] =
    b"INVITE, ACK, CANCEL, OPTIONS, REGISTER, BYE, PRACK, UPDATE, INFO, NOTIFY";

/// On the caller's leg: it is told what came of a REFER, and sends none.
const CALLER: &[u8] = b"INVITE, ACK, CANCEL, BYE, OPTIONS, PRACK, UPDATE, INFO, MESSAGE, NOTIFY";

/// On the leg of an agent's runtime: it may ask for a transfer, and gets nothing to acknowledge by PRACK.
pub(crate) const RUNTIME: &[u8] =
    b"INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, INFO, MESSAGE, REFER";

/// On the leg of somebody whom the caller was handed to.
const DESTINATION: &[u8] = b"INVITE, ACK, CANCEL, BYE, OPTIONS, UPDATE, INFO, MESSAGE";

/// What somebody may send to us whom we call ourselves and who will be on this side.
pub(crate) const fn to_callee(side: Side) -> &'static [u8] {
    match side {
        Side::Caller => CALLER,
        Side::Agent => DESTINATION,
    }
}

/// What we can do, as the answer to OPTIONS says it (RFC 3261 §11.2).
pub(crate) fn capabilities(head: &mut Head<'_>, methods: &[u8]) {
    head.line("Allow", methods);
    head.line("Accept", b"application/sdp");
    head.line("Supported", b"100rel, timer, replaces");
}

/// `Contact`, `Allow` and `Supported` of our side on a leg.
pub(crate) fn own_lines(head: &mut Head<'_>, contact: &str, methods: &[u8]) {
    lines_with(head, contact, methods, b"100rel, timer, replaces");
}

/// Those of a request inside a dialog: what may come before its answer is nothing that would have to be acknowledged.
pub(crate) fn own_request_lines(head: &mut Head<'_>, contact: &str, methods: &[u8]) {
    lines_with(head, contact, methods, b"timer, replaces");
}

fn lines_with(head: &mut Head<'_>, contact: &str, methods: &[u8], supported: &[u8]) {
    head.line("Contact", contact.as_bytes());
    head.line("Allow", methods);
    head.line("Supported", supported);
}

impl Call {
    /// What the peer on this leg may send.
    pub(crate) const fn methods(&self, side: Side) -> &'static [u8] {
        match side {
            Side::Caller => CALLER,
            Side::Agent if self.bridged.is_some() => DESTINATION,
            Side::Agent => RUNTIME,
        }
    }
}
