//! Database of a test: a folder, and a database in it or on PostgreSQL.
//!
//! `TRUNKLINE_TEST_API_ON=postgres` puts every test on PostgreSQL, in a schema of its own, made in the database that `TRUNKLINE_TEST_POSTGRES` names
//! (see `trunkline_testkit::postgres`) and dropped with the test: a database for each would take the server a second. Tests of rules that the
//! database enforces run on both in any case.

use sqlx::{Connection as _, PgConnection, SqliteConnection};
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
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// Runs `$body` on whichever database the connection is to.
macro_rules! beside {
    ($connection:expr, $to:ident => $body:expr) => {
        match $connection {
            $crate::test_db::Beside::Sqlite(ref mut $to) => $body,
            $crate::test_db::Beside::Postgres(ref mut $to) => $body,
        }
    };
}
pub(crate) use beside;

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
                let connection = SqliteConnection::connect(&format!("sqlite:{}", file.display()));
                Beside::Sqlite(connection.await.expect("it opens"))
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
