//! Copying of messages: the tap of a shard, and the queue through which its batches reach the thread that keeps traces.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use trunkline_bounds::PartnerShare;
use trunkline_calls::parts::wall_clock::{STEADY, WallClock, WallOffset};
use trunkline_calls::{DialogIdentity, TracedLeg};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::assignment::LegReport;

/// Interval at which batches are picked up.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// Octets of the batches in the queue, and of one that its shard still holds. While both are full, messages are left out and counted.
const MAX_WAITING: usize = 2 << 20;
/// Size at which a batch is picked up at once. On a shared processor the thread displaces what the shard has in the caches, so it runs rarely.
pub(super) const PICK_UP_SIZE: usize = 512 << 10;
/// Empty batches kept for the next messages: one that fills while another is sorted in.
const SPARES: usize = 2;
/// Capacity above which an empty batch is freed.
const KEPT_CAPACITY: usize = 64 << 10;
/// Memory of a message beside its octets.
const OVERHEAD: usize = size_of::<BatchEntry>();

/// Tap of a shard.
#[derive(Debug)]
pub struct Tap {
    batch: Batch,
    /// `None` if nothing is to be copied.
    queue: Option<Arc<TapQueue>>,
    wall: &'static WallClock,
}

impl Tap {
    /// Makes a tap that copies nothing.
    pub fn closed() -> Self {
        Self {
            batch: Batch::default(),
            queue: None,
            wall: &STEADY,
        }
    }

    pub(super) fn of(queue: &Arc<TapQueue>, wall: &'static WallClock) -> Self {
        Self {
            batch: Batch::default(),
            queue: Some(Arc::clone(queue)),
            wall,
        }
    }

    /// Copies a message that passed at this moment of the clock of timers.
    pub fn note(&mut self, at: Moment, flow: Flow, is_sent: bool, octets: &[u8]) {
        let Some(queue) = &self.queue else {
            return;
        };
        if self.batch.size() + octets.len() > MAX_WAITING {
            // A shard doesn't wait: the trace lacks a message, and the call goes on.
            queue.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }

        let mark = BatchEntry {
            at,
            wall: self.wall.offset(),
            flow,
            is_sent,
            start: 0,
            end: 0,
        };

        self.batch.push(mark, octets);
    }

    /// Reports that messages with this identity belong to a leg, also those that the batch has.
    pub fn assign(&mut self, leg: TracedLeg, identity: Box<DialogIdentity>) {
        self.report(LegReport::Begun(leg, identity, self.wall.offset()));
    }

    /// Reports the partner of an org.
    pub fn belongs(&mut self, org: Uuid, partner: PartnerShare) {
        self.report(LegReport::Partner(org, partner));
    }

    /// Reports that a call is over.
    pub fn end(&mut self, call: Uuid) {
        self.report(LegReport::Over(call));
    }

    fn report(&mut self, report: LegReport) {
        // Not bounded like messages: there are few for each call, and without them later messages would be nobody's.
        if self.queue.is_some() {
            self.batch.reports.push(report);
        }
    }

    /// Frees large buffers, for an idle shard.
    pub fn rest(&mut self) {
        if self.batch.is_empty() {
            self.batch.rest();
        }
    }

    /// Returns true if the batch should be handed on now: it is large, or has waited for the maximum time.
    pub fn is_due(&self, now: Moment) -> bool {
        let first = self.batch.marks.first();
        self.batch.size() > PICK_UP_SIZE
            || first.is_some_and(|mark| now.since(mark.at) >= SWEEP_INTERVAL)
    }

    /// Returns true if the thread that keeps traces is behind, so that messages will be left out unless it gets to run.
    pub fn is_behind(&self) -> bool {
        self.batch.size() > PICK_UP_SIZE
    }

    /// Hands on everything, for a shard that ends. Waits for the queue's lock.
    pub fn leave(&mut self) {
        if let Some(queue) = &self.queue {
            // Beyond the bound of the queue too, since these are the shard's last messages.
            lock(&queue.waiting).take(&mut self.batch);
        }
    }

    /// Hands the batch on. If the queue is locked, the next turn does.
    pub fn hand_on(&mut self) {
        let Some(queue) = self.queue.as_ref().filter(|_| !self.batch.is_empty()) else {
            return;
        };
        let Ok(mut waiting) = queue.waiting.try_lock() else {
            return;
        };
        if waiting.size() + self.batch.size() > MAX_WAITING && !waiting.batches.is_empty() {
            // The batch stays here until there is room.
            return;
        }

        waiting.take(&mut self.batch);
        let is_much = waiting.size() > PICK_UP_SIZE;
        // Released first, so that the thread that is woken doesn't have to wait for it.
        drop(waiting);
        if is_much && let Some(keeper) = queue.keeper.get() {
            keeper.unpark();
        }
    }
}

/// Entry of one message in a batch.
#[derive(Copy, Clone, Debug)]
pub(super) struct BatchEntry {
    /// Moment of the clock of timers.
    pub(super) at: Moment,
    /// Offset of the wall clock at that moment.
    pub(super) wall: WallOffset,
    pub(super) flow: Flow,
    pub(super) is_sent: bool,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Messages, one after another, and what the shard has reported about calls meanwhile.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) octets: Vec<u8>,
    pub(super) marks: Vec<BatchEntry>,
    pub(super) reports: Vec<LegReport>,
}

impl Batch {
    fn push(&mut self, mark: BatchEntry, octets: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.marks.push(BatchEntry {
            start,
            end: self.octets.len(),
            ..mark
        });
    }

    fn size(&self) -> usize {
        self.octets.len() + self.marks.len() * OVERHEAD
    }

    fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.reports.is_empty()
    }

    /// Copies everything out of another batch, and clears it.
    fn take(&mut self, other: &mut Self) {
        for (mark, octets) in other.messages() {
            self.push(*mark, octets);
        }
        self.reports.append(&mut other.reports);
        other.clear();
    }

    fn messages(&self) -> impl Iterator<Item = (&BatchEntry, &[u8])> {
        self.marks
            .iter()
            .map(|mark| (mark, &self.octets[mark.start..mark.end]))
    }

    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.marks.clear();
        self.reports.clear();
    }

    /// Frees large buffers of an empty batch.
    pub(super) fn rest(&mut self) {
        if self.octets.capacity() > KEPT_CAPACITY {
            *self = Self::default();
        }
    }
}

/// Batches of a shard that wait for the thread, in order.
#[derive(Debug, Default)]
struct WaitingBatches {
    batches: Vec<Batch>,
    /// Empty batches whose memory is used again.
    spares: Vec<Batch>,
}

impl WaitingBatches {
    fn size(&self) -> usize {
        self.batches.iter().map(Batch::size).sum()
    }

    /// Takes a batch: a large one as it is, leaving an empty one in its place, the messages of a small one into the last.
    fn take(&mut self, batch: &mut Batch) {
        match self.batches.last_mut() {
            Some(last) if last.size() + batch.size() <= PICK_UP_SIZE => last.take(batch),
            Some(_) | None => {
                let empty = self.spares.pop().unwrap_or_default();
                self.batches.push(std::mem::replace(batch, empty));
            }
        }
    }
}

/// Queue of a shard's batches.
#[derive(Debug, Default)]
pub(super) struct TapQueue {
    waiting: Mutex<WaitingBatches>,
    keeper: OnceLock<Thread>,
    /// Messages dropped since the batches were last picked up.
    left_out: AtomicU64,
}

impl TapQueue {
    /// Sets the thread to wake when a batch is large. Called once.
    pub(super) fn attend(&self, keeper: &Thread) {
        // Never fails, since it is called once.
        let _ = self.keeper.set(keeper.clone());
    }

    /// Moves the waiting batches into `taken`, which is empty.
    pub(super) fn pick_up(&self, taken: &mut Vec<Batch>) {
        let mut waiting = lock(&self.waiting);
        if waiting.batches.is_empty() {
            waiting.spares = Vec::new();
        }
        std::mem::swap(&mut waiting.batches, taken);
    }

    /// Takes a batch back that has been sorted in, so that its memory is used again.
    pub(super) fn give_back(&self, batch: Batch) {
        let mut waiting = lock(&self.waiting);
        if waiting.spares.len() < SPARES {
            waiting.spares.push(batch);
        }
    }

    /// Takes the number of messages dropped since the last call.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
