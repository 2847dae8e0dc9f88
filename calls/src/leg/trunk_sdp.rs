//! SDP of the trunk's peer, as its messages bring it: whether it holds the call, and what is kept of it for the legs that follow.

use trunkline_sip::wire::Message;

use super::bridge::Bridge;
use crate::parts::ids::LegId;
use crate::{has_sdp, sdp_of};

/// Takes the SDP of the trunk's peer from a message that completes an exchange.
pub(crate) fn hear(bridge: &mut Bridge, id: LegId, message: &Message<'_>) {
    if bridge.is_trunk(id) && has_sdp(message) {
        hear_answer(bridge, sdp_of(message.body()));
    }
}

/// Takes an answer of the trunk's peer.
pub(crate) fn hear_answer(bridge: &mut Bridge, sdp: &[u8]) {
    bridge.held.take_answer(sdp);
    keep_trunk_sdp(bridge, sdp);
}

/// Notes the offer in a re-INVITE or UPDATE of the trunk's peer; none if it asks for an offer.
pub(crate) fn note_proposal(bridge: &mut Bridge, id: LegId, message: &Message<'_>) {
    if bridge.is_trunk(id) {
        bridge
            .held
            .propose(has_sdp(message).then(|| sdp_of(message.body()).into()));
    }
}

/// Takes the noted offer of the trunk's peer, which was accepted.
pub(crate) fn hear_proposed(bridge: &mut Bridge, id: LegId) {
    if bridge.is_trunk(id)
        && let Some(sdp) = bridge.held.take_proposed()
    {
        bridge.held.take_offer(&sdp);
        keep_trunk_sdp(bridge, &sdp);
    }
}

fn keep_trunk_sdp(bridge: &mut Bridge, sdp: &[u8]) {
    let sdp = bridge.held.heard_sdp(sdp);
    bridge.set_trunk_sdp(&sdp);
}
