//! A database on the PostgreSQL server that `TRUNKLINE_TEST_POSTGRES` names (see `tests/store`), dropped with its owner.

use std::io::Write as _;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

#[derive(Debug)]
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    /// `None` where no server is named, which is no excuse under CI.
    pub(crate) fn new() -> Option<Self> {
        let Ok(server) = std::env::var("TRUNKLINE_TEST_POSTGRES") else {
            assert!(
                std::env::var_os("CI").is_none(),
                "TRUNKLINE_TEST_POSTGRES is not set, and CI must not skip"
            );
            // The harness captures what the macros print.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED on PostgreSQL: TRUNKLINE_TEST_POSTGRES is not set"
            );
            return None;
        };
        let name = format!("trunkline_test_{}", Uuid::new_v4().simple());
        administer(&server, format!("CREATE DATABASE {name}"));
        Some(Self { server, name })
    }

    pub(crate) fn url(&self) -> String {
        let (host, _) = self.server.rsplit_once('/').expect("a URL with a database");
        format!("{host}/{}", self.name)
    }

    /// What a daemon is told.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        vec![
            ("TRUNKLINE__DATABASE__URL".to_owned(), self.url()),
            (
                "TRUNKLINE__SECRETS__MASTER_KEY".to_owned(),
                "the tests' own master key, long enough".to_owned(),
            ),
        ]
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        let server = self.server.clone();
        let dropped = std::thread::spawn(move || administer(&server, drop)).join();
        assert!(
            dropped.is_ok() || std::thread::panicking(),
            "the database stays"
        );
    }
}

fn administer(server: &str, sql: String) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut connection = PgConnection::connect(server)
            .await
            .expect("the test server answers");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .expect("the user may create databases");
    });
}
