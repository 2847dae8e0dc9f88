//! What happens beside calls and is told as events: recorded in its order, as soon as the database takes it.

use std::error::Error as _;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;

use trunkline_store::{NewEvent, Store};

/// Events that may wait to be recorded.
const WAITING: usize = 4_096;
/// How long to wait for a database that doesn't take one.
const PAUSE: Duration = Duration::from_secs(1);

/// Where shards leave events. They never wait; what there is no room for is counted and lost.
#[derive(Clone, Debug)]
pub(crate) struct Told(mpsc::Sender<NewEvent>);

impl Told {
    /// Records what is told, until nobody can tell anything any more.
    pub(crate) fn start(store: Store, runtime: &runtime::Handle) -> Self {
        let (sender, events) = mpsc::channel(WAITING);
        runtime.spawn(record(store, events));
        Self(sender)
    }

    pub(crate) fn tell(&self, event: NewEvent) {
        if self.0.try_send(event).is_err() {
            metrics::counter!("trunkline_events_unrecorded_total").increment(1);
        }
    }
}

async fn record(store: Store, mut events: mpsc::Receiver<NewEvent>) {
    while let Some(event) = events.recv().await {
        let mut failed = false;
        while let Err(error) = store.emit(event.clone()).await {
            if !failed {
                failed = true;
                tracing::warn!(%error, cause = error.source(), "events wait for the database");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
