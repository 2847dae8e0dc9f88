//! Replies to requests to peers.

use trunkline_sip::fault::Fault;
use trunkline_sip::wire::Message;

/// Result of a request.
#[derive(Copy, Clone, Debug)]
pub(super) enum PeerReply<'a> {
    Message(&'a Message<'a>),
    /// Nothing within the time of a transaction.
    Silence,
    /// The flow is broken, or couldn't be opened.
    Broken(&'a Fault),
}
