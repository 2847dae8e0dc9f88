//! Identifiers of a shard's calls and of their legs, tags and timers: plain values without references.

use trunkline_bounds::{Holder, PartnerShare};
use trunkline_sip::endpoint::Owner;
use trunkline_sip::slot::Slot;
use uuid::Uuid;

/// Key of a call in this shard's slab.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallKey {
    /// Its place in the slab.
    pub index: u32,
    /// Number of the call, counted over all places of the shard: it tells the call from earlier ones in the same place. It wraps around.
    pub generation: u32,
}

/// Ids of a call, as its records and its agent know it, and its slot.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallRef {
    pub(crate) call: Uuid,
    pub(crate) session: Uuid,
    pub(crate) org: Uuid,
    /// Share of the org's partner.
    pub(crate) partner: Option<PartnerShare>,
    pub(crate) agent: Uuid,
    /// Slot in which its tags and ids are minted.
    pub(crate) slot: Slot,
}

impl CallRef {
    /// Org in whose share, and in whose partner's share, the call counts.
    pub(crate) const fn holder(&self) -> Holder {
        Holder {
            org: self.org,
            partner: self.partner,
        }
    }
}

/// A dialog of a call: its leg, and its number among the forks of an INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct DialogPlace {
    pub(crate) leg: LegId,
    pub(crate) fork: u8,
}

/// A dialog that a message names by our tag.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedDialog {
    pub(crate) call: CallKey,
    pub(crate) place: DialogPlace,
}

/// A leg within its call. Numbers wrap around after 256 legs; those of legs that exist are skipped.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LegId(u8);

impl LegId {
    /// The leg that every call begins with, on its trunk.
    pub(crate) const FIRST: Self = Self(0);
    /// The first leg of the agent.
    pub(crate) const SECOND: Self = Self(1);

    /// The number.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The id after this one.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// Call and leg of a local tag.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TagOwner {
    pub(crate) key: CallKey,
    pub(crate) leg: LegId,
}

/// A timer of a call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum CallTimer {
    /// The set-up deadline, then the longest duration.
    Deadline,
    /// The contact lookup has taken too long.
    Contact,
    /// A target is silent while another one waits.
    Attempt,
    /// Ringing time of the callee or destination.
    Ringing,
    /// A queued request of ours may have its turn now, or has waited too long for it (`Requests::set_turn`).
    Turn,
    /// A reliable provisional is sent again in this fork (RFC 3262 §3).
    Reliable(u8),
    /// A re-INVITE of ours has waited long enough for its final answer.
    Exchange,
    /// Refresh or expiry of the session on one leg (RFC 4028).
    Session(LegId),
    /// The peer of one leg, behind NAT, gets its next keep-alive.
    KeepAlive(LegId),
    /// A transfer has waited long enough.
    Transfer,
    /// The built-in agent has waited long enough.
    Builtin,
    /// The next step of the proof that the call owes.
    Proof,
}

/// Org of the deployment's own calls: no real org has this id.
pub(crate) const DEPLOYMENT: Uuid = Uuid::nil();

/// Owner of transactions that belong to no call: refusals, and BYEs after a late 2xx. No call has this key.
const NO_CALL: Owner = Owner(u64::MAX);

/// A call's key as the endpoint carries it; `None` for a transaction that belongs to no call.
pub(crate) const fn owner_of(call: Option<CallKey>) -> Owner {
    match call {
        Some(key) => Owner((key.index as u64) << 32 | key.generation as u64),
        None => NO_CALL,
    }
}

/// Returns the call that owns a transaction, if it belongs to one.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of 64 bits")]
pub(crate) const fn key_of(owner: Owner) -> Option<CallKey> {
    if owner.0 == NO_CALL.0 {
        return None;
    }
    Some(CallKey {
        index: (owner.0 >> 32) as u32,
        generation: owner.0 as u32,
    })
}
