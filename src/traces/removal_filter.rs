//! Selects the messages to remove from traces, and filters blocks.

use std::collections::HashMap;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::block::{Block, BlockQuery, Open};
use super::record::{Record, records};
use super::scan;

/// Call whose messages are removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ErasedCall {
    /// The org.
    pub org: Uuid,
    /// The call.
    pub call: Uuid,
    /// Earliest time of a message.
    pub from: Moment,
    /// Latest time of a message.
    pub until: Moment,
}

/// Earliest and latest time of messages to remove, in microseconds since 1970.
type Span = (u64, u64);

/// Messages to remove.
#[derive(Debug)]
pub(super) struct RemovalFilter {
    /// Calls, by org and id.
    calls: HashMap<(Uuid, Uuid), Span>,
    keys: Vec<u64>,
    from: Moment,
    until: Moment,
}

impl RemovalFilter {
    /// Selects the messages of these calls.
    pub(super) fn new(erased: &[ErasedCall]) -> Self {
        let mut calls: HashMap<(Uuid, Uuid), Span> = HashMap::new();
        for erased in erased {
            let (from, until) = (erased.from.as_micros(), erased.until.as_micros());
            // A call may be found twice: as the contact's, and by a transfer.
            let span = calls.entry((erased.org, erased.call));
            let span = span.or_insert((from, until));
            *span = (span.0.min(from), span.1.max(until));
        }

        let keys = calls.keys().map(|(_, call)| scan::key(call.as_bytes()));
        let keys = keys.collect();
        let from = erased.iter().map(|erased| erased.from).min();
        let until = erased.iter().map(|erased| erased.until).max();
        Self {
            calls,
            keys,
            from: from.unwrap_or_default(),
            until: until.unwrap_or_default(),
        }
    }

    /// Calls whose messages are removed.
    pub(super) fn calls(&self) -> impl Iterator<Item = Uuid> {
        self.calls.keys().map(|(_, call)| *call)
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
        let span = record.leg.map(|leg| (leg.org, leg.call));
        let span = span.and_then(|call| self.calls.get(&call));
        span.is_some_and(|(from, until)| (*from..=*until).contains(&record.at))
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
                left.keep(&record);
            }
        }

        (gone > 0).then(|| (left.close(scratch), gone))
    }
}
