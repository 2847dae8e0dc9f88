//! Requests inside a call: each is checked against its dialog, answered here or relayed to the other leg
//! (RFC 3261 §12.2).

use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::{Message, Method};

use super::info_body;
use crate::core::context::Cx;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose};
use crate::leg::relay::Relay;
use crate::leg::{LegState, Lost};
use crate::parts::allow::capabilities;
use crate::parts::crossing::lacking_options;
use crate::parts::ids::LegId;
use crate::parts::pbx::Pbx;

/// Returns whether a request of the PBX with this method shows that it still has the caller.
pub(crate) fn shows_caller(bridge: &Bridge, method: Method) -> bool {
    let pbx = bridge.trunk().and_then(|trunk| trunk.abilities.pbx);
    let offers_anyway = pbx.is_some_and(Pbx::offers_without_caller);
    let may_be_offer = matches!(method, Method::Invite | Method::Update);

    // BYE and NOTIFY are also accepted without a caller.
    let is_accepted_anyway = matches!(method, Method::Bye | Method::Notify);
    !(is_accepted_anyway || may_be_offer && offers_anyway)
}

/// Answers a request other than BYE of a leg that isn't connected with another: it was replaced, or doesn't replace one yet.
/// `arriving`: the leg of a destination that is to replace the agent's.
pub(crate) fn answer_apart(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    id: LegId,
    server: ServerTx,
    message: &Message<'_>,
    arriving: Option<LegId>,
) {
    let method = message.method();
    if arriving != Some(id) {
        return cx.respond(server, 481, None, |_| {}, b"");
    }

    // A destination whose media the caller doesn't have yet: its dialog exists, and a 481 would end it.
    if let Some(lacking) = lacking_options(message) {
        return refuse_options(cx, server, &lacking);
    }
    let methods = bridge.methods(id);
    match method {
        Method::Options => {
            cx.respond(server, 200, None, |head| capabilities(head, methods), b"");
        }
        Method::Info => cx.respond(server, 200, None, |_| {}, b""),
        Method::Message => cx.respond(server, 480, None, |_| {}, b""),
        // 491 has the destination try again (RFC 3261 §14.1), and by then the caller may have its media.
        Method::Invite
        | Method::Ack
        | Method::Bye
        | Method::Cancel
        | Method::Register
        | Method::Prack
        | Method::Update
        | Method::Refer
        | Method::Notify
        | Method::Subscribe
        | Method::Publish
        | Method::Other => cx.respond(server, 491, None, |_| {}, b""),
    }
}

/// Handles BYE from a leg that isn't connected with another.
pub(crate) fn on_apart_bye(bridge: &mut Bridge, cx: &mut Cx<'_>, id: LegId) {
    bridge.legs.stop_timers(cx, id);
    bridge.legs.set_state(id, LegState::Gone);
    if let Some(peer) = bridge.legs.sip_mut(id) {
        peer.dialogs.clear();
    }
}

/// Returns the loss of a leg whose peer has lost the dialog of a request, as 481, 408 and silence say (RFC 3261 §12.2.1.2). Only the dialog that
/// the call goes by counts: an early one, or that of a fork that has lost, may be gone while its INVITE goes on (§13.2.2.4).
pub(crate) fn lost_by(bridge: &Bridge, pending: &Pending, status: u16) -> Option<Lost> {
    let is_gone = matches!(status, 408 | 481) && pending.method != Method::Prack;
    let is_up = bridge.status() != CallStatus::SettingUp;
    let is_lost = is_gone && is_up && bridge.has_fork(pending.leg, pending.fork);
    is_lost.then(|| Lost::of(status))
}

/// Relays a request to the other leg; an agent with media of ours accepts a MESSAGE, and an INFO that it understands.
pub(crate) fn request(
    relay: &mut Relay<'_>,
    cx: &mut Cx<'_>,
    id: LegId,
    fork: u8,
    server: ServerTx,
    message: &Message<'_>,
) {
    if relay.bridge.is_local() {
        return match message.method() == Method::Info {
            true => info_body::answer(cx, server, message),
            false => cx.respond(server, 200, None, |_| {}, b""),
        };
    }
    // The trunk's leg has answered or been answered, and its agent is still being called.
    let is_early =
        relay.bridge.status() == CallStatus::SettingUp && relay.bridge.legs.session(id).is_some();
    if relay.bridge.is_trunk(id) && is_early {
        return answer_alone(cx, server, message.method());
    }

    let (method, purpose) = (message.method(), Purpose::Relay(server));
    let other = relay.bridge.other(id);
    let sent = relay.send(cx, other, fork, method, purpose, Some(message), |_| {});
    if sent.is_none() {
        // A 481 has the requester end its dialog (RFC 3261 §12.2.1.2): not for a lack of room, which passes.
        let status = if relay.bridge.has_fork(other, fork) {
            503
        } else {
            481
        };
        cx.respond(server, status, None, |_| {}, b"");
    }
}

/// Answers INFO or MESSAGE of a peer whose agent hasn't answered yet or has left: a 481 would end the peer's dialog (RFC 3261 §12.2.1.2)
/// before the agent has answered, or the transfer has its outcome.
pub(crate) fn answer_alone(cx: &mut Cx<'_>, server: ServerTx, method: Method) {
    let status = match method == Method::Info {
        true => 200,
        false => 480,
    };
    cx.respond(server, status, None, |_| {}, b"");
}

/// Refuses a request whose `Require` names options that aren't known here (RFC 3261 §8.2.2.3).
pub(crate) fn refuse_options(cx: &mut Cx<'_>, server: ServerTx, lacking: &[u8]) {
    cx.respond(
        server,
        420,
        None,
        |head| head.line("Unsupported", lacking),
        b"",
    );
}

/// Refuses a request for lack of room: the peer may retry.
pub(crate) fn busy(cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) {
    let retry_after = u64::from(cx.core.config.retry_after);
    cx.core.stateless(cx.endpoint, message, flow, 503, |head| {
        head.number("Retry-After", retry_after);
    });
}
