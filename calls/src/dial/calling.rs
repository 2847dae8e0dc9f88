//! Outbound calls. The callee is called first, with an offer on our own RTP address. Once it has answered, the runtime is invited with the
//! callee's SDP, and the callee is re-INVITEd with the runtime's (RFC 3725 §4.4 with the parties swapped: no runtime is started for a call
//! that isn't answered). An agent that speaks by media of ours (echo, bot, built-in) takes part from the offer on.
//!
//! The callee's leg has the caller's place, so a joined call is like any other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use trunkline_model::attempt::AttemptLeg;
use trunkline_model::record::{Fact, HangupBy, Status};
use trunkline_model::view::OutboundRoute;
use trunkline_sip::dialog::sdp;
use trunkline_sip::slot::{CallId, Slot};
use uuid::Uuid;

use super::outbound::{Outbound, PlacedCall};
use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::invite::attempts::AttemptOwner;
use crate::invite::invite_client::{Accepted, DialledLeg, InviteClient, Patience};
use crate::leg::bridge::Bridge;
use crate::leg::call_end::CallEnd;
use crate::leg::callee::{Callee, CalleeLeg};
use crate::leg::dial::Dialing;
use crate::leg::{Ack, ForkDialog, LegState, LocalMedia, Session, SipPeer};
use crate::parts::bye::ByeContent;
use crate::parts::ids::{CallKey, CallRef, LegId};
use crate::parts::origin::{OwnOrigin, sdp_session};
use crate::parts::refusal::Reason;
use crate::parts::request_origin::RequestOrigin;
use crate::parts::role::LegRole;

impl PlacedCall {
    /// The ids of a call in `slot`.
    fn mint(cx: &mut Cx<'_>, slot: Slot) -> Self {
        Self {
            call: cx.mint_id(slot),
            session: cx.mint_id(slot),
        }
    }
}

/// Both ends of a call by this trunk: the callee's URI, and ours.
pub(crate) fn parties(callee: &Callee, way: &OutboundRoute) -> [Box<str>; 2] {
    let from = format!("sip:{}@trunkline.invalid", way.caller_number.as_str());
    [callee.to.clone(), from.into()]
}

/// Makes ready to dial the callee that a call of `org` begins with.
pub(crate) fn dial_first(
    cx: &mut Cx<'_>,
    key: CallKey,
    slot: Slot,
    org: Uuid,
    callee: Callee,
) -> (PlacedCall, CallId, Box<Dialing>) {
    let placed = PlacedCall::mint(cx, slot);
    let leg = DialledLeg {
        key,
        slot,
        id: LegId::FIRST,
        owner: AttemptOwner {
            call: placed.call,
            org,
            leg: AttemptLeg::Callee,
        },
    };

    let call_id = cx.core.minter.call_id(slot, cx.endpoint.entropy());
    let callee_leg = CalleeLeg {
        role: LegRole::Trunk,
        hops: RequestOrigin::Ours.hops(),
        call_id,
    };

    let (plan, text) = callee.split(callee_leg, Patience::WithLast);
    let client = InviteClient::new(leg, plan);
    (placed, call_id, Dialing::callee(client, text))
}

/// Looks up the callee's host, if it is a name, or opens our RTP address at once.
pub(crate) fn prepare(cx: &mut Cx<'_>, call: CallKey, dialing: &mut Dialing) {
    dialing.client.look_ahead(cx);
    if dialing.wants_offer() {
        open_media(cx, call, dialing);
    }
}

/// Opens our RTP address on the interface by which the callee is reached.
fn open_media(cx: &mut Cx<'_>, call: CallKey, dialing: &Dialing) {
    let flow = dialing.client.first_flow(cx);
    let near = match flow {
        // A peer on this machine reaches us by the loopback address that packets to it leave from.
        Some(flow) if flow.local.ip().is_unspecified() && flow.peer.ip().is_loopback() => {
            match flow.peer.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            }
        }
        Some(flow) => flow.local.ip(),
        // No target can be reached so far, but a name further down the list may lead to one.
        None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };

    cx.core.effects.push_back(Effect::OpenMedia {
        call,
        listener: flow.map(|flow| flow.listener),
        near,
        // The callee's media come with its answer.
        version: None,
    });
}

/// Opens our RTP address if the callee's host was looked up for the offer.
pub(crate) fn on_callee_found(bridge: &Bridge, cx: &mut Cx<'_>) {
    let dialing = bridge.dialing();
    if let Some(dialing) = dialing.filter(|dialing| dialing.wants_offer()) {
        open_media(cx, bridge.key, dialing);
    }
}

/// Acknowledges the callee's 2xx, with which its leg is up. `origin`: the origin of our offer, if other media are to follow it. Returns
/// the callee's SDP.
pub(crate) fn meet_callee(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    accepted: Accepted<'_>,
    offer: Box<[u8]>,
    origin: Option<OwnOrigin>,
) -> Box<[u8]> {
    // At once: the offer was ours, so the ACK needs nothing from the runtime.
    accepted.acknowledge(cx);
    let sdp: Box<[u8]> = accepted.sdp().unwrap_or_default().into();
    let session = Session::of_accepted(&accepted, cx);
    let mut peer = SipPeer::accepted(accepted, offer);
    peer.remote_sdp = Some(&*sdp).filter(|sdp| !sdp.is_empty()).map(Into::into);
    peer.origin = origin.map(Box::new);

    let trunk = bridge.trunk_id();
    bridge.legs.meet(trunk, peer);
    bridge.legs.set_state(trunk, LegState::Ready(session));
    if let Some(mut leg) = bridge.at(trunk) {
        leg.start_session(cx);
        leg.start_keep_alives(cx);
    }
    sdp
}

/// Connects the callee with the runtime, whose 2xx accepts the callee's SDP `heard`. Returns the runtime's SDP.
pub(crate) fn meet_runtime(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    ids: &CallRef,
    accepted: Accepted<'_>,
    heard: &[u8],
) -> Option<Box<[u8]>> {
    let message = accepted.message;
    let sdp: Option<Box<[u8]>> = accepted.sdp().map(Into::into);

    if let Some(peer) = bridge.agent_mut() {
        peer.dialogs
            .push(ForkDialog::new(0, accepted.dialog, Some(heard.into())));
        peer.credentials = accepted.credentials;
    }

    let (trunk, agent) = (bridge.trunk_id(), bridge.agent_id());
    let ready = LegState::Ready(Session::default());
    bridge.legs.set_state(agent, ready);
    if let Some(mut leg) = bridge.at(agent) {
        leg.open(cx, accepted.flow, message);
        let ack = Ack {
            client: accepted.client,
            fork: 0,
            cseq: accepted.cseq,
            lines: &accepted.ack_lines,
            body: b"",
        };
        leg.leg.send_ack(cx, &ack);
    }

    bridge.legs.connect(trunk, agent);
    if let Some(mut leg) = bridge.at(agent) {
        leg.start_session(cx);
    }

    cx.core.fact(Fact::Joined {
        call: ids.call,
        org: ids.org,
        runtime_call_id: String::from_utf8_lossy(message.call_id()).into(),
    });

    // For its effect alone: notes the origin line that the runtime has of the callee's SDP.
    bridge.legs.with_origin(agent, heard);
    sdp
}

/// Ends the set-up of an outbound call: takes our INVITE back, or hangs up on the callee. Returns the end as the record has it.
pub(crate) fn end_outbound(bridge: &mut Bridge, cx: &mut Cx<'_>, end: CallEnd) -> CallEnd {
    let reason = end.reason.unwrap_or(Reason::Internal);
    let asked = reason == Reason::Operator;
    if let Some((_, mut dialing)) = bridge.legs.take_dialing() {
        dialing.cancel(cx, reason);
        return match asked {
            true => CallEnd {
                status: Status::Canceled,
                sip_code: 487,
                ..end
            },
            false => end,
        };
    }

    bridge.send_bye(cx, bridge.trunk_id(), ByeContent::ours(reason));
    // The callee had answered: a hang-up on request or by the callee completes the call.
    let is_completed = asked || end.by == HangupBy::Callee;
    let status = match is_completed {
        true => Status::Completed,
        false => Status::Failed,
    };
    CallEnd { status, ..end }
}

impl Outbound {
    /// Takes our RTP address, and keeps it in `media` if the agent speaks by media of ours. Returns the offer for the callee.
    pub(crate) fn offer(
        &mut self,
        call: Uuid,
        media: Option<&mut LocalMedia>,
        local: SocketAddr,
    ) -> Vec<u8> {
        match media {
            Some(media) => {
                media.local = Some(local);
                media.version = 1;
            }
            None => self.media = Some(local),
        }
        sdp::offer_audio(local, sdp_session(call), 1)
    }
}
