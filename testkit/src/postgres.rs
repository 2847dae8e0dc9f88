//! The PostgreSQL server that `TRUNKLINE_TEST_POSTGRES` names, on which tests create databases and schemas.

use std::io::Write as _;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// Returns the server's URL, with a database. Without one it returns `None`, or panics under CI.
pub fn server() -> Option<String> {
    let server = std::env::var("TRUNKLINE_TEST_POSTGRES").ok();
    if server.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "TRUNKLINE_TEST_POSTGRES is not set, and CI must not skip"
        );
        // The harness captures what the macros print.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED on PostgreSQL: TRUNKLINE_TEST_POSTGRES is not set"
        );
    }
    server
}

/// Runs a statement that needs the server's owner.
pub async fn administer(server: &str, sql: String) {
    let mut connection = PgConnection::connect(server)
        .await
        .expect("the test server answers");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await
        .expect("the user may create databases and schemas");
}
