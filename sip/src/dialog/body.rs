//! The session description in a message's body (RFC 3261 §7.4).

use crate::header::content_type;
use crate::wire::{HeaderName, Message};

/// Returns whether a message carries an SDP.
pub fn has_sdp(message: &Message<'_>) -> bool {
    !message.body().is_empty()
        && message
            .first(HeaderName::ContentType)
            .is_none_or(content_type::may_hold_sdp)
}
