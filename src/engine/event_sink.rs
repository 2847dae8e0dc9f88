//! Stores events that belong to no call, such as registrations coming and going, in order and as soon as the database
//! takes them.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use uuid::Uuid;

use trunkline_store::{NewEvent, Store};

/// Events waiting to be stored.
const QUEUE: usize = 4_096;
/// Events of one org among them, so that a PBX that registers and unregisters all the time loses its own events only.
const QUEUE_OF_ORG: usize = QUEUE / 4;
/// Pause after the database refused an event.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Queue of events. Shards never wait; events beyond the bounds are counted and dropped.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    events: mpsc::Sender<(Uuid, NewEvent)>,
    waiting: Waiting,
}

/// Number of waiting events of each org.
#[derive(Clone, Debug, Default)]
struct Waiting(Arc<Mutex<HashMap<Uuid, usize>>>);

impl Waiting {
    /// Reserves a place; false if the org has used up its share.
    fn enter(&self, org: Uuid) -> bool {
        let mut waiting = self.table();
        let count = waiting.entry(org).or_default();
        if *count >= QUEUE_OF_ORG {
            return false;
        }
        *count += 1;
        true
    }

    fn leave(&self, org: Uuid) {
        let mut waiting = self.table();
        if let Some(count) = waiting.get_mut(&org) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&org);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink {
    /// Starts the task that stores events; it ends when the last sender is dropped.
    pub(crate) fn start(store: Store, runtime: &runtime::Handle) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let waiting = Waiting::default();
        runtime.spawn(record(store, events, waiting.clone()));
        Self {
            events: sender,
            waiting,
        }
    }

    /// Queues an event of an org.
    pub(crate) fn push(&self, org: Uuid, event: NewEvent) {
        let is_left = self.waiting.enter(org) && {
            let sent = self.events.try_send((org, event));
            sent.inspect_err(|_| self.waiting.leave(org)).is_ok()
        };
        if !is_left {
            metrics::counter!("trunkline_events_unrecorded_total").increment(1);
        }
    }
}

async fn record(store: Store, mut events: mpsc::Receiver<(Uuid, NewEvent)>, waiting: Waiting) {
    while let Some((org, event)) = events.recv().await {
        let mut failed = false;
        while let Err(error) = store.emit(event.clone()).await {
            if !failed {
                failed = true;
                tracing::warn!(%error, cause = error.source(), "events wait for the database");
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        waiting.leave(org);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_org_has_a_quarter_of_the_places() {
        let waiting = Waiting::default();
        let [greedy, other] = [1, 2].map(Uuid::from_u128);
        let taken = (0..QUEUE).filter(|_| waiting.enter(greedy));
        assert_eq!(taken.count(), QUEUE_OF_ORG);
        assert!(waiting.enter(other));
        waiting.leave(greedy);
        assert!(waiting.enter(greedy));
        for _ in 0..QUEUE_OF_ORG {
            waiting.leave(greedy);
        }
        waiting.leave(other);
        assert!(waiting.table().is_empty());
    }
}
