//! Negotiated media: the result of an offer and its answer, reduced to what RTP needs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use trunkline_sip::dialog::sdp::{AudioPayload, Direction, Format, PacketTime, PayloadTypes};

/// Result of an offer and its answer, for one call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NegotiatedMedia {
    /// Address at which the peer listens. A port of 0 or an unspecified address puts it on hold: nothing is sent to it, and its silence isn't
    /// reported.
    pub remote: SocketAddr,
    /// Payload of the audio that is sent.
    pub payload: AudioPayload,
    /// Payload type of the telephone-events that are sent (RFC 4733), if negotiated.
    pub telephone_event: Option<u8>,
    /// Payload types of the packets that the peer may send. It may change the codec with any packet.
    pub received: PayloadTypes,
    /// Our direction. A peer that must not send isn't missed.
    pub direction: Direction,
    /// Audio in each packet that is sent.
    pub packet_time: PacketTime,
    /// Address at which the peer wants its RTCP (RFC 3605). One at another IP address than its RTP's gets none before RTCP has come from there.
    pub rtcp: Option<SocketAddr>,
    /// IP addresses from which the peer's packets are expected, on any port. Both may be the same.
    pub sources: [IpAddr; 2],
    /// True if other addresses may be learnt while the expected ones send nothing.
    pub from_any: bool,
    /// The peer, as its signalling shows it.
    pub peer: MediaPeer,
}

/// Peer of a call, as its signalling shows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct MediaPeer {
    /// Trunk of the call. Its calls share the IP addresses that were learnt in them.
    pub trunk: u128,
    /// IP address that signals. The calls of one address are those of one peer.
    pub signals_from: Option<IpAddr>,
    /// Address that audio goes to before the peer is heard, once the call is proven: the one in SDP, at the IP address that signals. `None`: the
    /// IP address in SDP is another one.
    pub claimed: Option<SocketAddr>,
    /// The IP address of `claimed` has shown that it takes part in the call, so audio needn't wait for a packet from there.
    pub is_proven: bool,
    /// Time without a packet after which the peer's silence is reported; `None`: never.
    pub silence: Option<Duration>,
}

impl NegotiatedMedia {
    /// Returns whether the peer is on hold.
    pub(super) fn is_held(&self) -> bool {
        self.remote.port() == 0 || self.remote.ip().is_unspecified()
    }

    /// Returns whether packets may be sent to the peer.
    pub(super) fn takes(&self) -> bool {
        self.direction.sends() && !self.is_held()
    }

    /// Returns whether the peer may send packets.
    pub(super) fn may_send(&self) -> bool {
        self.direction.receives() && !self.is_held()
    }

    /// Returns whether the peer's packets are expected from that IP address.
    pub(super) fn expects(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.sources.iter().any(|of| of.to_canonical() == ip)
    }

    /// Returns the address at which the peer says that it listens. Behind a NAT, the SDP names one that can't be reached from here.
    pub(super) fn listens_at(&self) -> SocketAddr {
        self.peer.claimed.unwrap_or(self.remote)
    }

    /// Returns whether the peer's RTCP is named as coming from that address.
    pub(super) fn names_rtcp(&self, source: SocketAddr) -> bool {
        self.rtcp.is_some_and(|named| {
            (named.ip().to_canonical(), named.port()) == (source.ip().to_canonical(), source.port())
        })
    }

    /// Returns whether audio flows both ways.
    pub(super) fn talks(&self) -> bool {
        self.takes() && self.may_send()
    }

    /// Returns the meaning of a packet's payload type; `None` if it wasn't negotiated.
    pub(super) const fn format(&self, payload_type: u8) -> Option<Format> {
        self.received.format(payload_type)
    }
}
