//! Effects of a request that are committed with its stored answer, so that neither is ever kept without the other.
//!
//! A write under [`Effects::hold`] commits nothing: its transaction stays open, and further writes join it, until the answer commits it.
//! Readers on other connections don't see the write before that, so such a request writes last and answers from the data it already has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::threads::OpenTransaction;

tokio::task_local! {
    static HELD: Effects;
}

/// The open transaction of a request, until its answer is known. Dropped before that, it is rolled back.
#[derive(Clone, Debug, Default)]
pub struct Effects(Arc<Mutex<Option<OpenTransaction>>>);

impl Effects {
    /// Runs `work`, and holds the transaction that it would commit.
    pub async fn hold<T>(&self, work: impl Future<Output = T>) -> T {
        HELD.scope(self.clone(), work).await
    }

    /// Rolls the held transaction back.
    pub fn undo(&self) {
        drop(self.take());
    }

    pub(crate) fn take(&self) -> Option<OpenTransaction> {
        self.held().take()
    }

    fn held(&self) -> MutexGuard<'_, Option<OpenTransaction>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the present task's writes are held.
pub(crate) fn are_held() -> bool {
    HELD.try_with(|_| ()).is_ok()
}

/// Holds a transaction in place of committing it.
pub(crate) fn hold(session: OpenTransaction) {
    // Only called where writes are held: otherwise the transaction would be rolled back here.
    let _ = HELD.try_with(|effects| *effects.held() = Some(session));
}

/// Takes the held transaction, to continue it.
pub(crate) fn resume() -> Option<OpenTransaction> {
    let resumed = HELD.try_with(Effects::take);
    resumed.ok().flatten()
}
