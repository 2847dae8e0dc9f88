//! Whether facts get where they belong.

use std::sync::atomic::{AtomicBool, Ordering};

/// How a journal fares.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Facts are written and kept.
    Ok,
    /// Facts are safe on disk, and the store takes none of them.
    Waiting,
    /// The disk refuses: new facts are in memory alone.
    Failing,
}

/// What stands in the way of facts; told by writer and projector, and outlives them.
#[derive(Debug, Default)]
pub struct Condition {
    disk_refuses: AtomicBool,
    store_refuses: AtomicBool,
}

impl Condition {
    /// How the journal fares now.
    pub fn state(&self) -> State {
        if self.disk_refuses.load(Ordering::Relaxed) {
            State::Failing
        } else if self.store_refuses() {
            State::Waiting
        } else {
            State::Ok
        }
    }

    /// Whether the store took none when it was last asked; tells of the store also once the writer has ended.
    pub fn store_refuses(&self) -> bool {
        self.store_refuses.load(Ordering::Relaxed)
    }

    /// Whether the disk refuses from now on; returns whether that is news.
    pub(super) fn set_disk_refuses(&self, refuses: bool) -> bool {
        self.disk_refuses.swap(refuses, Ordering::Relaxed) != refuses
    }

    /// Whether the store refuses from now on.
    pub(super) fn set_store_refuses(&self, refuses: bool) {
        self.store_refuses.store(refuses, Ordering::Relaxed);
    }
}
