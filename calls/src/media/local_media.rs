//! Our own media on the agent's side: echo, spoken code, bots. Answers with G.711 and accepts every change of the caller that it can.

mod media_peer;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use trunkline_sip::dialog::sdp;
use trunkline_sip::dialog::sdp::Audio;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use crate::core::context::Cx;
use crate::core::effect::{AgreedMedia, Effect, MediaRecord};
use crate::has_sdp;
use crate::leg::bridge::Bridge;
use crate::leg::call_end::AnswerProgress;
use crate::leg::call_status::CallStatus;
use crate::leg::relay::Relay;
use crate::leg::runtime_invite::FIRST_FORK;
use crate::leg::unacceptable_body::UnacceptableBody;
use crate::leg::{ForkDialog, Leg, LegState, LocalMedia, SipPeer, trunk_sdp, uas_invite};
use crate::parts::ids::{CallRef, LegId};
use crate::parts::refusal::Reason;

/// SDP of our media for a message, and the audio that it agrees on with the peer.
type LocalSdp = (Vec<u8>, Option<Audio>);

/// Our SDP for a message: an answer to its offer, or an offer of ours if it has none. `before` is the SDP that the peer has of us.
fn body(
    media: &mut LocalMedia,
    before: &[u8],
    message: &Message<'_>,
) -> Result<LocalSdp, UnacceptableBody> {
    if let Some(no) = UnacceptableBody::of(message) {
        return Err(no);
    }

    let Some(local) = media.local else {
        return Err(UnacceptableBody::NoCommonMedia("no media".into()));
    };
    // Without SDP the message asks for an offer; the answer comes in the ACK (`take_late_answer`).
    if !has_sdp(message) {
        media.offered = true;
        return Ok((offer_at(media, local, before), None));
    }

    // An offer that is refused uses up no version (RFC 3264 §8).
    let (session, version) = (media.session, media.version + 1);
    let answer = sdp::answer_audio(message.body(), local, session, version)
        .map_err(|no| UnacceptableBody::NoCommonMedia(no.to_string()))?;
    media.version = version;
    Ok((answer.body, answer.audio))
}

/// An offer of ours, inside the call, to a peer that has `before` of us.
fn offer(media: &mut LocalMedia, before: &[u8]) -> Option<Vec<u8>> {
    Some(offer_at(media, media.local?, before))
}

fn offer_at(media: &mut LocalMedia, local: SocketAddr, before: &[u8]) -> Vec<u8> {
    media.version += 1;
    sdp::offer_audio_after(before, local, media.session, media.version)
}

/// Address at which a peer listens as its SDP has it, and whether its IP takes part in the call.
#[derive(Copy, Clone, Debug)]
struct MediaClaim {
    address: SocketAddr,
    is_proven: bool,
}

/// Notes a message with our tag on a leg. Media of ours for the trunk's peer need no packet from it then, if its audio is at the IP that it
/// came from.
pub(crate) fn prove_media(bridge: &mut Bridge, cx: &mut Cx<'_>, id: LegId, flow: &Flow) {
    let is_trunk = bridge.is_trunk(id);
    let peer = bridge.legs.sip_mut(id);
    let is_news = peer.is_some_and(|peer| peer.known_addresses.prove(flow));
    let is_open = bridge.local().is_some_and(|media| media.local.is_some());
    if is_news && is_trunk && is_open {
        let call = bridge.key;
        cx.core.effects.push_back(Effect::ProveMedia { call });
    }
}

/// The SDP for a message of media of our own.
fn local_body(bridge: &mut Bridge, message: &Message<'_>) -> Result<LocalSdp, UnacceptableBody> {
    let before = told_to_trunk(bridge);
    match bridge.local_mut() {
        Some(media) => body(media, &before, message),
        None => Err(UnacceptableBody::NoCommonMedia("no media of ours".into())),
    }
}

/// An offer of media of our own, inside the call.
pub(crate) fn local_offer(bridge: &mut Bridge) -> Option<Vec<u8>> {
    let before = told_to_trunk(bridge);
    offer(bridge.local_mut()?, &before)
}

/// Closes our media on the agent's side: the call is over, even if answers are still missing.
pub(crate) fn close_media(bridge: &mut Bridge, cx: &mut Cx<'_>, ids: &CallRef) {
    let closed = closed_media(bridge, ids);
    let local = bridge.legs.iter_mut().filter_map(Leg::local_mut);
    // `count`, since it takes every address; `any` would stop at the first.
    let is_open = local.filter_map(|media| media.local.take()).count() > 0;
    if is_open {
        cx.core.effects.push_back(closed);
    }
}

/// Effect that closes our media; its figures go to the call's record.
pub(crate) const fn closed_media(bridge: &Bridge, ids: &CallRef) -> Effect {
    Effect::CloseMedia {
        call: bridge.key,
        record: Some(MediaRecord {
            call: ids.call,
            org: ids.org,
        }),
    }
}

/// Begins the dialog with the caller in which we answer ourselves; true if it exists.
pub(crate) fn begin_local_dialog(bridge: &mut Bridge, cx: &mut Cx<'_>, slot: Slot) -> bool {
    let id = bridge.trunk_id();
    if bridge.has_fork(id, FIRST_FORK) {
        return true;
    }

    let dialog = bridge.mint_caller_dialog(cx, slot);
    let (Some(dialog), Some(trunk)) = (dialog, bridge.legs.sip_mut(id)) else {
        return false;
    };

    trunk
        .dialogs
        .push(ForkDialog::new(FIRST_FORK, dialog, None));
    true
}

/// The SDP that the peer on the trunk has of us; empty before the first.
pub(crate) fn told_to_trunk(bridge: &Bridge) -> Arc<[u8]> {
    let told = bridge.trunk().and_then(SipPeer::shared_local_sdp);
    told.map_or_else(Arc::default, Arc::clone)
}

/// Sets address and codec of our media's peer, unless the audio is kept for a bot that isn't attached yet.
pub(crate) fn update_media(relay: &mut Relay<'_>, cx: &mut Cx<'_>, audio: Option<Audio>) {
    // A peer acknowledges its last INVITE after our BYE too, with an SDP if we made the offer; our media are closed by then.
    let Some(audio) = audio.filter(|_| relay.bridge.status() != CallStatus::Over) else {
        return;
    };

    // The callee of an outbound call has answered before the bot: until the bot is attached, the callee would hear an echo.
    if relay.bridge.bot_mut().is_some_and(|bot| bot.keeps(audio)) {
        return;
    }

    let mut remote = audio.remote;
    let Some(signalling) = relay.bridge.trunk().map(|trunk| trunk.flow.peer) else {
        return;
    };

    let sources = media_peer::sources(&cx.core.config.addresses, remote, signalling);
    let claim = media_claim(relay, audio.remote, signalling.ip());
    // The call goes on without RTP of ours: its peer may still move the media to an address that is allowed.
    if let Err(refusal) = sources {
        let (call, org) = (relay.ids.call, relay.ids.org);
        tracing::info!(call.id = %call, org.id = %org, peer = %remote, reason = refusal.code(), "no RTP is sent to what the SDP names");
    }

    if relay.bridge.held.is_closed() || sources.is_err() {
        // Port 0 disables the echo, and no silence is detected.
        remote.set_port(0);
    }

    // Without an address to send to, RTP is taken from the source of the signalling alone.
    let sources = sources.unwrap_or([signalling.ip(); 2]);
    let rules = relay.bridge.local().map(|media| media.rules.clone());
    let rules = rules.unwrap_or_default();
    let from_any = rules.from_any && media_peer::is_elsewhere(audio.remote.ip(), sources);
    // SDP may name an IP that nothing is sent to, listed or not.
    let expects = |ip: IpAddr| {
        sources
            .iter()
            .any(|of| of.to_canonical() == ip.to_canonical())
    };
    let claim = claim.filter(|claim| expects(claim.address.ip()));
    let addresses = &cx.core.config.addresses;
    let may_get = |rtcp: &SocketAddr| expects(rtcp.ip()) || addresses.examine(*rtcp).is_ok();
    let rtcp = audio.rtcp.filter(may_get);
    let media = AgreedMedia {
        remote,
        payload: audio.payload,
        telephone_event: audio.telephone_event,
        received: audio.received,
        direction: audio.direction,
        packet_time: audio.packet_time,
        rtcp,
        sources,
        from_any,
        trunk: rules.trunk,
        signals_from: signalling.ip(),
        claimed: claim.map(|claim| claim.address),
        is_proven: claim.is_some_and(|claim| claim.is_proven),
        silence: rules.silence,
    };

    cx.core.effects.push_back(Effect::UpdateMedia {
        call: relay.bridge.key,
        media,
    });
}

/// Returns the address at which SDP says that the trunk's peer listens, if nothing need come from there before audio goes there.
fn media_claim(relay: &Relay<'_>, sdp: SocketAddr, signalling: IpAddr) -> Option<MediaClaim> {
    let rules = relay.bridge.local().map(|media| &media.rules);
    if rules.is_some_and(|rules| rules.lists(sdp.ip())) {
        return Some(MediaClaim {
            address: sdp,
            is_proven: true,
        });
    }

    let known = &relay.bridge.trunk()?.known_addresses;
    // Our tag went to the IP at which the dialog began. Another one that signals now may have it from there, and proves no address but that one.
    let began_at = known.began_at()?;
    if sdp.ip().to_canonical() != began_at && signalling.to_canonical() != began_at {
        return None;
    }
    Some(MediaClaim {
        address: media_peer::claimed(sdp, began_at)?,
        is_proven: known.is_proven(),
    })
}

/// Returns the SDP of our media for a message, as the hold changes it.
pub(crate) fn local_sdp(
    relay: &mut Relay<'_>,
    message: &Message<'_>,
) -> Result<LocalSdp, UnacceptableBody> {
    let (body, audio) = local_body(relay.bridge, message)?;
    let body = relay.bridge.held.crossing_sdp(&body).into_owned();
    Ok((body, audio))
}

/// Takes the answer in the ACK of the trunk's peer, if our media have made an offer; returns false if it accepts no audio.
pub(crate) fn take_late_answer(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    message: &Message<'_>,
) -> bool {
    let media = relay.bridge.local_mut();
    if !media.is_some_and(|media| std::mem::take(&mut media.offered)) {
        return true;
    }
    let audio = sdp::read_answer(&told_to_trunk(relay.bridge), message.body());
    let is_answered = audio.is_some();
    update_media(relay, cx, audio);
    is_answered
}

/// Returns our SDP for the caller's INVITE; `None` if that has its final answer.
///
/// # Errors
/// Its offer can't be met.
pub(crate) fn agree_on_media(relay: &mut Relay<'_>) -> Result<Option<LocalSdp>, UnacceptableBody> {
    let id = relay.bridge.trunk_id();
    let Some(incoming) = relay.bridge.legs.take_incoming(id) else {
        return Ok(None);
    };
    let invite = incoming.invite();
    let agreed = local_sdp(relay, invite);
    relay
        .bridge
        .legs
        .set_state(id, LegState::Incoming(incoming));
    agreed.map(Some)
}

/// Answers the caller with media of our own.
pub(crate) fn answer_with_media(relay: &mut Relay<'_>, cx: &mut Cx<'_>) -> AnswerProgress {
    let id = relay.bridge.trunk_id();
    let (body, audio) = match agree_on_media(relay) {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return AnswerProgress::Nothing,
        Err(no) => return AnswerProgress::Refused(no.into()),
    };

    update_media(relay, cx, audio);
    if !begin_local_dialog(relay.bridge, cx, relay.ids.slot) {
        return AnswerProgress::Refused(Reason::BadRequest.into());
    }

    let Some(incoming) = relay.bridge.legs.take_incoming(id) else {
        return AnswerProgress::Nothing;
    };

    relay.bridge.keep_only(cx, FIRST_FORK);
    uas_invite::release_incoming(cx, &incoming);

    let content = |head: &mut Head<'_>, _: &str| head.line("Content-Type", b"application/sdp");
    match relay.accept_caller(cx, FIRST_FORK, &incoming, &body, None, content) {
        true => AnswerProgress::Accepted {
            runtime_call_id: Box::default(),
        },
        false => AnswerProgress::Nothing,
    }
}

/// Answers a re-INVITE or UPDATE of the caller here.
pub(crate) fn answer_change(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    renewal: Option<SessionTimer>,
    server: ServerTx,
    message: &Message<'_>,
) {
    // Before the target moves. RFC 3261 §14.1: after a refusal "the session parameters MUST remain unchanged".
    let sdp = match local_sdp(relay, message) {
        Ok(sdp) => sdp,
        Err(no) => return no.reject(cx, server),
    };

    let trunk = relay.bridge.trunk_mut();
    if let Some(held) = trunk.and_then(|trunk| trunk.dialogs.first_mut()) {
        held.dialog.refresh_target(message);
    }
    accept_with_media(relay, cx, renewal, server, message, sdp);
}

/// Accepts an offer of the peer on the trunk with our SDP for it.
pub(crate) fn accept_with_media(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    renewal: Option<SessionTimer>,
    server: ServerTx,
    message: &Message<'_>,
    (body, audio): LocalSdp,
) {
    update_media(relay, cx, audio);
    let trunk = relay.bridge.trunk_id();
    if let Some(mut leg) = relay.bridge.at(trunk) {
        leg.take_renewal(cx, renewal);
    }
    let fork = relay.bridge.fork().unwrap_or_default();
    relay.bridge.legs.remember_sdp(trunk, fork, &body);
    trunk_sdp::hear_proposed(relay.bridge, trunk);

    let Some(leg) = relay.bridge.legs.get_mut(trunk) else {
        return;
    };
    let content = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
    let cseq = message.cseq().number;
    match message.method() == Method::Update {
        true => leg.accept_change(cx, server, &body, content),
        false => leg.accept_reinvite(cx, server, cseq, &body, None, content),
    }
}
