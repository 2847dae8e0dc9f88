//! A connection to PostgreSQL that one thread drives: the thread blocks for each response of the server.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Column as _, Connection as _, PgConnection, Row as _};
use tokio::runtime::{Builder, Runtime};

use super::caller::Caller;
use super::error::{Broke, Error};
use super::rows::{Each, Insert};
use super::server::Remote;
use super::value::{Cells, Param, Record, Sql, Value};

/// All statements see the state that was committed when the first of them began.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Time for the server to answer a statement. It is far beyond what any takes but a migration: what a lost connection holds meanwhile, a
/// thread and the place of a request, is free again after it, while TCP may take hours to notice.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for the server to answer a ping, or to accept a connection.
const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection, which is opened again after it broke.
pub(crate) struct PostgresConnection {
    remote: Remote,
    runtime: Runtime,
    connection: Option<PgConnection>,
    /// The connection was idle, and may have been cut.
    has_rested: bool,
    in_transaction: bool,
    /// Time for the server to answer a statement of the present caller; `None` if there is no bound.
    answer_timeout: Option<Duration>,
    caller: Arc<Caller>,
}

/// A query with its values.
type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

impl PostgresConnection {
    pub(crate) fn new(remote: Remote) -> std::io::Result<Self> {
        Ok(Self {
            remote,
            runtime: Builder::new_current_thread().enable_all().build()?,
            connection: None,
            has_rested: false,
            in_transaction: false,
            answer_timeout: Some(ANSWER_TIMEOUT),
            caller: Arc::default(),
        })
    }

    /// Starts to work for another caller. If that caller goes away, the connection that waits for a response is dropped.
    pub(crate) fn serve(&mut self, caller: Arc<Caller>) {
        self.caller = caller;
        self.answer_timeout = Some(ANSWER_TIMEOUT);
    }

    /// Lets the server take any time for its answers to this caller.
    pub(crate) fn wait_without_bound(&mut self) {
        self.answer_timeout = None;
    }

    /// Has the connection tested before its next use.
    pub(crate) fn rest(&mut self) {
        self.has_rested = true;
    }

    /// Tests or opens the connection.
    pub(crate) fn ready(&mut self) -> Result<(), Error> {
        if self.has_rested && self.connection.is_some() {
            let bound = self.answer_timeout.replace(READY_TIMEOUT);
            // A connection that fails the ping is opened again below.
            let _ = self.block(async |connection| connection.ping().await);
            self.answer_timeout = bound;
        }

        self.has_rested = false;

        if self.connection.is_none() {
            let Self {
                remote,
                runtime,
                caller,
                ..
            } = self;
            let connected = runtime.block_on(async {
                tokio::select! {
                    biased;
                    connected = PgConnection::connect_with(remote.options()) => connected.map_err(Error::from),
                    () = caller.gone() => Err(Broke::Away.into()),
                    () = tokio::time::sleep(READY_TIMEOUT) => Err(Broke::Away.into()),
                }
            });

            self.connection = Some(connected.inspect_err(|_| self.remote.doubt())?);
        }

        Ok(())
    }

    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.batch("BEGIN")?;
        self.in_transaction = true;
        Ok(())
    }

    pub(crate) fn begin_snapshot(&mut self) -> Result<(), Error> {
        self.batch(SNAPSHOT)?;
        self.in_transaction = true;
        Ok(())
    }

    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        // Whatever the answer is, the transaction is over: a COMMIT that fails rolls back.
        self.in_transaction = false;
        self.batch("COMMIT")
    }

    /// Rolls an open transaction back.
    pub(crate) fn reset(&mut self) {
        // Without a successful rollback the connection may still be in the transaction, whose locks others wait for: it
        // is dropped, and the server rolls back.
        if std::mem::take(&mut self.in_transaction) && self.batch("ROLLBACK").is_err() {
            self.connection = None;
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            // An error in closing the connection is of no interest.
            let _ = self.runtime.block_on(connection.close());
        }
    }

    pub(crate) fn execute(&mut self, sql: Sql, values: &[&dyn Param]) -> Result<u64, Error> {
        let query = querying(sql, values);
        self.block(async |connection| Ok(query.execute(connection).await?.rows_affected()))
    }

    pub(crate) fn insert<const N: usize>(
        &mut self,
        insert: Insert,
        rows: &[[Value<'_>; N]],
    ) -> Result<u64, Error> {
        let query = of_rows(|types| insert.for_postgres(types), rows);
        self.block(async |connection| Ok(query.execute(connection).await?.rows_affected()))
    }

    /// Runs a statement for all of these rows at once; returns the number of rows changed.
    pub(crate) fn execute_each<const N: usize>(
        &mut self,
        each: Each,
        rows: &[[Value<'_>; N]],
    ) -> Result<u64, Error> {
        let query = of_rows(|types| each.for_postgres(types), rows);
        self.block(async |connection| Ok(query.execute(connection).await?.rows_affected()))
    }

    pub(crate) fn insert_returning<T: Record, const N: usize>(
        &mut self,
        insert: Insert,
        rows: &[[Value<'_>; N]],
    ) -> Result<Vec<T>, Error> {
        let query = of_rows(|types| insert.for_postgres(types), rows);
        let rows = self.block(async |connection| query.fetch_all(connection).await)?;
        read(&rows)
    }

    pub(crate) fn fetch_all<T: Record>(
        &mut self,
        sql: Sql,
        values: &[&dyn Param],
    ) -> Result<Vec<T>, Error> {
        let query = querying(sql, values);
        let rows = self.block(async |connection| query.fetch_all(connection).await)?;
        read(&rows)
    }

    pub(crate) fn fetch_optional<T: Record>(
        &mut self,
        sql: Sql,
        values: &[&dyn Param],
    ) -> Result<Option<T>, Error> {
        let query = querying(sql, values);
        let row = self.block(async |connection| query.fetch_optional(connection).await)?;
        Ok(read(row.as_slice())?.pop())
    }

    /// Runs statements without values.
    pub(crate) fn batch(&mut self, sql: &'static str) -> Result<(), Error> {
        self.block(async |connection| sqlx::raw_sql(sql).execute(connection).await)?;
        Ok(())
    }

    /// Waits for a response of the server, unless the caller goes away or the response takes too long.
    fn block<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
    ) -> Result<T, Error> {
        let Self {
            runtime,
            connection,
            caller,
            answer_timeout,
            ..
        } = self;
        // The connection was dropped by an earlier statement of this transaction, or not opened: see `ready`.
        let Some(open) = connection else {
            return Err(Broke::Away.into());
        };

        // A server that fails over, or a firewall that forgets a connection, swallows the statement without an error.
        let too_long = async {
            match answer_timeout {
                Some(bound) => tokio::time::sleep(*bound).await,
                None => std::future::pending().await,
            }
        };

        let done = runtime.block_on(async {
            tokio::select! {
                // An answer that has arrived counts even if the caller went away at the same time: the connection stays
                // usable.
                biased;
                done = work(open) => Some(done),
                () = caller.gone() => None,
                () = too_long => {
                    tracing::warn!("the database left a statement unanswered: its connection is given up");
                    None
                }
            }
        });

        let fault = match done {
            Some(Ok(done)) => return Ok(done),
            Some(Err(fault)) => Error::from(fault),
            // The rest of a response may still arrive: the connection can't be used again.
            None => Broke::Away.into(),
        };
        if matches!(&fault, Error::Broke(broke) if broke.is_away()) {
            self.connection = None;
            self.remote.doubt();
        }

        Err(fault)
    }
}

fn bound<'q>(query: Query<'q>, value: Value<'_>) -> Query<'q> {
    match value {
        Value::Id(id) => query.bind(id),
        Value::Number(number) => query.bind(number),
        Value::Flag(flag) => query.bind(flag),
        Value::Text(text) => query.bind(text.as_deref()),
        Value::Octets(octets) => query.bind(octets.as_deref()),
    }
}

/// Statements are literals of the store, and no value is ever part of one.
fn querying<'q>(sql: Sql, values: &[&dyn Param]) -> Query<'q> {
    let query = sqlx::query(AssertSqlSafe(sql));
    let values = values.iter();
    values.fold(query, |query, value| bound(query, value.value()))
}

/// Returns the query of a statement for rows, each column of which becomes an array. All values of a column have one type.
fn of_rows<'q, const N: usize>(
    statement: impl FnOnce(&[&str]) -> String,
    rows: &[[Value<'_>; N]],
) -> Query<'q> {
    let Some(first) = rows.first() else {
        return sqlx::query("SELECT");
    };
    let types = first.each_ref().map(|value| match value {
        Value::Id(_) => "UUID",
        Value::Number(_) => "BIGINT",
        Value::Flag(_) => "BOOLEAN",
        Value::Text(_) => "TEXT",
        Value::Octets(_) => "BYTEA",
    });

    /// Returns the values of a column, all of which are of one kind.
    macro_rules! values {
        ($column:ident, $kind:ident, $value:ident => $read:expr) => {{
            let values = rows.iter().map(|row| {
                let Value::$kind($value) = &row[$column] else {
                    debug_assert!(false, "a column of two types: {:?}", row[$column]);
                    return None;
                };
                $read
            });
            values.collect::<Vec<_>>()
        }};
    }

    let mut query = sqlx::query(AssertSqlSafe(statement(&types)));
    for (column, value) in first.iter().enumerate() {
        query = match value {
            Value::Id(_) => query.bind(values!(column, Id, id => *id)),
            Value::Number(_) => query.bind(values!(column, Number, number => *number)),
            Value::Flag(_) => query.bind(values!(column, Flag, flag => *flag)),
            Value::Text(_) => query.bind(values!(column, Text, text => text.as_deref())),
            Value::Octets(_) => query.bind(values!(column, Octets, octets => octets.as_deref())),
        };
    }
    query
}

/// Reads records from rows, whose columns are looked up in the first of them.
fn read<T: Record>(rows: &[PgRow]) -> Result<Vec<T>, Error> {
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };

    let place = |name: &&str| {
        let mut columns = first.columns().iter();
        columns
            .position(|column| column.name() == *name)
            .ok_or_else(|| Error::from(sqlx::Error::ColumnNotFound((*name).to_owned())))
    };
    let places: Vec<usize> = T::COLUMNS.iter().map(place).collect::<Result<_, _>>()?;

    rows.iter()
        .map(|row| {
            let mut cells = Cells::of_postgres(row, &places);
            T::read(&mut cells).map_err(|source| {
                let column = cells.last::<T>();
                Broke::Column { column, source }.into()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use sqlx::postgres::{PgConnectOptions, PgSslMode};

    use super::*;

    /// Answers of a server that lets a client in: AuthenticationOk and ReadyForQuery, idle.
    const LET_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

    /// Reads the first message of a client, lets it in, and answers nothing from then on.
    fn let_in(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 1024];
        let _ = stream.read(&mut first).unwrap();
        stream.write_all(LET_IN).unwrap();
        stream
    }

    #[test]
    fn a_server_that_falls_silent_holds_a_statement_for_a_bounded_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        // It lives until both of its clients are in; what it holds keeps their connections open.
        let server = std::thread::spawn(move || [let_in(&listener), let_in(&listener)]);

        let remote = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = remote.enter();
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(port)
            .ssl_mode(PgSslMode::Disable);
        let mut link = PostgresConnection::new(Remote::new(options)).unwrap();
        link.ready().unwrap();
        link.answer_timeout = Some(Duration::from_millis(50));
        let fault = link.batch("SELECT 1").unwrap_err();
        assert!(matches!(&fault, Error::Broke(broke) if broke.is_away()));

        // Nothing more is asked on the connection that was given up, and the next task opens another.
        assert!(link.connection.is_none());
        link.ready().unwrap();
        assert!(link.connection.is_some());
        drop(server.join().unwrap());
    }

    #[test]
    fn each_caller_begins_with_the_usual_bound() {
        let remote = Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = remote.enter();
        let remote = Remote::new(PgConnectOptions::new_without_pgpass());
        let mut link = PostgresConnection::new(remote).unwrap();
        link.wait_without_bound();
        assert_eq!(link.answer_timeout, None);
        link.serve(Arc::default());
        assert_eq!(link.answer_timeout, Some(ANSWER_TIMEOUT));
    }
}
