//! The segment that is being written: by the writer, and by shards whose SIP responses must not leave before the facts have left this
//! process.
//!
//! Data that `write(2)` has accepted is in the page cache: it survives kill -9, though not a crash of the machine. Nothing here waits for a
//! sync.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::queue::Queue;
use super::segment::Open;

/// Duration of a sync beyond which the disk counts as slow: a write could then block.
const SLOW: Duration = Duration::from_millis(100);

/// Write access to the segment, shared by writer and shards.
pub(super) struct Current {
    /// Locked during a write, so that lines keep their order. Lock order: before the queue's state. Absent while the disk fails.
    tail: Mutex<Option<Open>>,
    /// Incremented when a sync begins and when it ends: odd during a sync.
    syncs: AtomicU64,
}

/// The sync in progress, and since when it has been observed.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Watch(Option<(u64, Moment)>);

/// Outcome of a hand-over.
#[derive(Debug)]
pub(super) enum HandOver {
    /// The operating system has all queued facts.
    Over,
    /// The facts stay in memory: the disk fails, or is slow.
    Kept,
    /// The facts stay in memory: the disk failed just now.
    Refused(io::Error),
}

impl Current {
    pub(super) fn new(tail: Open) -> Self {
        Self {
            tail: Mutex::new(Some(tail)),
            syncs: AtomicU64::new(0),
        }
    }

    /// Locks out all writes while the guard is held.
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs a segment, visibly to the shards.
    pub(super) fn sync(&self, tail: &Open) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let synced = tail.sync();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        synced
    }

    /// Writes the queued lines, using the empty buffer `lines`.
    pub(super) fn hand_over<T>(
        &self,
        queue: &Queue<T>,
        lines: &mut Vec<u8>,
        watch: &mut Watch,
        now: Moment,
    ) -> HandOver {
        // Checked before the lock is taken: the writer may hold it while its own write blocks on the slow disk.
        if watch.sees_slow(self.syncs.load(Ordering::Relaxed), now) {
            return HandOver::Kept;
        }

        let mut tail = self.lock();
        let Some(open) = &*tail else {
            return HandOver::Kept;
        };

        queue.hand_over(lines);

        if lines.is_empty() {
            return HandOver::Over;
        }

        match open.write(lines) {
            Ok(()) => HandOver::Over,
            Err(error) => {
                // The writer will write everything again, into a new segment.
                *tail = None;
                queue.take_back();
                HandOver::Refused(error)
            }
        }
    }
}

impl Watch {
    /// Returns whether a sync is in progress and was observed long ago.
    fn sees_slow(&mut self, syncs: u64, now: Moment) -> bool {
        match self.0 {
            _ if syncs.is_multiple_of(2) => {
                self.0 = None;
                false
            }
            Some((seen, since)) if seen == syncs => now.since(since) > SLOW,
            // Another sync than at the last look. Its beginning isn't known here, so its time counts from now.
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
