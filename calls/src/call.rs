//! One call as data: its legs, its set-up while it lasts, what is in flight between the legs, and the state of each feature.
//!
//! Plain values only: no instant of a clock, no handle, no channel.
//!
//! A feature works on its own state and on the legs, and returns progress; it names neither the call nor another feature. The files below this one
//! name them all: each takes a kind of input, gives it to the feature that it is for, and carries out what follows for the others.

mod bot;
mod dialing;
mod ending;
mod joining;
pub(crate) mod proving;
mod requests;
mod responses;
mod set_up;
mod transferring;
mod turns;

use trunkline_model::record::Direction;
use uuid::Uuid;

use crate::dial::outbound::Outbound;
use crate::features::hold::Hold;
use crate::features::join::Joining;
use crate::features::transfer::LastTransfer;
use crate::inbound::dialog_proof::DialogProof;
use crate::inbound::lifetime::Lifetime;
use crate::leg::Leg;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::relay::Relay;
use crate::limits::Permit;
use crate::parts::ids::CallRef;
use crate::parts::privacy::CallerIdentity;

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its legs, and what is in flight on them.
    pub(crate) bridge: Bridge,
    pub(crate) ids: CallRef,
    /// Contact of the caller, once looked up.
    pub(crate) contact: Option<Uuid>,
    /// Caller identity as runtimes and transfer destinations get it.
    pub(crate) identity: CallerIdentity,
    /// Max-Forwards of INVITEs of ours that follow from the caller's.
    pub(crate) hops: u8,
    /// State of a call that we began.
    pub(crate) outbound: Option<Box<Outbound>>,
    /// Exchange of media between both ends by our re-INVITEs (RFC 3725 §4.4), while it runs.
    pub(crate) joining: Joining,
    /// Its places in the limits on concurrent calls, until the call ends.
    pub(crate) permit: Option<Permit>,
    /// Time of the call's answer, and the timer that ends the call.
    pub(crate) lifetime: Lifetime,
    /// The last transfer, under way or settled.
    pub(crate) transfer: LastTransfer,
    /// Hold of the call, by the API and by its phone system.
    pub(crate) hold: Hold,
    /// Proof that the call owes; `None` once its first ACK has come, and where it owes none.
    pub(crate) proof: Option<Box<DialogProof>>,
}

impl Call {
    /// The legs of the call, to relay between the two that are connected.
    pub(crate) const fn relay(&mut self) -> Relay<'_> {
        Relay {
            ids: &self.ids,
            bridge: &mut self.bridge,
            identity: &self.identity,
        }
    }

    pub(crate) const fn direction(&self) -> Direction {
        match self.outbound.is_some() {
            true => Direction::Outbound,
            false => Direction::Inbound,
        }
    }

    /// Returns whether nothing is awaited any more and the call may be forgotten.
    pub(crate) fn is_done(&self) -> bool {
        // A BYE may be challenged and sent again, or wait for an ACK, and a transfer for its last NOTIFY.
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
        assert_eq!([size_of::<Call>(), size_of::<Leg>()], [1416, 440]);
    }
}
