//! Migrations: the schema version of this build, that of a database, and the steps from one to the other.

use trunkline_sip::moment::Moment;

use super::error::Error;
use super::tx::Tx;

/// One migration, in both dialects.
struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// Collected from `migrations/` by `build.rs`, in the order of their versions.
const MIGRATIONS: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Lock that serialises migrations of several nodes on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0001;

/// State of a database before migration.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum SchemaState {
    /// No table of Trunkline's.
    Empty,
    /// Trunkline's schema at this version.
    Version(i64),
    /// Tables of another program only. Looked for in SQLite alone: a PostgreSQL database is judged by `schema_migrations`.
    Foreign,
}

/// Returns the newest version that this build knows.
pub(crate) const fn newest() -> i64 {
    MIGRATIONS[MIGRATIONS.len() - 1].version
}

/// Returns the state of a database, and changes nothing.
pub(crate) fn look(tx: &mut Tx) -> Result<SchemaState, Error> {
    if tx.is_shared() {
        let sql = "SELECT to_regclass('schema_migrations') IS NOT NULL";
        let (ours,): (bool,) = tx.exactly_one(sql, &[])?;
        if !ours {
            return Ok(SchemaState::Empty);
        }
    } else {
        let sql =
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let tables: Vec<(String,)> = tx.all(sql, &[])?;
        if tables.is_empty() {
            return Ok(SchemaState::Empty);
        }
        if !tables.iter().any(|(name,)| name == "schema_migrations") {
            return Ok(SchemaState::Foreign);
        }
    }

    version(tx).map(SchemaState::Version)
}

const VERSION: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations";

fn version(tx: &mut Tx) -> Result<i64, Error> {
    let (version,) = tx.exactly_one(VERSION, &[])?;
    Ok(version)
}

/// Applies the missing migrations, in the caller's transaction: all or none. Returns the version found, which is beyond [`newest`] if a
/// newer build has migrated the database; nothing is done then.
pub(crate) fn migrate(tx: &mut Tx, now: Moment) -> Result<i64, Error> {
    tx.wait_without_bound();
    if tx.is_shared() {
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }
    tx.run(TABLE, &[])?;
    // Read under the lock: another node may have migrated while this one waited for it.
    let found = version(tx)?;
    for step in missing(found) {
        tx.batch(tx.by_dialect(step.sqlite, step.postgres))?;
        tx.run(RECORD, &[&step.version, &step.name, &now])?;
    }
    Ok(found)
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)";
const RECORD: &str =
    "INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, $3)";

fn missing(found: i64) -> impl Iterator<Item = &'static Migration> {
    MIGRATIONS.iter().filter(move |step| step.version > found)
}
