//! Requests of ours inside a call that are sent again, as other requests of the same dialog: with credentials (`challenge`), or by the dialog's own
//! connection where the remote target takes none.

use trunkline_sip::wire::Method;
use trunkline_sip::wire::print::Head;

use crate::core::context::Cx;
use crate::leg::NewRequest;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose};
use crate::trust::digest_answers::RepeatableRequest;

/// Sends a request again by the dialog's connection, if it went beside that to an address which takes no connection (RFC 3261 §8.1.3.1 would have it
/// fail with 503); else returns it.
pub(crate) fn send_by_connection(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    mut pending: Pending,
) -> Option<Pending> {
    // The transfer repeats its REFER itself, and after the call only the BYE is repeated.
    let is_wanted = bridge.status() != CallStatus::Over || pending.method == Method::Bye;
    let is_own = pending.purpose != Purpose::Transfer;
    if !pending.is_beside || pending.is_canceled || !is_own || !is_wanted {
        return Some(pending);
    }

    // Without a note of the address (`Cx::note_unreachable`), it would go there again.
    let leads_back = bridge.legs.sip(pending.leg).is_some_and(|peer| {
        let dialog = peer.dialog_ref(pending.fork);
        dialog.is_some_and(|dialog| {
            let flow = cx.next_flow(dialog, peer.flow);
            !cx.is_beside(dialog, &flow, &peer.flow)
        })
    });
    match pending.repeatable.take_if(|_| leads_back) {
        Some(repeatable) => repeat(bridge, cx, pending, repeatable),
        None => Some(pending),
    }
}

/// Sends a request again, with the answers to its challenges; returns it if there is no room.
pub(crate) fn repeat(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    pending: Pending,
    repeatable: Box<RepeatableRequest>,
) -> Option<Pending> {
    let request = NewRequest {
        fork: pending.fork,
        method: pending.method,
        purpose: pending.purpose,
        offers: pending.offers,
        origin: pending.origin,
        body: &repeatable.body,
    };
    let lines = |head: &mut Head<'_>| {
        head.raw(&repeatable.lines);
        repeatable.digest_answers.lines(head);
    };
    let Some(sent) = bridge.send(cx, pending.leg, &request, lines) else {
        return Some(pending);
    };
    // The requester on the other leg waits for the repeated request now.
    (sent.renewal, sent.target) = (pending.renewal, pending.target);
    // The body that is kept has them already.
    sent.added_streams = pending.added_streams;
    sent.repeatable = Some(repeatable);

    None
}
