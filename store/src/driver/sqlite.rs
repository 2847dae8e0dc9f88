//! Connections to a SQLite file, each used by one thread at a time: pragmas, statements, and the positions of their columns.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, StatementStatus};

use super::error::{Broke, Error};
use super::value::{Cells, Param, Record, Value};

/// Log target of statements; the driver of PostgreSQL has its own.
const STATEMENTS: &str = "trunkline::store::statement";
/// Statements that a connection keeps prepared.
const PREPARED: usize = 128;
/// Page size of a new database in octets; an older database keeps its own.
const PAGE: u32 = 8_192;
/// Pages of the write-ahead log after which a writer checkpoints it: a higher number than the default checkpoints hot pages less often.
const LOG_PAGES: u32 = 4_000;

/// The connections to one file.
pub(crate) struct Connections {
    file: PathBuf,
    access: OpenMode,
    /// Most idle connections.
    most: usize,
    /// Idle connections; `None` once all have to be closed.
    at_rest: Mutex<Option<Vec<Open>>>,
}

/// Purpose of the connections.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OpenMode {
    Reading,
    /// Switches the file to its write-ahead log. Every commit is synced (`FULL`) before it returns, so acknowledged data survives a power
    /// failure. The duration is the wait for another process that writes.
    Writing(Duration),
    /// Examines a file that may be another program's, and changes nothing about it.
    Looking(Duration),
}

/// A connection, with the column positions of its statements.
struct Open {
    connection: Connection,
    places: HashMap<String, ColumnPositions>,
}

/// Column positions of `of` in a statement's rows, valid until the statement is prepared again.
struct ColumnPositions {
    of: &'static [&'static str],
    preparations: i32,
    at: Box<[usize]>,
}

/// A connection in use.
pub(crate) struct ConnectionGuard {
    /// Present until the guard is dropped.
    open: Option<Open>,
    /// Statement that ends the transaction, if one is open.
    ending: Option<&'static str>,
    connections: Arc<Connections>,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGuard")
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

impl Connections {
    pub(crate) fn new(file: PathBuf, access: OpenMode, most: usize) -> Self {
        Self {
            file,
            access,
            most,
            at_rest: Mutex::new(Some(Vec::new())),
        }
    }

    /// Returns a connection whose statements each see the latest commit.
    pub(crate) fn read(self: &Arc<Self>) -> Result<ConnectionGuard, Error> {
        self.hold()
    }

    /// Returns a connection whose statements all see one snapshot.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Result<ConnectionGuard, Error> {
        let mut held = self.hold()?;
        held.begin("BEGIN", "COMMIT")?;
        Ok(held)
    }

    /// Returns a connection in a transaction that holds the write lock. Dropped without a commit, it is rolled back.
    pub(crate) fn write(self: &Arc<Self>) -> Result<ConnectionGuard, Error> {
        let mut held = self.hold()?;
        held.begin("BEGIN IMMEDIATE", "ROLLBACK")?;
        Ok(held)
    }

    /// Closes idle connections now, and those in use when they are returned.
    pub(crate) fn close(&self) {
        *self.at_rest() = None;
    }

    /// Releases the pages and plans of idle connections. They stay open, since closing the last one checkpoints the log.
    pub(crate) fn rest(&self) {
        let resting = self.at_rest().as_mut().map(std::mem::take);
        for mut open in resting.into_iter().flatten() {
            open.places = HashMap::new();
            open.connection.flush_prepared_statement_cache();
            // A connection that fails is closed.
            if open
                .connection
                .execute_batch("PRAGMA shrink_memory")
                .is_ok()
            {
                self.keep(open);
            }
        }
    }

    /// Opens a connection before it is needed.
    pub(crate) fn prepare(&self) -> rusqlite::Result<()> {
        self.keep(self.open()?);
        Ok(())
    }

    /// Checkpoints the write-ahead log and truncates it. Returns false while a reader or a writer blocks this.
    pub(crate) fn truncate_log(&self) -> rusqlite::Result<bool> {
        // A connection of its own: the pool's may be in use.
        let open = self.open()?;
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: i64 = open.connection.query_row(sql, [], |row| row.get(0))?;
        Ok(busy == 0)
    }

    /// Returns the first damage that is found in the file's pages within this time; `None` if there is none, or no more time.
    pub(crate) fn damage(&self, limit: Duration) -> rusqlite::Result<Option<String>> {
        let open = self.open()?;
        let interrupt = open.connection.get_interrupt_handle();
        let (finished, waiting) = mpsc::channel::<()>();
        let timer = std::thread::spawn(move || {
            if waiting.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });

        let sql = "PRAGMA quick_check(1)";
        let checked = open
            .connection
            .query_row(sql, [], |row| row.get::<_, String>(0));
        drop(finished);
        // It only waits and interrupts, neither of which panics.
        let _ = timer.join();

        match checked {
            Ok(found) => Ok(Some(found).filter(|found| found != "ok")),
            Err(error) => match error.sqlite_error_code() {
                Some(ErrorCode::OperationInterrupted) => Ok(None),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                    Ok(Some(error.to_string()))
                }
                Some(_) | None => Err(error),
            },
        }
    }

    fn hold(self: &Arc<Self>) -> Result<ConnectionGuard, Error> {
        let at_rest = match self.at_rest().as_mut() {
            // The last one used still has its pages and plans in memory.
            Some(at_rest) => at_rest.pop(),
            None => return Err(Broke::Closed.into()),
        };

        let open = match at_rest {
            Some(open) => open,
            None => self.open()?,
        };

        Ok(ConnectionGuard {
            open: Some(open),
            ending: None,
            connections: Arc::clone(self),
        })
    }

    fn keep(&self, open: Open) {
        // Reads on calling threads may have opened more connections than there are threads: these are closed again.
        if let Some(at_rest) = self.at_rest().as_mut()
            && at_rest.len() < self.most
        {
            at_rest.push(open);
        }
    }

    fn open(&self) -> rusqlite::Result<Open> {
        // Only one thread at a time uses a connection, so SQLite needs no mutex. Without the CREATE flag, a connection never creates the
        // file.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        match self.access {
            // Opened for writing all the same: a reader of a write-ahead log writes to the index of the log, in shared
            // memory.
            OpenMode::Reading => connection.pragma_update(None, "query_only", true)?,
            OpenMode::Looking(patience) => connection.busy_timeout(patience)?,
            OpenMode::Writing(patience) => {
                connection.busy_timeout(patience)?;
                // The size of pages is set before the log: SQLite doesn't change it under a write-ahead log.
                connection.pragma_update(None, "page_size", PAGE)?;
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                // SQLite doesn't enforce foreign keys by default.
                connection.pragma_update(None, "foreign_keys", true)?;
                // Freed pages are overwritten: an erasure promises that deleted data isn't left in the file.
                connection.pragma_update(None, "secure_delete", true)?;
                connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
            }
        }

        // Plans don't depend on the values of parameters, so a statement is planned once.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(PREPARED);

        Ok(Open {
            connection,
            places: HashMap::new(),
        })
    }

    fn at_rest(&self) -> MutexGuard<'_, Option<Vec<Open>>> {
        self.at_rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        // A connection that can't end its transaction is closed, which rolls it back.
        let ended = self.ending.is_none_or(|ending| self.run(ending).is_ok());
        if let Some(open) = self.open.take().filter(|_| ended) {
            self.connections.keep(open);
        }
    }
}

impl ConnectionGuard {
    /// Has the following statements see one snapshot.
    pub(crate) fn begin_snapshot(&mut self) -> rusqlite::Result<()> {
        self.begin("BEGIN", "COMMIT")
    }

    /// Commits the transaction.
    pub(crate) fn commit(mut self) -> Result<(), Error> {
        // If this fails, `ending` is still set, and dropping the guard rolls back.
        self.run("COMMIT")?;
        self.ending = None;
        Ok(())
    }

    /// Runs a statement; returns the number of rows changed.
    pub(crate) fn execute(&mut self, sql: &str, values: &[&dyn Param]) -> Result<u64, Error> {
        tracing::trace!(target: STATEMENTS, statement = sql, "run");
        let connection = &self.opened().connection;
        let mut statement = connection.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    /// Runs a statement whose parameters are numbered in order, which saves looking each one up by name.
    pub(crate) fn execute_in_order<'v>(
        &mut self,
        sql: &str,
        values: impl Iterator<Item = &'v Value<'v>>,
    ) -> Result<u64, Error> {
        let connection = &self.opened().connection;
        let mut statement = connection.prepare_cached(sql)?;
        bind_in_order(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    /// Runs statements without values.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        Ok(self.opened().connection.execute_batch(sql)?)
    }

    /// Passes each row to `take` until that returns false.
    pub(crate) fn each<T: Record>(
        &mut self,
        sql: &str,
        values: &[&dyn Param],
        take: impl FnMut(T) -> bool,
    ) -> Result<(), Error> {
        tracing::trace!(target: STATEMENTS, statement = sql, "read");
        self.read(sql, |statement| bind(statement, values), take)
    }

    /// Passes each row to `take`, for a statement whose parameters are numbered in order.
    pub(crate) fn each_in_order<'v, T: Record>(
        &mut self,
        sql: &str,
        values: impl Iterator<Item = &'v Value<'v>>,
        take: impl FnMut(T) -> bool,
    ) -> Result<(), Error> {
        self.read(sql, |statement| bind_in_order(statement, values), take)
    }

    fn read<T: Record>(
        &mut self,
        sql: &str,
        bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
        mut take: impl FnMut(T) -> bool,
    ) -> Result<(), Error> {
        let Open { connection, places } = self.opened();
        let mut statement = connection.prepare_cached(sql)?;
        if statement.get_status(StatementStatus::Run) == 0 {
            // The statement was prepared anew, perhaps after the schema has changed, and counts its preparations from 0 again.
            places.remove(sql);
        }
        bind(&mut statement)?;
        let mut rows = statement.raw_query();

        // The positions are determined after the first step, which prepares the statement again if the schema has changed since.
        let Some(mut row) = rows.next()? else {
            return Ok(());
        };

        let places = column_positions::<T>(places, sql, row.as_ref())?;
        loop {
            let mut cells = Cells::of_sqlite(row, places);
            let read = T::read(&mut cells).map_err(|source| Broke::Column {
                column: cells.last::<T>(),
                source,
            });
            if !take(read?) {
                return Ok(());
            }

            row = match rows.next()? {
                Some(row) => row,
                None => return Ok(()),
            };
        }
    }

    fn begin(&mut self, sql: &str, ending: &'static str) -> rusqlite::Result<()> {
        self.run(sql)?;
        self.ending = Some(ending);
        Ok(())
    }

    fn run(&mut self, sql: &str) -> rusqlite::Result<()> {
        let connection = &self.opened().connection;
        connection.prepare_cached(sql)?.raw_execute()?;
        Ok(())
    }

    fn opened(&mut self) -> &mut Open {
        self.open
            .as_mut()
            .expect("it is taken when this is dropped")
    }
}

fn bind_in_order<'v>(
    statement: &mut Statement<'_>,
    values: impl Iterator<Item = &'v Value<'v>>,
) -> rusqlite::Result<()> {
    for (place, value) in values.enumerate() {
        statement.raw_bind_parameter(place + 1, value)?;
    }
    Ok(())
}

/// Binds each parameter to the value of its number: to SQLite, `$2` is a name like any other.
fn bind(statement: &mut Statement<'_>, values: &[&dyn Param]) -> rusqlite::Result<()> {
    for parameter in 1..=statement.parameter_count() {
        let number = statement
            .parameter_name(parameter)
            .and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok())
            .and_then(|number| number.checked_sub(1));
        let value = number.and_then(|number| values.get(number)).ok_or(
            rusqlite::Error::InvalidParameterCount(values.len(), parameter),
        )?;
        statement.raw_bind_parameter(parameter, value.value())?;
    }
    Ok(())
}

/// Returns the column positions of `T` in the rows of `statement`, whose text is `sql`, from the cache or by a search.
fn column_positions<'p, T: Record>(
    places: &'p mut HashMap<String, ColumnPositions>,
    sql: &str,
    statement: &Statement<'_>,
) -> rusqlite::Result<&'p [usize]> {
    if T::COLUMNS.is_empty() {
        return Ok(&[]);
    }

    let preparations = statement.get_status(StatementStatus::RePrepare);
    let holds = |places: &ColumnPositions| {
        places.of == T::COLUMNS
            && places.preparations == preparations
            && places.at.len() <= statement.column_count()
    };
    if !places.get(sql).is_some_and(holds) {
        // More entries than the cache has statements: some belong to statements that were dropped, so all are.
        if places.len() >= PREPARED {
            places.clear();
        }
        let found = ColumnPositions {
            of: T::COLUMNS,
            preparations,
            at: find::<T>(statement)?,
        };
        places.insert(sql.to_owned(), found);
    }

    Ok(&places[sql].at)
}

/// Finds the column positions of `T` in the statement's rows. Columns often come in the order of the fields, so each search starts behind
/// the previous column.
fn find<T: Record>(statement: &Statement<'_>) -> rusqlite::Result<Box<[usize]>> {
    let count = statement.column_count();
    let mut next = 0;
    let mut place = |name: &&str| {
        let looked = (next..count).chain(0..next);
        for place in looked {
            if statement.column_name(place)? == *name {
                next = place + 1;
                return Ok(place);
            }
        }
        Err(rusqlite::Error::InvalidColumnName((*name).to_owned()))
    };

    T::COLUMNS.iter().map(&mut place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    struct Shoe {
        size: i64,
        name: String,
    }

    crate::driver::column::from_row!(Shoe { size, name });

    impl ConnectionGuard {
        fn all<T: Record>(&mut self, sql: &str, values: &[&dyn Param]) -> Result<Vec<T>, Error> {
            let mut found = Vec::new();
            self.each(sql, values, |row| {
                found.push(row);
                true
            })?;
            Ok(found)
        }

        fn one<T: Record>(&mut self, sql: &str, values: &[&dyn Param]) -> Result<T, Error> {
            let mut found = self.all(sql, values)?;
            assert_eq!(found.len(), 1, "rows of {sql}");
            Ok(found.remove(0))
        }
    }

    /// A file with two shoes, and a connection that writes.
    fn shop() -> (tempfile::TempDir, Connection, Arc<Connections>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        let writer = Connection::open(&file).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE shoes (name TEXT, size INTEGER, colour TEXT);
                 INSERT INTO shoes VALUES ('clog', 40, NULL), ('boot', 44, 'red')",
            )
            .unwrap();
        let connections = Connections::new(file, OpenMode::Reading, 2);
        (folder, writer, Arc::new(connections))
    }

    #[test]
    fn values_go_by_their_numbers_and_columns_by_their_names() {
        let (_folder, _writer, connections) = shop();
        let mut held = connections.read().unwrap();
        let sql = "SELECT * FROM shoes WHERE size < $2 AND name > $1 ORDER BY size";
        for (after, below, found) in [
            ("a", 50, vec![40, 44]),
            ("c", 50, vec![40]),
            ("c", 40, vec![]),
        ] {
            let shoes: Vec<Shoe> = held.all(sql, &[&after, &below]).unwrap();
            let sizes: Vec<_> = shoes.iter().map(|shoe| shoe.size).collect();
            assert_eq!(sizes, found, "{after} {below}");
        }

        let boot = Shoe {
            size: 44,
            name: "boot".to_owned(),
        };
        let sql = "SELECT size, name FROM shoes WHERE name = $1";
        assert_eq!(held.one::<Shoe>(sql, &[&"boot"]).unwrap(), boot);
        assert_eq!(held.all::<Shoe>(sql, &[&"sock"]).unwrap(), []);

        let counted: (i64, Option<String>) = held
            .one(
                "SELECT COUNT(*), MIN(colour) FROM shoes WHERE name = $1",
                &[&"clog"],
            )
            .unwrap();

        assert_eq!(counted, (1, None));
    }

    #[test]
    fn what_is_missing_is_a_fault() {
        let (_folder, _writer, connections) = shop();
        let mut held = connections.read().unwrap();
        for (sql, values) in [
            ("SELECT size FROM shoes", &[] as &[&dyn Param]),
            ("SELECT * FROM shoes WHERE name = $1", &[]),
            ("SELECT * FROM shoes WHERE name = ?", &[&"boot"]),
            ("SELECT * FROM socks", &[]),
        ] {
            assert!(held.all::<Shoe>(sql, values).is_err(), "{sql}");
        }
        assert!(
            held.run("DELETE FROM shoes").is_err(),
            "nothing is written here"
        );
    }

    #[test]
    fn a_snapshot_stands_still_and_a_read_does_not() {
        let (_folder, writer, connections) = shop();
        let count = |held: &mut ConnectionGuard| {
            let (count,): (i64,) = held.one("SELECT COUNT(*) FROM shoes", &[]).unwrap();
            count
        };
        let (mut still, mut moving) =
            (connections.snapshot().unwrap(), connections.read().unwrap());
        assert_eq!((count(&mut still), count(&mut moving)), (2, 2));

        writer
            .execute("INSERT INTO shoes VALUES ('sock', 1, NULL)", [])
            .unwrap();
        assert_eq!((count(&mut still), count(&mut moving)), (2, 3));

        drop((still, moving));
        for _ in 0..3 {
            assert_eq!(
                count(&mut connections.snapshot().unwrap()),
                3,
                "the connection that it had"
            );
        }
    }

    #[test]
    fn what_isnt_committed_is_not_written() {
        let (folder, writer, _) = shop();
        writer.busy_timeout(Duration::ZERO).unwrap();

        let access = OpenMode::Writing(Duration::from_millis(10));
        let connections = Arc::new(Connections::new(folder.path().join("shop.db"), access, 1));
        let count = || -> i64 {
            let sql = "SELECT COUNT(*) FROM shoes";
            writer.query_row(sql, [], |row| row.get(0)).unwrap()
        };
        let sql = "INSERT INTO shoes (size, name) VALUES ($2, $1)";
        let mut left = connections.write().unwrap();

        assert_eq!(left.execute(sql, &[&"sock", &1]).unwrap(), 1);
        assert!(
            writer.execute("DELETE FROM shoes", []).is_err(),
            "it holds the lock"
        );
        drop(left);
        assert_eq!(count(), 2);

        let mut kept = connections.write().unwrap();
        assert_eq!(kept.execute(sql, &[&"sock", &1]).unwrap(), 1);
        kept.commit().unwrap();
        assert_eq!(count(), 3);
        writer.execute("BEGIN IMMEDIATE", []).unwrap();

        assert!(connections.write().is_err(), "another writes");
    }

    const OF_SIZE_44: &str = "SELECT * FROM shoes WHERE size = 44";
    /// Gives the table another first column, and its shoe of size 44 another name.
    const CHANGE: &str =
        "DROP TABLE shoes; CREATE TABLE shoes (colour TEXT, size INTEGER, name TEXT);
         INSERT INTO shoes VALUES ('red', 44, 'heel')";

    fn size_44(name: &str) -> Shoe {
        let name = name.to_owned();
        Shoe { size: 44, name }
    }

    #[test]
    fn columns_are_found_again_when_the_table_has_changed() {
        let (_folder, writer, connections) = shop();
        let mut held = connections.read().unwrap();
        let found = held.one::<Shoe>(OF_SIZE_44, &[]).unwrap();
        assert_eq!(found, size_44("boot"));

        writer.execute_batch(CHANGE).unwrap();
        let found = held.one::<Shoe>(OF_SIZE_44, &[]).unwrap();
        assert_eq!(found, size_44("heel"));
    }

    #[test]
    fn columns_are_found_again_for_a_statement_that_left_the_cache() {
        let (_folder, writer, connections) = shop();
        let mut held = connections.read().unwrap();
        let found = held.one::<Shoe>(OF_SIZE_44, &[]).unwrap();
        assert_eq!(found, size_44("boot"));
        writer.execute_batch(CHANGE).unwrap();

        for other in 0..PREPARED {
            let sql = format!("SELECT COUNT(*) + {other} FROM shoes");
            held.one::<(i64,)>(&sql, &[]).unwrap();
        }

        let found = held.one::<Shoe>(OF_SIZE_44, &[]).unwrap();
        assert_eq!(found, size_44("heel"));
    }

    #[test]
    fn as_many_rest_as_may_and_none_once_they_are_closed() {
        let (_folder, _writer, connections) = shop();
        let resting = || connections.at_rest().as_ref().map(Vec::len);
        let held: Vec<_> = (0..5).map(|_| connections.read().unwrap()).collect();
        assert_eq!(resting(), Some(0));
        drop(held);
        assert_eq!(resting(), Some(2));
        let held = connections.snapshot().unwrap();
        connections.close();
        drop(held);
        assert_eq!(resting(), None);
        assert!(connections.read().is_err());
    }
}
