//! Flows whose peers have become unreachable.

use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Flow;

use super::send_error::SendError;

/// A flow whose peer has become unreachable: its connection closed or failed to open, or an ICMP message said so (RFC 3261 §18.4).
///
/// All messages sent on the connection are lost. So are those sent to `flow.peer` on `flow.transport` with connection 0, which means any
/// connection to this peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The flow. On UDP `local` is the socket's address, and `connection` is 0. A stream that never opened has the number reserved for its
    /// connection.
    pub flow: Flow,
    /// Number of the name that the peer has proved ([`trunkline_sip::verified`]); 0: none.
    pub proved: u32,
    /// The peer had closed its side first, which [`Sink::closing`](super::stream::Sink::closing) reported. Messages with connection 0 have
    /// used another connection since, and aren't lost.
    pub was_closing: bool,
    /// Reason.
    pub fault: Fault,
}

impl Lost {
    /// Returns the loss of a message that was not accepted. `proved` as in [`Lost`]: the message may come before the report of the end.
    pub const fn unsent(flow: Flow, proved: u32, error: SendError) -> Self {
        Self {
            flow,
            proved,
            // The end of a numbered connection is reported by itself.
            was_closing: flow.is_connection(),
            fault: match error {
                SendError::Closed => Fault::Closed,
                SendError::TooMany => Fault::TooMany,
            },
        }
    }
}
