//! An installation of an earlier version is served: the daemon migrates its database and reads its journal.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use trunkline_testkit::database::Database;
use trunkline_testkit::{Caller, Credentials, tools};

use crate::e2e::node::{Node, NodeSetup, text};

/// Unpacks a data directory of that version; returns what its quickstart printed.
fn unpack(name: &str, setup: &NodeSetup) -> Value {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/earlier")
        .join(name);
    std::fs::create_dir(setup.data()).expect("a data directory");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(packed).arg("-C").arg(setup.data());
    assert!(tar.status().expect("tar runs").success());
    let made = std::fs::read(setup.data().join("made.json")).expect("what was printed then");
    serde_json::from_slice(&made).expect("JSON")
}

fn read(node: &Node, path: &str, key: &str) -> Value {
    let (status, read) = node.get(path, key);
    assert_eq!(status, 200, "{path}: {read}");
    serde_json::from_str(&read).expect("JSON")
}

#[test]
fn a_data_directory_of_an_earlier_version_is_served() {
    if !tools(&["sipp"]) {
        return;
    }
    let setup = NodeSetup::new(&[]);
    let made = unpack("begun.tar.gz", &setup);
    assert_serves(&setup.serve(), &made);
}

/// The rows and the schema as `pg_dump` wrote them, with the journal of that time.
#[test]
fn a_postgresql_database_of_an_earlier_version_is_served() {
    let Some(database) = Database::new().filter(|_| tools(&["sipp"])) else {
        return;
    };
    let setup = NodeSetup::new(&database.environment());
    let made = unpack("begun-postgres.tar.gz", &setup);
    let dump = std::fs::read_to_string(setup.data().join("dump.sql"));
    database.run(&dump.expect("what was dumped"));
    assert_serves(&setup.serve(), &made);
}

/// Checks its calls, their details, and what is sealed.
fn assert_serves(node: &Node, made: &Value) {
    let key = text(&made["api_key"]);
    let calls = read(node, "/phone/calls", &key);
    let shown = |call: &Value| {
        let seconds = call["answered_seconds"].as_u64().expect("seconds");
        (text(&call["from_number"]), text(&call["status"]), seconds)
    };
    let shown: Vec<_> = calls["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(shown)
        .collect();
    let completed = |caller: &str, seconds| (caller.to_owned(), "completed".to_owned(), seconds);
    assert_eq!(
        shown[1..],
        [
            completed("+441632960004", 3),
            completed("+441632960003", 3),
            completed("+441632960002", 2),
            completed("+441632960001", 2),
            completed("+441632960000", 2),
        ]
    );

    // The call was up for half a second, and its node held a lease of 30 seconds.
    let (caller, status, seconds) = &shown[0];
    assert_eq!(
        (caller.as_str(), status.as_str()),
        ("+441632960009", "lost")
    );
    assert!(*seconds <= 31, "{seconds}");

    let first = text(&calls["items"][5]["id"]);
    let trace = read(node, &format!("/phone/calls/{first}/trace"), &key);
    assert!(
        trace["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty()),
        "{trace}"
    );

    let usage = read(
        node,
        "/phone/usage?start_date=2026-11-25T00:00:00Z&end_date=2026-11-26T00:00:00Z",
        &key,
    );
    let day = &usage["items"][0];
    assert_eq!(
        (&day["calls"], &day["answered_seconds"]),
        (&6.into(), &(12 + seconds).into()),
        "{usage}"
    );

    let destinations = read(node, "/phone/sip/transfer-destinations", &key);
    assert_eq!(
        destinations["items"][0]["value"], "+442071838751",
        "{destinations}"
    );

    // The trunk's sealed password, and the partner's key.
    let caller = Caller {
        daemon: node.setup.sip,
        credentials: Credentials {
            username: text(&made["trunk"]["auth_username"]),
            password: text(&made["trunk"]["auth_password"]),
        },
        number: "+441632960010".to_owned(),
        dials: text(&made["phone_number"]),
        extra_header: "X-None: 0".to_owned(),
        tcp: false,
        talks: Duration::from_millis(100),
        allow: None,
    };
    caller.play("caller_hangs_up").finish();
    let orgs = read(node, "/partner/v1/orgs", &text(&made["partner_key"]));
    assert_eq!(orgs["data"][0]["id"], made["org_id"], "{orgs}");
}
