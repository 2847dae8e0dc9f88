//! The ACK that waits for an SDP answer (RFC 3264 §4): the 2xx to an INVITE of ours had the offer.

use trunkline_sip::endpoint::ClientTx;

/// A 2xx with an offer whose ACK waits for the answer. The requester's ACK brings it; without one, `on_no_ack` rejects the offer.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) client: ClientTx,
    pub(crate) fork: u8,
    /// CSeq of our INVITE on that leg.
    pub(crate) cseq: u32,
    /// The offer, to be rejected if no answer comes.
    pub(crate) offer: Box<[u8]>,
}
