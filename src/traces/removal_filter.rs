//! Selects the messages to remove from traces, and filters blocks.

use std::collections::HashMap;

use trunkline_sip::moment::Moment;

use super::block::{Block, BlockQuery, Open};
use super::dialog::PeerDialog;
use super::record::{Record, records};
use super::scan;

/// Messages of a Call-ID that are removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RemovedLeg {
    /// All of them: we chose the Call-ID, so no other call has it, or the dialog isn't known.
    Whole,
    /// Those of one dialog: the peer chose the Call-ID.
    Peer(PeerDialog),
}

/// Messages to remove.
pub(super) struct RemovalFilter {
    legs: HashMap<Vec<u8>, RemovedLeg>,
    keys: Vec<u64>,
    from: Moment,
    until: Moment,
}

impl RemovalFilter {
    /// Selects messages of these Call-IDs within a time.
    pub(super) fn new(legs: HashMap<Vec<u8>, RemovedLeg>, from: Moment, until: Moment) -> Self {
        Self {
            keys: legs.keys().map(|id| scan::key(id)).collect(),
            legs,
            from,
            until,
        }
    }

    /// Search for blocks that may have messages to remove.
    pub(super) fn wanted(&self) -> BlockQuery<'_> {
        BlockQuery {
            keys: Some(&self.keys),
            from: self.from,
            until: self.until,
        }
    }

    /// Returns true if the message is to be removed.
    pub(super) fn takes(&self, record: &Record<'_>) -> bool {
        if !(self.from.as_micros()..=self.until.as_micros()).contains(&record.at) {
            return false;
        }
        match self.legs.get(scan::call_id(record.octets)) {
            None => false,
            Some(RemovedLeg::Whole) => true,
            Some(RemovedLeg::Peer(dialog)) => dialog.holds(record.is_sent, &record.captured()),
        }
    }

    /// Returns the block without the removed messages, and their number; `None` if it has none to remove. The block itself is `None` if
    /// nothing is left.
    pub(super) fn filtered(
        &self,
        block: &Block,
        scratch: &mut Vec<u8>,
    ) -> Option<(Option<Block>, u64)> {
        if !block.touches(&self.wanted()) {
            return None;
        }

        let octets = block.unpack();
        let mut left = Open::default();
        let mut gone = 0;
        for record in records(&octets) {
            if self.takes(&record) {
                gone += 1;
            } else {
                let key = scan::key(scan::call_id(record.octets));
                left.keep(&record, key);
            }
        }

        (gone > 0).then(|| (left.close(scratch), gone))
    }
}
