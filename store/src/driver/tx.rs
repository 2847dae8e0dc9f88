//! A transaction, as store functions see it: synchronous, on a thread that may wait.
//!
//! Changes for the change feed, and events, are gathered here; [`commit`](crate::access::commit) writes them.

use std::sync::{Arc, OnceLock};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::caller::Caller;
use super::change::Change;
use super::error::{Broke, Error};
use super::event::NewEvent;
use super::keyring::Keyring;
use super::postgres::PostgresConnection;
use super::rows::{self, Each, Insert};
use super::server::Remote;
use super::sqlite::{ConnectionGuard, Connections};
use super::value::{Param, Record, Sql, Value};

/// A transaction, or reads without one.
pub struct Tx {
    on: On,
    keyring: Arc<OnceLock<Keyring>>,
    mode: Option<Mode>,
    caller: Arc<Caller>,
    gathered: Gathered,
    /// A part of the transaction isn't internal bookkeeping, so that the audit log gets an entry.
    has_audited_part: bool,
    /// The transaction has written rows, so that its commit reaches the disk.
    has_written: bool,
}

/// Rows that a transaction writes as its last statements: see [`commit`](crate::access::commit).
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) changes: Vec<Change>,
    pub(crate) changed_at: Option<Moment>,
    /// The writer waits until the changes are in force in this process.
    pub(crate) is_waited_for: bool,
    /// Internal bookkeeping, which has no entry in the audit log.
    pub(crate) is_internal: bool,
    pub(crate) events: Vec<NewEvent>,
    /// Readers of events are woken even without a new event.
    pub(crate) wakes: bool,
    /// Calls that are over, with their orgs.
    pub(crate) ends: Vec<(Uuid, Uuid)>,
}

/// Database of the transaction.
enum On {
    Sqlite {
        connections: Arc<Connections>,
        /// Present while in use.
        held: Option<ConnectionGuard>,
    },
    Postgres(Box<PostgresConnection>),
}

/// Purpose of a transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Reads, each of which sees the latest commit.
    Read,
    /// Reads that all see one snapshot.
    Snapshot,
    /// Writes. On SQLite the write lock is taken at the start: a reader that becomes a writer could not wait for it.
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
        let link = PostgresConnection::new(remote).map_err(Broke::Thread)?;
        Ok(Self::new(On::Postgres(Box::new(link)), keyring))
    }

    fn new(on: On, keyring: Arc<OnceLock<Keyring>>) -> Self {
        Self {
            on,
            keyring,
            mode: None,
            caller: Arc::default(),
            gathered: Gathered::default(),
            has_audited_part: false,
            has_written: false,
        }
    }

    /// Returns the first row of a query, if it has any.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn one<T: Record>(
        &mut self,
        sql: impl Into<Sql>,
        values: &[&dyn Param],
    ) -> Result<Option<T>, Error> {
        let sql = sql.into();
        let may_write = !is_query(&sql);
        let found = match &mut self.on {
            On::Sqlite { held, .. } => {
                let mut found = None;
                let first = |row| {
                    found = Some(row);
                    false
                };
                active(held)?.each(&sql, values, first)?;
                found
            }
            On::Postgres(link) => link.fetch_optional(sql, values)?,
        };
        self.has_written |= may_write && found.is_some();
        Ok(found)
    }

    /// Returns the row of a query that always has one.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn exactly_one<T: Record>(
        &mut self,
        sql: impl Into<Sql>,
        values: &[&dyn Param],
    ) -> Result<T, Error> {
        let row = self.one(sql, values)?;
        Ok(row.ok_or(Broke::NoRow)?)
    }

    /// Returns every row of a query.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn all<T: Record>(
        &mut self,
        sql: impl Into<Sql>,
        values: &[&dyn Param],
    ) -> Result<Vec<T>, Error> {
        let sql = sql.into();
        let may_write = !is_query(&sql);
        let found = match &mut self.on {
            On::Sqlite { held, .. } => {
                let mut found = Vec::new();
                active(held)?.each(&sql, values, gather(&mut found))?;
                found
            }
            On::Postgres(link) => link.fetch_all(sql, values)?,
        };
        self.has_written |= may_write && !found.is_empty();
        Ok(found)
    }

    /// Runs a statement; returns the number of rows changed.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn run(&mut self, sql: impl Into<Sql>, values: &[&dyn Param]) -> Result<u64, Error> {
        let sql = sql.into();
        let may_write = !is_query(&sql);
        let rows = match &mut self.on {
            On::Sqlite { held, .. } => active(held)?.execute(&sql, values)?,
            On::Postgres(link) => link.execute(sql, values)?,
        };
        self.has_written |= may_write && rows > 0;
        Ok(rows)
    }

    /// Lets each statement of this transaction take as long as it needs: a migration may build an index over millions of rows, and wait
    /// for another node's.
    pub(crate) fn wait_without_bound(&mut self) {
        match &mut self.on {
            // No server can fall silent there.
            On::Sqlite { .. } => {}
            On::Postgres(link) => link.wait_without_bound(),
        }
    }

    /// Runs statements without values.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn batch(&mut self, sql: &'static str) -> Result<(), Error> {
        self.has_written = true;
        match &mut self.on {
            On::Sqlite { held, .. } => active(held)?.batch(sql),
            On::Postgres(link) => link.batch(sql),
        }
    }

    /// Inserts a portion of rows; returns the number inserted.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn insert<const N: usize>(
        &mut self,
        insert: Insert,
        rows: &[[Value<'_>; N]],
    ) -> Result<u64, Error> {
        let inserted = match &mut self.on {
            On::Sqlite { held, .. } => {
                let sql = insert.for_sqlite(rows.len(), N);
                active(held)?.execute_in_order(&sql, rows.iter().flatten())?
            }
            On::Postgres(link) => link.insert(insert, rows)?,
        };
        self.has_written |= inserted > 0;
        Ok(inserted)
    }

    /// Runs a statement for each of these rows.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn run_each<const N: usize>(
        &mut self,
        each: Each,
        rows: &[[Value<'_>; N]],
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let changed = match &mut self.on {
            On::Sqlite { held, .. } => {
                let mut changed = 0;
                for row in rows {
                    let row = row.each_ref().map(|value| value as &dyn Param);
                    changed += active(held)?.execute(each.sqlite, &row)?;
                }
                changed
            }
            On::Postgres(link) => link.execute_each(each, rows)?,
        };
        self.has_written |= changed > 0;
        Ok(())
    }

    /// Splits rows into portions, each of which one statement inserts: on PostgreSQL one portion has all of them.
    pub(crate) fn portions<'r, T>(
        &self,
        rows: &'r [T],
    ) -> impl Iterator<Item = &'r [T]> + use<'r, T> {
        let (whole, split) = match self.is_shared() {
            true => (Some(rows).filter(|rows| !rows.is_empty()), &rows[..0]),
            false => (None, rows),
        };
        whole.into_iter().chain(rows::portions(split))
    }

    /// Inserts a portion of rows with an `INSERT` that returns rows.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn insert_returning<T: Record, const N: usize>(
        &mut self,
        insert: Insert,
        rows: &[[Value<'_>; N]],
    ) -> Result<Vec<T>, Error> {
        let found: Vec<T> = match &mut self.on {
            On::Sqlite { held, .. } => {
                let sql = insert.for_sqlite(rows.len(), N);
                let mut found = Vec::new();
                active(held)?.each_in_order(&sql, rows.iter().flatten(), gather(&mut found))?;
                found
            }
            On::Postgres(link) => link.insert_returning(insert, rows)?,
        };
        self.has_written |= !found.is_empty();
        Ok(found)
    }

    /// Has all following reads see one snapshot; does nothing in a transaction that writes.
    ///
    /// # Errors
    /// [`Broke`]: the database fails.
    pub(crate) fn snapshot(&mut self) -> Result<(), Error> {
        if self.mode != Some(Mode::Read) {
            return Ok(());
        }
        match &mut self.on {
            On::Sqlite { held, .. } => active(held)?.begin_snapshot()?,
            On::Postgres(link) => link.begin_snapshot()?,
        }
        self.mode = Some(Mode::Snapshot);
        Ok(())
    }

    /// Adds a change to the change feed, at the commit; the writer waits until it is in force in this process.
    pub(crate) fn changed(&mut self, change: Change, now: Moment) {
        self.gathered.is_waited_for = true;
        self.announce(change, now);
    }

    /// Adds a change to the change feed, at the commit, for a writer that can't wait.
    pub(crate) fn announce(&mut self, change: Change, now: Moment) {
        self.gathered.changes.push(change);
        self.gathered.changed_at = self.gathered.changed_at.max(Some(now));
    }

    /// Records events, at the commit. Events that were recorded before stay as they are.
    pub(crate) fn record(&mut self, events: impl IntoIterator<Item = NewEvent>) {
        self.gathered.events.extend(events);
    }

    /// Wakes the readers and senders of events, at the commit.
    pub(crate) const fn wake(&mut self) {
        self.gathered.wakes = true;
    }

    /// Numbers the ends of calls (org and call), at the commit.
    pub(crate) fn record_ends(&mut self, ends: impl IntoIterator<Item = (Uuid, Uuid)>) {
        self.gathered.ends.extend(ends);
    }

    /// Returns whether this is PostgreSQL, where transactions write concurrently and need locks.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.on, On::Postgres(_))
    }

    /// Picks the text for the present database.
    pub(crate) const fn by_dialect(
        &self,
        sqlite: &'static str,
        postgres: &'static str,
    ) -> &'static str {
        if self.is_shared() { postgres } else { sqlite }
    }

    /// Returns the installation's keys.
    pub(crate) fn keyring(&self) -> Keyring {
        let keyring = self.keyring.get();
        keyring.expect("an open store has keys").clone()
    }

    /// Begins the transaction, unless it has begun.
    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Error> {
        // A further step of a transaction that has begun.
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
        // The caller counts as served only now: until the connection is ready, it may give up because the server is away.
        self.caller.begin();

        Ok(())
    }

    /// Takes the gathered rows, to be written before the commit.
    pub(crate) fn take_gathered(&mut self) -> Gathered {
        std::mem::take(&mut self.gathered)
    }

    /// Commits; rolls back if the caller has gone. Returns whether rows were written: only then has the commit reached the disk.
    pub(crate) fn end(&mut self) -> Result<bool, Error> {
        // The caller may have been answered that the database is away: a commit now would make that answer untrue.
        if self.caller.is_gone() {
            return Err(Broke::Away.into());
        }
        match &mut self.on {
            On::Sqlite { held, .. } => held.take().ok_or(Broke::Late)?.commit()?,
            On::Postgres(link) => link.commit()?,
        }
        self.mode = None;
        Ok(std::mem::take(&mut self.has_written))
    }

    /// Rolls back an open transaction, and drops the gathered rows.
    pub(crate) fn reset(&mut self) {
        match &mut self.on {
            On::Sqlite { held, .. } => *held = None,
            On::Postgres(link) => link.reset(),
        }
        self.mode = None;
        self.gathered = Gathered::default();
        self.has_audited_part = false;
        self.has_written = false;
    }

    /// Marks this transaction as internal bookkeeping: no request caused it, and it has no entry in the audit log.
    pub(crate) const fn mark_internal(&mut self) {
        self.gathered.is_internal = true;
    }

    /// Marks this transaction as one with an entry in the audit log, whatever was said before.
    pub(crate) const fn mark_audited(&mut self) {
        self.gathered.is_internal = false;
    }

    /// Runs one part of a transaction of several parts.
    pub(crate) fn run_part<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        // Each part says for itself whether it is internal. One that isn't gives the whole transaction an entry.
        self.gathered.is_internal = false;
        let value = work(self)?;
        self.has_audited_part |= !self.gathered.is_internal;
        self.gathered.is_internal = false;
        Ok(value)
    }

    /// Marks this transaction as internal bookkeeping, if all its parts were.
    pub(crate) const fn mark_internal_if_all_parts_are(&mut self) {
        self.gathered.is_internal = !self.has_audited_part;
    }

    /// Starts to work for this caller.
    pub(crate) fn serve(&mut self, caller: Arc<Caller>) {
        if let On::Postgres(link) = &mut self.on {
            link.serve(Arc::clone(&caller));
        }
        self.caller = caller;
    }

    pub(crate) const fn is_remote(&self) -> bool {
        self.is_shared()
    }

    pub(crate) fn rest(&mut self) {
        if let On::Postgres(link) = &mut self.on {
            link.rest();
        }
    }

    pub(crate) fn close(&mut self) {
        self.reset();
        if let On::Postgres(link) = &mut self.on {
            link.close();
        }
    }
}

fn active(held: &mut Option<ConnectionGuard>) -> Result<&mut ConnectionGuard, Error> {
    Ok(held.as_mut().ok_or(Broke::Late)?)
}

/// Returns whether a statement only reads, or takes a lock.
fn is_query(sql: &str) -> bool {
    let word = sql.split_ascii_whitespace().next().unwrap_or_default();
    word.eq_ignore_ascii_case("SELECT")
}

/// Collects every row.
fn gather<T>(found: &mut Vec<T>) -> impl FnMut(T) -> bool {
    |row| {
        found.push(row);
        true
    }
}
