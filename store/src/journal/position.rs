//! Where a fact is: whose it is, how many came before it, and how far the disk has come.

/// Whose facts: the node, and which of its starts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The node's number.
    pub node: u8,
    /// The number of its start.
    pub boot: i64,
}

/// How many facts this process had appended up to and with some fact.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub(super) u64);

/// The journal takes no facts: too many wait, be it for a slow disk or a full one.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the journal is full")]
pub struct Full;

/// What the writer has made safe.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Synced {
    /// The segment that is written.
    pub(super) segment: u64,
    /// Its synced length; segments before it are complete.
    pub(super) octets: u64,
    /// The last fact in it.
    pub(super) position: Position,
}
