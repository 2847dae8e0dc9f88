//! A transaction as store functions see it: synchronous, on a thread that may wait.
//!
//! What a transaction changes for the followers of the change feed, and the events that come of it, are gathered here and written by
//! [`commit`](super::commit).

use std::sync::{Arc, OnceLock};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::caller::Caller;
use super::change::Change;
use super::error::{Broke, Error};
use super::event::NewEvent;
use super::keyring::Keyring;
use super::postgres::Link;
use super::reach::Remote;
use super::rows::Insert;
use super::sqlite::{ConnectionGuard, Connections};
use super::value::{Param, Record, Sql, Value};

/// A transaction, or reads without one.
pub struct Tx {
    on: On,
    keyring: Arc<OnceLock<Keyring>>,
    mode: Option<Mode>,
    caller: Arc<Caller>,
    gathered: Gathered,
    /// Whether a part of it is a deed that the audit log names.
    has_deed: bool,
}

/// Rows that a transaction writes as its last statements: see [`commit`](super::commit).
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) changes: Vec<Change>,
    pub(crate) changed_at: Option<Moment>,
    /// Whether the changes are to be in force in this process before the writer goes on.
    pub(crate) is_waited_for: bool,
    /// Whether it is bookkeeping of our own, which has no entry in the audit log.
    pub(crate) is_aside: bool,
    pub(crate) events: Vec<NewEvent>,
    /// Whether readers of events have work without a new one.
    pub(crate) wakes: bool,
    /// Calls that are over, with their orgs.
    pub(crate) ends: Vec<(Uuid, Uuid)>,
}

/// What it runs on.
enum On {
    Sqlite {
        connections: Arc<Connections>,
        /// There while it is in use.
        held: Option<ConnectionGuard>,
    },
    Postgres(Box<Link>),
}

/// What a transaction is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Reads, each of which sees what is committed.
    Read,
    /// Reads that all see one state.
    Snapshot,
    /// On SQLite the lock for writing is held from the start: a reader that turned writer could not wait for it.
    Write,
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Tx {
    pub(crate) fn on_sqlite(
        connections: Arc<Connections>,
        keyring: Arc<OnceLock<Keyring>>,
    ) -> Self {
        let held = None;
        Self::new(On::Sqlite { connections, held }, keyring)
    }

    /// # Errors
    /// [`Broke`] if the thread's runtime can't be made.
    pub(crate) fn on_postgres(
        remote: Remote,
        keyring: Arc<OnceLock<Keyring>>,
    ) -> Result<Self, Error> {
        let link = Link::new(remote).map_err(Broke::Thread)?;
        Ok(Self::new(On::Postgres(Box::new(link)), keyring))
    }

    fn new(on: On, keyring: Arc<OnceLock<Keyring>>) -> Self {
        Self {
            on,
            keyring,
            mode: None,
            caller: Arc::default(),
            gathered: Gathered::default(),
            has_deed: false,
        }
    }

    /// The row of a query, if there is one; the first where there are more.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(crate) fn one<T: Record>(
        &mut self,
        sql: impl Into<Sql>,
        values: &[&dyn Param],
    ) -> Result<Option<T>, Error> {
        match &mut self.on {
            On::Sqlite { held, .. } => {
                let mut found = None;
                let first = |row| {
                    found = Some(row);
                    false
                };
                begun(held)?.each(&sql.into(), values, first)?;
                Ok(found)
            }
            On::Postgres(link) => link.fetch_optional(sql.into(), values),
        }
    }

    /// The row of a query that has one whatever is stored.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(crate) fn only<T: Record>(
        &mut self,
        sql: impl Into<Sql>,
        values: &[&dyn Param],
    ) -> Result<T, Error> {
        let row = self.one(sql, values)?;
        Ok(row.ok_or(Broke::NoRow)?)
    }

    /// Every row of a query.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(crate) fn all<T: Record>(
        &mut self,
        sql: impl Into<Sql>,
        values: &[&dyn Param],
    ) -> Result<Vec<T>, Error> {
        match &mut self.on {
            On::Sqlite { held, .. } => {
                let mut found = Vec::new();
                begun(held)?.each(&sql.into(), values, gather(&mut found))?;
                Ok(found)
            }
            On::Postgres(link) => link.fetch_all(sql.into(), values),
        }
    }

    /// Runs a statement; gives the number of rows that it touched.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(crate) fn run(&mut self, sql: impl Into<Sql>, values: &[&dyn Param]) -> Result<u64, Error> {
        match &mut self.on {
            On::Sqlite { held, .. } => begun(held)?.execute(&sql.into(), values),
            On::Postgres(link) => link.execute(sql.into(), values),
        }
    }

    /// Runs statements without values.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(crate) fn batch(&mut self, sql: &'static str) -> Result<(), Error> {
        match &mut self.on {
            On::Sqlite { held, .. } => begun(held)?.batch(sql),
            On::Postgres(link) => link.batch(sql),
        }
    }

    /// Writes a portion of rows; gives how many were written.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(super) fn insert<const N: usize>(
        &mut self,
        insert: Insert,
        rows: &[[Value<'_>; N]],
    ) -> Result<u64, Error> {
        match &mut self.on {
            On::Sqlite { held, .. } => {
                let sql = insert.for_sqlite(rows.len(), N);
                begun(held)?.execute_in_order(&sql, rows.iter().flatten())
            }
            On::Postgres(link) => link.insert(insert, rows),
        }
    }

    /// The same, of an `INSERT` that gives rows back.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(super) fn insert_returning<T: Record, const N: usize>(
        &mut self,
        insert: Insert,
        rows: &[[Value<'_>; N]],
    ) -> Result<Vec<T>, Error> {
        match &mut self.on {
            On::Sqlite { held, .. } => {
                let sql = insert.for_sqlite(rows.len(), N);
                let mut found = Vec::new();
                begun(held)?.each_in_order(&sql, rows.iter().flatten(), gather(&mut found))?;
                Ok(found)
            }
            On::Postgres(link) => link.insert_returning(insert, rows),
        }
    }

    /// Has all reads that follow see one state; those of a transaction that writes go on as they are.
    ///
    /// # Errors
    /// [`Broke`] alone.
    pub(crate) fn snapshot(&mut self) -> Result<(), Error> {
        if self.mode != Some(Mode::Read) {
            return Ok(());
        }
        match &mut self.on {
            On::Sqlite { held, .. } => begun(held)?.begin_snapshot()?,
            On::Postgres(link) => link.begin_snapshot()?,
        }
        self.mode = Some(Mode::Snapshot);
        Ok(())
    }

    /// Tells the followers of the change feed, with the commit; the writer goes on when the change is in force in this process.
    pub(crate) fn changed(&mut self, change: Change, now: Moment) {
        self.gathered.is_waited_for = true;
        self.announce(change, now);
    }

    /// The same for a writer that can't wait.
    pub(crate) fn announce(&mut self, change: Change, now: Moment) {
        self.gathered.changes.push(change);
        self.gathered.changed_at = self.gathered.changed_at.max(Some(now));
    }

    /// Records events, with the commit. What was recorded before stays as it is.
    pub(crate) fn record(&mut self, events: impl IntoIterator<Item = NewEvent>) {
        self.gathered.events.extend(events);
    }

    /// Wakes those who read events, or send them, with the commit.
    pub(crate) const fn wake(&mut self) {
        self.gathered.wakes = true;
    }

    /// Numbers ends of calls (org and call), with the commit.
    pub(crate) fn record_ends(&mut self, ends: impl IntoIterator<Item = (Uuid, Uuid)>) {
        self.gathered.ends.extend(ends);
    }

    /// Whether this is PostgreSQL, where transactions write at the same time and take turns by locks.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.on, On::Postgres(_))
    }

    /// Picks the words of one database.
    pub(crate) const fn words(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        if self.is_shared() { postgres } else { sqlite }
    }

    /// The installation's keys.
    pub(crate) fn keyring(&self) -> Keyring {
        let keyring = self.keyring.get();
        keyring.expect("an open store has keys").clone()
    }

    /// Begins, unless it has begun.
    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Error> {
        if self.mode.is_some() {
            return Ok(());
        }

        match &mut self.on {
            On::Sqlite { connections, held } => {
                *held = Some(match mode {
                    Mode::Read => connections.read()?,
                    Mode::Snapshot => connections.snapshot()?,
                    Mode::Write => connections.write()?,
                });
            }
            On::Postgres(link) => {
                link.ready()?;
                match mode {
                    Mode::Read => {}
                    Mode::Snapshot => link.begin_snapshot()?,
                    Mode::Write => link.begin()?,
                }
            }
        }

        self.mode = Some(mode);
        self.caller.begin();

        Ok(())
    }

    /// Takes what was gathered, to be written before the commit.
    pub(crate) fn take_gathered(&mut self) -> Gathered {
        std::mem::take(&mut self.gathered)
    }

    /// Commits. What nobody waits for any more is rolled back.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        if self.caller.is_gone() {
            return Err(Broke::Away.into());
        }
        match &mut self.on {
            On::Sqlite { held, .. } => held.take().ok_or(Broke::Late)?.commit()?,
            On::Postgres(link) => link.commit()?,
        }
        self.mode = None;
        Ok(())
    }

    /// Ends what isn't committed, and forgets what was gathered.
    pub(crate) fn reset(&mut self) {
        match &mut self.on {
            On::Sqlite { held, .. } => *held = None,
            On::Postgres(link) => link.reset(),
        }
        self.mode = None;
        self.gathered = Gathered::default();
        self.has_deed = false;
    }

    /// Makes this transaction bookkeeping of our own: nobody asked for it, and it has no entry in the audit log.
    pub(crate) const fn aside(&mut self) {
        self.gathered.is_aside = true;
    }

    /// Does a part of a transaction that goes on.
    pub(crate) fn part<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.gathered.is_aside = false;
        let value = work(self)?;
        self.has_deed |= !self.gathered.is_aside;
        self.gathered.is_aside = false;
        Ok(value)
    }

    /// Makes this transaction bookkeeping of our own, if each of its parts was.
    pub(crate) const fn aside_if_all_was(&mut self) {
        self.gathered.is_aside = !self.has_deed;
    }

    /// Works for this caller from now on.
    pub(super) fn serve(&mut self, caller: Arc<Caller>) {
        if let On::Postgres(link) = &mut self.on {
            link.serve(Arc::clone(&caller));
        }
        self.caller = caller;
    }

    pub(super) const fn is_remote(&self) -> bool {
        self.is_shared()
    }

    pub(super) fn rest(&mut self) {
        if let On::Postgres(link) = &mut self.on {
            link.rest();
        }
    }

    pub(super) fn close(&mut self) {
        self.reset();
        if let On::Postgres(link) = &mut self.on {
            link.close();
        }
    }
}

fn begun(held: &mut Option<ConnectionGuard>) -> Result<&mut ConnectionGuard, Error> {
    Ok(held.as_mut().ok_or(Broke::Late)?)
}

/// Takes every row.
fn gather<T>(found: &mut Vec<T>) -> impl FnMut(T) -> bool {
    |row| {
        found.push(row);
        true
    }
}
