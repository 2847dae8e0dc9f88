//! The link between a thread that runs a transaction and the task that waits for its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The waiting task, as the thread sees it.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    /// The thread has a working connection, and has begun.
    is_served: AtomicBool,
    /// The task was dropped: its result is no longer wanted.
    is_gone: AtomicBool,
    /// Wakes the thread that waits for `is_gone`.
    left: Notify,
}

/// The waiting task's side; dropped with the task.
#[derive(Debug, Default)]
pub(crate) struct Presence(pub(crate) Arc<Caller>);

impl Caller {
    /// Notes that the connection for the work is ready.
    pub(crate) fn begin(&self) {
        self.is_served.store(true, Ordering::Release);
    }

    pub(crate) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Waits until the task has gone.
    pub(crate) async fn gone(&self) {
        while !self.is_gone() {
            // `notify_one` leaves a permit: a task that goes between the check and this line isn't missed.
            self.left.notified().await;
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Release);
        self.0.left.notify_one();
    }
}
