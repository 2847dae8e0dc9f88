//! Position of a fact: the run that wrote it, its number within the run, and the synced and the stored part of the segments.

use std::cmp::Ordering;

/// A run of a node, which writes facts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The node's number.
    pub node: u8,
    /// Number of the run.
    pub boot: i64,
}

/// Number of facts that this process has appended up to and including a fact.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FactPosition(pub(crate) u64);

/// End of the part of a run's segments that the store has.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ReadPosition {
    /// Number of the segment; the run's earlier ones are stored whole.
    pub(crate) segment: u64,
    /// Last stored fact of this segment.
    pub(crate) fact: FactPosition,
}

impl ReadPosition {
    /// Returns the last stored fact of the segment with this number.
    pub(super) fn within(self, segment: u64) -> FactPosition {
        match self.segment.cmp(&segment) {
            Ordering::Less => FactPosition(0),
            Ordering::Equal => self.fact,
            Ordering::Greater => FactPosition(u64::MAX),
        }
    }
}

/// Error: the queue is full, because of a slow or a full disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal is full")]
pub struct Full;

/// The synced part of the segments.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct SyncedTo {
    /// Number of the present segment.
    pub(super) segment: u64,
    /// Its synced length in octets; earlier segments are synced whole.
    pub(super) octets: u64,
    /// Position of the last synced fact.
    pub(super) position: FactPosition,
}
