//! Liveness of a leg's peer. Session timers (RFC 4028), one on each leg, are refreshed by us, or end a session that the peer doesn't
//! refresh. A peer that has been silent for long is probed, with a session or without: by a request that refreshes the session where the
//! peer takes one, since an answer to OPTIONS doesn't prove a dialog.
//!
//! One timer of the wheel serves both. A message only updates a time, which the timer reads when it fires.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use crate::core::context::{Core, Cx};
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose, RequestKind};
use crate::leg::peer_liveness::{LivenessProbe, ProbeRefusal};
use crate::leg::{ActiveLeg, LegPeer, LegState, Lost, NewRequest, SipPeer};
use crate::parts::ids::CallTimer;
use crate::parts::refusal::Reason;
use crate::parts::reply::{PAUSE, Reply};

/// Time over which probes are spread to legs that share a peer taken for dead.
const SPREAD_MS: u64 = 2_000;
/// A session that wasn't refreshed.
const EXPIRED: Lost = Lost {
    reason: Reason::SessionExpired,
    status: 408,
};

/// Probes soon, on each leg that leads to it, a peer that no longer answers OPTIONS outside of calls.
pub(crate) fn suspect(
    bridge: &mut Bridge,
    core: &mut Core,
    transport: Transport,
    address: SocketAddr,
    now: Moment,
) {
    let longest = core.config.dead_peer;
    let is_up = matches!(bridge.status(), CallStatus::Answered | CallStatus::Up);

    for id in [bridge.trunk_id(), bridge.agent_id()] {
        let is_asked = bridge.requests.is_refreshing(id);
        let is_meant = |leg: &&SipPeer| leg.flow.peer == address && leg.flow.transport == transport;
        let peer = bridge.legs.sip(id).filter(is_meant);
        let is_asked = is_asked || !is_up || peer.is_none();
        let session = bridge.legs.session_mut(id);
        let Some(session) = session.filter(|_| !is_asked) else {
            continue;
        };

        let spread = u64::from(bridge.key.index).wrapping_mul(37) % SPREAD_MS;
        let from = now + Duration::from_millis(spread);
        let Some(due) = session.liveness.doubt(from, longest) else {
            continue;
        };

        let timer = (bridge.key, CallTimer::Session(id));
        let timer = core.timers.schedule(due, timer);
        if let Some(old) = session.due.replace(timer) {
            core.timers.cancel(old);
        }
    }
}

/// Probes at once the peer on the trunk, which sends no media although it should.
pub(crate) fn doubt_silent(bridge: &mut Bridge, cx: &mut Cx<'_>) {
    let id = bridge.trunk_id();
    let silence = bridge.local().and_then(|media| media.rules.silence);
    let is_up = matches!(bridge.status(), CallStatus::Answered | CallStatus::Up);
    let is_asked = bridge.requests.is_refreshing(id);
    let session = bridge.legs.session_mut(id).filter(|_| is_up && !is_asked);
    let (Some(session), Some(silence)) = (session, silence) else {
        return;
    };

    if let Some(due) = session.liveness.doubt_silent(silence, cx.now) {
        cx.cancel_timer(&mut session.due);
        let timer = (bridge.key, CallTimer::Session(id));
        session.due = Some(cx.core.timers.schedule(due, timer));
    }
}

/// Notes that media comes from the peer on the trunk again.
pub(crate) fn trust_heard(bridge: &mut Bridge, cx: &mut Cx<'_>) {
    let id = bridge.trunk_id();
    let Some(mut leg) = bridge.at(id) else {
        return;
    };
    let session = leg.leg.session_mut();
    if session.is_some_and(|session| session.liveness.trust_heard(cx.now)) {
        leg.watch(cx);
    }
}

/// Handles the leg's timer: refresh, end of an expired session, or probe after long silence.
pub(crate) fn on_session_timer(active: &mut ActiveLeg<'_>, cx: &mut Cx<'_>) -> Option<Lost> {
    let is_asked = active.requests.refreshes(active.leg.id);
    let session = active.leg.session_mut()?;
    session.due = None;
    match (session.liveness.is_over(cx.now), is_asked) {
        // A probe was sent, not merely queued, and its answer may still come.
        (true, true) => None,
        (true, false) => Some(EXPIRED),
        (false, _) => refresh_later(active, cx, Duration::ZERO),
    }
}

/// Reports an expired session as lost. Else queues a probe of the peer; `send_refresh` skips one that isn't due.
fn refresh_later(active: &mut ActiveLeg<'_>, cx: &mut Cx<'_>, wait: Duration) -> Option<Lost> {
    let session = active.leg.session();
    if session.is_some_and(|session| session.liveness.is_over(cx.now)) {
        return Some(EXPIRED);
    }
    queue_refresh(active, cx, wait);
    active.watch(cx);
    None
}

fn queue_refresh(active: &mut ActiveLeg<'_>, cx: &Cx<'_>, wait: Duration) {
    let refresh = RequestKind::Refresh(active.leg.id);
    active.requests.ask(cx, refresh, wait, None);
}

/// Refreshes the session, or probes a peer that has been silent for long.
pub(crate) fn send_refresh(active: &mut ActiveLeg<'_>, cx: &mut Cx<'_>) {
    let longest = cx.core.config.dead_peer;
    match active.leg.next_probe(cx.now, longest) {
        Some(question) => ask_peer(active, cx, question),
        None => active.watch(cx),
    }
}

/// Sends an UPDATE without a body, a re-INVITE with the peer's current SDP from us, or OPTIONS.
fn ask_peer(active: &mut ActiveLeg<'_>, cx: &mut Cx<'_>, question: LivenessProbe) {
    let peer = active.leg.sip();
    let Some(fork) = peer.and_then(|peer| Some(peer.dialogs.first()?.fork)) else {
        return;
    };

    let local_sdp = peer.and_then(SipPeer::first_local_sdp);
    let sdp = local_sdp.unwrap_or_default().to_vec();
    let purpose = Purpose::Refresh;
    let request = match question {
        LivenessProbe::Update => NewRequest::bare(fork, Method::Update, purpose),
        LivenessProbe::Reinvite => NewRequest::offer(fork, purpose, &sdp),
        LivenessProbe::Options => NewRequest::bare(fork, Method::Options, purpose),
    };

    let lines = |head: &mut Head<'_>| {
        if question == LivenessProbe::Reinvite {
            head.line("Content-Type", b"application/sdp");
        }
    };
    match active.leg.send(cx, active.call, &request, lines) {
        Some(pending) => {
            active.requests.add(cx, active.call, pending);
        }
        // There was no room for it. The session timer goes on and bounds the repetitions.
        None => queue_refresh(active, cx, PAUSE),
    }
}

/// Handles the answer to a refresh or probe. 481 to a refresh says that the dialog is gone. 481 to OPTIONS may come from a peer that doesn't
/// match it to dialogs, and 408 from a proxy: these count the second time. Any other answer shows that the peer is up.
pub(crate) fn on_refresh_answer(
    active: &mut ActiveLeg<'_>,
    cx: &mut Cx<'_>,
    flow: Flow,
    pending: &Pending,
    message: &Message<'_>,
) -> Option<Lost> {
    let (reply, lost) = active.reply_to(cx, pending, message);

    match reply {
        // A 200 to OPTIONS shows that the peer is up; it refreshes no session.
        Reply::Accepted if pending.method == Method::Options => active.watch(cx),
        Reply::Accepted => {
            if pending.method == Method::Update
                && let Some(peer) = active.leg.sip_mut()
            {
                // It takes UPDATE, even if its Allow doesn't list it.
                peer.abilities.update = true;
            }
            active.take_accepted(cx, flow, pending, message);
        }
        Reply::RetryAfter(wait) => return refresh_later(active, cx, wait),
        Reply::Refused(status) => return refresh_refused(active, cx, pending, status),
        Reply::Unheard | Reply::TooBrief | Reply::Gone => {}
    }

    lost
}

/// Handles a refresh or probe without an answer.
pub(crate) fn on_refresh_unanswered(
    active: &mut ActiveLeg<'_>,
    cx: &mut Cx<'_>,
    pending: &Pending,
    status: u16,
) -> Option<Lost> {
    match Reply::without_answer(status, pending.connected) {
        Reply::RetryAfter(wait) => {
            let session = active.leg.session_mut();
            match session.is_some_and(|session| session.liveness.repeat_broken(cx.now)) {
                true => refresh_later(active, cx, wait),
                false => active.missed(cx),
            }
        }
        Reply::Refused(_) | Reply::Unheard => active.missed(cx),
        Reply::Accepted | Reply::TooBrief | Reply::Gone => None,
    }
}

/// Handles a refused refresh or probe: the other method follows, or the same one later.
fn refresh_refused(
    active: &mut ActiveLeg<'_>,
    cx: &mut Cx<'_>,
    pending: &Pending,
    status: u16,
) -> Option<Lost> {
    let (LegState::Ready(session) | LegState::Leaving(session, _), LegPeer::Sip(peer)) =
        (&mut active.leg.state, &mut active.leg.peer)
    else {
        return None;
    };

    if pending.method == Method::Update && matches!(status, 405 | 501) {
        peer.abilities.update = false;
    }

    let question = match pending.method == Method::Invite {
        true => LivenessProbe::Reinvite,
        false => LivenessProbe::Update,
    };
    let (timer, means) = (session.timer, peer.means());
    let liveness = &mut session.liveness;
    match liveness.refuse(question, status, timer, means, cx.now) {
        ProbeRefusal::Waits => active.watch(cx),
        ProbeRefusal::OtherMethod => {
            // At once: after a slow answer the session may expire before a later try.
            queue_refresh(active, cx, Duration::ZERO);
            active.watch(cx);
        }
        ProbeRefusal::Later(wait) => return refresh_later(active, cx, wait),
    }

    None
}
