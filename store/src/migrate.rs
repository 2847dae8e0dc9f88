//! The schema's versions: what this build knows, what a database has, and the way from the one to the other.

use sqlx::{PgConnection, SqliteConnection};
use trunkline_sip::moment::Moment;

use super::column::micros;
use super::pool::{Connection, Writing};

/// One step, in both dialects.
struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// Found in `migrations/` by `build.rs`, in the order of their versions.
const MIGRATIONS: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Serialises migrations of several nodes on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0001;

/// What a database holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing.
    Empty,
    /// Our schema at this version.
    Version(i64),
    /// Tables of somebody else.
    Foreign,
}

/// The newest version that this build knows.
pub(crate) const fn newest() -> i64 {
    MIGRATIONS[MIGRATIONS.len() - 1].version
}

/// Looks without changing anything.
pub(crate) async fn look(connection: Connection<'_>) -> sqlx::Result<Found> {
    match connection {
        Connection::Sqlite(connection) => look_sqlite(connection).await,
        Connection::Postgres(connection) => look_postgres(connection).await,
    }
}

async fn look_sqlite(connection: &mut SqliteConnection) -> sqlx::Result<Found> {
    let tables: Vec<(String,)> = sqlx::query_as(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    )
    .fetch_all(&mut *connection)
    .await?;
    if tables.is_empty() {
        return Ok(Found::Empty);
    }
    if !tables.iter().any(|(name,)| name == "schema_migrations") {
        return Ok(Found::Foreign);
    }
    let (version,) = sqlx::query_as(VERSION).fetch_one(connection).await?;
    Ok(Found::Version(version))
}

async fn look_postgres(connection: &mut PgConnection) -> sqlx::Result<Found> {
    let (ours,): (bool,) = sqlx::query_as("SELECT to_regclass('schema_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !ours {
        return Ok(Found::Empty);
    }
    let (version,) = sqlx::query_as(VERSION).fetch_one(connection).await?;
    Ok(Found::Version(version))
}

const VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations";

/// Applies what is missing, in the caller's transaction: all of it or nothing. Gives the version found, which is beyond
/// [`newest`] if a newer build got there first; then nothing was done.
pub(crate) async fn migrate(writing: &mut Writing, now: Moment) -> sqlx::Result<i64> {
    match writing {
        Writing::Sqlite(transaction) => migrate_sqlite(transaction, now).await,
        Writing::Postgres(transaction) => migrate_postgres(transaction, now).await,
        Writing::Nearby(..) => Err(sqlx::Error::Configuration(
            "the driver runs migrations".into(),
        )),
    }
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)";
const RECORD: &str =
    "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)";

async fn migrate_sqlite(connection: &mut SqliteConnection, now: Moment) -> sqlx::Result<i64> {
    sqlx::query(TABLE).execute(&mut *connection).await?;
    let (found,): (i64,) = sqlx::query_as(VERSION).fetch_one(&mut *connection).await?;
    for step in missing(found) {
        sqlx::raw_sql(step.sqlite).execute(&mut *connection).await?;
        sqlx::query(RECORD)
            .bind(step.version)
            .bind(step.name)
            .bind(micros(now))
            .execute(&mut *connection)
            .await?;
    }
    Ok(found)
}

async fn migrate_postgres(connection: &mut PgConnection, now: Moment) -> sqlx::Result<i64> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *connection)
        .await?;
    sqlx::query(TABLE).execute(&mut *connection).await?;
    let (found,): (i64,) = sqlx::query_as(VERSION).fetch_one(&mut *connection).await?;
    for step in missing(found) {
        sqlx::raw_sql(step.postgres)
            .execute(&mut *connection)
            .await?;
        sqlx::query(RECORD)
            .bind(step.version)
            .bind(step.name)
            .bind(micros(now))
            .execute(&mut *connection)
            .await?;
    }
    Ok(found)
}

fn missing(found: i64) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |step| step.version > found)
}
