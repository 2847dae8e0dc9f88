//! One call as data: its legs, its set-up while it lasts, what is in flight between the legs.
//!
//! Plain values only: no instant of a clock, no handle, no channel.

use smallvec::SmallVec;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use super::bridge::{Bridge, CallStatus};
use super::crossing::{Crossing, Identity, Place};
use super::destination_route::DestinationRoute;
use super::held::Held;
use super::hold::Hold;
use super::ids::LegId;
use super::join::Join;
use super::leg::{Delayed, Leg};
use super::limits::Permit;
use super::outbound::Outbound;
use super::privacy::{CallerIdentity, withheld_if};
use super::transfer::LastTransfer;
use super::{has_sdp, sdp_of};

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its legs, and what is in flight on them.
    pub(crate) bridge: Bridge,
    pub(crate) id: Uuid,
    pub(crate) session: Uuid,
    pub(crate) org: Uuid,
    pub(crate) agent: Uuid,
    /// Contact of the caller, once looked up.
    pub(crate) contact: Option<Uuid>,
    /// The caller as others may know of it.
    pub(crate) identity: CallerIdentity,
    pub(crate) slot: Slot,
    /// Max-Forwards of whatever INVITE follows from the caller's.
    pub(crate) hops: u8,
    /// CSeq of our INVITE to the runtime.
    pub(crate) runtime_cseq: u32,
    pub(crate) answered: Option<Moment>,
    /// State of a call that we began.
    pub(crate) outbound: Option<Box<Outbound>>,
    /// Both ends are being given each other's media by us, or have been.
    pub(crate) joining: Option<Box<Join<Delayed>>>,
    /// The caller's offer that nobody has answered.
    pub(crate) proposed: Option<Box<[u8]>>,
    /// Keys into the tag index, to be freed with the call.
    pub(crate) tags: SmallVec<[u64; 2]>,
    pub(crate) permit: Option<Permit>,
    /// The set-up deadline, then the longest duration.
    pub(crate) deadline: Option<TimerId>,
    /// The last transfer, under way or settled.
    pub(crate) transfer: LastTransfer<Box<DestinationRoute>>,
    /// Hold that was asked for by the API.
    pub(crate) hold: Hold,
    /// Hold of the call, by us and by its phone system.
    pub(crate) held: Held,
}

impl Call {
    /// Crossing of a message that came on this leg.
    pub(crate) fn crossing<'p>(
        &self,
        sender: LegId,
        place: Place,
        prefix: &'p str,
    ) -> Crossing<'p> {
        let identity = match self.bridge.is_trunk(sender) {
            true => withheld_if(self.identity.is_withheld()),
            false => Identity::Crosses,
        };
        Crossing {
            place,
            identity,
            prefix,
        }
    }

    /// Forgets a leg whose place is taken, once nothing is awaited from it any more.
    pub(crate) fn forget_left(&mut self, id: LegId) {
        let is_awaited = self.bridge.requests.awaits(id);
        if self.bridge.has_left(id) && !is_awaited && self.arriving() != Some(id) {
            self.bridge.legs.remove(id);
        }
    }

    /// A message of a peer holds its side of what is agreed on.
    pub(crate) fn hear(&mut self, id: LegId, message: &Message<'_>) {
        if self.bridge.is_trunk(id) && has_sdp(message) {
            let sdp = sdp_of(message.body());
            self.held.take_answer(sdp);
            let heard = self.hold.heard_sdp(sdp);
            self.bridge.set_heard(&heard);
        }
    }

    /// A peer offers to change what was agreed on, or asks for an offer.
    pub(crate) fn note_proposal(&mut self, id: LegId, message: &Message<'_>) {
        if self.bridge.is_trunk(id) {
            self.proposed = has_sdp(message).then(|| sdp_of(message.body()).into());
        }
    }

    /// And that was accepted.
    pub(crate) fn hear_proposed(&mut self, id: LegId) {
        if self.bridge.is_trunk(id)
            && let Some(sdp) = self.proposed.take()
        {
            self.held.take_offer(&sdp);
            let heard = self.hold.heard_sdp(&sdp);
            self.bridge.set_heard(&heard);
        }
    }

    /// Returns whether audio flows by way of us.
    pub(crate) fn has_own_media(&self) -> bool {
        let outbound = self.outbound.as_deref();
        self.bridge.is_local() || outbound.is_some_and(Outbound::has_media)
    }

    /// Returns whether nothing is awaited any more and the call may be forgotten.
    pub(crate) fn is_done(&self) -> bool {
        self.bridge.status() == CallStatus::Over
            && self.bridge.requests.pending().is_empty()
            && !self.bridge.legs.iter().any(Leg::owes_bye)
            && !self.transfer.is_parting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes are asserted so that they grow by intent alone. Two legs are inside a call, further ones in a block of their own.
    #[test]
    fn a_call_and_a_leg_are_small() {
        assert_eq!([size_of::<Call>(), size_of::<Leg>()], [1256, 416]);
    }
}
