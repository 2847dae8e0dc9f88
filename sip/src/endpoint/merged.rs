//! Requests that reach us by several paths (RFC 3261 §8.2.2.2): the first is served, the others are answered with 482.

use hashbrown::HashTable;

/// Requests without To-tag, by the headers that merged requests share (RFC 3261 §8.2.2.2). The endpoint removes each with its server
/// transaction, or with the tombstone that follows it.
#[derive(Debug, Default)]
pub(super) struct MergedRequests(HashTable<MergedKey>);

#[derive(Debug)]
struct MergedKey {
    merged: u64,
    /// The lower half of the transaction's key.
    key: u64,
}

impl MergedRequests {
    /// Returns true if the request is served already, in a transaction with another key: it has come by another path too.
    pub(super) fn is_elsewhere(&self, merged: u64, key: u128) -> bool {
        self.0
            .find(merged, |known| known.merged == merged)
            .is_some_and(|known| known.key != key as u64)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, merged: u64, key: u128) {
        let known = MergedKey {
            merged,
            key: key as u64,
        };
        // The request served first keeps its place, so that all others meet it.
        self.0
            .entry(merged, |known| known.merged == merged, |known| known.merged)
            .or_insert(known);
    }

    pub(super) fn remove(&mut self, merged: u64) {
        // The keys of requests outside a dialog are odd, so the 0 of one inside a dialog finds nothing.
        if let Ok(known) = self.0.find_entry(merged, |known| known.merged == merged) {
            known.remove();
        }
        // Frees the storage that a flood has filled. That is rare enough not to slow steady traffic.
        if self.0.is_empty() && self.0.capacity() > 1024 {
            self.0 = HashTable::new();
        }
    }
}
