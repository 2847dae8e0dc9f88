//! Origin of a request of ours: its Max-Forwards, and the CSeq number of the request that it relays (RFC 3261 §16.6).

use trunkline_sip::wire::{HeaderName, Message};

/// Max-Forwards of a request that isn't relayed (RFC 3261 §8.1.1.6).
const MAX_FORWARDS: u8 = 70;

/// Origin of a request of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestOrigin {
    /// It isn't relayed.
    Ours,
    /// It relays a request of the other leg.
    Relayed {
        /// CSeq number of that request.
        cseq: u32,
        /// Max-Forwards of ours.
        hops: u8,
    },
}

impl RequestOrigin {
    /// Origin of a request that relays `request`: one hop less, or 70 if it has no Max-Forwards (RFC 3261 §16.6).
    pub(crate) fn of(request: &Message<'_>) -> Self {
        let left = |hops| u8::try_from(hops).unwrap_or(u8::MAX).saturating_sub(1);
        let hops = request.number(HeaderName::MaxForwards);
        Self::Relayed {
            cseq: request.cseq().number,
            hops: hops.map_or(MAX_FORWARDS, left),
        }
    }

    /// Max-Forwards of ours.
    pub(crate) const fn hops(self) -> u8 {
        match self {
            Self::Ours => MAX_FORWARDS,
            Self::Relayed { hops, .. } => hops,
        }
    }
}
