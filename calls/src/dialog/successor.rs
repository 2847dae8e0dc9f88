//! A leg that takes another's place in the call: INVITE with Replaces (`features::replaces`). It answers to the offer that crosses, and the leg that it
//! replaces ends once that is accepted.

use trunkline_sip::endpoint::ServerTx;

use crate::core::context::Cx;
use crate::leg::bridge::Bridge;
use crate::leg::relay::Relay;
use crate::leg::{Replacing, keep_alive};
use crate::parts::bye::ByeContent;
use crate::parts::role::LegRole;

/// Returns whether an exchange or a dialled leg is pending that a new leg would disturb.
pub(crate) fn is_changing(bridge: &Bridge) -> bool {
    bridge.dialing().is_some()
        || bridge.legs.successor().is_some()
        // A call has room for four legs, and the replaced one stays until its BYE is answered.
        || bridge.legs.is_full()
        || bridge.awaited().next().is_some()
        || bridge.requests.offering().is_some()
}

/// Answers the cancelled INVITE of a new leg at once (RFC 3261 §9.2). False if it was another INVITE.
pub(crate) fn cancel_successor(bridge: &mut Bridge, cx: &mut Cx<'_>, server: ServerTx) -> bool {
    let is_meant = bridge.legs.successor_by(server).is_some();
    if is_meant {
        bridge.requests.cancel_relayed(cx, server, b"");
        give_up_successor(bridge, cx, 487);
    }
    is_meant
}

/// Refuses the new leg: it is cancelled, or the agent doesn't answer the offer in time. If the agent accepts later, it gets the caller's media
/// back.
pub(crate) fn give_up_successor(bridge: &mut Bridge, cx: &mut Cx<'_>, status: u16) {
    let Some((leg, Replacing { server, .. })) = bridge.legs.successor() else {
        return;
    };
    bridge.legs.remove(leg);
    bridge.requests.forget_relayed(server);
    cx.respond(server, status, None, |_| {}, b"");
}

/// Puts the new leg in place and ends the old one, if this answers the new leg's INVITE. Returns the role of the old one.
pub(crate) fn succeed(relay: &mut Relay<'_>, cx: &mut Cx<'_>, server: ServerTx) -> Option<LegRole> {
    let (leg, successor) = relay.bridge.legs.accept_successor(server)?;
    let replaces = successor.replaces;
    let (key, role) = (relay.bridge.key, relay.bridge.role(replaces));
    if let Some(peer) = relay.bridge.legs.sip_mut(leg) {
        let keeps = successor.is_behind_nat;
        peer.keep_alive = keeps.then(|| keep_alive::schedule(cx, key, leg));
        if let Some(sdp) = peer
            .remote_sdp
            .as_deref()
            .filter(|_| role == LegRole::Trunk)
        {
            relay.bridge.held.take_offer(sdp);
        }
    }

    relay.bridge.legs.stop_timers(cx, replaces);
    relay.bridge.requests.abandon_replaced(cx, replaces);
    relay.bridge.legs.put_in_place_of(replaces, leg);

    match role {
        LegRole::Trunk => relay.bridge.held.forget_proposal(),
        // The agent has handed its caller to its peer in another call.
        LegRole::Agent | LegRole::Destination => {
            relay.bridge.legs.set_role(leg, LegRole::Destination);
        }
    }
    relay.bridge.send_bye(cx, replaces, ByeContent::default());
    Some(role)
}
