//! 2xx that come too late, or belong to no call: each is acknowledged and ended with BYE (RFC 3261 §13.2.2.4).
//!
//! A 2xx without a transaction may be forged by a peer that once got an INVITE of ours. Its Contact and Record-Route decide nothing: ACK
//! and BYE go back by its own flow, once for each copy of the 2xx, and are charged to its source.

use trunkline_sip::dialog::body::{has_sdp, sdp_of};
use trunkline_sip::dialog::{Dialog, sdp};
use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use crate::core::context::Cx;
use crate::parts::ids::owner_of;
use crate::parts::request_origin::RequestOrigin;

/// Late BYEs of one shard that may be in a transaction. Further ones are sent without one.
const MAX_LATE_BYES: u32 = 256;

/// CSeq numbers that an unknown dialog may have used up.
const FORGOTTEN: u32 = 10_000;

/// Target of an unknown dialog whose 2xx has no Contact.
const UNKNOWN_URI: &[u8] = b"sip:invalid";

/// Handles a 2xx for a finished call, or of a fork that lost: ACK, then BYE (RFC 3261 §13.2.2.4). Retransmissions get the same ACK and no further
/// BYE.
pub(crate) fn refuse_late_answer(
    cx: &mut Cx<'_>,
    flow: Flow,
    client: ClientTx,
    message: &Message<'_>,
) {
    let Some((mut dialog, has_routes)) = dialog_of(cx, message) else {
        return;
    };
    // Routes that can't be read lead nowhere, but the flow of the 2xx leads back to its sender.
    let target = match has_routes {
        true => cx.next_flow(&dialog, flow),
        false => flow,
    };

    let late = LateAnswer {
        message,
        flow,
        client: Some(client),
    };
    acknowledge(cx, &late, &mut dialog, target);

    // The BYE carries the Reason of the CANCEL that this 2xx has crossed (RFC 3326 §2).
    let lines: Box<[u8]> = cx.endpoint.canceled_with(client).into();
    bye_alone(cx, &mut dialog, target, &lines);
}

/// Handles a 2xx to an INVITE of ours that has no transaction any more: ACK and BYE go back by the flow of the 2xx, and count against its
/// source. Both are repeated with each retransmission of the 2xx.
pub(crate) fn refuse_stray_answer(cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) {
    let Some((mut dialog, _)) = dialog_of(cx, message) else {
        return;
    };

    // The source of this 2xx may be forged, so the ACK and BYE that it causes are counted from here and charged to it.
    let waiting = cx.endpoint.waiting();
    let late = LateAnswer {
        message,
        flow,
        client: None,
    };
    acknowledge(cx, &late, &mut dialog, flow);
    with_bye(cx, &mut dialog, b"", |cx, bye| {
        cx.endpoint.request_once(flow, bye);
    });
    cx.endpoint.charge_since(waiting, message, &flow);
}

/// Returns the dialog that a 2xx to an INVITE of ours makes, and whether its routes can be read. Without an ACK the 2xx would be
/// retransmitted, and its peer take the call for answered (§13.2.2.4), so unreadable routes are ignored.
fn dialog_of(cx: &Cx<'_>, message: &Message<'_>) -> Option<(Dialog, bool)> {
    // Without a tag of ours the 2xx answers no INVITE of this deployment, and gets nothing at all.
    let from_tag = message.from_tag().unwrap_or_default();
    cx.core.minter.read_tag(from_tag)?;

    let routed = Dialog::uac(UNKNOWN_URI, message).map(|dialog| (dialog, true));
    let direct = || Some((Dialog::uac_without_routes(UNKNOWN_URI, message)?, false));
    routed.or_else(direct)
}

/// A 2xx that nobody waits for, with its transaction if that is known.
struct LateAnswer<'a, 'm> {
    message: &'a Message<'m>,
    flow: Flow,
    client: Option<ClientTx>,
}

/// Acknowledges a 2xx, and refuses the offer in it.
fn acknowledge(cx: &mut Cx<'_>, late: &LateAnswer<'_, '_>, dialog: &mut Dialog, target: Flow) {
    let LateAnswer {
        message,
        flow,
        client,
    } = *late;
    let uri = dialog.request_uri().to_vec();
    let cseq = message.cseq().number;

    // An SDP in it is an offer, unless the INVITE is known to have had one: an unneeded answer does less harm than a missing one.
    let offered = client.and_then(|client| cx.endpoint.offered(client)) == Some(true);
    let has_offer = !offered && has_sdp(message);
    let body = if has_offer {
        sdp::reject(sdp_of(message.body()), flow.local)
    } else {
        Vec::new()
    };

    let ack = |head: &mut Head<'_>| {
        dialog.ack_head(cseq, head);
        if has_offer {
            head.line("Content-Type", b"application/sdp");
        }
    };
    cx.with_head(ack, |cx, head| {
        let request = Request {
            method: Method::Ack,
            token: "ACK",
            uri: &uri,
            head,
            body: &body,
        };
        let tag = message.to_tag().unwrap_or_default();
        match client {
            Some(client) => cx.endpoint.ack(client, tag, target, &request, cx.now),
            None => cx.endpoint.ack_stateless(target, &request),
        }
    });

    // PRACKs and UPDATEs of the forgotten dialog may have used numbers. RFC 3261 §12.2.2: a request with a lower number
    // "MUST be rejected with a 500".
    dialog.skip(FORGOTTEN);
}

/// Sends BYE in a dialog without a call, with these further lines.
pub(crate) fn bye_alone(cx: &mut Cx<'_>, dialog: &mut Dialog, target: Flow, lines: &[u8]) {
    with_bye(cx, dialog, lines, |cx, bye| {
        // Without a transaction it is sent once. If it is lost, the peer's session timer or media time-out ends its side.
        if cx.core.late_byes >= MAX_LATE_BYES {
            return cx.endpoint.request_once(target, bye);
        }
        // A full table loses this BYE; the peer's session timer or media time-out ends its side.
        let sent = cx.endpoint.request(target, bye, owner_of(None), cx.now);
        if sent.is_ok() {
            cx.core.late_byes += 1;
        }
    });
}

/// Has `send` send the BYE of a dialog, with these further lines.
fn with_bye(
    cx: &mut Cx<'_>,
    dialog: &mut Dialog,
    lines: &[u8],
    send: impl FnOnce(&mut Cx<'_>, &Request<'_>),
) {
    let uri = dialog.request_uri().to_vec();
    let bye = |head: &mut Head<'_>| {
        dialog.begin("BYE", RequestOrigin::Ours.hops(), head);
        head.raw(lines);
    };

    cx.with_head(bye, |cx, head| {
        let request = Request {
            method: Method::Bye,
            token: "BYE",
            uri: &uri,
            head,
            body: b"",
        };
        send(cx, &request);
    });
}
