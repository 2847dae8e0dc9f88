//! A peer that is being dialled for this call: an [`InviteClient`] and its purpose. Events of the INVITE are handled on the bridge; what follows from
//! them for the call is returned as progress.

use std::sync::Arc;
use std::time::Duration;

use trunkline_model::attempt::AttemptLeg;
use uuid::Uuid;

use crate::core::context::{Config, Cx};
use crate::invite::attempts::AttemptOwner;
use crate::invite::invite_client::{
    Accepted, DialledLeg, Failed, InviteClient, InviteEvent, InviteText, Patience,
    ProvisionalResponse,
};
use crate::invite::late_answer::refuse_late_answer;
use crate::leg::bridge::Bridge;
use crate::leg::callee::{Callee, CalleeLeg};
use crate::leg::dial::{DialedPeer, Dialing};
use crate::leg::runtime_chain::RuntimeChain;
use crate::leg::runtime_invite::{HeaderSource, RuntimeCallFacts, RuntimeInvite, RuntimeText};
use crate::leg::uas_invite::UasInvite;
use crate::leg::{LegPeer, LegState, media_profile};
use crate::parts::dial_failure::DialFailure;
use crate::parts::ids::{CallRef, LegId};
use crate::parts::ip_family;
use crate::parts::privacy::CallerIdentity;
use crate::parts::refusal::Reason;
use crate::parts::role::LegRole;
use crate::parts::sips::is_sips;
use crate::{has_sdp, sdp_of};

/// The call of a peer that is being dialled, as the INVITE to a runtime needs it.
pub(crate) struct DialingCall<'c> {
    pub(crate) ids: &'c CallRef,
    pub(crate) contact: Option<Uuid>,
    pub(crate) identity: &'c CallerIdentity,
    /// URIs of both ends of an outbound call.
    pub(crate) parties: Option<&'c [Box<str>; 2]>,
    /// The callee's SDP, in an outbound call.
    pub(crate) heard: Option<&'c [u8]>,
}

/// Consequence of an INVITE of ours for its call.
#[derive(Debug)]
#[must_use]
pub(crate) enum DialProgress<'m> {
    /// None.
    Nothing,
    /// The callee rings.
    CalleeRings,
    /// The callee has answered that offer.
    CalleeAnswers(Box<Accepted<'m>>, Box<[u8]>),
    /// The callee doesn't answer.
    CalleeLost(DialFailure),
    /// The destination of a transfer rings.
    DestinationRings,
    /// The destination has answered that offer on its leg.
    DestinationAnswers(LegId, Box<Accepted<'m>>, Box<[u8]>),
    /// The destination doesn't answer, and its leg is gone.
    DestinationLost(DialFailure),
    /// The runtime has sent a provisional response.
    RuntimeRings(ProvisionalResponse<'m>),
    /// The runtime has answered.
    RuntimeAnswers(Box<Accepted<'m>>),
    /// The caller can't use the last runtime's answer.
    Unusable(Reason),
    /// The runtime can't be reached, and others follow it.
    RuntimeFollows(Box<RuntimeChain>),
    /// No runtime takes the call.
    RuntimeLost(Failed<'m>),
}

/// Adds the leg of a destination, and makes ready to dial it.
pub(crate) fn add_destination(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    ids: &CallRef,
    hops: u8,
    callee: Callee,
    patience: Patience,
) {
    let role = LegRole::Destination;
    // Its client needs the leg's id, so the leg is there first.
    let id = bridge.legs.add(role, LegPeer::Unknown, LegState::Gone);
    let leg = DialledLeg {
        key: bridge.key,
        slot: ids.slot,
        id,
        owner: AttemptOwner {
            call: ids.call,
            org: ids.org,
            leg: AttemptLeg::Destination,
        },
    };

    let callee_leg = CalleeLeg {
        role,
        hops,
        call_id: cx.core.minter.call_id(ids.slot, cx.endpoint.entropy()),
    };

    let (plan, text) = callee.split(callee_leg, patience);
    let client = InviteClient::new(leg, plan);
    bridge
        .legs
        .set_state(id, LegState::Dialing(Dialing::destination(client, text)));
}

/// Sets the offer of the callee or destination, which may ring for as long as `patience` says.
pub(crate) fn set_offer(bridge: &mut Bridge, cx: &mut Cx<'_>, offer: Vec<u8>, patience: Duration) {
    let key = bridge.key;
    if let Some(dialing) = bridge.dialing_mut() {
        dialing.offer(cx, key, offer, patience);
    }
}

/// Returns the reason why the caller can't use the runtime's 2xx, if there is one. `heard`: the callee's SDP, in an outbound call.
fn why_unusable(bridge: &Bridge, heard: Option<&[u8]>, accepted: &Accepted<'_>) -> Option<Reason> {
    let incoming = bridge.incoming();
    // The 2xx has crossed the caller's BYE in that early dialog.
    if incoming.is_some_and(|incoming| incoming.relay.has_ended(accepted.fork)) {
        return Some(Reason::CallerCanceled);
    }

    let invite = incoming.map(UasInvite::invite);
    let offer = match invite.filter(|invite| has_sdp(invite)) {
        Some(invite) => Some(invite.body()),
        None => heard,
    };
    if let (Some(trunk), Some(answer)) = (bridge.trunk(), accepted.sdp())
        && ip_family::is_out_of_reach(answer, offer.map(sdp_of), trunk.flow.peer.ip())
    {
        return Some(Reason::MediaFamilies);
    }
    if let (Some(offer), Some(answer)) = (offer, accepted.sdp())
        && media_profile::differ(sdp_of(offer), answer)
    {
        return Some(Reason::NoCommonMedia);
    }

    // Media may have been agreed on before the 2xx, by a reliable response and its PRACK. Then the 2xx needs no SDP.
    let is_agreed = |incoming: &UasInvite| incoming.relay.is_agreed(accepted.fork);
    let lacks_sdp =
        accepted.sdp().is_none() && incoming.is_some_and(|incoming| !is_agreed(incoming));
    lacks_sdp.then_some(Reason::NoCommonMedia)
}

/// Hangs up on a 2xx of the runtime. True if its INVITE has another target.
fn turn_down(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    dialing: Box<Dialing>,
    accepted: &Accepted<'_>,
) -> bool {
    refuse_late_answer(cx, accepted.flow, accepted.client, accepted.message);
    let has_another = dialing.client.has_another();
    // `dial` has taken `dialing` out of its leg, and the next target needs it there.
    if has_another {
        let id = dialing.client.leg();
        bridge.legs.set_state(id, LegState::Dialing(dialing));
    }
    has_another
}

/// Handles a change of the runtime's INVITE: early dialogs end with their transaction (RFC 3261 §12.3). Those towards the caller stay until the
/// call is answered.
fn on_runtime_invited(bridge: &mut Bridge, cx: &mut Cx<'_>, client: &InviteClient) {
    if let Some(incoming) = bridge.incoming_mut() {
        incoming.relay.drop_queued();
        if let Some(sent) = client.sent() {
            incoming.runtime_cseq = sent.cseq;
        }
    }

    let agent = bridge.agent_id();
    if let Some(peer) = bridge.legs.sip_mut(agent) {
        peer.dialogs.clear();
    }
    bridge.abandon_dropped(cx);

    let leg = bridge.legs.get_mut(agent);
    let (Some(leg), Some(sent)) = (leg, client.sent()) else {
        return;
    };
    let Some(peer) = leg.reached_by(sent.flow) else {
        return;
    };
    peer.is_sips = is_sips(sent.uri.as_bytes());
    client
        .addresses()
        .for_each(|ip| peer.known_addresses.learn(ip));
}

/// Runs the client of the peer that is being dialled, if there is one.
pub(crate) fn dial<'m>(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    of: &DialingCall<'_>,
    act: impl FnOnce(&mut InviteClient, &mut Cx<'_>, &dyn InviteText) -> InviteEvent<'m>,
) -> DialProgress<'m> {
    // The client is taken out of its leg while it runs, since the text of the INVITE borrows the legs.
    let Some((id, mut dialing)) = bridge.legs.take_dialing() else {
        return DialProgress::Nothing;
    };

    let Dialing { client, peer } = &mut *dialing;
    let before = client.transaction();
    let event = match peer {
        DialedPeer::Callee(called) | DialedPeer::Destination(called) => {
            act(client, cx, &called.text)
        }
        DialedPeer::Runtime(says) => {
            let config = Arc::clone(&cx.core.config);
            match runtime_text(bridge, of, says, config) {
                Some(text) => act(client, cx, &text),
                // Nothing to offer the runtime: no INVITE of a caller, no SDP of a callee. The call's deadline ends this wait.
                None => InviteEvent::Waits,
            }
        }
    };

    // The tags are kept with the call, which removes them from the index when it is dropped.
    bridge.tags.extend(client.take_tags());
    if dialing.is_runtime() && dialing.client.transaction() != before {
        on_runtime_invited(bridge, cx, &dialing.client);
    }

    match event {
        InviteEvent::Waits => {
            bridge.legs.set_state(id, LegState::Dialing(dialing));
            DialProgress::Nothing
        }
        InviteEvent::Provisional(heard) => {
            bridge.legs.set_state(id, LegState::Dialing(dialing));
            match bridge.role(id) {
                LegRole::Agent => DialProgress::RuntimeRings(heard),
                LegRole::Trunk if heard.is_first => DialProgress::CalleeRings,
                LegRole::Destination if heard.is_first => DialProgress::DestinationRings,
                LegRole::Trunk | LegRole::Destination => DialProgress::Nothing,
            }
        }
        InviteEvent::Accepted(accepted) => on_accepted(bridge, cx, of, dialing, accepted),
        InviteEvent::Failed(failed) => on_failed(bridge, cx, *dialing, failed),
    }
}

fn on_accepted<'m>(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    of: &DialingCall<'_>,
    mut dialing: Box<Dialing>,
    accepted: Box<Accepted<'m>>,
) -> DialProgress<'m> {
    dialing.stop_ringing(cx);

    match dialing.peer {
        DialedPeer::Callee(called) => {
            DialProgress::CalleeAnswers(accepted, called.text.into_offer())
        }
        DialedPeer::Destination(called) => {
            let leg = dialing.client.leg();
            DialProgress::DestinationAnswers(leg, accepted, called.text.into_offer())
        }
        DialedPeer::Runtime(_) => match why_unusable(bridge, of.heard, &accepted) {
            None => DialProgress::RuntimeAnswers(accepted),
            Some(reason) => match turn_down(bridge, cx, dialing, &accepted) {
                true => dial(bridge, cx, of, |client, cx, text| {
                    client.pass_over(cx, text)
                }),
                false => DialProgress::Unusable(reason),
            },
        },
    }
}

fn on_failed<'m>(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    mut dialing: Dialing,
    failed: Failed<'m>,
) -> DialProgress<'m> {
    dialing.stop_ringing(cx);
    match dialing.peer {
        DialedPeer::Callee(_) => DialProgress::CalleeLost(failed.failure),
        DialedPeer::Destination(_) => {
            bridge.legs.remove(dialing.client.leg());
            DialProgress::DestinationLost(failed.failure)
        }
        // A runtime that has answered by a refusal of its own ends the call.
        DialedPeer::Runtime(says) => match says.then.filter(|_| failed.message.is_none()) {
            Some(chain) => {
                dialing.client.pass_on(cx);
                DialProgress::RuntimeFollows(chain)
            }
            None => DialProgress::RuntimeLost(failed),
        },
    }
}

/// Text of the INVITE to the call's runtime.
fn runtime_text<'a>(
    bridge: &'a Bridge,
    of: &DialingCall<'a>,
    says: &'a RuntimeInvite,
    config: Arc<Config>,
) -> Option<RuntimeText<'a>> {
    let words = match (bridge.incoming(), of.parties) {
        (Some(incoming), _) => HeaderSource::Relayed(incoming.invite()),
        (None, Some(parties)) => HeaderSource::Ours {
            parties,
            offer: of.heard?,
        },
        (None, None) => return None,
    };

    let facts = RuntimeCallFacts {
        org: of.ids.org,
        session: of.ids.session,
        agent: of.ids.agent,
        contact: of.contact,
        identity: of.identity,
        reliable: bridge.trunk().map(|trunk| trunk.abilities.reliable),
    };
    Some(RuntimeText::new(facts, words, says, config))
}
