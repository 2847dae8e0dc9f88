//! Health of the journal: whether facts reach the disk and the store.

use std::sync::atomic::{AtomicBool, Ordering};

/// Health of a journal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Facts reach disk and store.
    Ok,
    /// Facts are safe on disk, but the store accepts none.
    Waiting,
    /// The disk fails: new facts are in memory only.
    Failing,
}

/// Failures of disk and store, as writer and projector report them; outlives both.
#[derive(Debug, Default)]
pub struct Condition {
    disk_refuses: AtomicBool,
    store_refuses: AtomicBool,
}

impl Condition {
    /// Returns the present health.
    pub fn state(&self) -> State {
        if self.disk_refuses.load(Ordering::Relaxed) {
            State::Failing
        } else if self.store_refuses() {
            State::Waiting
        } else {
            State::Ok
        }
    }

    /// Returns whether the store refused facts at the last attempt; valid also after the writer has ended.
    pub fn store_refuses(&self) -> bool {
        self.store_refuses.load(Ordering::Relaxed)
    }

    /// Sets whether the disk fails; returns whether that is a change.
    pub(super) fn set_disk_refuses(&self, refuses: bool) -> bool {
        self.disk_refuses.swap(refuses, Ordering::Relaxed) != refuses
    }

    /// Sets whether the store refuses facts.
    pub(super) fn set_store_refuses(&self, refuses: bool) {
        self.store_refuses.store(refuses, Ordering::Relaxed);
    }
}
