//! The wake-up call of those who read what was written: the change feed or the events.

use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::watch;

use super::pool::Pool;

async fn listen(pool: &sqlx::PgPool, channel: &str) -> sqlx::Result<PgListener> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

/// Says when to look: at once for changes of this process and, on PostgreSQL, of every other; what else writes (the command
/// line on SQLite, a node while the listener was cut) is seen by looking every [`Signal::POLL`].
#[derive(Debug)]
pub struct Signal {
    local: watch::Receiver<u64>,
    listener: Option<PgListener>,
}

impl Signal {
    /// How long an unannounced change may go unseen.
    pub const POLL: Duration = Duration::from_millis(500);

    /// Of what `local` counts in this process, and others announce on `channel`.
    pub(super) async fn of(pool: &Pool, local: watch::Receiver<u64>, channel: &str) -> Self {
        let listener = match pool.remote() {
            None => None,
            Some(remote) => listen(remote.listening(), channel).await.ok(),
        };
        Self { local, listener }
    }

    /// Waits until it is worth looking.
    pub async fn wait(&mut self) {
        tokio::select! {
            Ok(()) = self.local.changed() => {}
            () = notified(&mut self.listener) => {}
            () = tokio::time::sleep(Self::POLL) => {}
        }
    }
}

/// A cut listener reconnects at the next call; until then the poll has its turn. That of a pool that closes is dropped, since
/// the pool waits for its connection.
async fn notified(listener: &mut Option<PgListener>) {
    if let Some(listening) = listener {
        match listening.recv().await {
            Ok(_) => return,
            Err(sqlx::Error::PoolClosed) => *listener = None,
            Err(_) => {}
        }
    }
    std::future::pending().await
}
