//! Negotiated media: the result of an offer and its answer, reduced to what RTP needs.

use std::net::{IpAddr, SocketAddr};

/// Payload type of A-law (RFC 3551 §6).
pub(super) const PCMA: u8 = 8;

/// Result of an offer and its answer, for one call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NegotiatedMedia {
    /// Address at which the peer listens. With a port of 0 or an unspecified address the peer is on hold: nothing is sent to it, and its
    /// silence is no fault.
    pub remote: SocketAddr,
    /// Audio payload type.
    pub payload: u8,
    /// Payload type of telephone-events (RFC 4733), if negotiated.
    pub telephone_event: Option<u8>,
    /// IP addresses from which the peer's packets are expected, on any port. Both may be the same.
    pub sources: [IpAddr; 2],
    /// Other addresses may be learnt if the expected ones send nothing.
    pub from_any: bool,
}
