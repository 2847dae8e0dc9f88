//! Counts set-ups of one caller to one number through one trunk, so that a loop through a peer that hides it ends.
//!
//! A table of fixed size: another caller's set-up may replace an entry, and a loop is then found a few calls later.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Length of a tick in milliseconds, and of a window in ticks: ten seconds.
const TICK_MS: u64 = 250;
const WINDOW: u64 = 40;
/// Entries; a power of two.
const PLACES: usize = 1 << 14;
const COUNT_BITS: u32 = 16;
const TICK_BITS: u32 = 24;

/// Counts of set-ups, shared by all shards. An entry has 24 bits of the key's hash, the tick in which its window began, and the count.
#[derive(Debug)]
pub(super) struct LoopCounter {
    /// Set-ups allowed in one window; 0: all.
    most: u16,
    entries: Box<[AtomicU64]>,
    keys: RandomState,
}

impl LoopCounter {
    /// Allows `most` set-ups of one kind in a window; 0: all.
    pub(super) fn new(most: u16) -> Self {
        Self {
            most,
            entries: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            keys: RandomState::new(),
        }
    }

    /// Counts a set-up; `false` if it exceeds the limit.
    pub(super) fn admits(&self, caller: &str, called: &str, trunk: Uuid, now: Moment) -> bool {
        if self.most == 0 {
            return true;
        }

        let hash = self.keys.hash_one((caller, called, trunk));
        let Some(place) = self.entries.get(hash as usize & (PLACES - 1)) else {
            return true;
        };

        let key = hash >> (COUNT_BITS + TICK_BITS);
        let tick = (now.as_millis() / TICK_MS) & ((1 << TICK_BITS) - 1);
        let counted = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            let count = held & ((1 << COUNT_BITS) - 1);
            let began = (held >> COUNT_BITS) & ((1 << TICK_BITS) - 1);
            // The tick wraps after 48 days, so the age is taken modulo its 24 bits.
            let age = tick.wrapping_sub(began) & ((1 << TICK_BITS) - 1);
            if held >> (COUNT_BITS + TICK_BITS) != key || count == 0 || age >= WINDOW {
                Some(key << (COUNT_BITS + TICK_BITS) | tick << COUNT_BITS | 1)
            } else {
                // The window isn't renewed: it ends ten seconds after its first set-up, however many follow.
                (count < u64::from(self.most)).then_some(held + 1)
            }
        });
        counted.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn so_many_set_ups_of_a_kind_are_taken_in_ten_seconds() {
        let loop_counter = LoopCounter::new(20);
        let (trunk, now) = (Uuid::from_u128(1), Moment::from_secs(1_790_000_000));
        let at = |seconds| now + Duration::from_secs(seconds);
        let calls = |caller: &str, at| {
            (0..30)
                .filter(|_| loop_counter.admits(caller, "+1", trunk, at))
                .count()
        };
        assert_eq!(calls("+44", now), 20);
        assert_eq!(calls("+49", now), 20, "another caller");
        assert_eq!(calls("+44", at(9)), 0);
        assert_eq!(calls("+44", at(10)), 20, "a new window");
        let unbounded = LoopCounter::new(0);
        assert!((0..30).all(|_| unbounded.admits("+44", "+1", trunk, now)));
    }
}
