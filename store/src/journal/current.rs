//! The segment that is written: the writer's, and that of shards whose answers must not leave before the facts are beyond this process.
//!
//! What `write(2)` has taken lies in the page cache: it survives kill -9, though not the machine's fall. Nothing here waits for a sync.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::queue::Queue;
use super::segment::Open;

/// A sync that takes longer is a sign of a disk that a write could hang on.
const SLOW: Duration = Duration::from_millis(100);

/// What writer and shards write to.
pub(super) struct Current {
    /// Locked while somebody writes, so that lines stand in their order; before the queue's state, never after. Absent while the disk fails.
    tail: Mutex<Option<Open>>,
    /// Counts up when a sync begins and when it ends: odd while one is under way.
    syncs: AtomicU64,
}

/// How long the sync that is under way has been seen.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Watch(Option<(u64, Moment)>);

/// What became of a hand-over.
#[derive(Debug)]
pub(super) enum Handed {
    /// The operating system has all that waited.
    Over,
    /// It stays in memory: the disk fails, or is slow.
    Kept,
    /// It stays in memory: the disk refused it just now.
    Refused(io::Error),
}

impl Current {
    pub(super) fn new(tail: Open) -> Self {
        Self {
            tail: Mutex::new(Some(tail)),
            syncs: AtomicU64::new(0),
        }
    }

    /// Nobody writes as long as this is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs a segment, for everybody to see.
    pub(super) fn sync(&self, tail: &Open) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let synced = tail.sync();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        synced
    }

    /// Writes what waits in the queue, by way of `lines`, which are empty.
    pub(super) fn hand_over<T>(
        &self,
        queue: &Queue<T>,
        lines: &mut Vec<u8>,
        watch: &mut Watch,
        now: Moment,
    ) -> Handed {
        if watch.sees_slow(self.syncs.load(Ordering::Relaxed), now) {
            return Handed::Kept;
        }

        let mut tail = self.lock();
        let Some(open) = &*tail else {
            return Handed::Kept;
        };

        queue.hand_over(lines);

        if lines.is_empty() {
            return Handed::Over;
        }

        match open.write(lines) {
            Ok(()) => Handed::Over,
            Err(error) => {
                // The writer writes it all once more, elsewhere.
                *tail = None;
                queue.take_back();
                Handed::Refused(error)
            }
        }
    }
}

impl Watch {
    /// Whether the sync under way, if there is one, was seen long ago.
    fn sees_slow(&mut self, syncs: u64, now: Moment) -> bool {
        match self.0 {
            _ if syncs.is_multiple_of(2) => {
                self.0 = None;
                false
            }
            Some((seen, since)) if seen == syncs => now.since(since) > SLOW,
            _ => {
                self.0 = Some((syncs, now));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sync_that_was_seen_for_long_is_slow() {
        let at = |millis| Moment::from_secs(1) + Duration::from_millis(millis);
        let cases = [
            ("none", vec![(0, 0), (0, 500)], false),
            ("one begins", vec![(1, 500)], false),
            ("it goes on", vec![(1, 0), (1, 101)], true),
            ("another has begun", vec![(1, 0), (3, 101)], false),
            ("it has ended", vec![(1, 0), (1, 101), (2, 102)], false),
        ];
        for (name, looks, expected) in cases {
            let mut watch = Watch::default();
            let last = looks
                .into_iter()
                .map(|(syncs, millis)| watch.sees_slow(syncs, at(millis)))
                .last();
            assert_eq!(last, Some(expected), "{name}");
        }
    }
}
