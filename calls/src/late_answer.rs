//! 2xx that come too late, or belong to no call: each is acknowledged and ended with BYE (RFC 3261 §13.2.2.4).

use trunkline_sip::dialog::body::{has_sdp, sdp_of};
use trunkline_sip::dialog::{Dialog, sdp};
use trunkline_sip::endpoint::{ClientTx, Request};
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::context::Cx;
use super::ids::owner_of;
use super::request_origin::RequestOrigin;

/// Late BYEs of one shard that may be in a transaction. Further ones are sent without one.
const MAX_LATE_BYES: u32 = 256;

/// CSeq numbers that an unknown dialog may have used up.
const FORGOTTEN: u32 = 10_000;

/// Target of an unknown dialog whose 2xx has no Contact.
const UNKNOWN_URI: &[u8] = b"sip:invalid";

/// Handles a 2xx for a finished call, or of a fork that lost: ACK, then BYE (RFC 3261 §13.2.2.4). If its transaction is known, retransmissions get
/// the same ACK and no further BYE.
pub(crate) fn refuse_late_answer(
    cx: &mut Cx<'_>,
    flow: Flow,
    client: Option<ClientTx>,
    message: &Message<'_>,
) {
    let from_tag = message.from_tag().unwrap_or_default();
    if cx.core.minter.read_tag(from_tag).is_none() {
        return;
    }

    let routed = Dialog::uac(UNKNOWN_URI, message).map(|dialog| {
        let target = cx.next_flow(&dialog, flow);
        (dialog, target)
    });

    // Without an ACK the 2xx would be retransmitted, and its peer take the call for answered (§13.2.2.4), so unreadable routes are ignored.
    let direct = || Dialog::uac_without_routes(UNKNOWN_URI, message).zip(Some(flow));
    let Some((mut dialog, target)) = routed.or_else(direct) else {
        return;
    };

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
    dialog.skip(FORGOTTEN);

    // The BYE carries the Reason of the CANCEL that this 2xx has crossed (RFC 3326 §2).
    let lines: Box<[u8]> = match client {
        Some(client) => cx.endpoint.canceled_with(client).into(),
        None => Box::default(),
    };
    bye_alone(cx, &mut dialog, target, &lines);
}

/// Sends BYE in a dialog without a call, with these further lines.
pub(crate) fn bye_alone(cx: &mut Cx<'_>, dialog: &mut Dialog, target: Flow, lines: &[u8]) {
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
        // Without a transaction it is repeated with each retransmission of the 2xx.
        if cx.core.late_byes >= MAX_LATE_BYES {
            return cx.endpoint.request_once(target, &request);
        }
        // A full table loses this BYE; the peer's session timer or media time-out ends its side.
        let sent = cx
            .endpoint
            .request(target, &request, owner_of(None), cx.now);
        if sent.is_ok() {
            cx.core.late_byes += 1;
        }
    });
}
