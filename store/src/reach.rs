//! PostgreSQL and whether it can be reached. A connection may take seconds to fail, and so would every request that waits for it; here one
//! task tries, and all others learn at once that the database is away, and that it is back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::{Notify, watch};

use super::caller::Caller;
use super::error::{Broke, Error};
use super::open_fault::{OpenFault, reason};

/// How long a connection is waited for before it is looked whether there is anybody to connect to.
const PROMPT: Duration = Duration::from_millis(150);
/// How long the server may take to let us in.
const LETS_IN: Duration = Duration::from_secs(1);
/// How often it is tried while the server is away.
const TRIES: Duration = Duration::from_millis(250);

/// Connections of a node that listen: those of the directory, the credentials, the event streams and the contacts that are remembered.
pub(super) const LISTENERS: u32 = 4;

/// The server, and what is known of it. Clones share it.
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

impl Remote {
    /// A server that has let us in with these options.
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

    /// The connections that listen.
    pub(crate) fn listening(&self) -> &PgPool {
        &self.0.listening
    }

    /// Has somebody look whether the server is there.
    pub(crate) fn doubt(&self) {
        self.0.doubted.notify_one();
    }

    pub(crate) async fn close(&self) {
        self.0.is_closed.store(true, Ordering::Relaxed);
        self.0.listening.close().await;
    }

    /// Awaits work that a thread does for the caller.
    ///
    /// # Errors
    /// [`Broke::Away`] at once where the server is known to be away, and soon where that is found out before the work has begun.
    pub(crate) async fn unless_away<T>(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut away = self.0.away.subscribe();
        if *away.borrow_and_update() {
            return Err(Broke::Away.into());
        }

        let doubt = async {
            tokio::time::sleep(PROMPT).await;
            if !caller.is_served() {
                self.doubt();
                // Ends with the sender, which this very value holds.
                let _ = away.wait_for(|away| *away).await;
            }
            if caller.is_served() {
                std::future::pending::<()>().await;
            }
        };

        tokio::select! {
            biased;
            done = work => done,
            () = doubt => Err(Broke::Away.into()),
        }
    }
}

/// Tries to connect whenever somebody doubts that the server is there, and from then on until it is.
async fn watch(remote: Weak<Inner>) {
    loop {
        let Some(inner) = remote.upgrade() else {
            return;
        };

        // Dropped with its last user, who may be waited for here.
        let doubted = tokio::time::timeout(LETS_IN, inner.doubted.notified()).await;
        if doubted.is_err() || inner.is_closed.load(Ordering::Relaxed) {
            drop(inner);
            continue;
        }

        while let Err(not_in) = try_in(&inner.options).await {
            if inner.is_closed.load(Ordering::Relaxed) {
                return;
            }

            if !inner.away.send_replace(true) {
                let reason = not_in.reason();
                tracing::warn!(
                    reason,
                    "the database is away: what needs it is refused until it is back"
                );
            }

            tokio::time::sleep(TRIES).await;
        }

        if inner.away.send_replace(false) {
            tracing::info!("the database is back");
        }
    }
}

/// What came of an attempt to connect.
#[derive(Debug)]
enum NotIn {
    /// The server says that these credentials, or this database, are none of its own.
    Refused(String),
    /// It can't be reached, or takes nobody now.
    Away(String),
}

impl NotIn {
    fn of(error: &sqlx::Error) -> Self {
        /// Wrong credentials, and a database that isn't there.
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
async fn try_in(options: &PgConnectOptions) -> Result<(), NotIn> {
    let connected = tokio::time::timeout(LETS_IN, PgConnection::connect_with(options)).await;
    match connected {
        Ok(Ok(connection)) => {
            // The server has answered; how it takes the good-bye is its own affair.
            let _ = connection.close().await;
            Ok(())
        }
        Ok(Err(error)) => Err(NotIn::of(&error)),
        Err(_) => Err(NotIn::Away("it doesn't answer in time".to_owned())),
    }
}

/// Why the server can't be used yet; `None` if it lets us in.
///
/// # Errors
/// [`OpenFault::Unreachable`], where waiting doesn't help.
pub(super) async fn away(options: &PgConnectOptions) -> Result<Option<String>, OpenFault> {
    match try_in(options).await {
        Ok(()) => Ok(None),
        Err(NotIn::Away(reason)) => Ok(Some(reason)),
        Err(NotIn::Refused(reason)) => Err(OpenFault::Unreachable(reason)),
    }
}
