//! State that handle, writer and projector share.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::condition::Condition;
use super::current::Current;
use super::queue::Queue;
use super::recent::Recent;

/// State that handle, writer and projector share.
pub(super) struct Shared<T> {
    /// Octets of all segments on disk.
    pub(super) spooled: AtomicU64,
    pub(super) condition: Arc<Condition>,
    pub(super) recent: Recent<T>,
    pub(super) current: Current,
    /// Lock on the directory, held as long as any thread writes or deletes.
    pub(super) _lock: File,
}

impl<T> Shared<T> {
    pub(super) fn disk_failed(&self, queue: &Queue<T>, error: &io::Error) {
        metrics::counter!("trunkline_journal_errors_total").increment(1);
        // Logged once for each outage, not for each attempt.
        if self.condition.set_disk_refuses(true) {
            tracing::error!(%error, waiting = queue.depth(), "the journal cannot be written; facts wait in memory");
        }
    }
}
