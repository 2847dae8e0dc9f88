//! The open database: its threads for transactions, and what SQLite reads without them.
//!
//! SQLite has one thread that writes, so that writers of this process queue here instead of in `SQLITE_BUSY`, and several that read. PostgreSQL
//! has as many as connections. Both dialects take `$1`, `RETURNING` and `ON CONFLICT`.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::commit::{Committed, commit};
use super::error::{Broke, Error};
use super::keyring::Keyring;
use super::reach::Remote;
use super::sqlite::{Access, Connections};
use super::threads::{Session, Threads};
use super::tx::{Mode, Tx};

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
            Ok((value, commit(tx)?))
        };
        self.writers.run(written).await
    }

    /// A transaction that writes in several steps.
    pub(crate) async fn begin(&self) -> Result<Session, Error> {
        let session = self.writers.session().await?;
        session.run(|tx| tx.begin(Mode::Write)).await?;
        Ok(session)
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
