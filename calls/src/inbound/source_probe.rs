//! OPTIONS to a source that a trunk allows, before an INVITE from it over UDP is trusted, and the CANCEL of an INVITE that waits for the answer.

use std::time::Duration;

use trunkline_sip::endpoint::{Endpoint, Response};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, Message, lex};
use uuid::Uuid;

use crate::core::context::Core;
use crate::leg::keep_alive::send_options;
use crate::trust::proven_sources::{SourceProbe, SourceProof, WaitingInvite};

/// Age of an answer after which its source is probed again.
const REPROBE_AFTER: Duration = Duration::from_secs(600);
/// Longest wait of an INVITE for the answer. Then it is challenged.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time without an answer after which an OPTIONS counts as lost, if its INVITE comes again.
const LOST_AFTER: Duration = Duration::from_millis(400);
/// Pause before a silent source is probed again.
const SILENT_PAUSE: Duration = Duration::from_secs(5);
/// Bound on stored probes. The oldest is forgotten, and its answer proves nothing any more.
const MAX_PROBES: usize = 256;
/// Size of an INVITE that may wait, in octets. Probe and challenge together are more than twice the size of a smaller one.
const WAITING_OCTETS: std::ops::RangeInclusive<usize> = 400..=8_192;

/// Judges whether the source of an INVITE is proven; sends OPTIONS if that isn't known.
pub(crate) fn judge_source(
    core: &mut Core,
    endpoint: &mut Endpoint,
    flow: Flow,
    invite: &Message<'_>,
    org: Uuid,
    now: Moment,
) -> SourceProof {
    let source = flow.peer.ip().to_canonical();
    let age = core.source_probes.proven.age(source, now);
    let of_source = |asked: &&SourceProbe| asked.source == source;
    let last = core.source_probes.asked.iter().rfind(of_source);
    let last = last.map(|asked| now.since(asked.at));

    match age {
        Some(age) if age < REPROBE_AFTER || last.is_some_and(|last| last < SILENT_PAUSE) => {
            return SourceProof::Proven;
        }
        // The answer renews the trust in the background, so that no INVITE has to wait once the trust lapses.
        Some(_) => {
            ask(core, endpoint, flow, invite, now);
            return SourceProof::Proven;
        }
        None => {}
    }

    let (call_id, cseq) = (invite.call_id(), invite.cseq().number);
    let is_same = |held: &WaitingInvite| *held.call_id == *call_id && held.cseq == cseq;
    // A retransmission: one copy waits, and the answer releases it once. The OPTIONS or its answer may have been lost as well.
    if core.source_probes.waiting.iter().any(is_same) {
        if last.is_none_or(|last| last >= LOST_AFTER) {
            ask(core, endpoint, flow, invite, now);
        }
        return SourceProof::Waits;
    }

    // No probe for an INVITE that is out of these sizes: see [`WAITING_OCTETS`]. It is challenged like any other.
    if !WAITING_OCTETS.contains(&invite.raw().len()) {
        return SourceProof::Unproven;
    }

    match last {
        // A probe for another INVITE of this source is out, and its answer releases both.
        Some(last) if last < PATIENCE => {}
        Some(last) if last < SILENT_PAUSE => return SourceProof::Unproven,
        Some(_) | None => ask(core, endpoint, flow, invite, now),
    }

    // Without room it is dropped: it is sent again after 500 ms, and by then the source may have answered. A challenge would end a call of a real
    // carrier whose address others forge.
    if core.source_probes.has_room_for(org) {
        core.source_probes.waiting.push_back(WaitingInvite {
            flow,
            octets: invite.raw().into(),
            org,
            call_id: call_id.into(),
            cseq,
            until: now + PATIENCE,
        });
    }
    SourceProof::Waits
}

/// Answers the CANCEL of an INVITE that waits for the proof of its source, and the INVITE; false if none waits. The CANCEL has to come from the
/// INVITE's source (RFC 3261 §22.1).
pub(crate) fn cancel_waiting(
    core: &mut Core,
    endpoint: &mut Endpoint,
    flow: Flow,
    cancel: &Message<'_>,
) -> bool {
    let waiting = &mut core.source_probes.waiting;
    let (call_id, cseq) = (cancel.call_id(), cancel.cseq().number);
    let key = endpoint.invite_key(cancel);
    let is_its = |held: &WaitingInvite| {
        let invite = lex(&held.octets, Framing::Datagram).ok();
        invite.is_some_and(|invite| endpoint.invite_key(&invite) == key)
    };

    let found = waiting.iter().position(|held| {
        *held.call_id == *call_id
            && held.cseq == cseq
            && held.flow.is_with(&flow)
            && held.flow.transport.admits(flow.transport)
            && is_its(held)
    });
    let Some(held) = found.and_then(|at| waiting.remove(at)) else {
        return false;
    };

    // The INVITE has no transaction yet, so both answers are stateless, and a repeated CANCEL finds nothing.
    endpoint.respond_stateless(cancel, &flow, &Response::bare(200));
    if let Ok(invite) = lex(&held.octets, Framing::Datagram) {
        endpoint.respond_stateless(&invite, &held.flow, &Response::bare(487));
    }
    true
}

/// Sends one OPTIONS to the source of an INVITE.
fn ask(core: &mut Core, endpoint: &mut Endpoint, flow: Flow, invite: &Message<'_>, now: Moment) {
    let slot = core.minter.dispatch(invite);
    let tag = send_options(core, endpoint, flow, slot);
    if core.source_probes.asked.len() >= MAX_PROBES {
        core.source_probes.asked.pop_front();
    }
    core.source_probes.asked.push_back(SourceProbe {
        source: flow.peer.ip().to_canonical(),
        tag: tag.bits(),
        at: now,
    });
}
