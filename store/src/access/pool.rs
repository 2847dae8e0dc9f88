//! The open database: its transaction threads and, for SQLite, the reads on the calling thread.
//!
//! SQLite has one writing thread, so that writers of this process queue here instead of in `SQLITE_BUSY`, and several that read. PostgreSQL
//! has one thread for each connection. Both dialects accept `$1`, `RETURNING` and `ON CONFLICT`.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::commit::{Committed, commit};
use crate::driver::error::{Broke, Error};
use crate::driver::keyring::Keyring;
use crate::driver::server::{Purpose, Remote};
use crate::driver::sqlite::{Connections, OpenMode};
use crate::driver::threads::{OpenTransaction, Threads};
use crate::driver::tx::{Mode, Tx};

/// Time that a write waits while another process locks the file; then it fails.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The open database.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    readers: Threads,
    writers: Threads,
    place: Backend,
    keyring: Arc<OnceLock<Keyring>>,
}

/// Location of the database.
#[derive(Clone, Debug)]
enum Backend {
    Sqlite {
        reading: Arc<Connections>,
        writing: Arc<Connections>,
    },
    Postgres(Remote),
}

impl Pool {
    /// Opens an existing file, with this many reading threads.
    ///
    /// # Errors
    /// SQLite's error, if the file can't be switched to its write-ahead log.
    pub(crate) fn sqlite(file: &Path, readers: u32) -> rusqlite::Result<Self> {
        let most = readers.max(1);
        let reading = Arc::new(Connections::new(
            file.into(),
            OpenMode::Reading,
            most as usize,
        ));

        let writing = Arc::new(Connections::new(
            file.into(),
            OpenMode::Writing(HELD_FOR),
            1,
        ));
        // Opened before any reader: only a writing connection switches the file to its log, and a fault shows at startup.
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
            place: Backend::Sqlite { reading, writing },
            keyring,
        })
    }

    /// Uses a server, with this many connections.
    pub(crate) fn postgres(remote: Remote, connections: u32) -> Self {
        let keyring = Arc::<OnceLock<Keyring>>::default();
        let (known, server) = (Arc::clone(&keyring), remote.clone());
        let make = move || Tx::on_postgres(server.clone(), Arc::clone(&known));
        let threads = Threads::new(connections, Some(remote.clone()), make);
        Self {
            readers: threads.clone(),
            writers: threads,
            place: Backend::Postgres(remote),
            keyring,
        }
    }

    /// Gives transactions the installation's keys.
    pub(crate) fn set_keyring(&self, keyring: &Keyring) {
        // A keyring that is already set has the same keys, since clones share changes.
        let _ = self.keyring.set(keyring.clone());
    }

    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.place, Backend::Postgres(_))
    }

    /// Returns the server, unless the database is embedded.
    pub(crate) const fn remote(&self) -> Option<&Remote> {
        match &self.place {
            Backend::Sqlite { .. } => None,
            Backend::Postgres(remote) => Some(remote),
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
        self.readers.run(Purpose::Read, read).await
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
        self.writers.run(Purpose::Write, written).await
    }

    /// Begins a transaction of several steps.
    pub(crate) async fn begin(&self) -> Result<OpenTransaction, Error> {
        let session = self.writers.session().await?;
        session.run(|tx| tx.begin(Mode::Write)).await?;
        Ok(session)
    }

    /// Returns a reader of the SQLite file for the calling thread.
    pub(crate) fn inline(&self) -> Option<Tx> {
        let Backend::Sqlite { reading, .. } = &self.place else {
            return None;
        };
        Some(Tx::on_sqlite(
            Arc::clone(reading),
            Arc::clone(&self.keyring),
        ))
    }

    /// Releases the pages and plans that idle connections to a file hold.
    pub(crate) fn rest(&self) {
        if let Backend::Sqlite { reading, writing } = &self.place {
            reading.rest();
            writing.rest();
        }
    }

    /// Checkpoints SQLite's write-ahead log and truncates it, so that it holds no earlier state of a row. Returns false while a reader or a
    /// writer blocks this.
    pub(crate) async fn truncate_log(&self) -> Result<bool, Error> {
        let Backend::Sqlite { writing, .. } = &self.place else {
            return Ok(true);
        };
        let writing = Arc::clone(writing);
        let truncated = tokio::task::spawn_blocking(move || writing.truncate_log()).await;
        Ok(truncated.map_err(|_| Broke::Closed)??)
    }

    /// Waits until all work is done and all connections are closed; SQLite then checkpoints its write-ahead log.
    pub(crate) async fn close(&self) {
        self.writers.close().await;
        self.readers.close().await;

        match &self.place {
            Backend::Sqlite { reading, writing } => {
                let all = [Arc::clone(reading), Arc::clone(writing)];
                let closed = tokio::task::spawn_blocking(move || {
                    all.iter().for_each(|connections| connections.close());
                });
                // Closing doesn't panic, and a runtime that ends closes them too.
                let _ = closed.await;
            }
            Backend::Postgres(remote) => remote.close().await,
        }
    }
}
