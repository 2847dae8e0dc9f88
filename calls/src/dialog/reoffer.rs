//! Re-INVITE and UPDATE: one offer/answer exchange at a time crosses the bridge (RFC 3261 §14, RFC 3311). Also the ACK of every 2xx, with the SDP
//! answer of a delayed offer.

use trunkline_sip::dialog::session_timer::{SessionTimer, Unacceptable};
use trunkline_sip::dialog::streams;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use crate::core::context::{Cx, MIN_SE};
use crate::dialog::{in_dialog, successor};
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::delayed_ack::Delayed;
use crate::leg::own_request::{JoinPhase, Pending, Purpose};
use crate::leg::relay::Relay;
use crate::leg::uas_invite::UasInvite;
use crate::leg::{Ack, Lost, media_profile, trunk_sdp};
use crate::media::local_media;
use crate::parts::crossing::CrossingKind;
use crate::parts::dial_failure::refusal_lines;
use crate::parts::ids::LegId;
use crate::parts::ip_family;
use crate::parts::refusal::Reason;
use crate::parts::request_origin::RequestOrigin;
use crate::parts::role::LegRole;
use crate::{has_sdp, sdp_of};

/// Returns whether an offer of a leg's peer may begin now; otherwise refuses it. `joining` may keep the caller's offer open.
fn may_offer(
    bridge: &Bridge,
    cx: &mut Cx<'_>,
    id: LegId,
    fork: u8,
    server: ServerTx,
    joining: JoinPhase,
) -> bool {
    let Some(status) = bridge.refusal_of_offer(id, fork, joining) else {
        return true;
    };
    refuse_for_now(cx, server, status);
    false
}

/// Continues what has waited for the ACK of a leg's first INVITE. True if this was that ACK, and the call is up.
fn confirmed(bridge: &mut Bridge, cx: &mut Cx<'_>, id: LegId, server: ServerTx) -> bool {
    let Some(leg) = bridge.legs.get_mut(id) else {
        return false;
    };
    let session = leg.session_mut();
    if !session.is_some_and(|session| session.confirm(server)) {
        return false;
    }
    match leg.take_owed_bye() {
        // RFC 3261 §15: "the callee's UA MUST NOT send a BYE on a confirmed dialog until it has received an ACK".
        Some(content) => {
            bridge.send_bye(cx, id, content);
            false
        }
        None => bridge.is_trunk(id),
    }
}
/// Handles a 2xx of ours without an ACK; true if the call ends with it.
pub(crate) fn on_no_ack(bridge: &mut Bridge, cx: &mut Cx<'_>, server: ServerTx) -> bool {
    let overdue = bridge.legs.iter_mut().find_map(|leg| {
        let ack = leg.session_mut()?.take_overdue(server)?;
        Some((leg.id, ack, leg.take_owed_bye()))
    });
    let Some((id, ack, owed)) = overdue else {
        return false;
    };
    // The other leg's 2xx has waited for the answer in this ACK, and its peer repeats the 2xx until our ACK comes.
    if let Some(delayed) = &ack.delayed {
        let other = bridge.other(id);
        if let Some(leg) = bridge.legs.get_mut(other) {
            leg.reject_offer(cx, delayed);
        }
    }
    // RFC 3261 §13.3.1.4: without an ACK "the session SHOULD be terminated". An owed BYE ends its own leg only.
    let ends = owed.is_none();
    if let Some(content) = owed {
        bridge.send_bye(cx, id, content);
    }
    ends
}

/// Re-INVITE or UPDATE of a leg's peer, and what the features of its call let it do.
#[derive(Copy, Clone)]
pub(crate) struct Reoffer<'r> {
    pub(crate) leg: LegId,
    pub(crate) fork: u8,
    pub(crate) server: ServerTx,
    pub(crate) message: &'r Message<'r>,
    /// The join of both ends' media, which may keep the caller's offer open.
    pub(crate) joining: JoinPhase,
    /// The caller is alone: its agent has hung up, and the outcome of its transfer is open.
    pub(crate) has_agent_left: bool,
}

/// Consequence of an ACK for its call.
#[derive(Copy, Clone, Default, Debug)]
#[must_use]
pub(crate) struct AckProgress {
    /// The call is up from now on.
    pub(crate) begins: bool,
    /// The ACK lacks the answer to a delayed offer, or the call begins without one that our own media can use.
    pub(crate) lacks_answer: bool,
}

/// Consequence of the answer to a relayed re-INVITE for its call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ReofferProgress {
    /// None.
    Nothing,
    /// A re-INVITE of the peer on the trunk was accepted: both ends have each other's media.
    TrunkOffered,
    /// A new leg has taken the agent's place.
    AgentReplaced,
}

/// Handles a re-INVITE. Returns whether its offer crosses to the other leg.
pub(crate) fn on_reinvite(relay: &mut Relay<'_>, cx: &mut Cx<'_>, of: &Reoffer<'_>) -> bool {
    let (id, server) = (of.leg, of.server);
    // A refused one counts as well: until its ACK, an offer of ours would meet it.
    relay.bridge.requests.note_theirs(server);
    let status = relay.bridge.status();
    if status == CallStatus::SettingUp {
        // RFC 3261 §14.2: 500 while the caller's own first INVITE has no final answer, 491 while ours hasn't.
        let status = match relay.bridge.is_trunk(id) && relay.bridge.incoming().is_some() {
            true => 500,
            false => 491,
        };
        refuse_for_now(cx, server, status);
        return false;
    }
    if !may_offer(relay.bridge, cx, id, of.fork, server, of.joining) {
        return false;
    }

    match asked_session(cx, status, server, of.message) {
        Some(renewal) => take_reoffer(relay, cx, of, renewal),
        None => false,
    }
}

/// Handles an UPDATE. Without a body it only refreshes this leg's session and target. Returns whether its offer crosses to the other leg.
pub(crate) fn on_update(relay: &mut Relay<'_>, cx: &mut Cx<'_>, of: &Reoffer<'_>) -> bool {
    let (id, fork, server, message) = (of.leg, of.fork, of.server, of.message);
    if relay.bridge.is_update_open(id, fork) {
        // RFC 3311 §5.2: 500 until the one before it in this dialog has its final response.
        refuse_for_now(cx, server, 500);
        return false;
    }
    let offers = has_sdp(message);
    if offers && !may_offer(relay.bridge, cx, id, fork, server, of.joining) {
        return false;
    }

    let Some(renewal) = asked_session(cx, relay.bridge.status(), server, message) else {
        return false;
    };
    if offers {
        return take_reoffer(relay, cx, of, renewal);
    }

    let peer = relay.bridge.legs.sip_mut(id);
    if let Some(dialog) = peer.and_then(|peer| peer.dialog(fork)) {
        dialog.refresh_target(message);
    }
    if let Some(mut leg) = relay.bridge.at(id) {
        leg.take_renewal(cx, renewal);
        leg.leg.accept_change(cx, server, b"", |_| {});
    }
    false
}

/// Takes an offer that may begin: it is answered here, or crosses.
fn take_reoffer(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    of: &Reoffer<'_>,
    renewal: Option<SessionTimer>,
) -> bool {
    let (id, server, message) = (of.leg, of.server, of.message);
    trunk_sdp::note_proposal(relay.bridge, id, message);
    if relay.bridge.is_local() {
        local_media::answer_change(relay, cx, renewal, server, message);
        return false;
    }
    if relay.bridge.is_trunk(id) && of.has_agent_left {
        // The destination's own exchange comes first; the caller may retry after it.
        refuse_for_now(cx, server, 491);
        return false;
    }
    change(relay, cx, id, of.fork, server, message, renewal)
}

/// Handles the final answer to a relayed re-INVITE.
///
/// # Errors
/// The peer is gone.
pub(crate) fn on_reinvite_answer(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    flow: Flow,
    pending: &Pending,
    message: &Message<'_>,
) -> Result<ReofferProgress, Lost> {
    let (Purpose::Relay(server), RequestOrigin::Relayed { cseq: asked, .. }) =
        (pending.purpose, &pending.origin)
    else {
        return Ok(ReofferProgress::Nothing);
    };

    if message.status() >= 300 {
        relay.bridge.legs.fail_successor(server);
        relay.answer(cx, pending, server, message);
        let lost = in_dialog::lost_by(relay.bridge, pending, message.status());
        return lost.map_or(Ok(ReofferProgress::Nothing), Err);
    }
    if let Some(leg) = relay.bridge.legs.sip_mut(pending.leg) {
        leg.flow = flow;
    }

    if let Some(mut leg) = relay.bridge.at(pending.leg) {
        leg.note_refresh(cx, pending, message);
    }
    trunk_sdp::hear(relay.bridge, pending.leg, message);

    // The re-INVITE crossed without an offer, so this 2xx has one: our ACK waits for the answer in the requester's.
    let is_delayed = !pending.had_sdp && has_sdp(message);
    let delayed = is_delayed.then(|| pending.delayed(sdp_of(message.body())));
    if let (None, Some(leg)) = (&delayed, relay.bridge.legs.get_mut(pending.leg)) {
        leg.send_ack(cx, &pending.ack());
    }

    // A new leg takes its place first: `other` has to find it as the requester that is answered below.
    let replaced = successor::succeed(relay, cx, server);
    let requester = relay.bridge.other(pending.leg);
    if let Some(peer) = relay.bridge.legs.sip_mut(requester) {
        peer.move_target(pending);
    }
    if let Some(mut leg) = relay.bridge.at(requester) {
        leg.take_renewal(cx, pending.renewal);
    }

    accept_change(relay, cx, server, *asked, pending, delayed, message);
    Ok(match replaced {
        Some(LegRole::Agent | LegRole::Destination) => ReofferProgress::AgentReplaced,
        Some(LegRole::Trunk) | None if relay.bridge.is_trunk(requester) => {
            ReofferProgress::TrunkOffered
        }
        Some(LegRole::Trunk) | None => ReofferProgress::Nothing,
    })
}

/// Refuses a relayed offer whose answer has another profile: it would cross to a requester that can't use it. The answerer has accepted the offer, and
/// is offered the media in use again.
pub(crate) fn refuse_other_profile(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    pending: &mut Pending,
    answer: &Message<'_>,
) {
    let Purpose::Relay(server) = pending.purpose else {
        return;
    };
    if !pending.is_misanswered(answer) {
        return;
    }

    let why = Reason::NoCommonMedia;
    let lines = |head: &mut Head<'_>| refusal_lines(head, why);
    relay.bridge.legs.fail_successor(server);
    cx.respond(server, why.status(), None, lines, b"");
    pending.purpose = Purpose::Stale;

    // Before the call is answered, the caller's media in use are those of its INVITE.
    let invite = relay.bridge.incoming().map(UasInvite::invite);
    let invite = invite.filter(|invite| has_sdp(invite) && relay.bridge.trunk_sdp().is_none());
    let sdp: Option<Box<[u8]>> = invite.map(|invite| sdp_of(invite.body()).into());
    if let Some(sdp) = sdp {
        relay.bridge.held.take_offer(&sdp);
        relay.bridge.set_trunk_sdp(&sdp);
    }
}

/// Relays an offer to the other leg. A new session timer and target of this leg count once the offer is accepted (RFC 3261 §8.2). Returns false if
/// the other side's media can't be of the family that it moves to.
pub(crate) fn change(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    id: LegId,
    fork: u8,
    server: ServerTx,
    message: &Message<'_>,
    renewal: Option<SessionTimer>,
) -> bool {
    // The peer moves its media to an IP family that the other side lacks, judged by the last SDP that we have sent to this peer. A side
    // with both families shows that in its SDP (RFC 6157 §4).
    let theirs = relay
        .bridge
        .legs
        .sip(id)
        .and_then(|peer| peer.local_sdp(fork));
    let moves_apart = |theirs: &[u8]| ip_family::differ(sdp_of(message.body()), theirs);
    if has_sdp(message) && theirs.is_some_and(moves_apart) {
        relay.bridge.legs.fail_successor(server);
        let why = Reason::MediaFamilies;
        let lines = |head: &mut Head<'_>| refusal_lines(head, why);
        cx.respond(server, why.status(), None, lines, b"");
        return false;
    }

    let (method, purpose) = (message.method(), Purpose::Relay(server));
    let dialog = relay
        .bridge
        .legs
        .sip_mut(id)
        .and_then(|leg| leg.dialog_ref(fork));
    let target = dialog.and_then(|dialog| dialog.moves_to(message));
    let target = target.map(Box::from);
    let (other, content) = (relay.bridge.other(id), Some(message));

    let sent = relay.send(cx, other, fork, method, purpose, content, |_| {});
    match sent {
        Some(pending) => (pending.renewal, pending.target) = (renewal, target),
        None => {
            relay.bridge.legs.fail_successor(server);
            cx.respond(server, 503, None, |_| {}, b"");
        }
    }
    true
}

/// Passes the 2xx to a relayed re-INVITE on to its requester. `delayed`: that 2xx, if its offer waits for the requester's ACK.
fn accept_change(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    server: ServerTx,
    cseq: u32,
    pending: &Pending,
    delayed: Option<Delayed>,
    message: &Message<'_>,
) {
    let requester = relay.bridge.other(pending.leg);
    let prefix = cx.core.config.header_prefix.clone();
    let crossing = relay.crossing(pending.leg, CrossingKind::Response, &prefix);
    let crosses = crossing.body(message);
    let body = relay.bridge.held.crossing_sdp(&crosses);
    let body = match &delayed {
        // This offer of the other side goes on with the session that the requester knows.
        Some(_) => relay
            .bridge
            .legs
            .with_streams(requester, pending.fork, &body),
        None => streams::without_last(&body, pending.added_streams).into(),
    };
    relay
        .bridge
        .legs
        .remember_sdp(requester, pending.fork, &body);

    let more = |head: &mut Head<'_>| crossing.copy(head, message);
    trunk_sdp::hear_proposed(relay.bridge, requester);
    if let Some(leg) = relay.bridge.legs.get_mut(requester) {
        leg.accept_reinvite(cx, server, cseq, &body, delayed, more);
    }
}

/// Handles the ACK to a 2xx of ours.
pub(crate) fn on_ack(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    id: LegId,
    message: &Message<'_>,
) -> AckProgress {
    let cseq = message.cseq().number;
    let session = relay.bridge.legs.session_mut(id);
    // A repeated 2xx is acknowledged again; only the first ACK counts.
    let Some(ack) = session.and_then(|session| session.take_acknowledged(cseq)) else {
        return AckProgress::default();
    };

    cx.endpoint.acknowledged(ack.server);
    relay.bridge.legs.hear(id, cx.now);
    trunk_sdp::hear(relay.bridge, id, message);
    let is_delayed = ack.delayed.is_some();
    let is_answered = match ack.delayed {
        Some(delayed) => acknowledge(relay, cx, id, &delayed, message),
        None => local_media::take_late_answer(relay, cx, message),
    };

    let begins = confirmed(relay.bridge, cx, id, ack.server);
    AckProgress {
        begins,
        // Inside a call our media go on as they were: the peer may have refused the audio for a while.
        lacks_answer: !is_answered && (is_delayed || begins),
    }
}

/// Acknowledges the other leg's 2xx with the answer in an ACK of this one. Without an answer, or with one of another profile, its offer is
/// rejected; returns false then.
fn acknowledge(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    id: LegId,
    delayed: &Delayed,
    message: &Message<'_>,
) -> bool {
    let other = relay.bridge.other(id);
    let is_unusable = || media_profile::differ(&delayed.offer, sdp_of(message.body()));
    if !has_sdp(message) || is_unusable() {
        if let Some(leg) = relay.bridge.legs.get_mut(other) {
            leg.reject_offer(cx, delayed);
        }
        return false;
    }

    let mut lines = Vec::new();
    let prefix = cx.core.config.header_prefix.clone();
    let crossing = relay.crossing(id, CrossingKind::InDialog, &prefix);
    crossing.copy(&mut Head::new(&mut lines), message);
    let crosses = crossing.body(message);
    let body = relay.bridge.held.crossing_sdp(&crosses);
    // As many media sections as the offer had before some were added for this side.
    let added = streams::count(&body).saturating_sub(streams::count(&delayed.offer));
    let body = streams::without_last(&body, added);
    relay.bridge.legs.remember_sdp(other, delayed.fork, body);
    let ack = Ack {
        lines: &lines,
        body,
        ..delayed.ack()
    };
    if let Some(leg) = relay.bridge.legs.get_mut(other) {
        leg.send_ack(cx, &ack);
    }
    true
}

/// Returns the session interval that a refresh requests; `None` if it was refused as too brief. It is `Some(None)` before the
/// call is answered, when there is no session to refresh.
fn asked_session(
    cx: &mut Cx<'_>,
    status: CallStatus,
    server: ServerTx,
    message: &Message<'_>,
) -> Option<Option<SessionTimer>> {
    if status == CallStatus::SettingUp {
        return Some(None);
    }

    match SessionTimer::for_uas(message, MIN_SE, cx.core.config.session_expires) {
        Ok(session) => Some(session),
        Err(Unacceptable::TooBrief { min_se }) => {
            let least = |head: &mut Head<'_>| head.number("Min-SE", u64::from(min_se));
            cx.respond(server, 422, None, least, b"");
            None
        }
    }
}

/// Refuses an offer that can't begin now; a 500 gets a random Retry-After from 0 to 10 s (RFC 3261 §14.2, RFC 3311 §5.2).
fn refuse_for_now(cx: &mut Cx<'_>, server: ServerTx, status: u16) {
    let seconds = cx.endpoint.chance().bits64() % 11;
    let later = |head: &mut Head<'_>| {
        if status == 500 {
            head.number("Retry-After", seconds);
        }
    };
    cx.respond(server, status, None, later, b"");
}
