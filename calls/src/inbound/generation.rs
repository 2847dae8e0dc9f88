//! Number of times that a call has looped back to this deployment: two bits of its session's id count it, so that no node keeps state.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use crate::core::context::{Cx, node_and_slot_of};

/// Octet of a session's id whose bits count the loops, and the place of these bits in it.
const GENERATION: usize = 12;
const GENERATION_SHIFT: u32 = 6;
/// Number of the return at which a call is refused.
pub(crate) const LAST_GENERATION: u8 = 4;

/// Returns a session id with that generation, which is below [`LAST_GENERATION`].
fn in_generation(id: Uuid, generation: u8) -> Uuid {
    let mut octets = id.into_bytes();
    octets[GENERATION] &= (1 << GENERATION_SHIFT) - 1;
    octets[GENERATION] |= generation << GENERATION_SHIFT;
    Uuid::from_bytes(octets)
}

/// Returns when a session began, from its id.
fn began(session: Uuid) -> Option<Moment> {
    let (seconds, nanos) = session.get_timestamp()?.to_unix();
    Some(Moment::from_secs(seconds) + Duration::from_nanos(nanos.into()))
}

/// Returns how often the call of a session had come back.
fn generation_of(session: Uuid) -> u8 {
    session.as_bytes()[GENERATION] >> GENERATION_SHIFT
}

/// Makes a session id for a call that has come back so often.
pub(crate) fn mint_session(cx: &mut Cx<'_>, slot: Slot, generation: u8) -> Uuid {
    in_generation(cx.mint_id(slot), generation)
}

/// Returns how often the call of this INVITE has come back: one more than the session whose id it carries, if that is up.
pub(crate) fn generation(cx: &Cx<'_>, message: &Message<'_>) -> u8 {
    let config = &cx.core.config;
    let text = message
        .other(&config.header_prefix.names().session_id)
        .and_then(|id| std::str::from_utf8(id).ok());
    let Some(session) = text.and_then(|id| Uuid::parse_str(id.trim()).ok()) else {
        return 0;
    };

    let is_up = match node_and_slot_of(session) {
        Some((node, _)) if node == config.node => cx.core.live.is_up(session),
        // Another node's session: it counts as up for the longest duration of a call.
        Some(_) => began(session).is_some_and(|began| {
            // The id comes from the message, and no session begins in the future.
            began <= cx.now && cx.now.since(began) <= config.max_duration
        }),
        None => false,
    };
    match is_up {
        true => generation_of(session) + 1,
        false => 0,
    }
}
