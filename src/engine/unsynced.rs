//! Calls whose beginning or end may not be on disk yet.
//!
//! A call list that contains one waits until it is, so that a listed call has a record and a call that was listed as
//! over stays over, even if the machine fails.
//!
//! Answers to INVITE don't wait: the journal gathers facts for some milliseconds, which a caller would hear. Instead
//! the operating system has the facts before a 200 leaves (`Journal::hand_over`), so that they survive this process.

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_store::journal::FactPosition;

/// Time after which a call counts as synced in any case: a failing disk must not block lists.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Most beginnings and ends that are tracked. Beyond it the oldest count as synced.
const MAX_ENTRIES: usize = 32_768;

/// Beginning or end of a call that may not be on disk.
#[derive(Debug)]
struct Pending {
    call: Uuid,
    position: FactPosition,
    at: Moment,
}

/// Beginnings and ends of a shard's calls that may not be on disk, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unsynced(VecDeque<Pending>);

impl Unsynced {
    /// Notes that a call began or ended with the fact at this position, or one before it.
    pub(super) fn add(&mut self, call: Uuid, position: FactPosition, now: Moment) {
        self.0.push_back(Pending {
            call,
            position,
            at: now,
        });
    }

    /// Returns true if the oldest counts as synced in any case: it has waited for the maximum time, or too many wait.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        let first = self.0.front();
        first.is_some_and(|first| now.since(first.at) > MAX_AGE || self.0.len() > MAX_ENTRIES)
    }

    /// Returns the next call whose beginning or end is on disk, given the synced position; `None` if there are no more.
    pub(super) fn release(&mut self, synced: FactPosition, now: Moment) -> Option<Uuid> {
        let first = self.0.front()?;
        if first.position > synced && !self.is_late(now) {
            return None;
        }
        self.0.pop_front().map(|first| first.call)
    }
}
