//! Deletion by the built daemon, and erasure of a contact.

use std::time::Duration;

use serde_json::Value;
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{Options, Store};
use trunkline_testkit::{Caller, Credentials, Deadline, tools};
use uuid::Uuid;

use crate::e2e::node::{Node, NodeSetup, text};
use crate::e2e::nodes::Pair;

const LIMIT: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn now() -> Moment {
    let seconds = jiff::Timestamp::now().as_second();
    Moment::from_secs(seconds.unsigned_abs())
}

/// A call that was answered for a minute.
fn call(org: Uuid, at: Moment) -> [Fact; 2] {
    let call = Uuid::new_v4();
    let started = Started {
        call,
        org,
        session: Uuid::new_v4(),
        agent: None,
        trunk: None,
        direction: Direction::Inbound,
        from: "+441632960001".into(),
        to: "+442071838750".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "a@b".into(),
        at,
        decision: None,
        headers: Vec::new(),
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    };

    let ended = Ended {
        call,
        org,
        at: at + Duration::from_secs(60),
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    [Fact::Started(started.into()), Fact::Ended(ended.into())]
}

#[test]
fn what_is_older_than_its_days_goes() {
    let days = (
        "TRUNKLINE__RETENTION__CALLS_DAYS".to_owned(),
        "30".to_owned(),
    );
    let setup = NodeSetup::new(&[days]);
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let org: Uuid = text(&outset["org_id"]).parse().expect("an id");
    let key = text(&outset["api_key"]);
    let mut facts = Vec::new();

    for age in [40, 31, 29, 0] {
        facts.extend(call(org, now() - DAY * age - Duration::from_secs(3_600)));
    }

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let options = Options {
            data_dir: setup.data(),
            url: None,
            master_key: None,
            max_connections: 2,
        };
        let store = Store::open(&options, now()).await.expect("the store opens");
        let run = Origin { node: 9, boot: 1 };
        let projected = store.write(move |tx| trunkline_store::project(tx, run, &facts));
        projected.await.expect("projected");
        store.close().await;
    });

    let node = setup.serve();
    let left = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = node.get("/phone/calls", &key);
        let calls: Value = serde_json::from_str(&calls).ok()?;
        (calls["total"] == 2).then_some(())
    });
    assert!(left.is_some(), "{:?}", node.get("/phone/calls", &key));

    let from = (now() - DAY * 60).as_secs();
    let from = jiff::Timestamp::from_second(from.cast_signed()).expect("a time");
    let (_, usage) = node.get(&format!("/phone/usage?start_date={from}"), &key);
    let usage: Value = serde_json::from_str(&usage).expect("JSON");
    let days = usage["items"].as_array().expect("days");
    let calls: u64 = days.iter().filter_map(|day| day["calls"].as_u64()).sum();
    assert_eq!(calls, 4, "{usage}");
}

/// The caller, in the spellings of the calls below.
const CALLER: &str = "+441632960177";
const SPELLINGS: [&str; 5] = [
    "441632960177",
    "01632960177",
    "01632 960177",
    "01632-960-177",
    "%2B44%201632%20960177",
];

fn holds(octets: &[u8]) -> bool {
    SPELLINGS.iter().any(|spelling| {
        let mut windows = octets.windows(spelling.len());
        windows.any(|some| some == spelling.as_bytes())
    })
}

/// Unpacks the messages of a trace file: blocks of a head (lengths packed and raw, two times, number of keys), the keys, and LZ4.
fn unpacked(file: &[u8]) -> Vec<u8> {
    let mut messages = Vec::new();
    let mut rest = file.get(8..).unwrap_or_default();
    while rest.len() >= 28 {
        let word = |at: usize| {
            let word: [u8; 4] = rest[at..at + 4].try_into().expect("four octets");
            u32::from_le_bytes(word) as usize
        };
        let (packed, raw, keys) = (word(0), word(4), word(24));
        let start = 28 + keys * 8;
        // The daemon may be writing the block now.
        let Some(block) = rest.get(start..start + packed) else {
            break;
        };
        messages.extend(lz4_flex::block::decompress(block, raw).expect("a block"));
        rest = &rest[start + packed..];
    }

    messages
}

/// Returns the files below a folder that hold the caller's number, with traces unpacked.
fn files_with_caller(folder: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with_caller(&path));
            continue;
        }
        let octets = std::fs::read(&path).unwrap_or_default();
        let is_trace = path.extension().is_some_and(|ending| ending == "trace");
        if holds(&octets) || is_trace && holds(&unpacked(&octets)) {
            found.push(path.display().to_string());
        }
    }
    found
}

fn caller(node: &Node, outset: &Value) -> Caller {
    let trunk = &outset["trunk"];
    Caller {
        daemon: node.setup.sip,
        credentials: Credentials {
            username: text(&trunk["auth_username"]),
            password: text(&trunk["auth_password"]),
        },
        number: CALLER.to_owned(),
        dials: text(&outset["phone_number"]),
        extra_header: "X-Back: 01632 960177, %2B44%201632%20960177".to_owned(),
        tcp: false,
        talks: Duration::from_millis(500),
        allow: None,
    }
}

/// Returns the contact of the outbound call, once the call has ended.
fn contact_of_call(node: &Node, key: &str) -> String {
    let contact = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = node.get("/phone/calls?status=completed", key);
        let calls: Value = serde_json::from_str(&calls).ok()?;
        calls["items"][0]["contact_id"].as_str().map(str::to_owned)
    });
    contact.expect("a call with its contact")
}

/// Returns the receipt once it is complete.
fn receipt(node: &Node, key: &str, erasure: &str) -> Value {
    let path = format!("/widget/erasures/{erasure}");
    let receipt = Deadline::after(LIMIT).poll(|| {
        let (_, receipt) = node.get(&path, key);
        let receipt: Value = serde_json::from_str(&receipt).ok()?;
        (receipt["status"] == "complete").then_some(receipt)
    });
    receipt.unwrap_or_else(|| panic!("{:?}", node.get(&path, key)))
}

/// On SQLite, with a kill in between: neither tables nor journal nor traces hold the number, in any spelling.
#[test]
fn no_file_holds_the_number_of_an_erased_caller() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = NodeSetup::new(&[]);
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let key = text(&outset["api_key"]);
    let mut node = setup.serve();
    caller(&node, &outset).play("caller_hangs_up").finish();
    let contact = contact_of_call(&node, &key);
    let path = format!("/widget/contacts/{contact}");
    let data = node.setup.data();
    let is_written = || !files_with_caller(&data.join("traces")).is_empty();
    let written = Deadline::after(LIMIT).poll(|| is_written().then_some(()));
    assert!(written.is_some(), "the trace is on disk");

    let (status, asked) = node.change("DELETE", &path, &key, &Value::Null);
    assert_eq!(status, 200, "{asked}");
    node.kill();
    node.serve_again();
    let receipt = receipt(&node, &key, &text(&asked["id"]));
    assert_eq!(receipt["erased"]["calls"], 1, "{receipt}");
    assert_eq!(receipt["waits_for_nodes"], serde_json::json!([]));

    let (_, again) = node.change("DELETE", &path, &key, &Value::Null);
    assert_eq!(again, receipt, "repeated");
    assert_eq!(files_with_caller(&data), Vec::<String>::new());
    let (_, calls) = node.get("/phone/calls", &key);
    assert!(calls.contains("\"from_number\":\"anonymous\""), "{calls}");
    node.end();
    assert_eq!(files_with_caller(&data), Vec::<String>::new());
    let log = node.setup.log();
    assert!(!log.is_empty() && !holds(log.as_bytes()), "{log}");
}

/// Splits the lines of a table into columns.
fn table(shown: &str) -> Vec<Vec<&str>> {
    let cells = |line| -> Vec<&str> {
        let cells = str::split(line, "  ").map(str::trim);
        cells.filter(|cell| !cell.is_empty()).collect()
    };
    shown.trim().lines().map(cells).collect()
}

/// Reads the table that `docs/privacy.md` prints below a command.
fn printed(page: &str, command: &str) -> Vec<Vec<String>> {
    let (_, after) = page
        .split_once(&format!("$ {command}"))
        .unwrap_or_else(|| panic!("no `{command}` in docs/privacy.md"));
    let lines: Vec<&str> = after.lines().skip(1).map(str::trim).collect();
    let end = lines
        .iter()
        .position(|line| line.starts_with('$') || line.starts_with("```"));
    let shown = lines[..end.expect("the end of a block")].join("\n");
    let owned = |row: Vec<&str>| row.into_iter().map(str::to_owned).collect();
    table(&shown).into_iter().map(owned).collect()
}

/// The commands that `docs/privacy.md` prints, against a running daemon.
#[test]
fn the_commands_of_the_page_on_privacy_do_what_it_says() {
    if !tools(&["sipp"]) {
        return;
    }

    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/privacy.md");
    let page = std::fs::read_to_string(page).expect("a page");
    let days = [
        ("CALLS", 365),
        ("SESSIONS", 30),
        ("CONTACTS", 730),
        ("HANDOFFS", 365),
    ];
    let days = days.map(|(kind, days)| {
        (
            format!("TRUNKLINE__RETENTION__{kind}_DAYS"),
            days.to_string(),
        )
    });
    let setup = NodeSetup::new(&days);
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let org = text(&outset["org_id"]);
    let node = setup.serve();
    let said = |arguments: &[&str]| {
        let (code, said) = node.setup.said(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        said
    };

    let set = [
        "org",
        "retention",
        &org,
        "--calls-days",
        "90",
        "--sessions-days",
        "7",
    ];

    let shown = said(&set);
    assert_eq!(
        table(&shown),
        printed(&page, "trunkline org retention Acme --calls-days 90")
    );
    let back = said(&["org", "retention", &org, "--calls-days", "default"]);
    assert_eq!(table(&back)[1], ["calls", "-", "365"], "{back}");
    let (code, refused) = node
        .setup
        .said(&["org", "retention", &org, "--calls-days", "0"]);
    assert_eq!(code, Some(2), "{refused}");

    caller(&node, &outset).play("caller_hangs_up").finish();
    let contact = contact_of_call(&node, &text(&outset["api_key"]));
    let found = said(&[
        "contact",
        "find",
        "--org",
        &org,
        "--phone",
        "+44 1632 960177",
    ]);

    let found = table(&found);
    assert_eq!(found[0], printed(&page, "trunkline contact find")[0]);
    assert_eq!((found.len(), found[1][0]), (2, contact.as_str()));

    let export = said(&["contact", "export", &contact, "--org", &org]);
    let export: Value = serde_json::from_str(&export).expect("JSON");
    assert_eq!(export["contact"]["id"], contact, "{export}");
    assert_eq!(
        export["calls"].as_array().map(Vec::len),
        Some(1),
        "{export}"
    );

    let erased = said(&["contact", "erase", &contact, "--org", &org, "--yes"]);
    let erased = table(&erased);
    let fields = |rows: &[Vec<&str>]| rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>();
    let page = printed(&page, "trunkline contact erase");
    let names: Vec<String> = page.iter().map(|row| row[0].clone()).collect();
    assert_eq!(fields(&erased), names);
    assert_eq!(erased[1][1], contact);
    assert_eq!(
        (erased[2][1], erased[5][1]),
        ("complete", "1"),
        "{erased:?}"
    );

    let receipt = ["contact", "receipt", erased[0][1], "--org", &org, "--json"];
    let receipt: Value = serde_json::from_str(&said(&receipt)).expect("JSON");
    assert_eq!(receipt["status"], "complete", "{receipt}");
    assert!(
        receipt["out_of_reach"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
    );
    assert_eq!(
        table(&said(&[
            "contact", "find", "--org", &org, "--phone", CALLER
        ]))
        .len(),
        1
    );
    assert_eq!(files_with_caller(&node.setup.data()), Vec::<String>::new());
}

/// On PostgreSQL, where the other node has the journal and the trace.
#[test]
fn a_second_node_does_its_part_of_an_erasure() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    caller(&pair.second, &pair.outset)
        .play("caller_hangs_up")
        .finish();
    let contact = contact_of_call(&pair.first, &pair.key);
    let path = format!("/widget/contacts/{contact}");
    let (status, asked) = pair.first.change("DELETE", &path, &pair.key, &Value::Null);
    assert_eq!(status, 200, "{asked}");

    let receipt = receipt(&pair.first, &pair.key, &text(&asked["id"]));
    let nodes = receipt["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 2, "{receipt}");
    for node in [&pair.first, &pair.second] {
        assert_eq!(files_with_caller(&node.setup.data()), Vec::<String>::new());
    }
    let named = "SELECT calls::text FROM calls UNION ALL SELECT events::text FROM events UNION ALL SELECT contacts::text FROM contacts
         UNION ALL SELECT call_attempts::text FROM call_attempts UNION ALL SELECT erasures::text FROM erasures";
    let rows = pair.database.texts(named);
    assert!(!rows.is_empty());
    assert!(!rows.iter().any(|row| holds(row.as_bytes())), "{rows:?}");
}
