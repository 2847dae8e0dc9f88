//! Migrations: the schema version of this build, that of a database, and the steps from one to the other.
//!
//! A database keeps a fingerprint of each migration that made it. Before the first release there is one migration, which is edited in place:
//! a database of another text of it is refused, since nothing leads from one to the other.

use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;

use crate::driver::error::Error;
use crate::driver::keyring::to_hex;
use crate::driver::open_fault::OpenFault;
use crate::driver::tx::Tx;

/// One migration, in both dialects.
struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

/// Collected from `migrations/` by `build.rs`, in the order of their versions.
const MIGRATIONS: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The one version, of those from before migrations had fingerprints, from which a way leads to version 1.
const FORERUNNER: i64 = 49;
const FROM_FORERUNNER: [&str; 2] = [
    include_str!("../../../migrations/from-49/sqlite.sql"),
    include_str!("../../../migrations/from-49/postgres.sql"),
];

/// Lock that serialises migrations of several nodes on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0001;

/// State of a database before migration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SchemaState {
    /// No table of Trunkline's.
    Empty,
    /// Made by these migrations, up to this version; by newer ones if it is beyond [`newest`].
    Version(i64),
    /// Made by migrations without fingerprints, up to this version.
    Unmarked(i64),
    /// Made by another text of the migration that has this version.
    Differs(i64),
    /// Tables of another program only. Looked for in SQLite alone: a PostgreSQL database is judged by `schema_migrations`.
    Foreign,
}

impl SchemaState {
    /// Refuses what this build neither knows nor can bring up to date.
    pub(crate) fn check(&self) -> Result<(), OpenFault> {
        let known = newest();
        match *self {
            Self::Version(found) if found > known => Err(OpenFault::Future { found, known }),
            Self::Unmarked(found) if found < FORERUNNER => Err(OpenFault::TooOld { found }),
            Self::Unmarked(found) if found > FORERUNNER => Err(OpenFault::AnotherSchema { found }),
            Self::Differs(found) => Err(OpenFault::AnotherSchema { found }),
            Self::Empty | Self::Version(_) | Self::Unmarked(_) | Self::Foreign => Ok(()),
        }
    }
}

/// Returns the newest version that this build knows.
pub(crate) const fn newest() -> i64 {
    MIGRATIONS[MIGRATIONS.len() - 1].version
}

/// Returns the state of a database, and changes nothing.
pub(crate) fn look(tx: &mut Tx) -> Result<SchemaState, Error> {
    let (recorded, marked): (bool, bool) = match tx.is_shared() {
        true => tx.exactly_one(
            "SELECT to_regclass('schema_migrations') IS NOT NULL, EXISTS (SELECT 1 FROM pg_attribute
                 WHERE attrelid = to_regclass('schema_migrations') AND attname = 'fingerprint')",
            &[],
        )?,
        false => {
            let sql =
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
            let tables: Vec<(String,)> = tx.all(sql, &[])?;
            let recorded = tables.iter().any(|(name,)| name == "schema_migrations");
            if !recorded && !tables.is_empty() {
                return Ok(SchemaState::Foreign);
            }
            let sql = "SELECT COUNT(*) FROM pragma_table_info('schema_migrations') WHERE name = 'fingerprint'";
            let (columns,): (i64,) = tx.exactly_one(sql, &[])?;
            (recorded, columns > 0)
        }
    };
    match (recorded, marked) {
        (false, _) => Ok(SchemaState::Empty),
        (true, false) => {
            let sql = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations";
            let (version,) = tx.exactly_one(sql, &[])?;
            Ok(SchemaState::Unmarked(version))
        }
        (true, true) => recorded_state(tx),
    }
}

/// Compares the recorded migrations with this build's.
fn recorded_state(tx: &mut Tx) -> Result<SchemaState, Error> {
    let sql = "SELECT version, fingerprint FROM schema_migrations ORDER BY version";
    let rows: Vec<(i64, String)> = tx.all(sql, &[])?;
    for step in MIGRATIONS {
        let row = rows.iter().find(|(version, _)| *version == step.version);
        let differs = row.is_some_and(|(_, recorded)| *recorded != step.fingerprint(tx));
        if differs {
            return Ok(SchemaState::Differs(step.version));
        }
    }
    let last = rows.last().map_or(0, |(version, _)| *version);
    Ok(SchemaState::Version(last))
}

/// Applies the missing migrations, in the caller's transaction: all or none. Returns the state found; nothing is done where
/// [`SchemaState::check`] refuses it.
pub(crate) fn migrate(tx: &mut Tx, now: Moment) -> Result<SchemaState, Error> {
    tx.wait_without_bound();
    if tx.is_shared() {
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }
    // Read under the lock: another node may have migrated while this one waited for it.
    let state = look(tx)?;
    let mut version = match state {
        SchemaState::Version(version) => version,
        SchemaState::Empty | SchemaState::Unmarked(FORERUNNER) => 0,
        SchemaState::Unmarked(_) | SchemaState::Differs(_) | SchemaState::Foreign => {
            return Ok(state);
        }
    };

    if state == SchemaState::Unmarked(FORERUNNER) {
        let [sqlite, postgres] = FROM_FORERUNNER;
        tx.batch(tx.by_dialect(sqlite, postgres))?;
        tx.run(TABLE, &[])?;
        MIGRATIONS[0].record(tx, now)?;
        version = 1;
    }
    tx.run(TABLE, &[])?;
    for step in MIGRATIONS.iter().filter(|step| step.version > version) {
        tx.batch(step.sql(tx))?;
        step.record(tx, now)?;
    }
    Ok(state)
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, fingerprint TEXT NOT NULL, applied_at BIGINT NOT NULL)";

impl Migration {
    fn sql(&self, tx: &Tx) -> &'static str {
        tx.by_dialect(self.sqlite, self.postgres)
    }

    /// SHA-256 of the statements, without comments and with single blanks, so that a comment can be edited.
    fn fingerprint(&self, tx: &Tx) -> String {
        let lines = self.sql(tx).lines().map(str::trim);
        let lines = lines.filter(|line| !line.starts_with("--"));
        let mut hash = Sha256::new();
        for word in lines.flat_map(str::split_whitespace) {
            hash.update(word);
            hash.update(" ");
        }
        to_hex(&hash.finalize())
    }

    fn record(&self, tx: &mut Tx, now: Moment) -> Result<(), Error> {
        let fingerprint = self.fingerprint(tx);
        tx.run(
            "INSERT INTO schema_migrations (version, name, fingerprint, applied_at) VALUES ($1, $2, $3, $4)",
            &[&self.version, &self.name, &fingerprint, &now],
        )?;
        Ok(())
    }
}
