//! SQLite on the calling thread. The file is at hand: to find a few rows takes less time than to ask the driver's thread for them. A read
//! that grows with the database goes through the driver (see `pool`), so that it keeps no other request waiting. What is written all the
//! time, the facts of calls, is written here as well.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags, Row, Statement, StatementStatus, ToSql};

use super::error::Error;

/// Where statements are told of when they are run here; the driver has a target of its own.
const STATEMENTS: &str = "trunkline::store::statement";
/// Statements that a connection keeps prepared.
const PREPARED: usize = 128;
/// Pages of the write-ahead log after which a writer folds it into the file: pages that change all the time are folded less often.
const LOG_PAGES: u32 = 4_000;

/// The connections to one file.
pub(crate) struct Nearby {
    file: PathBuf,
    access: Access,
    /// How many may wait for their next use.
    most: usize,
    /// `None` once all are to be closed.
    at_rest: Mutex<Option<Vec<Open>>>,
}

/// What connections are for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Reading,
    /// Commits are synced before they count; whoever finds another process writing waits so long.
    Writing(Duration),
}

/// A connection, and where its statements have their columns.
struct Open {
    connection: Connection,
    places: HashMap<String, Places>,
}

/// Where the columns of `of` stand in a statement's rows, for as long as it isn't prepared anew.
struct Places {
    of: &'static [&'static str],
    preparations: i32,
    at: Box<[usize]>,
}

/// A connection in use.
pub(crate) struct Held {
    /// There until it is dropped.
    open: Option<Open>,
    /// What ends its transaction, if it is in one.
    ending: Option<&'static str>,
    nearby: Arc<Nearby>,
}

/// What is made from the columns of a row.
pub(crate) trait Readable: Sized {
    /// The columns by their names; none, if they are read in their order.
    const COLUMNS: &'static [&'static str];

    /// Reads a row whose columns stand at `places`.
    fn read(row: &Row<'_>, places: &[usize]) -> rusqlite::Result<Self>;
}

impl fmt::Debug for Nearby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nearby")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

impl Nearby {
    pub(crate) fn new(file: PathBuf, access: Access, most: usize) -> Self {
        Self {
            file,
            access,
            most,
            at_rest: Mutex::new(Some(Vec::new())),
        }
    }

    /// A connection whose statements each see what is committed.
    pub(crate) fn read(self: &Arc<Self>) -> Result<Held, Error> {
        self.hold()
    }

    /// A connection whose statements all see one state.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Result<Held, Error> {
        let mut held = self.hold()?;
        held.begin("BEGIN", "COMMIT")?;
        Ok(held)
    }

    /// A connection in a transaction that holds the lock for writing. Dropped without a commit, it is rolled back.
    pub(crate) fn write(self: &Arc<Self>) -> Result<Held, Error> {
        let mut held = self.hold()?;
        held.begin("BEGIN IMMEDIATE", "ROLLBACK")?;
        Ok(held)
    }

    /// Closes those at rest now, and those in use when they come back.
    pub(crate) fn close(&self) {
        *self.at_rest() = None;
    }

    /// Closes those at rest; the next use opens another.
    pub(crate) fn rest(&self) {
        let closed = self.at_rest().as_mut().map(std::mem::take);
        // Takes its time, and nobody waits for it.
        drop(closed);
    }

    fn hold(self: &Arc<Self>) -> Result<Held, Error> {
        let at_rest = match self.at_rest().as_mut() {
            Some(at_rest) => at_rest.pop(),
            None => return Err(sqlx::Error::PoolClosed.into()),
        };
        let open = match at_rest {
            Some(open) => open,
            None => self.open()?,
        };
        Ok(Held {
            open: Some(open),
            ending: None,
            nearby: Arc::clone(self),
        })
    }

    fn open(&self) -> rusqlite::Result<Open> {
        // One thread at a time uses a connection, and none may bring the file into being.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags)?;
        match self.access {
            Access::Reading => connection.pragma_update(None, "query_only", true)?,
            Access::Writing(patience) => {
                connection.pragma_update(None, "synchronous", "FULL")?;
                connection.pragma_update(None, "foreign_keys", true)?;
                connection.busy_timeout(patience)?;
                connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
            }
        }
        // A statement is planned once, whatever its values.
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

impl Drop for Held {
    fn drop(&mut self) {
        let ended = self.ending.is_none_or(|ending| self.run(ending).is_ok());
        let Some(open) = self.open.take().filter(|_| ended) else {
            return;
        };
        let mut at_rest = self.nearby.at_rest();
        if let Some(at_rest) = at_rest.as_mut()
            && at_rest.len() < self.nearby.most
        {
            at_rest.push(open);
        }
    }
}

impl Held {
    /// Commits what was written.
    pub(crate) fn commit(mut self) -> Result<(), Error> {
        self.run("COMMIT")?;
        self.ending = None;
        Ok(())
    }

    /// Runs a statement; gives the number of rows it touched.
    pub(crate) fn execute(&mut self, sql: &str, values: &[&dyn ToSql]) -> Result<u64, Error> {
        tracing::trace!(target: STATEMENTS, statement = sql, "run");
        let connection = &self.opened().connection;
        let mut statement = connection.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    /// The same for a statement whose parameters are numbered as they stand, which costs less where there are many.
    pub(crate) fn execute_in_order<'v>(
        &mut self,
        sql: &str,
        values: impl Iterator<Item = &'v dyn ToSql>,
    ) -> Result<u64, Error> {
        let connection = &self.opened().connection;
        let mut statement = connection.prepare_cached(sql)?;
        bind_in_order(&mut statement, values)?;
        Ok(statement.raw_execute()? as u64)
    }

    pub(crate) fn fetch_all<T: Readable>(
        &mut self,
        sql: &str,
        values: &[&dyn ToSql],
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        self.each(sql, |statement| bind(statement, values), all(&mut found))?;
        Ok(found)
    }

    /// The same for a statement whose parameters are numbered as they stand.
    pub(crate) fn fetch_in_order<'v, T: Readable>(
        &mut self,
        sql: &str,
        values: impl Iterator<Item = &'v dyn ToSql>,
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        let bind = |statement: &mut Statement<'_>| bind_in_order(statement, values);
        self.each(sql, bind, all(&mut found))?;
        Ok(found)
    }

    pub(crate) fn fetch_optional<T: Readable>(
        &mut self,
        sql: &str,
        values: &[&dyn ToSql],
    ) -> Result<Option<T>, Error> {
        let mut found = None;
        let first = |row| {
            found = Some(row);
            false
        };
        self.each(sql, |statement| bind(statement, values), first)?;
        Ok(found)
    }

    pub(crate) fn fetch_one<T: Readable>(
        &mut self,
        sql: &str,
        values: &[&dyn ToSql],
    ) -> Result<T, Error> {
        let found = self.fetch_optional(sql, values)?;
        Ok(found.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
    }

    /// Gives `take` each row until it wants no more.
    fn each<T: Readable>(
        &mut self,
        sql: &str,
        bind: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<()>,
        mut take: impl FnMut(T) -> bool,
    ) -> rusqlite::Result<()> {
        tracing::trace!(target: STATEMENTS, statement = sql, "read");
        let Open { connection, places } = self.opened();
        let mut statement = connection.prepare_cached(sql)?;
        bind(&mut statement)?;
        let mut rows = statement.raw_query();
        // Not before the first row: its step prepares anew what is older than the schema.
        let Some(mut row) = rows.next()? else {
            return Ok(());
        };
        let places = known::<T>(places, sql, row.as_ref())?;
        while take(T::read(row, places)?) {
            row = match rows.next()? {
                Some(row) => row,
                None => break,
            };
        }
        Ok(())
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

/// Takes every row.
fn all<T>(found: &mut Vec<T>) -> impl FnMut(T) -> bool {
    |row| {
        found.push(row);
        true
    }
}

fn bind_in_order<'v>(
    statement: &mut Statement<'_>,
    values: impl Iterator<Item = &'v dyn ToSql>,
) -> rusqlite::Result<()> {
    for (place, value) in values.enumerate() {
        statement.raw_bind_parameter(place + 1, value)?;
    }
    Ok(())
}

/// Gives each parameter the value of its number: to SQLite, `$2` is a name like any other.
fn bind(statement: &mut Statement<'_>, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
    for parameter in 1..=statement.parameter_count() {
        let number = statement
            .parameter_name(parameter)
            .and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok())
            .and_then(|number| number.checked_sub(1));
        let value = number.and_then(|number| values.get(number)).ok_or(
            rusqlite::Error::InvalidParameterCount(values.len(), parameter),
        )?;
        statement.raw_bind_parameter(parameter, value)?;
    }
    Ok(())
}

/// Where the columns of `T` stand in the rows of `statement`, whose text is `sql`, as it was found before or is found now.
fn known<'p, T: Readable>(
    places: &'p mut HashMap<String, Places>,
    sql: &str,
    statement: &Statement<'_>,
) -> rusqlite::Result<&'p [usize]> {
    if T::COLUMNS.is_empty() {
        return Ok(&[]);
    }
    let preparations = statement.get_status(StatementStatus::RePrepare);
    let holds = |places: &Places| {
        places.of == T::COLUMNS
            && places.preparations == preparations
            && places.at.len() <= statement.column_count()
    };
    if !places.get(sql).is_some_and(holds) {
        // Of statements that are prepared again because there are too many, nothing is known any more.
        if places.len() >= PREPARED {
            places.clear();
        }
        let found = Places {
            of: T::COLUMNS,
            preparations,
            at: find::<T>(statement)?,
        };
        places.insert(sql.to_owned(), found);
    }
    Ok(&places[sql].at)
}

/// Where the columns of `T` stand in the statement's rows. They are often written in one order, and so each is looked for behind the one
/// before it.
fn find<T: Readable>(statement: &Statement<'_>) -> rusqlite::Result<Box<[usize]>> {
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

/// Tuples are read in the order of their columns.
macro_rules! readable {
    ($($value:ident $place:literal),*) => {
        impl<$($value: FromSql),*> Readable for ($($value,)*) {
            const COLUMNS: &'static [&'static str] = &[];

            fn read(row: &Row<'_>, _: &[usize]) -> rusqlite::Result<Self> {
                Ok(($(row.get::<_, $value>($place)?,)*))
            }
        }
    };
}
readable!(A 0);
readable!(A 0, B 1);
readable!(A 0, B 1, C 2);
readable!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Debug)]
    struct Shoe {
        size: i64,
        name: String,
    }

    impl Readable for Shoe {
        const COLUMNS: &'static [&'static str] = &["size", "name"];

        fn read(row: &Row<'_>, places: &[usize]) -> rusqlite::Result<Self> {
            Ok(Self {
                size: row.get(places[0])?,
                name: row.get(places[1])?,
            })
        }
    }

    /// A file with two shoes, and a connection that writes.
    fn shop() -> (tempfile::TempDir, Connection, Arc<Nearby>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        let writer = Connection::open(&file).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE shoes (name TEXT, size INTEGER, colour TEXT);
                 INSERT INTO shoes VALUES ('clog', 40, NULL), ('boot', 44, 'red')",
            )
            .unwrap();
        let nearby = Nearby::new(file, Access::Reading, 2);
        (folder, writer, Arc::new(nearby))
    }

    #[test]
    fn values_go_by_their_numbers_and_columns_by_their_names() {
        let (_folder, _writer, nearby) = shop();
        let mut held = nearby.read().unwrap();
        let sql = "SELECT * FROM shoes WHERE size < $2 AND name > $1 ORDER BY size";
        for (after, below, found) in [
            ("a", 50, vec![40, 44]),
            ("c", 50, vec![40]),
            ("c", 40, vec![]),
        ] {
            let shoes: Vec<Shoe> = held.fetch_all(sql, &[&after, &below]).unwrap();
            let sizes: Vec<_> = shoes.iter().map(|shoe| shoe.size).collect();
            assert_eq!(sizes, found, "{after} {below}");
        }
        let boot = Shoe {
            size: 44,
            name: "boot".to_owned(),
        };
        let sql = "SELECT size, name FROM shoes WHERE name = $1";
        assert_eq!(held.fetch_optional(sql, &[&"boot"]).unwrap(), Some(boot));
        assert_eq!(held.fetch_optional::<Shoe>(sql, &[&"sock"]).unwrap(), None);
        assert!(held.fetch_one::<Shoe>(sql, &[&"sock"]).is_err());
        let counted: (i64, Option<String>) = held
            .fetch_one(
                "SELECT COUNT(*), MIN(colour) FROM shoes WHERE name = $1",
                &[&"clog"],
            )
            .unwrap();
        assert_eq!(counted, (1, None));
    }

    #[test]
    fn what_is_missing_is_a_fault() {
        let (_folder, _writer, nearby) = shop();
        let mut held = nearby.read().unwrap();
        for (sql, values) in [
            ("SELECT size FROM shoes", &[] as &[&dyn ToSql]),
            ("SELECT * FROM shoes WHERE name = $1", &[]),
            ("SELECT * FROM shoes WHERE name = ?", &[&"boot"]),
            ("SELECT * FROM socks", &[]),
        ] {
            assert!(held.fetch_all::<Shoe>(sql, values).is_err(), "{sql}");
        }
        assert!(
            held.run("DELETE FROM shoes").is_err(),
            "nothing is written here"
        );
    }

    #[test]
    fn a_snapshot_stands_still_and_a_read_does_not() {
        let (_folder, writer, nearby) = shop();
        let count = |held: &mut Held| {
            let (count,): (i64,) = held.fetch_one("SELECT COUNT(*) FROM shoes", &[]).unwrap();
            count
        };
        let (mut still, mut moving) = (nearby.snapshot().unwrap(), nearby.read().unwrap());
        assert_eq!((count(&mut still), count(&mut moving)), (2, 2));
        writer
            .execute("INSERT INTO shoes VALUES ('sock', 1, NULL)", [])
            .unwrap();
        assert_eq!((count(&mut still), count(&mut moving)), (2, 3));
        drop((still, moving));
        for _ in 0..3 {
            assert_eq!(
                count(&mut nearby.snapshot().unwrap()),
                3,
                "the connection that it had"
            );
        }
    }

    #[test]
    fn what_isnt_committed_is_not_written() {
        let (folder, writer, _) = shop();
        writer.busy_timeout(Duration::ZERO).unwrap();
        let access = Access::Writing(Duration::from_millis(10));
        let nearby = Arc::new(Nearby::new(folder.path().join("shop.db"), access, 1));
        let count = || -> i64 {
            let sql = "SELECT COUNT(*) FROM shoes";
            writer.query_row(sql, [], |row| row.get(0)).unwrap()
        };
        let sql = "INSERT INTO shoes (size, name) VALUES ($2, $1)";
        let mut left = nearby.write().unwrap();
        assert_eq!(left.execute(sql, &[&"sock", &1]).unwrap(), 1);
        assert!(
            writer.execute("DELETE FROM shoes", []).is_err(),
            "it holds the lock"
        );
        drop(left);
        assert_eq!(count(), 2);
        let mut kept = nearby.write().unwrap();
        assert_eq!(kept.execute(sql, &[&"sock", &1]).unwrap(), 1);
        kept.commit().unwrap();
        assert_eq!(count(), 3);
        writer.execute("BEGIN IMMEDIATE", []).unwrap();
        assert!(nearby.write().is_err(), "another writes");
    }

    #[test]
    fn columns_are_found_again_when_the_table_has_changed() {
        let (_folder, writer, nearby) = shop();
        let mut held = nearby.read().unwrap();
        let sql = "SELECT * FROM shoes WHERE size = 44";
        let boot = |name: &str| Shoe {
            size: 44,
            name: name.to_owned(),
        };
        assert_eq!(held.fetch_one::<Shoe>(sql, &[]).unwrap(), boot("boot"));
        writer
            .execute_batch(
                "DROP TABLE shoes; CREATE TABLE shoes (colour TEXT, size INTEGER, name TEXT);
                 INSERT INTO shoes VALUES ('red', 44, 'heel')",
            )
            .unwrap();
        assert_eq!(held.fetch_one::<Shoe>(sql, &[]).unwrap(), boot("heel"));
    }

    #[test]
    fn as_many_rest_as_may_and_none_once_they_are_closed() {
        let (_folder, _writer, nearby) = shop();
        let resting = || nearby.at_rest().as_ref().map(Vec::len);
        let held: Vec<_> = (0..5).map(|_| nearby.read().unwrap()).collect();
        assert_eq!(resting(), Some(0));
        drop(held);
        assert_eq!(resting(), Some(2));
        let held = nearby.snapshot().unwrap();
        nearby.close();
        drop(held);
        assert_eq!(resting(), None);
        assert!(nearby.read().is_err());
    }
}
