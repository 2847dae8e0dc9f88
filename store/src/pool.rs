//! The open database: its threads for transactions, and what SQLite reads without them.
//!
//! SQLite has one thread that writes, so that writers of this process queue here instead of in `SQLITE_BUSY`, and several that read. PostgreSQL
//! has as many as connections. Both dialects take `$1`, `RETURNING` and `ON CONFLICT`.
//!
//! Functions of aggregates that are still asynchronous run a statement at a time by the macros below: each is a step of a [`Session`], with the
//! guarantees of [`Tx`].

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::effects;
use super::error::{Broke, Error};
use super::event::NewEvent;
use super::keyring::Keyring;
use super::reach::Remote;
use super::sqlite::{Access, Connections};
use super::threads::{Session, Threads};
use super::tx::{Committed, Mode, Tx};
use super::value::{Param, Record, Value};

/// How long a write waits for another process that holds the file.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The open database.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    readers: Threads,
    writers: Threads,
    place: Place,
    keyring: Arc<OnceLock<Keyring>>,
}

/// Where it is.
#[derive(Clone, Debug)]
enum Place {
    Sqlite {
        reading: Arc<Connections>,
        writing: Arc<Connections>,
    },
    Postgres(Remote),
}

impl Pool {
    /// A file, which exists, with so many threads that read.
    ///
    /// # Errors
    /// SQLite's, if the file can't be turned to its write-ahead log.
    pub(crate) fn sqlite(file: &Path, readers: u32) -> rusqlite::Result<Self> {
        let most = readers.max(1);
        let reading = Arc::new(Connections::new(
            file.into(),
            Access::Reading,
            most as usize,
        ));
        let writing = Arc::new(Connections::new(file.into(), Access::Writing(HELD_FOR), 1));
        writing.prepare()?;
        let keyring = Arc::<OnceLock<Keyring>>::default();
        let threads = |most, connections: &Arc<Connections>| {
            let (connections, keyring) = (Arc::clone(connections), Arc::clone(&keyring));
            let make = move || {
                Ok(Tx::on_sqlite(
                    Arc::clone(&connections),
                    Arc::clone(&keyring),
                ))
            };
            Threads::new(most, None, make)
        };
        Ok(Self {
            readers: threads(most, &reading),
            writers: threads(1, &writing),
            place: Place::Sqlite { reading, writing },
            keyring,
        })
    }

    /// A server, with so many connections.
    pub(crate) fn postgres(remote: Remote, connections: u32) -> Self {
        let keyring = Arc::<OnceLock<Keyring>>::default();
        let (known, server) = (Arc::clone(&keyring), remote.clone());
        let make = move || Tx::on_postgres(server.clone(), Arc::clone(&known));
        let threads = Threads::new(connections, Some(remote.clone()), make);
        Self {
            readers: threads.clone(),
            writers: threads,
            place: Place::Postgres(remote),
            keyring,
        }
    }

    /// Gives transactions the keys of the installation.
    pub(crate) fn knows(&self, keyring: &Keyring) {
        // Those that it has follow the change feed.
        let _ = self.keyring.set(keyring.clone());
    }

    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.place, Place::Postgres(_))
    }

    /// The server, if there is one.
    pub(crate) const fn remote(&self) -> Option<&Remote> {
        match &self.place {
            Place::Sqlite { .. } => None,
            Place::Postgres(remote) => Some(remote),
        }
    }

    /// Runs reads on a thread.
    pub(crate) async fn run_read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let read = move |tx: &mut Tx| {
            tx.begin(Mode::Read)?;
            work(tx)
        };
        self.readers.run(read).await
    }

    /// Runs a transaction on a thread, and commits it.
    pub(crate) async fn run_write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Committed), Error> {
        let written = move |tx: &mut Tx| {
            tx.begin(Mode::Write)?;
            let value = work(tx)?;
            Ok((value, tx.commit()?))
        };
        self.writers.run(written).await
    }

    /// What reads a SQLite file on the calling thread.
    pub(crate) fn inline(&self) -> Option<Tx> {
        let Place::Sqlite { reading, .. } = &self.place else {
            return None;
        };
        Some(Tx::on_sqlite(
            Arc::clone(reading),
            Arc::clone(&self.keyring),
        ))
    }

    /// Gives back the pages and plans that connections to a file hold without work.
    pub(crate) fn rest(&self) {
        if let Place::Sqlite { reading, writing } = &self.place {
            reading.rest();
            writing.rest();
        }
    }

    /// Folds the write-ahead log of SQLite into the file and leaves it empty, so that it holds no earlier state of a row. False while a
    /// reader or a writer is in the way.
    pub(crate) async fn truncate_log(&self) -> Result<bool, Error> {
        let Place::Sqlite { writing, .. } = &self.place else {
            return Ok(true);
        };
        let writing = Arc::clone(writing);
        let truncated = tokio::task::spawn_blocking(move || writing.truncate_log()).await;
        Ok(truncated.map_err(|_| Broke::Closed)??)
    }

    /// Waits until all work is done and all connections are closed; SQLite then folds its write-ahead log into the file.
    pub(crate) async fn close(&self) {
        self.writers.close().await;
        self.readers.close().await;
        match &self.place {
            Place::Sqlite { reading, writing } => {
                let all = [Arc::clone(reading), Arc::clone(writing)];
                let closed = tokio::task::spawn_blocking(move || {
                    all.iter().for_each(|connections| connections.close());
                });
                let _ = closed.await;
            }
            Place::Postgres(remote) => remote.close().await,
        }
    }
}

/// Reads that are made one by one.
#[derive(Debug)]
pub(crate) struct Reading(Session, Mode);

/// The same where SQLite reads on the calling thread: rows whose number is bounded, found by an index.
#[derive(Debug)]
pub(crate) enum Peek {
    Inline(Box<Tx>),
    Session(Reading),
}

/// A transaction whose statements are run one by one. Dropped without a commit, it is rolled back.
#[derive(Debug)]
pub(crate) struct Writing {
    session: Session,
    is_shared: bool,
}

/// What a statement runs on.
#[derive(Debug)]
pub(crate) enum Source<'c> {
    Inline(&'c mut Tx),
    Session(&'c Session, Mode),
}

impl Pool {
    /// Reads, each of which sees what is committed.
    pub(crate) async fn read(&self) -> Result<Reading, Error> {
        Ok(Reading(self.readers.session().await?, Mode::Read))
    }

    /// Reads that all see one state.
    pub(crate) async fn snapshot(&self) -> Result<Reading, Error> {
        Ok(Reading(self.readers.session().await?, Mode::Snapshot))
    }

    /// Short reads, each of which sees what is committed.
    pub(crate) async fn peek(&self) -> Result<Peek, Error> {
        match self.peek_inline(Mode::Read)? {
            Some(tx) => Ok(Peek::Inline(tx)),
            None => Ok(Peek::Session(self.read().await?)),
        }
    }

    /// Short reads that all see one state.
    pub(crate) async fn peek_snapshot(&self) -> Result<Peek, Error> {
        match self.peek_inline(Mode::Snapshot)? {
            Some(tx) => Ok(Peek::Inline(tx)),
            None => Ok(Peek::Session(self.snapshot().await?)),
        }
    }

    fn peek_inline(&self, mode: Mode) -> Result<Option<Box<Tx>>, Error> {
        let Some(mut tx) = self.inline() else {
            return Ok(None);
        };
        tx.begin(mode)?;
        Ok(Some(Box::new(tx)))
    }

    /// A transaction that writes, or goes on in one whose [effects](effects::Effects) are held.
    pub(crate) async fn write(&self) -> Result<Writing, Error> {
        if let Some(writing) = effects::resume() {
            return Ok(writing);
        }
        let session = self.writers.session().await?;
        session.run(|tx| tx.begin(Mode::Write)).await?;
        Ok(Writing {
            session,
            is_shared: self.is_shared(),
        })
    }
}

impl Source<'_> {
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Inline(tx) => Source::Inline(tx),
            Self::Session(session, mode) => Source::Session(session, *mode),
        }
    }
}

impl Peek {
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Inline(tx) => Source::Inline(tx),
            Self::Session(reading) => reading.source(),
        }
    }
}

impl Reading {
    pub(crate) fn source(&mut self) -> Source<'_> {
        Source::Session(&self.0, self.1)
    }
}

impl Writing {
    pub(crate) fn source(&mut self) -> Source<'_> {
        Source::Session(&self.session, Mode::Write)
    }

    /// Whether other transactions write at the same time.
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Does work of several statements.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.session.run(work).await
    }

    /// Records events, with the commit.
    pub(crate) async fn record(&mut self, events: Vec<NewEvent>) -> Result<(), Error> {
        let recorded = move |tx: &mut Tx| {
            tx.record(events);
            Ok(())
        };
        self.run(recorded).await
    }

    /// Commits, or leaves that to whoever [holds effects](effects::Effects).
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.commit_with(|_| Ok(())).await.map(|_| ())
    }

    /// Commits bookkeeping of our own, which is no change that somebody asked for and has no entry in the audit log.
    pub(crate) async fn commit_aside(self) -> Result<(), Error> {
        if effects::are_held() {
            return self.commit().await;
        }
        let aside = |tx: &mut Tx| {
            tx.aside();
            Ok(())
        };
        self.end(aside).await.map(|_| ())
    }

    /// Commits after a last step, or leaves that to whoever [holds effects](effects::Effects).
    pub(crate) async fn commit_with(
        self,
        last: impl FnOnce(&mut Tx) -> Result<(), Error> + Send + 'static,
    ) -> Result<Committed, Error> {
        if !effects::are_held() {
            return self.end(last).await;
        }
        self.session.run(move |tx| tx.part(last)).await?;
        effects::hold(self);
        Ok(Committed::default())
    }

    /// Commits after a last step, whoever holds effects.
    pub(crate) async fn end(
        self,
        last: impl FnOnce(&mut Tx) -> Result<(), Error> + Send + 'static,
    ) -> Result<Committed, Error> {
        let committed = move |tx: &mut Tx| {
            last(tx)?;
            tx.commit()
        };
        self.session.end(committed).await
    }
}

/// A statement's values as they are read on the thread that runs it.
fn params<'v>(values: &'v [Value<'static>]) -> Vec<&'v dyn Param> {
    values.iter().map(|value| value as &dyn Param).collect()
}

impl Source<'_> {
    pub(crate) async fn execute(
        &mut self,
        sql: &'static str,
        values: Vec<Value<'static>>,
    ) -> Result<u64, Error> {
        self.step(move |tx| tx.run(sql, &params(&values))).await
    }

    pub(crate) async fn fetch_all<T: Record>(
        &mut self,
        sql: &'static str,
        values: Vec<Value<'static>>,
    ) -> Result<Vec<T>, Error> {
        self.step(move |tx| tx.all(sql, &params(&values))).await
    }

    pub(crate) async fn fetch_optional<T: Record>(
        &mut self,
        sql: &'static str,
        values: Vec<Value<'static>>,
    ) -> Result<Option<T>, Error> {
        self.step(move |tx| tx.one(sql, &params(&values))).await
    }

    pub(crate) async fn fetch_one<T: Record>(
        &mut self,
        sql: &'static str,
        values: Vec<Value<'static>>,
    ) -> Result<T, Error> {
        let row = self.fetch_optional(sql, values).await?;
        Ok(row.ok_or(Broke::NoRow)?)
    }

    /// Does work of several statements.
    pub(crate) async fn step<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        match self {
            Self::Inline(tx) => work(tx),
            Self::Session(session, mode) => {
                let mode = *mode;
                let step = move |tx: &mut Tx| {
                    tx.begin(mode)?;
                    work(tx)
                };
                session.run(step).await
            }
        }
    }
}

/// Runs a statement by the method of [`Source`] of this name.
macro_rules! by {
    ($method:ident, $on:expr, $sql:expr, [$($value:expr),*]) => {
        $on.source()
            .$method($sql, vec![$($crate::value::Param::value(&$value).into_owned()),*])
            .await
    };
}

/// Runs a statement; gives the number of rows it touched.
macro_rules! execute {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::by!(execute, $on, $sql, [$($value),*])
    };
}

/// Runs a query; gives every row.
macro_rules! fetch_all {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::by!(fetch_all, $on, $sql, [$($value),*])
    };
}

/// Runs a query; gives the row if there is one.
macro_rules! fetch_optional {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::by!(fetch_optional, $on, $sql, [$($value),*])
    };
}

/// Runs a query that has a row; gives it.
macro_rules! fetch_one {
    ($on:expr, $sql:expr $(, $value:expr)* $(,)?) => {
        $crate::pool::by!(fetch_one, $on, $sql, [$($value),*])
    };
}

pub(crate) use {by, execute, fetch_all, fetch_one, fetch_optional};
