//! Recently written facts, kept in memory so that the projector needn't read them back from disk.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::position::FactPosition;

/// Most facts in memory; others are read from their segment, which costs several times as much. A shard at its capacity makes as many in most of a
/// second, in which the store has taken them.
const ROOM: usize = 32_768;

/// One write.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct RecentWrite<T> {
    pub(super) segment: u64,
    /// Range within the segment.
    pub(super) octets: std::ops::Range<u64>,
    pub(super) facts: Vec<T>,
    pub(super) first: FactPosition,
    pub(super) last: FactPosition,
}

/// Writes that the projector hasn't taken yet, in order. Those for which there was no room are missing.
pub(super) struct Recent<T>(Mutex<HeldWrites<T>>);

struct HeldWrites<T> {
    writes: VecDeque<RecentWrite<T>>,
    facts: usize,
}

impl<T> Recent<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(HeldWrites {
            writes: VecDeque::new(),
            facts: 0,
        }))
    }

    /// Stores a write, if there is room.
    pub(super) fn leave(&self, written: RecentWrite<T>) {
        let mut held = self.held();
        // Without room the new write is left out, and no older one is dropped: the projector needs the oldest ones first, once the store
        // takes facts again.
        if held.facts + written.facts.len() <= ROOM {
            held.facts += written.facts.len();
            held.writes.push_back(written);
        }
    }

    /// Takes the stored writes of a segment that follow each other without a gap, from `from` up to `end` at most, and joins them into one.
    /// Returns `None` if the write at `from` isn't stored. Drops all writes before `from`.
    pub(super) fn take(&self, segment: u64, from: u64, end: u64) -> Option<RecentWrite<T>> {
        let mut held = self.held();
        let mut taken: Option<RecentWrite<T>> = None;
        while let Some(next) = held.writes.front() {
            let wanted = (
                segment,
                taken.as_ref().map_or(from, |taken| taken.octets.end),
            );
            let place = (next.segment, next.octets.start);
            // A write is left here before its sync is published, so it may reach beyond `end`.
            if place > wanted || place == wanted && next.octets.end > end {
                break;
            }

            let Some(next) = held.writes.pop_front() else {
                break;
            };

            held.facts -= next.facts.len();

            if place < wanted {
                continue;
            }

            taken = Some(match taken {
                None => next,
                Some(mut before) => {
                    before.octets.end = next.octets.end;
                    before.facts.extend(next.facts);
                    before.last = next.last;
                    before
                }
            });
        }

        taken
    }

    /// Returns the start of the first stored write of a segment.
    pub(super) fn begins(&self, segment: u64) -> Option<u64> {
        let held = self.held();
        let first = held.writes.front()?;
        (first.segment == segment).then_some(first.octets.start)
    }

    fn held(&self) -> MutexGuard<'_, HeldWrites<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(segment: u64, octets: std::ops::Range<u64>, facts: &[u64]) -> RecentWrite<u64> {
        RecentWrite {
            segment,
            octets,
            facts: facts.to_vec(),
            first: FactPosition(facts.first().copied().unwrap_or_default()),
            last: FactPosition(facts.last().copied().unwrap_or_default()),
        }
    }

    #[test]
    fn writes_that_follow_each_other_come_as_one() {
        let recent = Recent::new();
        recent.leave(written(1, 0..10, &[1, 2]));
        recent.leave(written(1, 10..20, &[3]));
        recent.leave(written(1, 20..30, &[4]));
        assert_eq!(recent.take(1, 0, 20), Some(written(1, 0..20, &[1, 2, 3])));
        assert_eq!(recent.begins(1), Some(20));
        assert_eq!(recent.take(1, 20, u64::MAX), Some(written(1, 20..30, &[4])));
        assert_eq!(recent.begins(1), None);
    }

    #[test]
    fn what_is_missing_is_not_jumped_over() {
        let recent = Recent::new();
        recent.leave(written(1, 0..10, &[1]));
        recent.leave(written(1, 20..30, &[3]));
        recent.leave(written(2, 0..10, &[4]));
        assert_eq!(recent.take(1, 0, 30), Some(written(1, 0..10, &[1])));
        assert_eq!(recent.take(1, 10, 30), None);
        assert_eq!(recent.begins(1), Some(20));
        assert_eq!(recent.take(1, 20, 30), Some(written(1, 20..30, &[3])));
        assert_eq!(
            recent.begins(1),
            None,
            "another segment's is not this one's"
        );
        assert_eq!(recent.take(2, 0, 10), Some(written(2, 0..10, &[4])));
    }

    #[test]
    fn what_was_read_meanwhile_is_forgotten() {
        let recent = Recent::new();
        recent.leave(written(1, 0..10, &[1]));
        recent.leave(written(1, 10..20, &[2]));
        recent.leave(written(2, 0..5, &[3]));
        assert_eq!(recent.take(2, 0, 5), Some(written(2, 0..5, &[3])));
        assert_eq!(recent.held().facts, 0);
    }

    #[test]
    fn room_is_bounded() {
        let recent = Recent::new();
        let many: Vec<u64> = (0..ROOM as u64).collect();
        recent.leave(written(1, 0..10, &many));
        recent.leave(written(1, 10..20, &[1]));
        assert_eq!(recent.held().writes.len(), 1);
        assert_eq!(recent.take(1, 0, 20).map(|taken| taken.octets), Some(0..10));
        recent.leave(written(1, 20..30, &[2]));
        assert_eq!(recent.begins(1), Some(20));
    }
}
