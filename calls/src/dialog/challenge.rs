//! Challenges to the requests of a call, answered with the credentials of the leg (RFC 3261 §22), or reported.

use trunkline_model::record::Direction;
use trunkline_sip::auth::client::ChallengedMessage;
use trunkline_sip::wire::{Message, Method};
use uuid::Uuid;

use crate::core::context::Cx;
use crate::dialog::repeat;
use crate::invite::challenge_answer;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose};
use crate::parts::ids::LegId;
use crate::trust::challenge_report::{ChallengeOutcome, Challenger};
use crate::trust::credentials::{ChallengedRequest, Unanswerable};

/// Sends a request again with credentials for its challenge; else returns it.
pub(crate) fn prove(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    org: Uuid,
    direction: Direction,
    mut pending: Pending,
    message: &Message<'_>,
) -> Option<Pending> {
    // The transfer repeats its REFER itself, and after the call only the BYE is repeated.
    let asks = bridge.status() != CallStatus::Over || pending.method == Method::Bye;
    let is_own = pending.purpose != Purpose::Transfer;
    // The requester has taken a cancelled request back: sent again, it would take effect all the same.
    let is_wanted = asks && is_own && !pending.is_canceled;
    if !matches!(message.status(), 401 | 407) || !is_wanted {
        return Some(pending);
    }

    let method = pending.method;
    let leg = bridge.legs.get(pending.leg);

    // The next hop of the repeated request decides, not the challenger: the digest must reach the peer alone.
    let Some(destination) = leg.and_then(|leg| leg.next_hop(cx, pending.fork)) else {
        return Some(pending);
    };
    let Some(mut repeatable) = pending.repeatable.take() else {
        let why = Unanswerable::NoPair;
        cx.report(challenger(bridge, pending.leg, org, direction), || {
            ChallengeOutcome::unanswered(why, message, destination)
        });
        return Some(pending);
    };

    let answered = bridge
        .legs
        .sip_mut(pending.leg)
        .map_or(Err(Unanswerable::NoPair), |leg| {
            let dialog = leg.dialog_ref(pending.fork);
            let known = leg.credentials.as_ref().zip(dialog);
            let (credentials, dialog) = known.ok_or(Unanswerable::NoPair)?;
            let challenged = ChallengedMessage {
                method: method.as_str(),
                uri: dialog.request_uri(),
                body: &repeatable.body,
            };
            challenge_answer::answer(
                credentials,
                cx,
                &mut repeatable.digest_answers,
                message,
                &challenged,
                ChallengedRequest::InDialog(dialog),
                destination,
            )
        });
    if let Err(why) = answered {
        cx.report(challenger(bridge, pending.leg, org, direction), || {
            ChallengeOutcome::unanswered(why, message, destination)
        });
        return Some(pending);
    }

    repeat::repeat(bridge, cx, pending, repeatable)
}

/// The challenger whose unanswered challenges are reported: a PBX or a trunk's host. Those of runtimes and destinations aren't.
pub(crate) fn challenger(
    bridge: &Bridge,
    id: LegId,
    org: Uuid,
    direction: Direction,
) -> Option<Challenger> {
    let peer = bridge.legs.sip(id);
    match peer.and_then(|peer| peer.credentials.as_deref()) {
        Some(held) if held.is_runtimes() => None,
        Some(held) => Some(Challenger {
            org,
            trunk: held.trunk(),
        }),
        None => {
            let is_pbx = direction == Direction::Inbound && bridge.is_trunk(id);
            is_pbx.then_some(Challenger::pbx(org))
        }
    }
}
