//! Calls whose beginning or end isn't known to be on disk. A list that meets one waits until it is, so that a call which was listed has a
//! record, and stays over once it was, whatever becomes of this machine.
//!
//! Answers don't wait: the journal gathers facts for some milliseconds, and a caller would hear every one of them. Before a 200 leaves the
//! operating system has the facts (`Journal::hand_over`), so that they outlive this process.

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_store::journal::Position;

/// How long a call counts as unsynced at most: a disk that fails holds up no list.
const LONGEST: Duration = Duration::from_secs(1);
/// Beginnings and ends that are remembered; what is beyond counts as synced.
const MOST: usize = 32_768;

/// A beginning or an end that isn't known to be on disk.
#[derive(Debug)]
struct Pending {
    call: Uuid,
    position: Position,
    at: Moment,
}

/// What a shard has begun and ended and not yet seen on disk, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unsynced(VecDeque<Pending>);

impl Unsynced {
    /// A call begins or ends with the fact at this position, or one before it.
    pub(super) fn add(&mut self, call: Uuid, position: Position, now: Moment) {
        self.0.push_back(Pending {
            call,
            position,
            at: now,
        });
    }

    /// Whether the first of them has waited for as long as it may.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        let first = self.0.front();
        first.is_some_and(|first| now.since(first.at) > LONGEST || self.0.len() > MOST)
    }

    /// The next call whose beginning or end is on disk, the journal having this fact there with all before it. `None` when the others aren't.
    pub(super) fn release(&mut self, synced: Position, now: Moment) -> Option<Uuid> {
        let first = self.0.front()?;
        if first.position > synced && !self.is_late(now) {
            return None;
        }
        self.0.pop_front().map(|first| first.call)
    }
}
