//! Where a message is copied: a shard's end, and the queue on which it leaves its batch for the thread that keeps traces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;

/// How often batches are picked up.
pub(super) const SWEEP: Duration = Duration::from_millis(50);
/// Octets of a batch that waits, and of one that its shard can't hand on.
pub(super) const BATCH: usize = 1 << 20;
/// A batch of this size is picked up at once.
pub(super) const MUCH: usize = BATCH / 4;
/// A batch with more room than this gives it back when nothing comes.
const ROOMY: usize = 64 << 10;
/// What a message costs a batch beside its octets.
const OVERHEAD: usize = size_of::<Mark>();

/// A shard's end.
#[derive(Debug)]
pub struct Tap {
    batch: Batch,
    /// `None` where nothing is to be copied.
    queue: Option<Arc<TapQueue>>,
}

impl Tap {
    /// Copies nothing.
    pub fn closed() -> Self {
        Self {
            batch: Batch::default(),
            queue: None,
        }
    }

    pub(super) fn of(queue: &Arc<TapQueue>) -> Self {
        Self {
            batch: Batch::default(),
            queue: Some(Arc::clone(queue)),
        }
    }

    /// Copies a message.
    pub fn note(&mut self, at: Moment, flow: Flow, is_sent: bool, octets: &[u8]) {
        let Some(queue) = &self.queue else {
            return;
        };
        if self.batch.size() + octets.len() > BATCH {
            queue.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }

        let mark = Mark {
            at,
            flow,
            is_sent,
            start: 0,
            end: 0,
            key: 0,
        };

        self.batch.push(mark, octets);
    }

    /// Gives much room back; for a shard that has nothing to do.
    pub fn rest(&mut self) {
        if self.batch.marks.is_empty() {
            self.batch.rest();
        }
    }

    /// Whether what was copied is to be handed on, however soon there will be more: it is much, or has waited as long as it may.
    pub fn is_due(&self, now: Moment) -> bool {
        let first = self.batch.marks.first();
        self.batch.size() > MUCH || first.is_some_and(|mark| now.since(mark.at) >= SWEEP)
    }

    /// Leaves all that was copied: for a shard that ends. Waits for who picks up.
    pub fn leave(&mut self) {
        let Some(queue) = &self.queue else {
            return;
        };
        let mut waiting = lock(&queue.batch);
        for (mark, octets) in self.batch.messages() {
            waiting.push(*mark, octets);
        }
        self.batch.clear();
    }

    /// Leaves what was copied to be picked up; if that is just happening, the next turn does.
    pub fn hand_on(&mut self) {
        let Some(queue) = self.queue.as_ref().filter(|_| !self.batch.marks.is_empty()) else {
            return;
        };
        let Ok(mut waiting) = queue.batch.try_lock() else {
            return;
        };

        if waiting.marks.is_empty() {
            std::mem::swap(&mut *waiting, &mut self.batch);
        } else if waiting.size() + self.batch.size() <= BATCH {
            for (mark, octets) in self.batch.messages() {
                waiting.push(*mark, octets);
            }
        } else {
            // It stays here until there is room.
            return;
        }

        let is_much = waiting.size() > MUCH;
        drop(waiting);
        self.batch.clear();
        if is_much && let Some(keeper) = queue.keeper.get() {
            keeper.unpark();
        }
    }
}

/// One message of a batch.
#[derive(Copy, Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: Moment,
    pub(super) flow: Flow,
    pub(super) is_sent: bool,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) key: u64,
}

/// Messages one behind the other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) octets: Vec<u8>,
    pub(super) marks: Vec<Mark>,
}

impl Batch {
    fn push(&mut self, mark: Mark, octets: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.marks.push(Mark {
            start,
            end: self.octets.len(),
            ..mark
        });
    }

    fn size(&self) -> usize {
        self.octets.len() + self.marks.len() * OVERHEAD
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = (&Mark, &[u8])> {
        self.marks
            .iter()
            .map(|mark| (mark, &self.octets[mark.start..mark.end]))
    }

    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.marks.clear();
    }

    /// Gives much room back; for one that is empty and isn't needed.
    pub(super) fn rest(&mut self) {
        if self.octets.capacity() > ROOMY {
            *self = Self::default();
        }
    }
}

/// Where a shard leaves its batch.
#[derive(Debug, Default)]
pub(super) struct TapQueue {
    batch: Mutex<Batch>,
    keeper: OnceLock<Thread>,
    /// Messages for which there was no room since they were last picked up.
    left_out: AtomicU64,
}

impl TapQueue {
    /// From now on `keeper` is told when there is much. Once.
    pub(super) fn attend(&self, keeper: &Thread) {
        // Nobody else sets it.
        let _ = self.keeper.set(keeper.clone());
    }

    /// Swaps what lies there for `spare`, which is empty; false if there is nothing.
    pub(super) fn pick_up(&self, spare: &mut Batch) -> bool {
        let mut batch = lock(&self.batch);
        if batch.marks.is_empty() {
            batch.rest();
            return false;
        }
        std::mem::swap(&mut *batch, spare);
        true
    }

    /// Messages for which there was no room since this was last asked.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
