//! Flows whose peers can't be reached any more.

use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Flow;

use super::send_error::SendError;

/// A flow whose peer can't be reached any more: its connection closed or failed to open, or an ICMP message said so.
///
/// Whatever was sent by the connection is lost, and whatever was sent to `flow.peer` on `flow.transport` with
/// connection 0, as that means "any connection to this peer".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The flow; on UDP `local` is the socket's address, and `connection` is 0. A stream that never opened has the
    /// number that its connection would have had.
    pub flow: Flow,
    /// The name that its peer has proved, by its number in [`trunkline_sip::verified`]; 0: none.
    pub proved: u32,
    /// Its peer had closed it first, and that was told: what was sent with connection 0 went by another one since, and isn't lost.
    pub was_closing: bool,
    /// Why.
    pub fault: Fault,
}

impl Lost {
    /// The flow of a message that was not taken.
    pub const fn unsent(flow: Flow, error: SendError) -> Self {
        Self {
            flow,
            proved: 0,
            // Of a connection that is gone everybody has been told.
            was_closing: flow.is_connection(),
            fault: match error {
                SendError::Closed => Fault::Closed,
                SendError::TooMany => Fault::TooMany,
            },
        }
    }
}
