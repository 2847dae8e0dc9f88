//! One pool for both databases: a statement is written once and run on whichever is open.
//!
//! SQLite has one connection that writes, so that writers of this process queue here instead of in `SQLITE_BUSY`, and
//! several that read. Both dialects take `$1`, `RETURNING` and `ON CONFLICT`; where they differ, a method looks at what it runs on.

use std::sync::Arc;

use sqlx::Connection as _;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Sqlite, SqliteConnection, SqlitePool, Transaction};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use super::effects;
use super::error::Error;
use super::nearby::{Held, Nearby};
use super::reach::Remote;

/// The open database.
#[derive(Clone, Debug)]
pub(crate) enum Pool {
    Sqlite {
        reading: SqlitePool,
        nearby: Arc<Nearby>,
        writing: SqlitePool,
        /// Writes while its user holds the connection of `writing`.
        writing_nearby: Arc<Nearby>,
    },
    Postgres(Remote),
}

/// A connection to read with.
#[derive(Debug)]
pub(crate) enum Reading {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// A connection for short reads: of rows whose number is bounded, found by an index. See `nearby`.
#[derive(Debug)]
pub(crate) enum Peek {
    Sqlite(Held),
    Postgres(PoolConnection<Postgres>),
    PostgresSnapshot(Transaction<'static, Postgres>),
}

/// A transaction. Dropped without a commit, it is rolled back.
#[derive(Debug)]
pub(crate) enum Writing {
    Sqlite(Transaction<'static, Sqlite>),
    /// On the calling thread, and the turn among the writers of this process.
    Nearby(Held, PoolConnection<Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// What a statement runs on.
#[derive(Debug)]
pub(crate) enum Connection<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

/// What a query runs on.
#[derive(Debug)]
pub(crate) enum Source<'c> {
    Driver(Connection<'c>),
    Nearby(&'c mut Held),
}

/// All statements see what was committed when the first of them began.
const READ_ONLY: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl Pool {
    /// A connection to read with: each statement sees what is committed.
    pub(crate) async fn read(&self) -> Result<Reading, Error> {
        Ok(match self {
            Self::Sqlite { reading, .. } => Reading::Sqlite(reading.acquire().await?),
            Self::Postgres(remote) => Reading::Postgres(remote.acquire().await?),
        })
    }

    /// A connection for short reads: each statement sees what is committed.
    pub(crate) async fn peek(&self) -> Result<Peek, Error> {
        Ok(match self {
            Self::Sqlite { nearby, .. } => Peek::Sqlite(nearby.read()?),
            Self::Postgres(remote) => Peek::Postgres(Box::pin(remote.acquire()).await?),
        })
    }

    /// The same, where all statements see one state.
    pub(crate) async fn peek_snapshot(&self) -> Result<Peek, Error> {
        Ok(match self {
            Self::Sqlite { nearby, .. } => Peek::Sqlite(nearby.snapshot()?),
            Self::Postgres(remote) => {
                Peek::PostgresSnapshot(Box::pin(remote.begin(Some(READ_ONLY))).await?)
            }
        })
    }

    /// A transaction that reads: all its statements see one state.
    pub(crate) async fn snapshot(&self) -> Result<Writing, Error> {
        Ok(match self {
            Self::Sqlite { reading, .. } => Writing::Sqlite(reading.begin().await?),
            Self::Postgres(remote) => Writing::Postgres(remote.begin(Some(READ_ONLY)).await?),
        })
    }

    /// A transaction that writes. On SQLite it holds the write lock from the start: a reader that turned writer could not wait for it.
    pub(crate) async fn write(&self) -> Result<Writing, Error> {
        if let Some(writing) = effects::resume() {
            return Ok(writing);
        }
        Ok(match self {
            Self::Sqlite { writing, .. } => {
                Writing::Sqlite(writing.begin_with("BEGIN IMMEDIATE").await?)
            }
            Self::Postgres(remote) => Writing::Postgres(remote.begin(None).await?),
        })
    }

    /// The same for whoever writes much and often, [apart](Self::apart): SQLite keeps his thread waiting.
    pub(crate) async fn write_nearby(&self) -> Result<Writing, Error> {
        match self {
            Self::Sqlite {
                writing,
                writing_nearby,
                ..
            } => {
                let turn = writing.acquire().await?;
                Ok(Writing::Nearby(writing_nearby.write()?, turn))
            }
            Self::Postgres(_) => self.write().await,
        }
    }

    /// Awaits what may keep its thread waiting for the disk; other tasks of that thread go elsewhere meanwhile.
    pub(crate) async fn apart<T>(&self, work: impl Future<Output = T>) -> T {
        let runtime = Handle::current();
        let has_others = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        if matches!(self, Self::Sqlite { .. }) && has_others {
            block_in_place(|| runtime.block_on(work))
        } else {
            work.await
        }
    }

    /// Gives back the pages and plans that connections without work hold; those behind one that fails keep theirs.
    pub(crate) async fn rest(&self) -> Result<(), Error> {
        let Self::Sqlite {
            reading,
            nearby,
            writing,
            writing_nearby,
        } = self
        else {
            return Ok(());
        };
        nearby.rest();
        writing_nearby.rest();
        for pool in [reading, writing] {
            let mut idle: Vec<_> = std::iter::from_fn(|| pool.try_acquire()).collect();
            for connection in &mut idle {
                connection.clear_cached_statements().await?;
                sqlx::query("PRAGMA shrink_memory")
                    .persistent(false)
                    .execute(&mut **connection)
                    .await?;
            }
        }
        Ok(())
    }

    /// Waits until all connections are closed; SQLite then folds its write-ahead log into the file.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite {
                reading,
                nearby,
                writing,
                writing_nearby,
            } => {
                nearby.close();
                writing_nearby.close();
                reading.close().await;
                writing.close().await;
            }
            Self::Postgres(remote) => remote.pool().close().await,
        }
    }
}

impl Connection<'_> {
    pub(crate) fn on(&mut self) -> Connection<'_> {
        match self {
            Self::Sqlite(connection) => Connection::Sqlite(connection),
            Self::Postgres(connection) => Connection::Postgres(connection),
        }
    }

    pub(crate) fn source(&mut self) -> Source<'_> {
        Source::Driver(self.on())
    }
}

impl Source<'_> {
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Driver(connection) => connection.source(),
            Self::Nearby(held) => Source::Nearby(held),
        }
    }
}

impl Peek {
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Sqlite(held) => Source::Nearby(held),
            Self::Postgres(connection) => Source::Driver(Connection::Postgres(connection)),
            Self::PostgresSnapshot(transaction) => {
                Source::Driver(Connection::Postgres(transaction))
            }
        }
    }
}

impl Reading {
    pub(crate) fn on(&mut self) -> Connection<'_> {
        match self {
            Self::Sqlite(connection) => Connection::Sqlite(connection),
            Self::Postgres(connection) => Connection::Postgres(connection),
        }
    }

    pub(crate) fn source(&mut self) -> Source<'_> {
        Source::Driver(self.on())
    }
}

impl Writing {
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Sqlite(transaction) => Source::Driver(Connection::Sqlite(transaction)),
            Self::Nearby(held, _) => Source::Nearby(held),
            Self::Postgres(transaction) => Source::Driver(Connection::Postgres(transaction)),
        }
    }

    /// Commits, or leaves that to whoever [holds effects](effects::Effects).
    pub(crate) async fn commit(self) -> Result<(), Error> {
        let Some(writing) = effects::hold(self) else {
            return Ok(());
        };
        match writing {
            Self::Sqlite(transaction) => transaction.commit().await?,
            Self::Nearby(held, _turn) => held.commit()?,
            Self::Postgres(transaction) => transaction.commit().await?,
        }
        Ok(())
    }
}

/// Runs `$body` for the driver at hand, with `$connection` bound to its connection and, where the body builds its statement, `$driver` to its
/// type; or `$nearby` with `$held` bound to a connection on the calling thread.
macro_rules! on {
    ($on:expr, $held:ident => $nearby:expr, $connection:ident => $body:expr) => {
        match $on.source() {
            $crate::pool::Source::Driver(driver) => match driver {
                $crate::pool::Connection::Sqlite($connection) => $body,
                $crate::pool::Connection::Postgres($connection) => $body,
            },
            $crate::pool::Source::Nearby($held) => $nearby,
        }
    };
    ($on:expr, $held:ident => $nearby:expr, $connection:ident: $driver:ident => $body:expr) => {
        match $on.source() {
            $crate::pool::Source::Driver(driver) => match driver {
                $crate::pool::Connection::Sqlite($connection) => {
                    type $driver = sqlx::Sqlite;
                    $body
                }
                $crate::pool::Connection::Postgres($connection) => {
                    type $driver = sqlx::Postgres;
                    $body
                }
            },
            $crate::pool::Source::Nearby($held) => $nearby,
        }
    };
}

/// Runs a statement; gives the number of rows it touched.
macro_rules! execute {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::on!(
            $on,
            held => held.execute($sql, &[$(&$value as &dyn rusqlite::ToSql),*]),
            connection => Box::pin(sqlx::query($sql)$(.bind($value))*.execute(connection))
                .await
                .map(|done| done.rows_affected())
                .map_err($crate::error::Error::from)
        )
    };
}

/// Runs a query by the function of this name, of the driver or of a connection at hand. What the driver does is boxed: its state is large, and
/// would otherwise be part of every request's, whichever way it reads.
macro_rules! fetch {
    ($fetch:ident, $on:expr, $sql:expr, [$($value:expr),*]) => {
        $crate::pool::on!(
            $on,
            held => held.$fetch($sql, &[$(&$value as &dyn rusqlite::ToSql),*]),
            connection => Box::pin(sqlx::query_as($sql)$(.bind($value))*.$fetch(connection))
                .await
                .map_err($crate::error::Error::from)
        )
    };
}

/// Runs a query; gives every row.
macro_rules! fetch_all {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::fetch!(fetch_all, $on, $sql, [$($value),*])
    };
}

/// Runs a query; gives the row if there is one.
macro_rules! fetch_optional {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::fetch!(fetch_optional, $on, $sql, [$($value),*])
    };
}

/// Runs a query that has a row; gives it.
macro_rules! fetch_one {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::fetch!(fetch_one, $on, $sql, [$($value),*])
    };
}

pub(crate) use {execute, fetch, fetch_all, fetch_one, fetch_optional, on};
