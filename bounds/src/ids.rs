//! Tables by ids.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use dashmap::DashMap;

/// Table by ids of ours, or by keyed fingerprints. Nobody else chooses such keys, so none can be made to collide, and they are random enough to need
/// no hash of their own.
pub type IdTable<K, V> = HashMap<K, V, BuildHasherDefault<FoldedId>>;

/// The same for several threads.
pub type SharedIdTable<K, V> = DashMap<K, V, BuildHasherDefault<FoldedId>>;

/// Folds an id into the number by which a table finds it.
#[derive(Debug, Default)]
pub struct FoldedId(u64);

impl Hasher for FoldedId {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, octets: &[u8]) {
        for part in octets.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The product has twice as many bits, and its upper half depends on all of the word's: an id may differ from another in few of them, at
        // either end.
        let word = self.0.rotate_left(32) ^ word;
        let product = u128::from(word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_usize(&mut self, _: usize) {
        // Every key has the same length.
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher as _;

    use uuid::Uuid;

    use super::*;

    /// Ids of a node differ in few bits. The places that a table takes, and the marks by which it tells keys of one place apart, have to differ all
    /// the same.
    #[test]
    fn ids_that_hardly_differ_are_spread() {
        let of_time = |number: u64| Uuid::from_u64_pair(0x0192_0000_0000_7000 + number, 1 << 63);
        let of_counter = |number: u64| Uuid::from_u64_pair(0x0192_0000_0000_7000, number);
        for (name, ids) in [
            ("by time", (0..4_096).map(of_time).collect::<Vec<_>>()),
            ("by counter", (0..4_096).map(of_counter).collect()),
            ("random", (0..4_096).map(|_| Uuid::new_v4()).collect()),
        ] {
            let hasher = BuildHasherDefault::<FoldedId>::default();
            let hashes: Vec<u64> = ids.iter().map(|id| hasher.hash_one(id)).collect();
            let places: HashSet<u64> = hashes.iter().map(|hash| hash % 4_096).collect();
            let marks: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            // Of 4,096 random places 2,589 are taken.
            assert!(places.len() > 2_000, "{name}: {} places", places.len());
            assert_eq!(marks.len(), 128, "{name}");
        }
    }
}
