//! Lookup of the call that a message belongs to, by our tag in it (RFC 3261 §12.2.2).

use trunkline_sip::wire::Message;

use super::Calls;
use crate::leg::call_status::CallStatus;
use crate::parts::ids::{CallKey, LegId, TagOwner};

impl Calls {
    /// The call and leg that a message's To-tag (and for forks its From-tag) names.
    pub(super) fn dialog_of(&self, message: &Message<'_>) -> Option<(CallKey, LegId, u8)> {
        let tag = self.core.minter.read_tag(message.to_tag()?)?;
        let found = self.core.tags.get(&tag.bits)?;
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
        Some((found.key, found.leg, held.fork))
    }

    /// The call whose tag the answer to a request of ours has.
    pub(super) fn asked_by(&self, answer: &Message<'_>) -> Option<CallKey> {
        let tag = self.core.minter.read_tag(answer.from_tag()?)?;
        self.core.tags.get(&tag.bits).map(|found| found.key)
    }

    /// Returns whether a response belongs to a dialog of a call that is up.
    pub(super) fn is_agreed(&self, answer: &Message<'_>) -> bool {
        let found = answer
            .from_tag()
            .and_then(|tag| self.core.minter.read_tag(tag))
            .and_then(|tag| self.core.tags.get(&tag.bits))
            .and_then(|found| self.get(found.key));
        let peer = answer.to_tag().unwrap_or_default();
        found.is_some_and(|call| {
            let is_up = matches!(call.bridge.status(), CallStatus::Answered | CallStatus::Up);
            is_up && call.bridge.has_dialog(answer.call_id(), peer)
        })
    }

    /// Returns whether a request may have overtaken the answer that makes its dialog, by a peer that is being dialled. Not for an abandoned attempt:
    /// its answer makes no dialog that is kept.
    pub(super) fn is_ahead(&self, message: &Message<'_>) -> bool {
        let tag = message
            .to_tag()
            .and_then(|tag| self.core.minter.read_tag(tag));
        let found = tag.and_then(|tag| self.core.tags.get(&tag.bits));
        let (Some(tag), Some(TagOwner { key, .. })) = (tag, found) else {
            return false;
        };
        let dialing = self.get(*key).and_then(|call| call.bridge.dialing());
        dialing.is_some_and(|dialing| dialing.client.invites_as(tag.bits))
    }
}
