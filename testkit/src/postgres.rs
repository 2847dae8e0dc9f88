//! The PostgreSQL server that `TRUNKLINE_TEST_POSTGRES` names, on which tests create databases and schemas.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::not_run;

/// Returns the server's URL, with a database. Without one it returns `None`, or panics under CI.
pub fn server() -> Option<String> {
    let server = std::env::var("TRUNKLINE_TEST_POSTGRES").ok();
    if server.is_none() {
        not_run::without(not_run::POSTGRES);
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
