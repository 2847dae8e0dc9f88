//! Databases of released versions are served by this one: `fixtures/released/make` has filled a database of each kind, and killed the daemon
//! while a call was up.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use trunkline_testkit::database::Database;
use trunkline_testkit::{Caller, Credentials, tools};

use crate::e2e::node::{Node, NodeSetup, text};

/// Versions whose databases are kept.
const RELEASED: [&str; 1] = ["0.1.0"];

fn fixture(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/released")
        .join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|fault| panic!("{}: {fault}", file.display()))
}

/// Returns what quickstart printed when the database was made.
fn made(version: &str, database: &str) -> Value {
    serde_json::from_str(&fixture(&format!("{version}-{database}.json"))).expect("JSON")
}

fn read(node: &Node, path: &str, key: &str) -> Value {
    let (status, read) = node.get(path, key);
    assert_eq!(status, 200, "{path}: {read}");
    serde_json::from_str(&read).expect("JSON")
}

#[test]
fn a_sqlite_database_of_each_release_is_served() {
    if !tools(&["sipp"]) {
        return;
    }
    for version in RELEASED {
        let setup = NodeSetup::new(&[]);
        std::fs::create_dir(setup.data()).expect("a data directory");
        let keys = fixture(&format!("{version}-sqlite-keys.json"));
        std::fs::write(setup.data().join("keys.json"), keys).expect("its keys");
        let file = setup.data().join("trunkline.db");
        let database = rusqlite::Connection::open(file).expect("a file");
        let loaded = database.execute_batch(&fixture(&format!("{version}-sqlite.sql")));
        loaded.expect("the dump is loaded");
        drop(database);
        assert_serves(&setup.serve(), &made(version, "sqlite"));
    }
}

#[test]
fn a_postgresql_database_of_each_release_is_served() {
    for version in RELEASED {
        let Some(database) = Database::new().filter(|_| tools(&["sipp"])) else {
            return;
        };
        let setup = NodeSetup::new(&database.environment());
        database.run(&fixture(&format!("{version}-postgres.sql")));
        assert_serves(&setup.serve(), &made(version, "postgres"));
    }
}

/// Checks its calls, its configuration, and what is sealed.
fn assert_serves(node: &Node, made: &Value) {
    let key = text(&made["api_key"]);
    let calls = read(node, "/phone/calls", &key);
    let calls = calls["items"].as_array().expect("a list");
    let shown: Vec<_> = calls.iter().map(|call| text(&call["status"])).collect();
    assert_eq!(shown, ["lost", "completed", "completed", "completed"]);

    // The call was up for a second, and its node held a lease of 30 seconds: however late this start is, the call ended with that.
    let seconds = |call: &Value| call["answered_s"].as_u64().expect("seconds");
    assert!(seconds(&calls[0]) <= 32, "{}", calls[0]);
    let talked: u64 = calls.iter().map(seconds).sum();
    let days = "start_date=2026-11-01T00:00:00Z&end_date=2027-01-01T00:00:00Z";
    let usage = read(node, &format!("/phone/usage?{days}"), &key);
    let day = &usage["items"][0];
    let counted = (&day["calls"], &day["answered_s"]);
    assert_eq!(counted, (&4.into(), &talked.into()), "{usage}");

    let destinations = read(node, "/phone/sip/transfer-destinations", &key);
    let value = &destinations["items"][0]["value"];
    assert_eq!(value, "+442071838751", "{destinations}");
    let trunks = read(node, "/phone/sip/outbound-trunks", &key);
    assert_eq!(trunks["items"][0]["username"], "acme", "{trunks}");
    let webhooks = read(node, "/webhooks", &key);
    let url = &webhooks["items"][0]["url"];
    assert_eq!(url, "https://hooks.example.com/trunkline", "{webhooks}");

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
