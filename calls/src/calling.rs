//! Outbound calls. The callee is called first, with an offer on our own RTP address. Once it has answered, the runtime is invited with the callee's
//! SDP, and the callee is re-INVITEd with the runtime's (RFC 3725 §4.4 with the parties swapped: no runtime is started for a call that isn't
//! answered). The built-in echo agent takes part from the offer on.
//!
//! The callee's leg has the caller's place, so a joined call is like any other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use trunkline_model::attempt::AttemptLeg;
use trunkline_model::record::{HangupBy, Status};
use trunkline_model::view::OutboundRoute;
use trunkline_sip::dialog::sdp;
use trunkline_sip::slot::{CallId, Slot};
use uuid::Uuid;

use super::attempts::AttemptOwner;
use super::bot_state::Bot;
use super::bridge::Bridge;
use super::bye::ByeContent;
use super::call::Call;
use super::call_end::CallEnd;
use super::callee::{Callee, CalleeLeg};
use super::context::Cx;
use super::dial::Dialing;
use super::dial_failure::DialFailure;
use super::effect::Effect;
use super::ids::{CallKey, CallRef, LegId};
use super::invite_client::{Accepted, DialledLeg, InviteClient, Patience};
use super::join::Join;
use super::leg::{LegPeer, LegState, LocalMedia, sdp_session};
use super::origin::{Origin, OwnOrigin};
use super::outbound::{Outbound, PlacedCall};
use super::refusal::Reason;
use super::request_origin::RequestOrigin;
use super::role::LegRole;
use super::runtime_invite::{self, InvitedCall};

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
pub(super) fn parties(callee: &Callee, way: &OutboundRoute) -> [Box<str>; 2] {
    let from = format!("sip:{}@trunkline.invalid", way.caller_number.as_str());
    [callee.to.clone(), from.into()]
}

/// Makes ready to dial the callee that a call of `org` begins with.
pub(super) fn dial_first(
    cx: &mut Cx<'_>,
    (key, slot): (CallKey, Slot),
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
pub(super) fn prepare(cx: &mut Cx<'_>, call: CallKey, dialing: &mut Dialing) {
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
        None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };

    cx.core.effects.push_back(Effect::OpenMedia {
        call,
        listener: flow.map(|flow| flow.listener),
        near,
    });
}

impl Bridge {
    /// Opens our RTP address if the callee's host was looked up for the offer.
    pub(super) fn on_callee_found(&self, cx: &mut Cx<'_>) {
        let dialing = self.dialing();
        if let Some(dialing) = dialing.filter(|dialing| dialing.wants_offer()) {
            open_media(cx, self.key, dialing);
        }
    }

    /// Acknowledges the callee's 2xx, with which its leg is up. `origin`: that of our SDP which other media follow. Returns the callee's SDP.
    fn meet_callee(
        &mut self,
        cx: &mut Cx<'_>,
        accepted: Accepted<'_>,
        offer: Box<[u8]>,
        origin: Option<OwnOrigin>,
    ) -> Box<[u8]> {
        accepted.acknowledge(cx);
        let sdp: Box<[u8]> = accepted.sdp().unwrap_or_default().into();
        let session = accepted.session(cx);
        let mut peer = accepted.into_peer(offer);
        peer.heard = Some(&*sdp).filter(|sdp| !sdp.is_empty()).map(Into::into);
        peer.origin = origin.map(Box::new);

        let trunk = self.trunk_id();
        self.legs.meet(trunk, peer);
        self.legs.set_state(trunk, LegState::Ready(session));
        if let Some(mut leg) = self.at(trunk) {
            leg.start_session(cx);
            leg.start_keep_alives(cx);
        }
        sdp
    }

    /// Ends the set-up of an outbound call: takes our INVITE back, or hangs up on the callee. Returns the end as the record has it.
    pub(crate) fn end_outbound(&mut self, cx: &mut Cx<'_>, end: CallEnd) -> CallEnd {
        let reason = end.reason.unwrap_or(Reason::Internal);
        let asked = reason == Reason::Operator;
        if let Some((_, mut dialing)) = self.legs.take_dialing() {
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

        self.send_bye(cx, self.trunk_id(), ByeContent::ours(reason));
        // The callee had answered: a hang-up on request or by the callee completes the call.
        let is_completed = asked || end.by == HangupBy::Callee;
        let status = match is_completed {
            true => Status::Completed,
            false => Status::Failed,
        };
        CallEnd { status, ..end }
    }
}

/// Origin of our own SDP in a call, which the peer's next SDP continues.
pub(super) fn own_origin(ids: &CallRef, local: SocketAddr) -> OwnOrigin {
    OwnOrigin::Own(Origin::new(sdp_session(ids.call), local.ip()))
}

impl Outbound {
    /// Takes our RTP address, which `media` has if the agent speaks by it. Returns the offer for the callee.
    pub(super) fn offer(
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

impl CallEnd {
    /// End of a call whose callee doesn't answer.
    pub(super) fn of_callee(failure: DialFailure) -> Self {
        let by = match failure.reason == Reason::RingingTimeout {
            true => HangupBy::Platform,
            false => HangupBy::Callee,
        };
        Self {
            status: failure.status,
            sip_code: failure.sip_code,
            reason: Some(failure.reason),
            by,
            cause: failure.cause,
        }
    }
}

impl Call {
    /// Acknowledges the callee's 2xx. An agent with media of ours is connected at once; a runtime over SIP is invited with the callee's SDP.
    pub(super) fn on_callee_answers(
        &mut self,
        cx: &mut Cx<'_>,
        accepted: Accepted<'_>,
        offer: Box<[u8]>,
    ) {
        let media = self.outbound.as_deref().and_then(|outbound| outbound.media);
        let origin = media.map(|local| own_origin(&self.ids, local));
        let sdp = self.bridge.meet_callee(cx, accepted, offer, origin);
        self.lifetime.begin(cx.now);
        cx.note_answered(&self.ids, Box::default());

        let audio = sdp::read_answer(&sdp);
        match self.bridge.is_local() {
            true => {
                self.lifetime
                    .limit(cx, self.bridge.key, self.outbound.as_deref());
                let (trunk, agent) = (self.bridge.trunk_id(), self.bridge.agent_id());
                self.bridge.legs.connect(trunk, agent);
                let Some(audio) = audio else {
                    return self.hang_up(cx, Reason::NoCommonMedia);
                };
                let remote = audio.remote.ip();
                self.relaying().update_media(cx, Some(audio));
                self.bridge.speak_code(cx, remote);
                self.with_bot(cx, Bot::start);
                self.with_bot(cx, Bot::dial);
            }
            false if audio.is_none() => self.refuse(cx, Reason::NoCommonMedia),
            false => self.invite_runtime(cx, sdp),
        }
    }

    /// Invites the runtime with the callee's SDP.
    pub(super) fn invite_runtime(&mut self, cx: &mut Cx<'_>, offer: Box<[u8]>) {
        let Some(outbound) = self.outbound.as_deref() else {
            return;
        };

        let [called, caller] = outbound.users();
        let (key, krisp) = (self.bridge.key, outbound.krisp);
        let to = InvitedCall::new(key, &self.ids, [called, caller], krisp);

        let invite = outbound.runtime.as_deref().and_then(|runtime| {
            let runtime = (runtime, &outbound.namer);
            runtime_invite::invite(runtime, &cx.core.config, &to)
        });
        // This runtime takes over the leg of a bot, if there is one.
        let follows = self.bridge.legs.get(LegId::SECOND).is_some();
        let chain = self.outbound.as_deref_mut().and_then(|it| it.chain.take());
        let dialing = invite.map(|invite| {
            let dialing = Dialing::runtime(invite).leading_to(chain.map(|chain| *chain));
            match follows {
                true => dialing.following(),
                false => dialing,
            }
        });
        let state = dialing.map_or(LegState::Gone, LegState::Dialing);
        match follows {
            true => self.bridge.legs.set_state(LegId::SECOND, state),
            false => {
                self.bridge
                    .legs
                    .add(LegRole::Agent, LegPeer::Unknown, state);
            }
        }
        self.joining.wait_with(Join::with(offer));

        let patience = cx.core.config.setup_timeout;
        self.lifetime.await_answer(cx, self.bridge.key, patience);
        self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
    }
}
