//! Position of a fact: the run that wrote it, its number within the run, and the synced part of the segments.

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
pub struct FactPosition(pub(super) u64);

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
