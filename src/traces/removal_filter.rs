//! Selects the messages to remove from traces, and filters blocks.

use std::collections::HashSet;

use trunkline_sip::moment::Moment;

use super::block::{Block, BlockQuery, Open};
use super::record::{Record, records};
use super::scan;

/// Messages to remove.
pub(super) struct RemovalFilter {
    call_ids: HashSet<Vec<u8>>,
    keys: Vec<u64>,
    from: Moment,
    until: Moment,
}

impl RemovalFilter {
    /// Selects messages of these Call-IDs within a time.
    pub(super) fn new(call_ids: HashSet<Vec<u8>>, from: Moment, until: Moment) -> Self {
        Self {
            keys: call_ids.iter().map(|id| scan::key(id)).collect(),
            call_ids,
            from,
            until,
        }
    }

    /// Search for blocks that may have some.
    pub(super) fn wanted(&self) -> BlockQuery<'_> {
        BlockQuery {
            keys: Some(&self.keys),
            from: self.from,
            until: self.until,
        }
    }

    /// Returns true if the message is to be removed.
    pub(super) fn takes(&self, record: &Record<'_>) -> bool {
        (self.from.as_micros()..=self.until.as_micros()).contains(&record.at)
            && self.call_ids.contains(scan::call_id(record.octets))
    }

    /// Returns the block without the removed messages, and their number; `None` if it has none.
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
