//! The calls of a shard by their keys, and the lookup of the one that a message belongs to, by our tag in it (RFC 3261 §12.2.2).

use slab::Slab;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use crate::call::Call;
use crate::core::context::Core;
use crate::leg::call_status::CallStatus;
use crate::limits::attempt_counter::AttemptCounter;
use crate::parts::ids::{CallKey, DialogPlace, NamedDialog, TagOwner};

/// The calls of one shard.
#[derive(Debug, Default)]
pub(crate) struct CallTable {
    slab: Slab<CallSlot>,
    /// Number of the last call.
    generation: u32,
}

/// A call in its place.
#[derive(Debug)]
pub(super) struct CallSlot {
    generation: u32,
    /// Number of the call's attempts that are recorded, over all of its legs.
    pub(super) attempt_counter: AttemptCounter,
    pub(super) call: Box<Call>,
}

impl CallTable {
    /// Number of calls.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Returns the key of the next call, which [`Self::insert`] stores.
    pub(crate) fn reserve(&mut self) -> CallKey {
        // A later call at this place gets another number, so nothing meant for the earlier one reaches it.
        self.generation = self.generation.wrapping_add(1);
        let index =
            u32::try_from(self.slab.vacant_key()).expect("the node's call limit is below 2^32");
        CallKey {
            index,
            generation: self.generation,
        }
    }

    /// Stores a call.
    pub(crate) fn insert(&mut self, call: Call) {
        self.slab.insert(CallSlot {
            generation: call.bridge.key.generation,
            attempt_counter: AttemptCounter::default(),
            call: Box::new(call),
        });
    }

    /// Takes a call out, if it is still there.
    pub(super) fn remove(&mut self, key: CallKey) -> Option<Box<Call>> {
        self.get(key)?;
        Some(self.slab.remove(key.index as usize).call)
    }

    /// The call at `key`, if it is still there.
    pub(crate) fn get(&self, key: CallKey) -> Option<&Call> {
        let slot = self.slab.get(key.index as usize)?;
        (slot.generation == key.generation).then_some(&*slot.call)
    }

    pub(crate) fn get_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        self.slot_mut(key).map(|slot| &mut *slot.call)
    }

    /// The call at `key` with the count of its attempts, if it is still there.
    pub(super) fn slot_mut(&mut self, key: CallKey) -> Option<&mut CallSlot> {
        let slot = self.slab.get_mut(key.index as usize);
        slot.filter(|slot| slot.generation == key.generation)
    }

    /// All calls.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.slab.iter().map(|(_, slot)| &*slot.call)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.slab.iter_mut().map(|(_, slot)| &mut *slot.call)
    }

    /// Key and org of the call with this id that is up. Searches all calls, which is fine for a rare request.
    pub(super) fn place_of(&self, id: Uuid) -> Option<(CallKey, Uuid)> {
        // A call that only waits for answers to its BYEs isn't up any more.
        let is_up = |call: &&Call| call.ids.call == id && call.bridge.status() != CallStatus::Over;
        let call = self.iter().find(is_up)?;
        Some((call.bridge.key, call.ids.org))
    }

    /// Returns whether a call has owed a proof, and has no ACK yet.
    pub(super) fn has_proof(&self, key: CallKey) -> bool {
        self.get(key).is_some_and(|call| call.proof.is_some())
    }

    /// The call and leg that a message's To-tag (and for forks its From-tag) names.
    pub(super) fn dialog_of(&self, core: &Core, message: &Message<'_>) -> Option<NamedDialog> {
        let tag = core.minter.read_tag(message.to_tag()?)?;
        let found = core.tags.get(&tag.bits)?;
        let call = self.get(found.key)?;
        let to_tag = message.to_tag()?;
        let from_tag = message.from_tag().unwrap_or_default();
        // All forks of an INVITE of ours share our tag, so the whole dialog id has to match (RFC 3261 §12).
        let mut dialogs = call.bridge.legs.sip(found.leg)?.dialogs.iter();
        let held = dialogs.find(|held| {
            held.dialog.local_tag() == to_tag
                && held.dialog.remote_tag() == from_tag
                && held.dialog.call_id() == message.call_id()
        })?;
        Some(NamedDialog {
            call: found.key,
            place: DialogPlace {
                leg: found.leg,
                fork: held.fork,
            },
        })
    }

    /// Returns whether a response belongs to a dialog of a call that is up.
    pub(super) fn is_agreed(&self, core: &Core, answer: &Message<'_>) -> bool {
        let found = answer
            .from_tag()
            .and_then(|tag| core.minter.read_tag(tag))
            .and_then(|tag| core.tags.get(&tag.bits))
            .and_then(|found| self.get(found.key));
        let peer = answer.to_tag().unwrap_or_default();
        found.is_some_and(|call| {
            let is_up = matches!(call.bridge.status(), CallStatus::Answered | CallStatus::Up);
            is_up && call.bridge.has_dialog(answer.call_id(), peer)
        })
    }

    /// Returns whether a request may have overtaken the answer that makes its dialog, by a peer that is being dialled. Not for an abandoned attempt:
    /// its answer makes no dialog that is kept.
    pub(super) fn is_ahead(&self, core: &Core, message: &Message<'_>) -> bool {
        let tag = message.to_tag().and_then(|tag| core.minter.read_tag(tag));
        let found = tag.and_then(|tag| core.tags.get(&tag.bits));
        let (Some(tag), Some(TagOwner { key, .. })) = (tag, found) else {
            return false;
        };
        let dialing = self.get(*key).and_then(|call| call.bridge.dialing());
        dialing.is_some_and(|dialing| dialing.client.invites_as(tag.bits))
    }
}

/// The call whose tag the answer to a request of ours has.
pub(super) fn asked_by(core: &Core, answer: &Message<'_>) -> Option<CallKey> {
    let tag = core.minter.read_tag(answer.from_tag()?)?;
    core.tags.get(&tag.bits).map(|found| found.key)
}
