//! Negotiated media: the result of an offer and its answer, reduced to what RTP needs.

use std::net::{IpAddr, SocketAddr};

use trunkline_sip::dialog::sdp::AudioPayload;

/// Result of an offer and its answer, for one call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NegotiatedMedia {
    /// Address at which the peer listens. With a port of 0 or an unspecified address the peer is on hold: nothing is sent to it, and its
    /// silence is no fault.
    pub remote: SocketAddr,
    /// Payload of the audio, for both ways.
    pub payload: AudioPayload,
    /// Payload type of telephone-events (RFC 4733), if negotiated.
    pub telephone_event: Option<u8>,
    /// IP addresses from which the peer's packets are expected, on any port. Both may be the same.
    pub sources: [IpAddr; 2],
    /// True if other addresses may be learnt while the expected ones send nothing.
    pub from_any: bool,
}
