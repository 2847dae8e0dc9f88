//! Wake-up of readers of the change feed or of events.

use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::watch;

use super::pool::Pool;

async fn listen(pool: &sqlx::PgPool, channel: &str) -> sqlx::Result<PgListener> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

/// Tells a reader when to query: at once for changes of this process and, on PostgreSQL, of every other. Changes without a notification
/// (the command line on SQLite, a node while the listener was cut) are found by polling every [`Signal::POLL`].
#[derive(Debug)]
pub struct Signal {
    local: watch::Receiver<u64>,
    listener: Option<PgListener>,
}

impl Signal {
    /// Longest time for which a change without notification goes unseen.
    pub const POLL: Duration = Duration::from_millis(500);

    /// Creates the signal for changes that `local` counts in this process, and that other nodes announce on `channel`.
    pub(crate) async fn of(pool: &Pool, local: watch::Receiver<u64>, channel: &str) -> Self {
        let listener = match pool.remote() {
            None => None,
            Some(remote) => listen(remote.listening(), channel).await.ok(),
        };
        Self { local, listener }
    }

    /// Waits until a query may find something.
    pub async fn wait(&mut self) {
        tokio::select! {
            // A closed channel disables this branch. Without the pattern it would end the wait at once, each time.
            Ok(()) = self.local.changed() => {}
            () = notified(&mut self.listener) => {}
            () = tokio::time::sleep(Self::POLL) => {}
        }
    }
}

/// A listener that was cut reconnects at the next call; until then polling applies. The listener of a closing pool is dropped, since the
/// pool waits for its connection.
async fn notified(listener: &mut Option<PgListener>) {
    if let Some(listening) = listener {
        // Boxed: it has a hundred kilobytes, which each wait would copy, with or without a listener.
        match Box::pin(listening.recv()).await {
            Ok(_) => return,
            Err(sqlx::Error::PoolClosed) => *listener = None,
            Err(_) => {}
        }
    }
    std::future::pending().await
}
