//! Result of an offer and its answer.

use std::net::{IpAddr, SocketAddr};

/// The payload type of A-law (RFC 3551 §6).
pub(super) const PCMA: u8 = 8;

/// Result of an offer and its answer, for one call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Where the peer listens. A port of 0 or an unspecified address is a peer on hold: it is neither sent to nor missed.
    pub remote: SocketAddr,
    /// The audio payload type.
    pub payload: u8,
    /// That of telephone-events, where agreed.
    pub telephone_event: Option<u8>,
    /// The IPs that the peer's packets are expected from, by any port. Both may be the same.
    pub sources: [IpAddr; 2],
    /// Whether others may be learnt where those send nothing.
    pub from_any: bool,
}
