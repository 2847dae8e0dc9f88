//! The open store: the one value through which everything is read and written.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::commit::{Committed, commit};
use super::disk_fault::{DiskFault, LastFault};
use super::effects::{self, Effects};
use super::in_force::{Follower, Followers};
use super::open::{self, DatabaseAtStartup, Options};
use super::pool::Pool;
use super::secrets::Vault;
use super::signal::Signal;
use crate::calls::events;
use crate::driver::error::{Broke, Error};
use crate::driver::event::NewEvent;
use crate::driver::feed;
use crate::driver::keyring::Keyring;
use crate::driver::latency::Latency;
use crate::driver::open_fault::OpenFault;
use crate::driver::org_turns::OrgTurns;
use crate::driver::threads::PATIENCE;
use crate::driver::tx::{Mode, Tx};

/// The open store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: Pool,
    keyring: Keyring,
    vault: Vault,
    /// Number of this process's commits with a row in the change feed.
    changed: watch::Sender<u64>,
    /// Number of this process's commits with events.
    recorded: watch::Sender<u64>,
    followers: Followers,
    org_turns: OrgTurns,
    latency: Latency,
    last_fault: LastFault,
    /// Held while the keys are read again.
    following: Mutex<()>,
}

impl Store {
    /// Returns whether other nodes may use the same database.
    pub fn is_shared(&self) -> bool {
        self.pool().is_shared()
    }

    /// Opens the database, creating it if necessary, and migrates its schema.
    ///
    /// # Errors
    /// The fault with its remedy; nothing was changed then.
    pub async fn open(options: &Options, now: Moment) -> Result<Self, OpenFault> {
        let (pool, keyring, vault) = open::open(options, now).await?;
        pool.set_keyring(&keyring);
        Ok(Self(Arc::new(Inner {
            pool,
            keyring,
            vault,
            changed: watch::Sender::new(0),
            recorded: watch::Sender::new(0),
            followers: Followers::default(),
            org_turns: OrgTurns::default(),
            latency: Latency::default(),
            last_fault: LastFault::default(),
            following: Mutex::default(),
        })))
    }

    /// Returns the reason why a database server can't be reached now; `None` if it can, and for an embedded database.
    ///
    /// # Errors
    /// The fault, if waiting doesn't help.
    pub async fn away(options: &Options) -> Result<Option<String>, OpenFault> {
        open::away(options).await
    }

    /// Returns what [`Store::open`] would find, without changing anything.
    ///
    /// # Errors
    /// The fault for which it couldn't be opened.
    pub async fn look(options: &Options) -> Result<DatabaseAtStartup, OpenFault> {
        open::look(options).await
    }

    /// Reads the keys again; returns whether the signing keys have changed.
    ///
    /// # Errors
    /// The keys can't be read; the known ones stay in use.
    pub async fn follow_signing_keys(&self) -> Result<bool, OpenFault> {
        // Serialised: of two calls at once, the one that read earlier must not set its keys last.
        let _turn = self.0.following.lock().await;
        let kept = self.0.vault.read(self.pool()).await?;
        Ok(self.keyring().follow(&kept))
    }

    /// Returns what is damaged in an SQLite file, as far as it can be checked within this time; `None` for a server, and for a file that isn't
    /// there or is whole so far.
    ///
    /// # Errors
    /// The file can't be read.
    pub async fn damage(
        options: &Options,
        limit: Duration,
    ) -> Result<Option<OpenFault>, OpenFault> {
        open::damage(options, limit).await
    }

    /// Returns the fault of the storage that writes meet now; `None` while they succeed.
    pub fn disk_fault(&self) -> Option<DiskFault> {
        self.0.last_fault.now()
    }

    /// Measures transactions from now on, by this monotonic clock.
    pub fn measure(&self, clock: fn() -> Moment) {
        self.0.latency.measure(clock);
    }

    /// Returns the installation's keys.
    pub fn keyring(&self) -> &Keyring {
        &self.0.keyring
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.0.vault
    }

    /// Returns whether the database answers.
    ///
    /// # Errors
    /// [`Broke`] if it does not.
    pub async fn check(&self) -> Result<(), Error> {
        let sql = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations";
        self.read(move |tx| tx.exactly_one(sql, &[]).map(|(_,): (i64,)| ()))
            .await
    }

    /// Releases the memory that a load has left in connections to an embedded database: for an idle node.
    pub fn rest(&self) {
        self.0.pool.rest();
    }

    /// Closes every connection, waiting for work in progress.
    pub async fn close(&self) {
        self.0.pool.close().await;
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Runs reads on a reading thread. Each sees the latest commit, or all see one snapshot after `Tx::snapshot`.
    ///
    /// # Errors
    /// Those of `work`; [`Broke`] if the database is away or busy.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _timer = self.0.latency.read();
        let read = self.pool().run_read(work).await;
        self.0.last_fault.note_read(&read);
        read
    }

    /// Runs reads of an org's rows that may be many, on a reading thread. One org has a few threads for them, and waits while it uses these.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn read_of<T: Send + 'static>(
        &self,
        org: Uuid,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        // The turn is taken before a thread, so that the reads of one org that wait hold no thread.
        let _turn = self.0.org_turns.take(org, PATIENCE).await?;
        self.read(work).await
    }

    /// Runs reads that every request makes and whose rows an index bounds to a few: on SQLite on the calling thread, before this returns.
    /// Finding one agent takes 11 µs this way, and 115 µs by way of a thread (`cargo bench --profile dev --bench store`, two cores). Lists,
    /// the command line and maintenance use [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_inline<T: Send + 'static, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, W>
    where
        W: FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    {
        let (done, left) = match self.pool().inline() {
            Some(mut tx) => {
                let _timer = self.0.latency.read();
                let done = tx.begin(Mode::Read).and_then(|()| work(&mut tx));
                self.0.last_fault.note_read(&done);
                (Some(done), None)
            }
            None => (None, Some((self.clone(), work))),
        };
        async move {
            match (done, left) {
                (Some(done), _) => done,
                (None, Some((store, work))) => store.read(work).await,
                (None, None) => Err(Broke::Closed.into()),
            }
        }
    }

    /// Runs a transaction on a writing thread and commits it, with its changes (`Tx::changed`) and events (`Tx::record`). Returns once they
    /// are in force in this process, or after two seconds. A transaction that fails or panics is rolled back. Under [`Effects::hold`] it stays open for the
    /// answer, and a failure rolls back all that is held.
    ///
    /// # Errors
    /// Those of `work`; [`Broke`] if the database is away or busy.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let timer = self.0.latency.write();
        // The request has an `Idempotency-Key`: what it writes is committed with its answer, see `write_held`.
        if effects::are_held() {
            let held = self.write_part(work).await;
            // A part that succeeds proves nothing: only its commit reaches the disk.
            if let Err(error) = &held {
                self.0.last_fault.note_write(Err(error));
            }
            return held;
        }

        let written = self.pool().run_write(work).await;
        let noted = written.as_ref().map(|(_, committed)| *committed);
        self.0.last_fault.note_write(noted);
        let (value, committed) = written?;
        // The wait for followers isn't the database's time.
        drop(timer);
        self.settle(committed).await;
        Ok(value)
    }

    /// Runs a part of the transaction that is held for the answer of this request, and begins it with the first.
    async fn write_part<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let session = match effects::resume() {
            Some(session) => session,
            None => self.pool().begin().await?,
        };
        // On an error the session is dropped here, which rolls back the earlier parts as well: a refusal is stored
        // without effects.
        let value = session.run(move |tx| tx.run_part(work)).await?;
        effects::hold(session);
        Ok(value)
    }

    /// Commits the held transaction with a last step, or that step alone if nothing is held.
    ///
    /// # Errors
    /// As [`write`](Self::write); the held transaction is rolled back then.
    pub async fn write_held(
        &self,
        effects: &Effects,
        last: impl FnOnce(&mut Tx) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let Some(session) = effects.take() else {
            // Nothing is held, so the request has changed nothing. Storing its answer has no entry in the audit log.
            let answer = move |tx: &mut Tx| {
                tx.mark_internal();
                last(tx)
            };
            return self.write(answer).await;
        };

        let timer = self.0.latency.write();
        let ended = session.end(move |tx| {
            last(tx)?;
            tx.mark_internal_if_all_parts_are();
            commit(tx)
        });
        let ended = ended.await;
        self.0.last_fault.note_write(ended.as_ref().copied());
        let committed = ended?;
        drop(timer);
        self.settle(committed).await;

        Ok(())
    }

    /// Records an event that belongs to no other write: it reaches `GET /phone/events` and the org's webhooks, on every node. An event of
    /// another write is recorded (`Tx::record`) in that transaction instead.
    ///
    /// # Errors
    /// [`Broke`](crate::driver::error::Broke): the database fails.
    pub async fn emit(&self, event: NewEvent) -> Result<(), Error> {
        self.write(|tx| {
            tx.record([event]);
            Ok(())
        })
        .await
    }

    /// Follows the commits of this process that have events.
    pub fn events_recorded(&self) -> watch::Receiver<u64> {
        self.0.recorded.subscribe()
    }

    /// Starts listening for events.
    pub async fn follow_events(&self) -> Signal {
        Signal::of(self.pool(), self.events_recorded(), events::CHANNEL).await
    }

    /// Adds a follower: writers of this process wait until it has applied their change.
    pub fn follower(&self) -> Follower {
        self.followers().add()
    }

    /// Starts listening for changes.
    pub async fn follow_changes(&self) -> Signal {
        Signal::of(self.pool(), self.changed(), feed::CHANNEL).await
    }

    /// Wakes the followers of a commit, and waits until it is in force in this process.
    pub(crate) async fn settle(&self, committed: Committed) {
        // Woken only now: readers on other connections don't see the rows before the commit.
        if committed.has_events {
            self.recorded();
        }
        if let Some(seq) = committed.seq {
            self.published();
            if committed.is_waited_for {
                self.followers().reach(seq).await;
            }
        }
    }

    fn followers(&self) -> &Followers {
        &self.0.followers
    }

    /// Wakes the followers of the change feed in this process.
    fn published(&self) {
        let changed = &self.0.changed;
        changed.send_modify(|commits| *commits = commits.wrapping_add(1));
    }

    /// Wakes the readers of events in this process.
    fn recorded(&self) {
        let recorded = &self.0.recorded;
        recorded.send_modify(|commits| *commits = commits.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database whose size is bounded as it is by a full disk: writes fail and say why, reads go on, and it heals.
    #[tokio::test]
    async fn a_full_disk_is_known_until_a_write_reaches_it() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            data_dir: folder.path().into(),
            url: None,
            master_key: None,
            max_connections: 2,
        };
        let store = Store::open(&options, Moment::from_secs(1)).await.unwrap();
        let write = |sql: &'static str| store.write(move |tx| tx.batch(sql));

        write("PRAGMA max_page_count = 4; CREATE TABLE sand (grain BLOB)")
            .await
            .unwrap_err();
        assert_eq!(store.disk_fault(), Some(DiskFault::Full));
        store.check().await.unwrap();
        assert_eq!(
            store.disk_fault(),
            Some(DiskFault::Full),
            "a read proves nothing"
        );

        // Each of these commits, and none of them reaches the disk.
        let count = "SELECT COUNT(*) FROM schema_migrations";
        let only_reads = store.write(move |tx| tx.exactly_one(count, &[]).map(|(_,): (i64,)| ()));
        only_reads.await.unwrap();
        for sql in [
            "DELETE FROM org_keys WHERE name = 'none'",
            "UPDATE org_keys SET name = name",
        ] {
            let unchanged = store.write(move |tx| tx.run(sql, &[]).map(|_| ()));
            unchanged.await.unwrap();
            assert_eq!(store.disk_fault(), Some(DiskFault::Full), "{sql}");
        }

        write("PRAGMA max_page_count = 1000000; CREATE TABLE sand (grain BLOB)")
            .await
            .unwrap();
        assert_eq!(store.disk_fault(), None);
        store.close().await;
    }
}
