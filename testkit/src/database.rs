//! A database on the PostgreSQL server that `TRUNKLINE_TEST_POSTGRES` names (see `postgres`).

use std::cell::RefCell;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

use crate::postgres;

/// Master key of the daemons that use the database.
pub const MASTER_KEY: &str = "the tests' own master key, long enough";

/// A database of its own for one test. Dropping the value drops the database.
#[derive(Debug)]
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    /// Creates a database; `None` if no server is named, which fails under CI.
    pub fn new() -> Option<Self> {
        let server = postgres::server()?;
        let name = format!("trunkline_test_{}", Uuid::new_v4().simple());
        administer(&server, format!("CREATE DATABASE {name}"));
        Some(Self { server, name })
    }

    pub fn url(&self) -> String {
        let (host, _) = self.server.rsplit_once('/').expect("a URL with a database");
        format!("{host}/{}", self.name)
    }

    /// Returns the environment variables of a daemon on this database.
    pub fn environment(&self) -> Vec<(String, String)> {
        let settings = self.settings().into_iter();
        settings
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The same, with names of static lifetime.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("TRUNKLINE__DATABASE__URL", self.url()),
            ("TRUNKLINE__SECRETS__MASTER_KEY", MASTER_KEY.to_owned()),
        ]
    }

    /// Runs statements in this database.
    pub fn run(&self, sql: &str) {
        administer(&self.url(), sql.to_owned());
    }

    /// Returns the rows of a query that has one column of text.
    pub fn texts(&self, sql: &'static str) -> Vec<String> {
        runtime().block_on(async {
            let mut connection = self.connect().await;
            let texts = sqlx::query_scalar(sql).fetch_all(&mut connection).await;
            texts.expect("the query is sound")
        })
    }

    /// Changes the database by a clause such as `SET search_path = …`, which applies to connections opened afterwards.
    pub fn alter(&self, clause: &str) {
        let sql = format!("ALTER DATABASE {} {clause}", self.name);
        administer(&self.server, sql);
    }

    /// Returns the names of the tables.
    pub fn tables(&self) -> Vec<String> {
        runtime().block_on(async {
            let mut connection = self.connect().await;
            tables(&mut connection).await
        })
    }

    /// Returns every row of every table: the name of the table, and the row as text.
    pub fn rows(&self) -> Vec<(String, String)> {
        runtime().block_on(async {
            let mut connection = self.connect().await;
            let mut all = Vec::new();

            for table in tables(&mut connection).await {
                let sql = AssertSqlSafe(format!("SELECT the_row::text FROM {table} AS the_row"));
                let rows: Vec<String> = sqlx::query_scalar(sql)
                    .fetch_all(&mut connection)
                    .await
                    .expect("rows");
                all.extend(rows.into_iter().map(|row| (table.clone(), row)));
            }

            all
        })
    }

    /// Takes a table from everybody until the value is dropped.
    pub fn hold(&self, table: &'static str) -> HeldTable {
        let runtime = runtime();
        let connection = runtime.block_on(async {
            let mut connection = self.connect().await;
            let sql = AssertSqlSafe(format!("BEGIN; LOCK TABLE {table}"));
            let held = sqlx::raw_sql(sql).execute(&mut connection).await;
            held.expect("the table is there");
            connection
        });
        HeldTable {
            runtime,
            connection: RefCell::new(connection),
            table,
        }
    }

    async fn connect(&self) -> PgConnection {
        let connected = PgConnection::connect(&self.url()).await;
        connected.expect("the database answers")
    }
}

/// A table that only this connection uses.
#[derive(Debug)]
pub struct HeldTable {
    runtime: tokio::runtime::Runtime,
    connection: RefCell<PgConnection>,
    table: &'static str,
}

impl HeldTable {
    /// Returns whether somebody waits for the table.
    pub fn is_awaited(&self) -> bool {
        let sql = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = CAST($1 AS TEXT)::regclass)";
        let asked = sqlx::query_scalar(sql).bind(self.table);
        let awaited = self
            .runtime
            .block_on(asked.fetch_one(&mut *self.connection.borrow_mut()));
        awaited.expect("the connection is open")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // FORCE ends the connections of a daemon that the test has killed or still runs.
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        let server = self.server.clone();
        // On a thread of its own: a test may drop this inside a runtime, where another one can't run.
        let dropped = std::thread::spawn(move || administer(&server, drop)).join();
        // A second panic during a panic would abort the process, with every other test in it.
        assert!(
            dropped.is_ok() || std::thread::panicking(),
            "the database was not dropped"
        );
    }
}

async fn tables(connection: &mut PgConnection) -> Vec<String> {
    let sql = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
    let tables = sqlx::query_scalar(sql).fetch_all(connection).await;
    tables.expect("tables")
}

fn administer(server: &str, sql: String) {
    runtime().block_on(postgres::administer(server, sql));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
