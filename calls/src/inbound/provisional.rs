//! Provisional responses of the runtime to the caller, and the PRACKs for them (RFC 3262): each early dialog of the runtime has one towards the
//! caller.

use std::sync::Arc;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use crate::core::context::Cx;
use crate::invite::invite_client::ProvisionalResponse;
use crate::leg::bridge::Bridge;
use crate::leg::caller::{relay_and_caller, tell_caller};
use crate::leg::own_request::Purpose;
use crate::leg::provisional_relay::{Delivery, HeldAnswer, LatePrack, Provisional, Retransmission};
use crate::leg::relay::Relay;
use crate::leg::uas_invite::UasInvite;
use crate::leg::{ForkDialog, NewRequest, media_profile, trunk_sdp};
use crate::parts::bye::ByeContent;
use crate::parts::crossing::CrossingKind;
use crate::{has_sdp, sdp_of};

/// Begins a fork, or updates it: a dialog with the runtime, and one with the caller under a To-tag of ours.
pub(crate) fn begin_fork(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    slot: Slot,
    fork: u8,
    dialog: Dialog,
    message: &Message<'_>,
) {
    let (trunk, agent) = (bridge.trunk_id(), bridge.agent_id());
    if bridge.incoming().is_none() {
        return;
    }

    let known = bridge.legs.sip_mut(agent);
    // A further response of the fork may bring another Contact.
    if let Some(known) = known.and_then(|peer| peer.dialog(fork)) {
        return known.refresh_target(message);
    }

    let Some(invite) = bridge.incoming().map(UasInvite::invite) else {
        return;
    };
    let offer = has_sdp(invite).then(|| Arc::from(sdp_of(invite.body())));
    let Some(peer) = bridge.legs.sip_mut(agent) else {
        return;
    };

    let sent = offer.clone();
    peer.dialogs.push(ForkDialog::new(fork, dialog, sent));
    peer.with_origin(offer.as_deref().unwrap_or_default());

    // The 18x that the caller has proven the call by began its dialog, which the runtime's first one goes on in.
    if bridge.has_fork(trunk, fork) {
        return;
    }
    let dialog = bridge.mint_caller_dialog(cx, slot);
    if let (Some(dialog), Some(trunk)) = (dialog, bridge.legs.sip_mut(trunk)) {
        trunk.dialogs.push(ForkDialog::new(fork, dialog, None));
    }
}

/// Handles the timer of a reliable provisional response. A fork that is never acknowledged ends; true if it was the last
/// one, which ends the call (RFC 3262 §3).
pub(crate) fn on_reliable_timer(bridge: &mut Bridge, cx: &mut Cx<'_>, fork: u8) -> bool {
    let trunk = bridge.trunk_id();
    let leg = bridge.at(trunk);
    let repeat = leg.and_then(|mut leg| {
        let (responses, mut caller) = relay_and_caller(&mut leg, cx)?;
        Some(responses.handle_timer(&mut caller, fork))
    });
    match repeat {
        Some(Retransmission::GivenUp) => !goes_on_without(bridge, fork),
        Some(Retransmission::GoesOn) | None => false,
    }
}

/// Returns whether the call goes on without a fork that the caller hasn't acknowledged.
fn goes_on_without(bridge: &Bridge, fork: u8) -> bool {
    let Some(agent) = bridge.agent() else {
        return true;
    };
    // Dialogs belong to the current attempt: a fork without a dialog is of an attempt that has failed.
    let has_failed = won_fork(bridge).is_none() && agent.dialog_ref(fork).is_none();
    has_failed || has_another_fork(bridge, fork)
}

/// Returns whether the runtime's INVITE may be answered in another fork.
fn has_another_fork(bridge: &Bridge, fork: u8) -> bool {
    let mut dialogs = bridge.agent().into_iter().flat_map(|agent| &agent.dialogs);
    match won_fork(bridge) {
        Some(won) => won != fork,
        None => dialogs.any(|held| held.fork != fork),
    }
}

/// The fork whose 2xx waits for the caller's PRACK.
fn won_fork(bridge: &Bridge) -> Option<u8> {
    bridge.incoming()?.relay.held_fork()
}

/// Consequence of a PRACK of the caller for its call.
#[derive(Debug)]
#[must_use]
pub(crate) enum PrackProgress {
    /// None.
    Nothing,
    /// The runtime's 2xx has waited for it.
    Answered(HeldAnswer),
    /// It answers the runtime's offer by media that the runtime can't use.
    Unusable,
}

/// Handles a provisional response to the runtime's INVITE.
pub(crate) fn provisional(relay: &mut Relay<'_>, cx: &mut Cx<'_>, heard: ProvisionalResponse<'_>) {
    // The callee of an outbound call has answered, so the runtime's provisional responses go to no leg.
    let (Some(early), Some(_)) = (heard.early, relay.bridge.incoming()) else {
        return;
    };
    match early.begins {
        Some(dialog) => begin_fork(
            relay.bridge,
            cx,
            relay.ids.slot,
            early.fork,
            dialog,
            heard.message,
        ),
        None => {
            let dialog = relay
                .bridge
                .agent_mut()
                .and_then(|peer| peer.dialog(early.fork));
            if let Some(dialog) = dialog {
                dialog.refresh_target(heard.message);
            }
        }
    }
    relay_provisional(relay, cx, early.fork, early.rseq, heard.message);
}

/// Handles BYE of the caller in one of several early dialogs. The BYE ends that dialog and the runtime's of the same fork. The INVITE
/// goes on in the other forks (RFC 3261 §15). False if there is no other.
pub(crate) fn end_early_dialog(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    fork: u8,
    bye: &Message<'_>,
) -> bool {
    if !has_another_fork(relay.bridge, fork) {
        return false;
    }

    let (trunk, agent) = (relay.bridge.trunk_id(), relay.bridge.agent_id());
    let config = Arc::clone(&cx.core.config);
    let crossing = relay.crossing(trunk, CrossingKind::InDialog, &config.header_prefix);
    let content = ByeContent::of(bye, crossing);
    let request = NewRequest {
        body: &content.body,
        ..NewRequest::bare(fork, Method::Bye, Purpose::Own)
    };
    relay
        .bridge
        .send(cx, agent, &request, |head| head.raw(&content.lines));

    // Both dialogs go first: `abandon_dropped` refuses what was relayed in dialogs that are gone.
    for id in [trunk, agent] {
        if let Some(peer) = relay.bridge.legs.sip_mut(id) {
            peer.dialogs.retain(|held| held.fork != fork);
        }
    }
    relay.bridge.abandon_dropped(cx);
    if let Some(mut leg) = relay.bridge.at(trunk)
        && let Some((responses, mut caller)) = relay_and_caller(&mut leg, cx)
    {
        responses.end_fork(&mut caller, fork);
    }
    true
}

/// Relays a provisional response of the runtime to the caller, in the same fork.
fn relay_provisional(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    fork: u8,
    rseq: Option<u32>,
    message: &Message<'_>,
) {
    let config = Arc::clone(&cx.core.config);
    let crossing = relay.crossing(
        relay.bridge.agent_id(),
        CrossingKind::Response,
        &config.header_prefix,
    );

    let Some(responses) = relay.bridge.incoming().map(|incoming| &incoming.relay) else {
        return;
    };
    // The caller has ended this early dialog by a BYE. The INVITE goes on in the others (RFC 3261 §15).
    if responses.has_ended(fork) {
        return;
    }

    // Only the caller's first response counts as the beginning of ringing.
    if responses.is_silent() {
        cx.note_ringing(relay.ids);
    }

    let delivery = responses.delivery(rseq);
    let offer = relay.bridge.incoming().map(UasInvite::invite);
    let offer = offer
        .filter(|invite| has_sdp(invite))
        .map(|invite| invite.body());
    let is_unusable = |offer| media_profile::differ(sdp_of(offer), sdp_of(message.body()));
    // The 2xx is judged by itself (`dialing::why_unusable`).
    let is_withheld = responses.is_bare(delivery) || offer.is_some_and(is_unusable);
    let body = match is_withheld && has_sdp(message) {
        true => b"",
        false => message.body(),
    };

    let mut head = Vec::new();
    crossing.copy_but(&mut Head::new(&mut head), message, body, &[]);
    let answer = Provisional {
        status: message.status(),
        has_sdp: !body.is_empty() && has_sdp(message),
        head: head.into(),
        body: body.into(),
    };

    // The runtime requires a PRACK and the caller sends none.
    if let (Delivery::Once, Some(rseq)) = (delivery, rseq) {
        send_prack(relay, cx, fork, rseq, Purpose::Own, None);
    }
    let trunk = relay.bridge.trunk_id();
    let is_offered = relay.bridge.incoming();
    let is_offered = is_offered.is_some_and(|incoming| has_sdp(incoming.invite()));
    if answer.has_sdp && is_offered {
        // The 2xx may come without it (`answer::pass_answer`).
        relay.bridge.legs.remember_sdp(trunk, fork, &answer.body);
    }
    if let Some(mut leg) = relay.bridge.at(trunk) {
        tell_caller(&mut leg, cx, fork, delivery, answer);
    }
}

/// Handles the caller's PRACK.
pub(crate) fn on_prack(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    fork: u8,
    server: ServerTx,
    message: &Message<'_>,
) -> PrackProgress {
    let trunk = relay.bridge.trunk_id();
    let leg = relay.bridge.at(trunk);
    let acknowledged = leg.and_then(|mut leg| {
        let (responses, mut caller) = relay_and_caller(&mut leg, cx)?;
        responses.handle_prack(&mut caller, fork, message)
    });

    let Some(acknowledged) = acknowledged else {
        // RFC 3262 §3: after its final response the UAS "MUST be prepared to process PRACK requests" for responses
        // that were out. Any other unmatched PRACK is 481.
        let is_late = |late: &mut LatePrack| late.is_brought_by(fork, message);
        let session = relay.bridge.legs.session_mut(relay.bridge.trunk_id());
        let late = session.and_then(|session| session.late_prack.take_if(is_late));
        let status = match late {
            Some(_) => 200,
            None => 481,
        };
        cx.respond(server, status, None, |_| {}, b"");
        return PrackProgress::Nothing;
    };

    // RFC 3262 §3: a PRACK that matches a response "MUST be responded to with a 2xx". What it answers is refused by the INVITE's final response.
    let differs = |offer| media_profile::differ(sdp_of(offer), sdp_of(message.body()));
    if has_sdp(message) && acknowledged.offer.as_deref().is_some_and(differs) {
        cx.respond(server, 200, None, |_| {}, b"");
        return PrackProgress::Unusable;
    }

    let offers = has_sdp(message)
        && relay
            .bridge
            .incoming()
            .is_some_and(|incoming| has_sdp(incoming.invite()));

    // No PRACK goes to the runtime of an attempt that has failed.
    let purpose = Purpose::Relay(server);
    let crosses = acknowledged
        .rseq
        .is_some_and(|rseq| send_prack(relay, cx, fork, rseq, purpose, Some(message)));

    // A 200 would have to answer the offer (RFC 3262 §5). The runtime, whose response wasn't reliable, still owes the answer to the first one, so
    // no UPDATE may bring it another (RFC 3311 §5.1).
    if !crosses {
        let status = if offers { 488 } else { 200 };
        cx.respond(server, status, None, |_| {}, b"");
    }
    match (offers, crosses) {
        (false, _) => trunk_sdp::hear(relay.bridge, trunk, message),
        // It counts once the runtime has accepted it (`Relay::answer`).
        (true, true) => trunk_sdp::note_proposal(relay.bridge, trunk, message),
        (true, false) => {}
    }

    let leg = relay.bridge.at(trunk);
    let held = leg.and_then(|mut leg| {
        let (responses, mut caller) = relay_and_caller(&mut leg, cx)?;
        responses.go_on(&mut caller, fork)
    });
    held.map_or(PrackProgress::Nothing, PrackProgress::Answered)
}

/// Sends the runtime the PRACK for its response with this RSeq. False if there is no such dialog or no room.
fn send_prack(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    fork: u8,
    rseq: u32,
    purpose: Purpose,
    content: Option<&Message<'_>>,
) -> bool {
    let Some(cseq) = relay
        .bridge
        .incoming()
        .map(|incoming| incoming.runtime_cseq)
    else {
        return false;
    };
    let extra = |head: &mut Head<'_>| head.fmt("RAck", format_args!("{rseq} {cseq} INVITE"));
    let (agent, prack) = (relay.bridge.agent_id(), Method::Prack);
    relay
        .send(cx, agent, fork, prack, purpose, content, extra)
        .is_some()
}
