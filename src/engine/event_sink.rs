//! Stores events that belong to no call, such as registrations coming and going, in order and as soon as the database
//! takes them.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use trunkline_store::{Error, NewEvent, Store};
use uuid::Uuid;

use crate::jobs;

/// Events waiting to be stored.
const QUEUE: usize = 4_096;
/// Events of one org among them, so that a PBX that registers and unregisters all the time loses its own events only.
const QUEUE_OF_ORG: usize = QUEUE / 4;
/// Pause between two attempts to store an event.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Attempts to store an event while the database answers. An event that can't be stored, such as one of an org that was deleted for good, must
/// not hold up all others.
const MOST_TRIES: u32 = 5;

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
    /// Starts the task that stores events. It ends once the last sender is dropped and the queue is empty, which needs the database.
    pub(crate) fn start(store: Store, runtime: &runtime::Handle) -> Self {
        let (sender, events) = mpsc::channel(QUEUE);
        let waiting = Waiting::default();
        let emit = move |event| {
            let store = store.clone();
            async move { store.emit(event).await }
        };
        let recording = record(emit, events, waiting.clone(), RETRY_PAUSE);
        jobs::EVENTS.spawn(runtime, recording);
        Self {
            events: sender,
            waiting,
        }
    }

    /// Queues an event of an org.
    pub(crate) fn push(&self, org: Uuid, event: NewEvent) {
        // Entered before it is sent: as soon as the event is in the queue, the task may take it and leave.
        let is_left = self.waiting.enter(org) && {
            let sent = self.events.try_send((org, event));
            sent.inspect_err(|_| self.waiting.leave(org)).is_ok()
        };
        if !is_left {
            count_lost();
        }
    }
}

fn count_lost() {
    metrics::counter!("trunkline_events_unrecorded_total").increment(1);
}

async fn record<E: Future<Output = Result<(), Error>>>(
    emit: impl Fn(NewEvent) -> E,
    mut events: mpsc::Receiver<(Uuid, NewEvent)>,
    waiting: Waiting,
    pause: Duration,
) {
    while let Some((org, event)) = events.recv().await {
        if let Err(error) = stored(&emit, &event, pause).await {
            count_lost();
            tracing::error!(org.id = %org, %error, cause = error.source(), "an event is lost: the database refuses it");
        }
        waiting.leave(org);
    }
}

/// Stores an event, however long the database is away.
///
/// # Errors
/// The database answers, and has refused the event [`MOST_TRIES`] times.
async fn stored<E: Future<Output = Result<(), Error>>>(
    emit: impl Fn(NewEvent) -> E,
    event: &NewEvent,
    pause: Duration,
) -> Result<(), Error> {
    let (mut tries, mut waits) = (0, false);
    loop {
        let Err(error) = emit(event.clone()).await else {
            return Ok(());
        };

        // While the database is away, or its disk takes nothing, every event waits alike. Only a database that works refuses this one.
        let is_away = matches!(&error, Error::Broke(broke) if broke.may_pass());
        if !is_away {
            tries += 1;
            if tries == MOST_TRIES {
                return Err(error);
            }
        } else if !waits {
            waits = true;
            tracing::warn!(%error, cause = error.source(), "events wait for the database");
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::moment::Moment;
    use trunkline_store::{Broke, EventType, Kind, Wrong};

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

    fn event(org: Uuid) -> NewEvent {
        let now = Moment::from_secs(1_000);
        NewEvent::new(org, EventType::TrunkLost, &serde_json::json!({}), now)
    }

    /// Stores the events of two orgs in turn; returns whose were stored. `answers` are those of the database to each try of the first one.
    async fn recorded(answers: Vec<Error>) -> Vec<Uuid> {
        let waiting = [1, 2].map(Uuid::from_u128).map(|org| (org, event(org)));
        let first = waiting[0].1.clone();
        let (answers, stored) = (Mutex::new(answers), Mutex::new(Vec::new()));
        let emit = |event: NewEvent| {
            let is_first = event == first;
            let answer = is_first.then(|| answers.lock().unwrap().pop()).flatten();
            if answer.is_none() {
                stored.lock().unwrap().push(event);
            }
            std::future::ready(answer.map_or(Ok(()), Err))
        };

        let (sender, events) = mpsc::channel(QUEUE);
        for (org, event) in &waiting {
            sender.try_send((*org, event.clone())).unwrap();
        }
        drop(sender);
        record(emit, events, Waiting::default(), Duration::ZERO).await;

        let stored = stored.into_inner().unwrap();
        let is_stored = |(_, event): &&(Uuid, NewEvent)| stored.contains(event);
        waiting
            .iter()
            .filter(is_stored)
            .map(|(org, _)| *org)
            .collect()
    }

    #[tokio::test]
    async fn an_event_that_cannot_be_stored_holds_up_no_other() {
        let refusal = || Error::Wrong(Wrong::Absent(Kind::Org));
        let away = || Error::Broke(Broke::Away);
        let most = MOST_TRIES as usize;
        let both = [1, 2].map(Uuid::from_u128);
        for (name, answers, stored) in [
            ("at once", vec![], &both[..]),
            ("refused at first", vec![refusal()], &both),
            (
                "refused for good",
                std::iter::repeat_with(refusal).take(most).collect(),
                &both[1..],
            ),
            (
                "away for long",
                std::iter::repeat_with(away).take(most * 100).collect(),
                &both,
            ),
        ] {
            assert_eq!(recorded(answers).await, stored, "{name}");
        }
    }
}
