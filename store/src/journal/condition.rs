//! Health of the journal: whether facts reach the disk and the store.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

/// Health of a journal.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Facts reach disk and store.
    Ok,
    /// Facts are safe on disk, but don't reach the store: it accepts none, or they can't be read back.
    Waiting,
    /// The disk fails: new facts are in memory only.
    Failing,
}

/// Failures of disk and store, as writer and projector report them; outlives both.
#[derive(Debug, Default)]
pub struct Condition {
    disk_refuses: AtomicBool,
    projection_fails: AtomicBool,
}

impl Condition {
    /// Returns the present health.
    pub fn state(&self) -> State {
        if self.disk_refuses.load(Ordering::Relaxed) {
            State::Failing
        } else if self.projection_fails() {
            State::Waiting
        } else {
            State::Ok
        }
    }

    /// Returns whether the last attempt to pass facts to the store failed; valid also after the writer has ended.
    pub fn projection_fails(&self) -> bool {
        self.projection_fails.load(Ordering::Relaxed)
    }

    /// Sets whether the disk fails; returns whether that is a change.
    pub(super) fn set_disk_refuses(&self, refuses: bool) -> bool {
        self.disk_refuses.swap(refuses, Ordering::Relaxed) != refuses
    }

    /// Sets whether facts don't reach the store.
    pub(super) fn set_projection_fails(&self, fails: bool) {
        self.projection_fails.store(fails, Ordering::Relaxed);
    }
}
