//! kill -9 while a database of version 49 is brought to this version: the next start finds it as it was or done, and nothing is lost.
//!
//! Kills at some time may miss the migration. Others are aimed at it: on SQLite by the size of its write-ahead log, and one that came too late is
//! repeated; on PostgreSQL the migration waits for a table that the test holds.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use trunkline_testkit::DaemonSetup;
use trunkline_testkit::database::Database;
use trunkline_testkit::process::{Deadline, Process};

const SQLITE_49: &str = include_str!("../../fixtures/forerunner/sqlite.sql");
const POSTGRES_49: &str = include_str!("../../fixtures/forerunner/postgres.sql");

/// A partner with so many orgs that the way from 49 takes a while, and a network for each hundredth of them.
const ROWS: &str = "
    INSERT INTO partners (id, name, active, created_at) VALUES (ID(0), 'Reseller', TRUE, 7);
    INSERT INTO orgs (id, partner_id, name, widget_token, language, created_at, requests_per_minute)
        WITH RECURSIVE numbered (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbered WHERE i < 20000)
        SELECT ID(i), ID(0), 'Org ' || i, 'w' || i, 'en', i, 5 FROM numbered;
    INSERT INTO dedications (network, org_id, created_at)
        SELECT '10.' || (created_at / 100) || '.0.0/24', id, 9 FROM orgs WHERE created_at % 100 = 0;";

/// One row for all that must be there at the end.
const SUMS: &str =
    "SELECT (SELECT COUNT(*) || ' ' || SUM(created_at) || ' ' || MAX(name) FROM orgs)
    || ' ' || (SELECT name FROM partners)
    || ' ' || (SELECT COUNT(*) FROM dedications WHERE no_proof)
    || ' ' || (SELECT COUNT(*) || ' ' || MAX(version) FROM schema_migrations)";
const EXPECTED: &str = "20000 200010000 Org 9999 Reseller 200 1 1";

/// Patience with one step: large, since the machine may be busy.
const LIMIT: Duration = Duration::from_secs(60);
/// Version 49 has no fingerprints of its migrations.
const IS_OLD: &str =
    "SELECT COUNT(*) FROM pragma_table_info('schema_migrations') WHERE name = 'fingerprint'";
/// Times that a start is killed.
const KILLS: u64 = 8;
/// Attempts at one kill, which may come too late.
const ATTEMPTS: u32 = 20;

/// Starts the daemon eight times and kills it, each time later.
fn kill_starts(setup: &DaemonSetup) {
    for round in 1..=KILLS {
        let mut daemon = spawned(setup.program(env!("CARGO_BIN_EXE_trunkline")).arg("serve"));
        thread::sleep(Duration::from_millis(40 * round));
        daemon.kill();
    }
}

fn spawned(command: &mut Command) -> Process {
    Process::start(
        "trunkline serve",
        command.stdout(Stdio::null()).stderr(Stdio::null()),
    )
}

/// Kills the daemon eight times in its migration, each time with more of that written.
fn kill_in_the_migration_on_sqlite(setup: &DaemonSetup, file: &Path) {
    let [old, log] = ["db-old", "db-wal"].map(|ending| file.with_extension(ending));
    std::fs::copy(file, &old).expect("a copy");
    let is_old = || {
        let database = rusqlite::Connection::open(file).expect("the file is there");
        let marked = database.query_row(IS_OLD, [], |row| row.get::<_, i64>(0));
        marked.expect("the database is whole") == 0
    };

    for round in 1..=KILLS {
        // Octets of the log: it grows beyond the last of these sizes.
        let size = round * 64 * 1_024;
        let deadline = Deadline::after(LIMIT);
        let hit = (0..ATTEMPTS).any(|_| {
            let mut daemon = spawned(setup.program(env!("CARGO_BIN_EXE_trunkline")).arg("serve"));
            let is_written =
                || std::fs::metadata(&log).is_ok_and(|log| log.len() >= size) || deadline.is_over();
            while !is_written() {
                thread::sleep(Duration::from_micros(200));
            }
            daemon.kill();

            let is_hit = is_old();
            if !is_hit {
                // The kill came after the end of the migration.
                std::fs::copy(&old, file).expect("the old database again");
            }
            is_hit
        });
        assert!(hit, "no kill came before the end of the migration: {size}");
    }
}

/// Kills the daemon while its migration waits for each of these tables in turn.
fn kill_in_the_migration_on_postgresql(setup: &DaemonSetup, database: &Database) {
    for table in [
        "dedications",
        "agents",
        "partners",
        "orgs",
        "org_keys",
        "dashboard_sessions",
        "users",
        "transfers",
    ] {
        let held = database.hold(table);
        let mut daemon = spawned(setup.program(env!("CARGO_BIN_EXE_trunkline")).arg("serve"));
        let waits = || held.is_awaited().then_some(());
        let awaited = Deadline::after(LIMIT).poll(waits);
        assert_eq!(awaited, Some(()), "the migration changes {table}");
        daemon.kill();
        drop(held);

        // The server ends what the killed daemon has begun once it looks for its next words.
        let is_over = || (database.texts(LOCKS) == ["0"]).then_some(());
        assert_eq!(Deadline::after(LIMIT).poll(is_over), Some(()), "{table}");
        let marked = database.texts(
            "SELECT CAST(COUNT(*) AS TEXT) FROM pg_attribute
             WHERE attrelid = 'schema_migrations'::regclass AND attname = 'fingerprint'",
        );
        assert_eq!(marked, ["0"], "it is at version 49 still: {table}");
    }
}

/// Locks by which nodes migrate one after another.
const LOCKS: &str = "SELECT CAST(COUNT(*) AS TEXT) FROM pg_locks
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[test]
fn an_upgrade_that_is_killed_again_and_again_loses_nothing_on_sqlite() {
    let setup = DaemonSetup::new();
    let file = setup.folder.path().join("data/trunkline.db");
    std::fs::remove_file(&file).expect("the new database goes, its keys stay");
    let rows = ROWS.replace("ID(i)", "CAST(printf('%016d', i) AS BLOB)");
    let rows = rows.replace("ID(0)", "CAST(printf('%016d', 0) AS BLOB)");
    let open = || rusqlite::Connection::open(&file).expect("a file");
    let made = open().execute_batch(&format!("{SQLITE_49}\n{rows}"));
    made.expect("version 49");

    kill_in_the_migration_on_sqlite(&setup, &file);
    kill_starts(&setup);
    let daemon = setup.serve();
    let database = open();
    let sums: String = database
        .query_row(SUMS, [], |row| row.get(0))
        .expect("sums");
    assert_eq!(sums, EXPECTED);
    drop(daemon);
}

#[test]
fn an_upgrade_that_is_killed_again_and_again_loses_nothing_on_postgresql() {
    let Some(database) = Database::new() else {
        return;
    };
    let setup = DaemonSetup::with([127, 0, 0, 1].into(), database.settings());
    let id = |number: &str| format!("CAST(lpad(CAST({number} AS TEXT), 32, '0') AS UUID)");
    let rows = ROWS.replace("ID(i)", &id("i")).replace("ID(0)", &id("0"));
    // The keys stay.
    database.run(&format!(
        "ALTER SCHEMA public RENAME TO fresh; CREATE SCHEMA public; {POSTGRES_49}
         {rows} INSERT INTO secrets SELECT * FROM fresh.secrets; DROP SCHEMA fresh CASCADE"
    ));

    kill_in_the_migration_on_postgresql(&setup, &database);
    kill_starts(&setup);
    let daemon = setup.serve();
    assert_eq!(database.texts(SUMS), [EXPECTED]);
    drop(daemon);
}
