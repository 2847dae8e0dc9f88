//! Effects of a request that are committed with its answer, so that neither is ever kept without the other.
//!
//! What writes under [`Effects::hold`] commits nothing: its transaction is held, and a further write goes on in it, until the answer takes it. Whoever reads by
//! another connection meanwhile doesn't see it, so that such work writes last and answers with what it has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::threads::Session;

tokio::task_local! {
    static HELD: Effects;
}

/// The transaction of a request, until its answer is known. Dropped before that, it is rolled back.
#[derive(Clone, Debug, Default)]
pub struct Effects(Arc<Mutex<Option<Session>>>);

impl Effects {
    /// Does the work, and holds what it would commit.
    pub async fn hold<T>(&self, work: impl Future<Output = T>) -> T {
        HELD.scope(self.clone(), work).await
    }

    /// Drops what is held: none of it has happened.
    pub fn undo(&self) {
        drop(self.take());
    }

    pub(super) fn take(&self) -> Option<Session> {
        self.held().take()
    }

    fn held(&self) -> MutexGuard<'_, Option<Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is work whose effects are held.
pub(super) fn are_held() -> bool {
    HELD.try_with(|_| ()).is_ok()
}

/// Holds a transaction that is about to be committed.
pub(super) fn hold(session: Session) {
    let _ = HELD.try_with(|effects| *effects.held() = Some(session));
}

/// The transaction that is held, to be gone on with.
pub(super) fn resume() -> Option<Session> {
    let resumed = HELD.try_with(Effects::take);
    resumed.ok().flatten()
}
