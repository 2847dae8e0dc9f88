//! Database of a test: a folder, and a database in it or on PostgreSQL.
//!
//! `TRUNKLINE_TEST_API_ON=postgres` puts every test on PostgreSQL, in a schema of its own, made in the database that `TRUNKLINE_TEST_POSTGRES` names
//! (see `trunkline_testkit::postgres`) and dropped with the test: a database for each would take the server a second. Tests of rules that the
//! database enforces run on both in any case.

use rusqlite::params_from_iter;
use rusqlite::types::FromSql;
use sqlx::postgres::PgRow;
use sqlx::query::Query;
use sqlx::{Connection as _, PgConnection, Postgres, Row as _};
use tempfile::TempDir;
use uuid::Uuid;

use trunkline_testkit::postgres::{administer, server};

#[derive(Debug)]
pub(crate) struct TestDb {
    pub(crate) folder: TempDir,
    schema: Option<Schema>,
}

/// A schema on the test server, dropped with its owner.
#[derive(Debug)]
struct Schema {
    server: String,
    name: String,
}

/// A connection past the store.
pub(crate) enum Beside {
    Sqlite(rusqlite::Connection),
    Postgres(PgConnection),
}

impl Beside {
    /// Runs a statement whose `$1` is the org, if it has one; returns the number of rows changed.
    pub(crate) async fn execute(&mut self, sql: &'static str, org: Option<Uuid>) -> u64 {
        match self {
            Self::Sqlite(connection) => {
                let done = connection.execute(sql, params_from_iter(org));
                done.expect(sql) as u64
            }
            Self::Postgres(connection) => {
                let query = org.into_iter().fold(sqlx::query(sql), Query::bind);
                query.execute(connection).await.expect(sql).rows_affected()
            }
        }
    }

    /// Returns the rows of a query that has columns of one type, and the org as `$1`, if any.
    pub(crate) async fn rows<T: Cell>(
        &mut self,
        sql: &'static str,
        org: Option<Uuid>,
    ) -> Vec<Vec<T>> {
        match self {
            Self::Sqlite(connection) => {
                let mut statement = connection.prepare(sql).expect(sql);
                let columns = statement.column_count();
                let rows = statement.query_map(params_from_iter(org), |row| {
                    (0..columns).map(|at| row.get(at)).collect()
                });
                rows.expect(sql).collect::<Result<_, _>>().expect(sql)
            }
            Self::Postgres(connection) => {
                let query = org.into_iter().fold(sqlx::query(sql), Query::bind);
                let rows = query.fetch_all(connection).await.expect(sql);
                let cells = |row: &PgRow| (0..row.len()).map(|at| row.get(at)).collect();
                rows.iter().map(cells).collect()
            }
        }
    }
}

/// Type of a column that both databases can give.
pub(crate) trait Cell:
    FromSql + for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>
{
}
impl<T: FromSql + for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>> Cell for T {}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

impl TestDb {
    /// Makes the database that the environment names; SQLite by default.
    pub(crate) async fn any() -> Self {
        match std::env::var("TRUNKLINE_TEST_API_ON").as_deref() {
            Ok("postgres") => Self::postgres().await.expect("the server is named"),
            Ok(other) => panic!("TRUNKLINE_TEST_API_ON is {other}, not postgres"),
            Err(_) => Self::sqlite(),
        }
    }

    pub(crate) fn sqlite() -> Self {
        Self {
            folder: folder(),
            schema: None,
        }
    }

    /// Makes a schema on PostgreSQL; `None` without a server.
    pub(crate) async fn postgres() -> Option<Self> {
        let server = server()?;
        let name = format!("trunkline_test_{}", Uuid::new_v4().simple());
        administer(&server, format!("CREATE SCHEMA {name}")).await;
        Some(Self {
            folder: folder(),
            schema: Some(Schema { server, name }),
        })
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.schema.is_some()
    }

    /// Returns the URL of a database outside the folder.
    pub(crate) fn url(&self) -> Option<String> {
        self.schema.as_ref().map(Schema::url)
    }

    pub(crate) async fn beside(&self) -> Beside {
        match &self.schema {
            Some(schema) => {
                let connection = PgConnection::connect(&schema.url()).await;
                Beside::Postgres(connection.expect("the database answers"))
            }
            None => {
                let file = self.folder.path().join("trunkline.db");
                Beside::Sqlite(rusqlite::Connection::open(file).expect("it opens"))
            }
        }
    }
}

impl Schema {
    fn url(&self) -> String {
        format!("{}?options=-csearch_path%3D{}", self.server, self.name)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            // DROP would wait for transactions that the API's tasks have open.
            let end = format!(
                "SELECT pg_terminate_backend(held.pid) FROM pg_locks AS held JOIN pg_class ON pg_class.oid = held.relation
                 WHERE relnamespace = '{name}'::regnamespace AND held.pid <> pg_backend_pid();
                 SET lock_timeout = '20s'; DROP SCHEMA {name} CASCADE"
            );
            runtime.block_on(administer(&server, end));
        });
        assert!(
            dropped.join().is_ok() || std::thread::panicking(),
            "the schema stays"
        );
    }
}
