//! Octets in and octets out: the sockets that SIP is spoken on (RFC 3261 §18).
//!
//! Owns sockets, connections and the time of arrival. Knows nothing of what a message says, only where one ends.

mod connection;
pub mod connections;
mod mmsg;
mod outbox;
pub mod tcp;
pub mod tls;
pub mod udp;

use trunkline_sip::flow::Flow;

/// A flow whose peer can't be reached any more: its connection closed or failed to open, or an ICMP message said so.
///
/// Whatever was sent by the connection is lost, and whatever was sent to `flow.peer` on `flow.transport` with
/// connection 0, as that means "any connection to this peer".
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The flow; on UDP `local` is the socket's address, and `connection` is 0. A stream that never opened has the
    /// number that its connection would have had.
    pub flow: Flow,
    /// Its peer had closed it first, and that was told: what was sent with connection 0 went by another one since, and isn't lost.
    pub was_closing: bool,
}
