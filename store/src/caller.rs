//! The link between a thread that does some work and the task that waits for its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The task that waits for the outcome of some work, as the thread sees it.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    is_served: AtomicBool,
    is_gone: AtomicBool,
    left: Notify,
}

/// The caller's side: dropped with the caller.
#[derive(Debug, Default)]
pub(crate) struct Presence(pub(crate) Arc<Caller>);

impl Caller {
    /// The connection for the work is at hand.
    pub(crate) fn begin(&self) {
        self.is_served.store(true, Ordering::Release);
    }

    pub(crate) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Waits until the caller is gone.
    pub(crate) async fn gone(&self) {
        while !self.is_gone() {
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
