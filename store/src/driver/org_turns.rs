//! Turns of orgs at reads that may take long: lists, counts and exports. One org reads [`AT_ONCE`] at a time, and its further reads wait, so that
//! threads stay free for others. The lists of a partner take turns in the same way, under the partner's id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::error::{Broke, Error};

/// Long reads of one org that run at the same time.
const AT_ONCE: usize = 2;

/// Orgs that read now, each with its permits.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrgTurns(Arc<Mutex<HashMap<Uuid, Arc<Semaphore>>>>);

/// A turn, or the wait for one.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: OrgTurns,
    org: Uuid,
    permit: Option<OwnedSemaphorePermit>,
}

impl OrgTurns {
    /// Waits for a turn of the org, for this long at most. A partner's id serves as well: all ids are unique.
    ///
    /// # Errors
    /// [`Broke::Busy`].
    pub(crate) async fn take(&self, org: Uuid, patience: Duration) -> Result<Turn, Error> {
        let permits = self.orgs().entry(org).or_insert_with(permits).clone();
        // Made before the wait: a task that is dropped while it waits removes the entry as well.
        let mut turn = Turn {
            turns: self.clone(),
            org,
            permit: None,
        };

        let permit = tokio::time::timeout(patience, permits.acquire_owned()).await;
        turn.permit = permit.map_err(|_| Broke::Busy)?.ok();

        Ok(turn)
    }

    fn orgs(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// The last turn of an org removes the org's entry.
impl Drop for Turn {
    fn drop(&mut self) {
        let mut orgs = self.turns.orgs();
        // The permit holds the semaphore too. The count can't rise while the lock is held, since a turn clones the entry under
        // the same lock.
        self.permit = None;
        if orgs
            .get(&self.org)
            .is_some_and(|permits| Arc::strong_count(permits) == 1)
        {
            orgs.remove(&self.org);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn an_org_reads_twice_at_once_and_leaves_the_others_alone() {
        let turns = OrgTurns::default();
        let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let first = turns.take(ours, LONG).await.unwrap();
        let _second = turns.take(ours, LONG).await.unwrap();
        let late = turns.take(ours, Duration::ZERO).await.unwrap_err();
        assert!(matches!(late, Error::Broke(Broke::Busy)), "{late}");
        turns.take(theirs, LONG).await.unwrap();

        let waiting = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(ours, LONG).await.map(drop) }
        });
        tokio::task::yield_now().await;
        drop(first);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_org_that_reads_nothing_takes_no_memory() {
        let turns = OrgTurns::default();
        let org = Uuid::from_u128(1);
        let first = turns.take(org, LONG).await.unwrap();
        let second = turns.take(org, LONG).await.unwrap();
        turns.take(org, Duration::ZERO).await.unwrap_err();
        drop((first, second));
        assert_eq!(turns.orgs().len(), 0);
    }
}
