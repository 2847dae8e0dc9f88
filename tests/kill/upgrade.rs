//! kill -9 while a database of version 49 is brought to this version: the next start finds it as it was or done, and nothing is lost.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use trunkline_testkit::DaemonSetup;
use trunkline_testkit::database::Database;

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

/// Starts the daemon eight times and kills it, each time later.
fn kill_starts(setup: &DaemonSetup) {
    for round in 1..=8 {
        let mut daemon = setup.program(env!("CARGO_BIN_EXE_trunkline"));
        let daemon = daemon.arg("serve").stdout(Stdio::null());
        let mut daemon = daemon
            .stderr(Stdio::null())
            .spawn()
            .expect("the daemon starts");
        thread::sleep(Duration::from_millis(40 * round));
        daemon.kill().and_then(|()| daemon.wait()).expect("killed");
    }
}

#[test]
fn an_upgrade_that_is_killed_again_and_again_loses_nothing_on_sqlite() {
    let setup = DaemonSetup::new();
    let file = setup.folder.path().join("data/trunkline.db");
    std::fs::remove_file(&file).expect("the new database goes, its keys stay");
    let rows = ROWS.replace("ID(i)", "CAST(printf('%016d', i) AS BLOB)");
    let rows = rows.replace("ID(0)", "CAST(printf('%016d', 0) AS BLOB)");
    let database = rusqlite::Connection::open(&file).expect("a file");
    let made = database.execute_batch(&format!("{SQLITE_49}\n{rows}"));
    made.expect("version 49");

    kill_starts(&setup);
    let daemon = setup.serve();
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

    kill_starts(&setup);
    let daemon = setup.serve();
    assert_eq!(database.texts(SUMS), [EXPECTED]);
    drop(daemon);
}
