//! The life of orgs and partners, by commands that only the operator has, and the orgs of a partner.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};
use trunkline_testkit::daemon::DaemonSetup;
use trunkline_testkit::shell::text;

use crate::cli::resources::{json_of, refused};

/// Makes, changes and deletes orgs and partners, as the operator does.
fn life_of_the_operators(setup: &DaemonSetup) {
    let run = |arguments: &[&str]| json_of(setup, &[], arguments);
    let org = run(&["org", "create", "--name", "Acme"]);
    let (code, said) = refused(setup, &[], &["org", "create", "--name", "Acme"]);
    assert!(code == Some(1) && said.contains("exists already"), "{said}");

    let renamed = run(&["org", "update", "Acme", "--name", "Acme Ltd"]);
    assert_eq!(
        (&renamed["id"], &renamed["name"]),
        (&org["id"], &json!("Acme Ltd"))
    );
    let (code, said) = refused(setup, &[], &["org", "update", "--last"]);
    assert!(
        code == Some(2) && said.contains("nothing to change"),
        "{said}"
    );

    let end = &text(&org["id"])[24..];
    let of_calls = |limits: Value| {
        let limits = limits.as_array().cloned().unwrap_or_default();
        let calls = limits
            .into_iter()
            .find(|row| row["limit"] == "concurrent_calls");
        calls.expect("a row for calls")["value"].clone()
    };
    assert_eq!(of_calls(run(&["org", "limit", end, "7"])), 7);
    assert_eq!(of_calls(run(&["org", "limit", end])), 1_000_000);

    assert_eq!(run(&["org", "list"]).as_array().map(Vec::len), Some(2));

    // With two orgs, a command must name one, by its name or a part of its id.
    let (code, said) = refused(setup, &[], &["agent", "list"]);
    assert!(code == Some(1) && said.contains("TRUNKLINE_ORG"), "{said}");
    assert_eq!(run(&["agent", "list", "--org", "Acme Ltd"]), json!([]));
    assert_eq!(run(&["agent", "list", "--org", end]), json!([]));

    let suspended = run(&["org", "suspend", end, "--yes"]);
    assert_eq!(suspended["suspended_by"], json!(["operator"]));
    assert_eq!(run(&["org", "resume", end])["suspended_by"], json!([]));

    let tied = run(&["org", "tie", end, "10.20.0.0/16"]);
    assert_eq!(tied[0]["peer"], "10.20.0.0/16", "{tied}");
    assert_eq!(
        run(&["org", "untie", end, "10.20.0.0/16", "--yes"]),
        json!([])
    );

    run(&["trunk", "dedicate", "198.51.100.0/24", "--org", end]);
    run(&[
        "trunk",
        "undedicate",
        "198.51.100.0/24",
        "--org",
        end,
        "--yes",
    ]);
    assert_eq!(run(&["trunk", "dedicated", "--org", end]), json!([]));

    let listed = run(&["trunk", "media-address", "203.0.113.9/24", "--org", end]);
    assert_eq!(listed[0]["network"], "203.0.113.0/24", "{listed}");
    assert_eq!(run(&["trunk", "media-addresses", "--org", end]), listed);
    run(&[
        "trunk",
        "remove-media-address",
        "203.0.113.0/24",
        "--org",
        end,
        "--yes",
    ]);
    assert_eq!(run(&["trunk", "media-addresses", "--org", end]), json!([]));

    let kept = run(&["org", "retention", end, "--calls-days", "90"]);
    assert_eq!(kept[0]["days"], 90, "{kept}");
    let kept = run(&["org", "retention", end, "--calls-days", "default"]);
    assert_eq!(kept[0]["days"], Value::Null, "{kept}");

    assert_eq!(run(&["org", "delete", end, "--yes"])["restorable"], true);
    let deleted = run(&["org", "deleted"]);
    assert_eq!(deleted[0]["name"], "Acme Ltd", "{deleted}");
    assert_eq!(run(&["org", "restore", "Acme Ltd"])["id"], org["id"]);
    run(&["org", "delete", "Acme Ltd", "--now", "--yes"]);
    assert_eq!(run(&["org", "deleted"]), json!([]));

    let partner = run(&["partner", "create", "--name", "Reseller"]);
    assert_eq!(run(&["partner", "show", "Reseller"]), partner);
    assert_eq!(
        run(&["partner", "show", &text(&partner["id"])[24..]]),
        partner
    );

    let allowed = run(&[
        "partner",
        "allow",
        "Reseller",
        "127.0.0.1",
        "198.51.100.0/24",
    ]);
    let networks = json!(["127.0.0.1/32", "198.51.100.0/24"]);
    assert_eq!(allowed["allowed_networks"], networks);
    let (code, said) = refused(setup, &[], &["partner", "allow", "Reseller"]);
    assert!(code == Some(2) && said.contains("--anywhere"), "{said}");
    assert_eq!(run(&["partner", "show", "Reseller"]), allowed);

    let anywhere = run(&["partner", "allow", "Reseller", "--anywhere"]);
    assert_eq!(anywhere["allowed_networks"], Value::Null);
    let trusted = run(&["partner", "let-verify", "Reseller"]);
    assert_eq!(trusted["verifies_numbers"], true);

    let off = run(&["partner", "deactivate", "Reseller", "--yes"]);
    assert_eq!(off["active"], false);
    assert_eq!(run(&["partner", "activate", "Reseller"])["active"], true);

    run(&["partner", "create", "--name", "Other"]);
    let (code, said) = refused(
        setup,
        &[],
        &["partner", "update", "Other", "--name", "Reseller"],
    );
    assert!(code == Some(1) && said.contains("exists already"), "{said}");
    let renamed = run(&["partner", "update", "Reseller", "--name", "Reseller Ltd"]);
    assert_eq!(
        (&renamed["id"], &renamed["name"]),
        (&partner["id"], &json!("Reseller Ltd"))
    );

    let of = ["--partner", "Reseller Ltd"];
    let key = run(&[&["partner", "key", "create"], &of[..]].concat());
    assert!(text(&key["partner_key"]).starts_with("tlp_"), "{key}");

    run(&[
        &["partner", "key", "revoke", text(&key["id"])],
        &of[..],
        &["--yes"],
    ]
    .concat());
    assert_eq!(
        run(&[&["partner", "key", "list"], &of[..]].concat()),
        json!([])
    );
}

#[test]
fn orgs_and_partners_live_in_the_commands_own_process() {
    life_of_the_operators(&DaemonSetup::new());
}

#[test]
fn orgs_and_partners_live_over_the_control_socket() {
    let daemon = DaemonSetup::new().serve();
    life_of_the_operators(&daemon.setup);
}

#[test]
fn a_partners_key_reaches_its_orgs_by_address() {
    let daemon = DaemonSetup::new().serve();
    let setup = &daemon.setup;
    let key = json_of(
        setup,
        &[],
        &["partner", "key", "create", "--partner", "Quickstart"],
    );
    let url = format!("http://{}", setup.http);
    let way = ["--url", &url, "--key", text(&key["partner_key"])];
    let run = |arguments: &[&str]| json_of(setup, &way, arguments);

    let org = run(&["org", "create", "--name", "Bakery"]);
    assert_eq!(run(&["org", "show", "Bakery"])["id"], org["id"]);
    assert_eq!(run(&["org", "list"])[0]["id"], org["id"]);
    let renamed = run(&["org", "update", "Bakery", "--name", "Bakery Ltd"]);
    assert_eq!(renamed["name"], "Bakery Ltd");
    let suspended = run(&["org", "suspend", "Bakery Ltd", "--yes"]);
    assert_eq!(suspended["suspended_by"], json!(["partner"]));
    run(&["org", "delete", "Bakery Ltd", "--yes"]);
    assert_eq!(run(&["org", "list"]).as_array().map(Vec::len), Some(1));

    let deleted = run(&["org", "deleted"]);
    assert_eq!(deleted[0]["name"], "Bakery Ltd", "{deleted}");
    run(&["org", "restore", "Bakery Ltd"]);

    // What an org's key may do, the partner may do in its orgs.
    let of = ["--org", "Bakery Ltd"];
    let in_org = |arguments: &[&str]| run(&[arguments, &of[..]].concat());
    run(&["org", "resume", "Bakery Ltd"]);
    let made = in_org(&["agent", "create", "--name", "Sales", "--runtime", "echo"]);
    assert_eq!(in_org(&["agent", "show", "Sales"])["id"], made["id"]);
    in_org(&["number", "add", "+442071838751"]);
    in_org(&[
        "destination",
        "create",
        "--name",
        "Desk",
        "--type",
        "phone",
        "--value",
        "+442071838752",
    ]);
    in_org(&["login-link", "create", "ada@example.org"]);
    assert_eq!(in_org(&["call", "list"]), json!([]));
    let limited = run(&["org", "limit", "Bakery Ltd", "10"]);
    let calls = limited
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["limit"] == "concurrent_calls"));
    assert_eq!(calls.expect("a row")["value"], 10, "{limited}");
    let kept = run(&["org", "retention", "Bakery Ltd", "--calls-days", "90"]);
    assert_eq!(kept[0]["days"], 90, "{kept}");

    // Neither a partner nor an org has the commands that are the operator's alone.
    let (code, said) = refused(setup, &way, &["org", "tied", "Quickstart"]);
    assert!(
        code == Some(2) && said.contains("only the operator can do this"),
        "{said}"
    );
    let (code, said) = refused(setup, &way, &["org", "limit", "Bakery Ltd", "0"]);
    assert_eq!(code, Some(2), "{said}");
    let way = ["--url", &url, "--key", daemon.key()];
    let (code, said) = refused(setup, &way, &["org", "list"]);
    assert!(
        code == Some(2) && said.contains("only the operator"),
        "{said}"
    );
}

/// A request over the control socket acts for the org that it names, so that a session of another id is absent, not unauthorized.
#[test]
fn the_operator_may_read_sessions() {
    let daemon = DaemonSetup::new().serve();
    let socket = daemon.setup.folder.path().join("data/control.sock");
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let org = &daemon.setup.org;
    let path = "/phone/sessions/0198c0de-0000-7000-8000-000000000001";
    let lines = format!("Host: x\r\nTrunkline-Org: {org}\r\nConnection: close");
    write!(stream, "GET {path} HTTP/1.1\r\n{lines}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a whole answer");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(answer.contains("There is no such session"), "{answer}");
}
