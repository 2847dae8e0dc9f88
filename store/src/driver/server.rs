//! The PostgreSQL server and its reachability. A connection attempt may take seconds to fail, and so would every request that waits for it.
//! Here one task tries, and all others learn at once that the server is away, and that it is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::{Notify, watch};

use super::caller::Caller;
use super::error::{Broke, Error};
use super::open_fault::{OpenFault, reason};

/// Time to wait for a connection before the server's reachability is checked.
const DOUBT_AFTER: Duration = Duration::from_millis(150);
/// Time that a read takes before the server's reachability is checked, and checked again.
const HUNG_AFTER: Duration = Duration::from_secs(2);
/// Time for the server to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of attempts while the server is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Connections of a node that listen for notifications: those of the directory, the credentials, the event streams and the contact cache.
pub(crate) const LISTENERS: u32 = 4;

/// The server and its reachability. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Remote(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: PgConnectOptions,
    /// Connections that wait for notifications.
    listening: PgPool,
    away: watch::Sender<bool>,
    doubted: Notify,
    is_closed: AtomicBool,
}

/// Purpose of a thread's work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    Read,
    Write,
}

impl Remote {
    /// Creates the value for a server that has accepted a connection with these options.
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        let listening = PgPoolOptions::new()
            .max_connections(2 * LISTENERS)
            .connect_lazy_with(options.clone());
        let inner = Arc::new(Inner {
            options,
            listening,
            away: watch::Sender::new(false),
            doubted: Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        tokio::spawn(watch(Arc::downgrade(&inner)));
        Self(inner)
    }

    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.0.options
    }

    /// Returns the pool of listening connections.
    pub(crate) fn listening(&self) -> &PgPool {
        &self.0.listening
    }

    /// Has the server's reachability checked.
    pub(crate) fn doubt(&self) {
        self.0.doubted.notify_one();
    }

    pub(crate) async fn close(&self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
        self.0.listening.close().await;
    }

    /// Awaits the work of a thread for the caller.
    ///
    /// # Errors
    /// [`Broke::Away`]: at once if the server is known to be away, and soon if that is found out before a write has begun, or before a read has
    /// ended.
    pub(crate) async fn unless_away<T>(
        &self,
        caller: &Caller,
        purpose: Purpose,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut away = self.0.away.subscribe();
        if *away.borrow_and_update() {
            return Err(Broke::Away.into());
        }

        let doubt = async {
            // Most work has begun by then, and costs no check.
            tokio::time::sleep(DOUBT_AFTER).await;
            // Threads that are merely busy look the same from here: the check of the server decides.
            if !caller.is_served() {
                self.doubt();
                // The sender lives as long as this value, so this ends only when the server is away.
                let _ = away.wait_for(|away| *away).await;
            }
            match purpose {
                // A write that has begun isn't given up: it may be about to commit, and the caller needs the true outcome.
                Purpose::Write if caller.is_served() => std::future::pending::<()>().await,
                Purpose::Write => {}
                // A read loses nothing. A server that hangs leaves it unanswered, and only an attempt to connect shows that.
                Purpose::Read => {
                    let mut is_away = async || {
                        let gone = away.wait_for(|away| *away);
                        tokio::time::timeout(HUNG_AFTER, gone).await.is_ok()
                    };
                    while !is_away().await {
                        self.doubt();
                    }
                }
            }
        };

        tokio::select! {
            // A result that is there counts, even if the server has gone away since.
            biased;
            done = work => done,
            () = doubt => Err(Broke::Away.into()),
        }
    }
}

/// Tries to connect whenever the server's reachability is in doubt, and from then on until it succeeds.
async fn watch(remote: Weak<Inner>) {
    loop {
        let Some(inner) = remote.upgrade() else {
            return;
        };

        // The wait is bounded: held for longer, this strong reference would keep the task running after its last user.
        let doubted = tokio::time::timeout(CONNECT_TIMEOUT, inner.doubted.notified()).await;
        if doubted.is_err() || inner.is_closed.load(Ordering::Relaxed) {
            drop(inner);
            continue;
        }

        while let Err(not_in) = try_connect(&inner.options).await {
            // Checked in each round, since the server may stay away for good after the store was closed.
            if inner.is_closed.load(Ordering::Relaxed) {
                return;
            }

            if !inner.away.send_replace(true) {
                let reason = not_in.reason();
                tracing::warn!(
                    reason,
                    "the database is away: requests that need it are refused until it is back"
                );
            }

            tokio::time::sleep(RETRY_INTERVAL).await;
        }

        if inner.away.send_replace(false) {
            tracing::info!("the database is back");
        }
    }
}

/// Reason why a connection failed.
#[derive(Debug)]
enum ConnectFault {
    /// The server doesn't know these credentials or this database.
    Refused(String),
    /// The server can't be reached, or accepts no connections now.
    Away(String),
}

impl ConnectFault {
    fn of(error: &sqlx::Error) -> Self {
        /// SQLSTATE of wrong credentials, and of an unknown database.
        const REFUSED: [&str; 2] = ["28", "3D000"];
        let code = error.as_database_error().and_then(|fault| fault.code());
        let code = code.unwrap_or_default();
        let reason = reason(error);
        if REFUSED.iter().any(|refused| code.starts_with(refused)) {
            Self::Refused(reason)
        } else {
            Self::Away(reason)
        }
    }

    fn reason(self) -> String {
        match self {
            Self::Refused(reason) | Self::Away(reason) => reason,
        }
    }
}

/// Connects once.
async fn try_connect(options: &PgConnectOptions) -> Result<(), ConnectFault> {
    let connected =
        tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(options)).await;
    match connected {
        Ok(Ok(connection)) => {
            // The server has accepted: an error in closing this connection is of no interest.
            let _ = connection.close().await;
            Ok(())
        }
        Ok(Err(error)) => Err(ConnectFault::of(&error)),
        Err(_) => Err(ConnectFault::Away("it doesn't answer in time".to_owned())),
    }
}

/// Returns the reason why the server can't be used yet; `None` if it accepts connections.
///
/// # Errors
/// [`OpenFault::Unreachable`], where waiting doesn't help.
pub(crate) async fn away(options: &PgConnectOptions) -> Result<Option<String>, OpenFault> {
    match try_connect(options).await {
        Ok(()) => Ok(None),
        Err(ConnectFault::Away(reason)) => Ok(Some(reason)),
        Err(ConnectFault::Refused(reason)) => Err(OpenFault::Unreachable(reason)),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgSslMode;

    use super::*;

    /// A server that takes connections and says nothing, as one that was stopped or that fails over.
    #[tokio::test]
    async fn a_read_ends_with_a_server_that_hangs_and_a_write_waits_for_its_outcome() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(PgSslMode::Disable);
        let remote = Remote::new(options);
        let caller = Caller::default();
        caller.begin();

        let forever = std::future::pending::<Result<(), Error>>;
        let write = remote.unless_away(&caller, Purpose::Write, forever());
        let read = remote.unless_away(&caller, Purpose::Read, forever());
        tokio::select! {
            biased;
            outcome = write => panic!("given up: {outcome:?}"),
            outcome = read => assert!(matches!(outcome, Err(Error::Broke(Broke::Away))), "{outcome:?}"),
        }

        // From then on nothing begins.
        let late = remote.unless_away(&caller, Purpose::Write, forever()).await;
        assert!(matches!(late, Err(Error::Broke(Broke::Away))), "{late:?}");
    }
}
