//! Effects of a request that are committed with its answer, so that neither is ever kept without the other.
//!
//! What writes under [`Effects::hold`] commits nothing: its transaction is held, and a further write goes on in it, until the answer takes it. Whoever reads by
//! another connection meanwhile doesn't see it, so that such work writes last and answers with what it has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pool::Writing;

tokio::task_local! {
    static HELD: Effects;
}

/// The transaction of a request, until its answer is known. Dropped before that, it is rolled back.
#[derive(Clone, Debug, Default)]
pub struct Effects(Arc<Mutex<Uncommitted>>);

/// What isn't committed.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    pub(super) writing: Option<Writing>,
    /// The number of its last row in the change feed.
    pub(super) seq: Option<i64>,
}

impl Effects {
    /// Does the work, and holds what it would commit.
    pub async fn hold<T>(&self, work: impl Future<Output = T>) -> T {
        HELD.scope(self.clone(), work).await
    }

    /// Drops what is held: none of it has happened.
    pub fn undo(&self) {
        drop(self.take());
    }

    pub(super) fn take(&self) -> Uncommitted {
        std::mem::take(&mut *self.held())
    }

    fn held(&self) -> MutexGuard<'_, Uncommitted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds a transaction that is about to be committed; gives it back where nobody holds effects.
pub(super) fn hold(writing: Writing) -> Option<Writing> {
    let mut writing = Some(writing);
    let _ = HELD.try_with(|effects| effects.held().writing = writing.take());
    writing
}

/// The transaction that is held, to be gone on with.
pub(super) fn resume() -> Option<Writing> {
    let resumed = HELD.try_with(|effects| effects.held().writing.take());
    resumed.ok().flatten()
}

/// Remembers a change that is held; `false` where it is committed, and can be waited for.
pub(super) fn holds(seq: i64) -> bool {
    HELD.try_with(|effects| effects.held().seq = Some(seq))
        .is_ok()
}
