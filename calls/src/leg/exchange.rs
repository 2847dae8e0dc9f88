//! The offer/answer exchange that is open in a call, and the requests that it admits: a peer's, and our own (RFC 3261 §14.1, §14.2, RFC 3311 §5.2).
//! One exchange at a time crosses the bridge.

use crate::parts::ids::LegId;

/// The exchange that is open. No silent peer keeps it open: a re-INVITE is cancelled after 32 s (`requests`), other requests time out, a
/// missing ACK is reported after 64*T1, and `Asking` ends by the join's deadline.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Exchange {
    /// None.
    Idle,
    /// An offer of that side is unanswered.
    Offered(LegId),
    /// An offer of ours is unanswered.
    Ours,
    /// The caller's offer, in its 2xx, waits for the answer in our ACK.
    Asking,
    /// That side has to answer an offer in its ACK.
    AwaitsAnswer(LegId),
    /// That side has to acknowledge the answer to its offer.
    AwaitsAck(LegId),
    /// A peer has to acknowledge that its INVITE was refused.
    Refused,
}

/// A request of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OwnRequest {
    /// UPDATE without a body, or OPTIONS: no offer.
    Bare,
    /// A re-INVITE.
    Offer,
    /// A re-INVITE of joining, which may be the one that has the caller's offer answered.
    Join,
}

impl Exchange {
    /// Returns the status that refuses an offer of leg `id`'s peer: 500 while its own last offer is unanswered, 491 while another's is, or
    /// while that peer may not have the answer yet.
    pub(crate) fn refusal(self, id: LegId) -> Option<u16> {
        match self {
            Self::Idle | Self::Refused => None,
            // A new offer shows that the peer has the answer to its last one. The ACK was lost or overtaken.
            Self::AwaitsAck(from) if from == id => None,
            Self::Offered(of) if of == id => Some(500),
            // The offer that `from` has to answer is this side's own.
            Self::AwaitsAnswer(from) if from != id => Some(500),
            Self::Offered(_)
            | Self::Ours
            | Self::Asking
            | Self::AwaitsAnswer(_)
            | Self::AwaitsAck(_) => Some(491),
        }
    }

    /// Returns whether a request of ours may be sent.
    pub(crate) const fn admits(self, own: OwnRequest) -> bool {
        match (self, own) {
            (_, OwnRequest::Bare)
            | (Self::Idle, OwnRequest::Offer | OwnRequest::Join)
            | (Self::Asking, OwnRequest::Join) => true,
            (Self::Asking, OwnRequest::Offer)
            | (
                Self::Offered(_)
                | Self::Ours
                | Self::AwaitsAnswer(_)
                | Self::AwaitsAck(_)
                | Self::Refused,
                OwnRequest::Offer | OwnRequest::Join,
            ) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each state, with the refusals of offers by caller and agent, and with the own requests that it admits.
    #[test]
    fn each_state_has_room_for_some_requests() {
        use Exchange::{AwaitsAck, AwaitsAnswer, Offered};
        let (caller, agent) = (LegId::FIRST, LegId::SECOND);

        let glare = Some(491);
        let early = Some(500);
        for (state, refusals, [offer, join]) in [
            (Exchange::Idle, [None, None], [true, true]),
            (Offered(caller), [early, glare], [false, false]),
            (Offered(agent), [glare, early], [false, false]),
            (Exchange::Ours, [glare, glare], [false, false]),
            (Exchange::Asking, [glare, glare], [false, true]),
            (AwaitsAnswer(caller), [glare, early], [false, false]),
            (AwaitsAnswer(agent), [early, glare], [false, false]),
            (AwaitsAck(caller), [None, glare], [false, false]),
            (AwaitsAck(agent), [glare, None], [false, false]),
            (Exchange::Refused, [None, None], [false, false]),
        ] {
            let peers = [caller, agent].map(|id| state.refusal(id));
            assert_eq!(peers, refusals, "{state:?}");
            let own = [OwnRequest::Bare, OwnRequest::Offer, OwnRequest::Join];
            assert_eq!(
                own.map(|own| state.admits(own)),
                [true, offer, join],
                "{state:?}"
            );
        }
    }
}
