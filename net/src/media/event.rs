//! Events that media reports of a call.

use std::time::Duration;

use crate::bot::BotEnd;

/// Event that media reports of a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MediaEvent {
    /// The peer has not been heard for [`MediaPeer::silence`](super::MediaPeer::silence). Reported again, less and less often, until it is
    /// heard.
    Silent,
    /// The peer is heard again after a silence that was reported, or the network has failed and not the peer.
    Heard,
    /// The peer pressed this key: 0 to 9, `*` (10) or `#` (11), as RFC 4733 §3.2 numbers them.
    Digit(u8),
    /// The code has been spoken, or the peer was not heard in time.
    Spoken,
    /// The clip of this serial has been played to its end.
    Played(u32),
    /// The first audio of the bot was sent to the peer.
    BotSpoke {
        /// Time since the answer, as [`Media::start`](super::Media::start) was given it.
        after: Duration,
    },
    /// A fault of ours has ended the call's media.
    Failed,
    /// The attached bot has gone; the peer hears silence from now on.
    BotClosed(BotEnd),
}
