//! A daemon that is stopped while another program holds its database: it ends, and its next start has the records.

use std::time::Duration;

use trunkline_testkit::{Daemon, DaemonSetup, Deadline, http, tools};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Makes a call whose records wait while the database is held, ends the daemon, and checks what the next one has. Returns the log of the first one.
fn ended(end: impl FnOnce(&mut Daemon) -> bool) -> String {
    let mut daemon = DaemonSetup::new().serve();
    let database = daemon.setup.folder.path().join("data/trunkline.db");
    let holder = rusqlite::Connection::open(database).expect("the database opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("it is held");
    daemon.caller().play("caller_hangs_up").finish();
    let waits = Deadline::after(LIMIT).poll(|| {
        let (_, ready) = http::get(daemon.setup.http, "/readyz", None)?;
        ready.contains(r#""journal":"waiting""#).then_some(())
    });
    assert!(waits.is_some(), "nobody is told that records wait");
    assert!(end(&mut daemon), "it didn't end");

    let log = daemon.log();
    holder.execute_batch("ROLLBACK").expect("it is let go");
    daemon.process = daemon.setup.start();
    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");
    daemon.log_line(&["stored what an earlier run had left"]);
    log
}

#[test]
fn records_that_the_database_refuses_stay_for_the_next_start() {
    if !tools(&["sipp"]) {
        return;
    }
    let log = ended(|daemon| {
        daemon.process.terminate();
        daemon.process.wait(Deadline::after(LIMIT)).is_some()
    });
    assert!(
        log.contains("the database or the disk refuses them"),
        "{log}"
    );
}

#[test]
fn who_insists_does_not_wait_for_the_database() {
    if !tools(&["sipp"]) {
        return;
    }
    let log = ended(|daemon| {
        let gone = Deadline::after(LIMIT).poll(|| {
            daemon.process.terminate();
            daemon.process.exited()
        });
        gone.is_some()
    });
    assert!(log.contains("a further signal came"), "{log}");
}
