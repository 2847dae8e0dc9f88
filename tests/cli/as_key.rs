//! Commands that run as a key: of its org alone, and never as the operator.

use std::process::Output;

use serde_json::json;
use trunkline_testkit::daemon::{Daemon, DaemonSetup};
use trunkline_testkit::process::trunkline;
use trunkline_testkit::shell::text;

/// Runs a command with the org's key in the environment; returns its exit code, and what it prints.
fn run(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = daemon.setup.program(&trunkline().display().to_string());
    let command = command.env("TRUNKLINE_API_KEY", daemon.key());
    let output = command.args(arguments).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("the binary runs");
    let said = [stdout, stderr].concat();
    (status.code(), String::from_utf8(said).expect("text"))
}

#[test]
fn a_key_works_on_no_other_org_than_its_own() {
    let daemon = DaemonSetup::new().serve();
    let setup = &daemon.setup;
    let other = setup.run(&["org", "create", "--name", "Tel", "--json"]);
    let create = |org: &str, name: &str| {
        let words = [
            "destination",
            "create",
            "--name",
            name,
            "--type",
            "sip",
            "--value",
            "sip:desk@pbx.example.com",
            "--org",
            org,
        ];
        run(&daemon, &words)
    };

    for org in [
        "Tel",
        "Nowhere",
        text(&other["id"]),
        &text(&other["id"])[24..],
    ] {
        let (code, said) = create(org, "Desk");
        assert_eq!(code, Some(2), "{org}: {said}");
        assert!(
            said.contains("org of the key") && said.contains(&setup.org),
            "{said}"
        );
    }

    for org in [&*setup.org, "Tel"] {
        let listed = setup.run(&["destination", "list", "--org", org, "--json"]);
        assert_eq!(listed, json!([]), "{org}");
    }

    for (at, org) in ["Quickstart", &setup.org, &setup.org[24..]]
        .into_iter()
        .enumerate()
    {
        let (code, said) = create(org, &format!("Desk {at}"));
        assert_eq!(code, Some(0), "{org}: {said}");
    }
}

#[test]
fn a_command_of_the_operators_says_that_a_key_is_in_use() {
    let daemon = DaemonSetup::new().serve();
    for words in [
        &["org", "list"][..],
        &["node", "list"],
        &["org", "tied", "Quickstart"],
        &["number", "verify", "+12025550123"],
        &["console"],
        &["console", "--operator"],
    ] {
        let (code, said) = run(&daemon, words);
        let cause =
            "TRUNKLINE_API_KEY is set, so this runs as that key: unset it to act as the operator";
        assert!(code == Some(2) && said.contains(cause), "{words:?}: {said}");
    }

    let url = format!("http://{}", daemon.setup.http);
    let (code, said) = run(&daemon, &["org", "list", "--url", &url]);
    assert!(code == Some(2) && said.contains("--url"), "{said}");
    let key = ["org", "list", "--key", daemon.key()];
    let said = daemon.setup.output(&key).stderr;
    assert!(
        String::from_utf8_lossy(&said).contains("--key is given"),
        "{said:?}"
    );
}

#[test]
fn handoffs_are_listed_by_session() {
    let daemon = DaemonSetup::new().serve();
    let session = "0198c0de-0000-7000-8000-000000000001";
    let reported = run(
        &daemon,
        &[
            "handoff",
            "report",
            "--session-id",
            session,
            "--summary",
            "Asked for a person",
        ],
    );
    assert_eq!(reported.0, Some(0), "{reported:?}");

    let (_, listed) = run(&daemon, &["handoff", "list"]);
    let head = listed.lines().next().unwrap_or_default();
    let columns = ["SESSION ID", "CREATED", "REASONS", "SENTIMENT", "SUMMARY"];
    assert!(
        columns.iter().all(|column| head.contains(column)),
        "{listed}"
    );
    assert!(
        listed.contains(session) && listed.contains("Asked for a person"),
        "{listed}"
    );
}

#[test]
fn the_doctor_finds_a_daemon_with_other_addresses() {
    let daemon = DaemonSetup::new().serve();
    let closed_port = ["--set", "http.listen=127.0.0.1:9", "doctor", "--json"];
    let output = daemon.setup.output(&closed_port);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let serves = format!("with SIP at {}", daemon.setup.sip);
    assert!(
        said.contains(&serves) && !said.contains("Start it"),
        "{said}"
    );
}

#[test]
fn helps_name_their_values() {
    let daemon = DaemonSetup::new();
    for (words, part) in [
        (&["login-link", "create", "--help"][..], "<EMAIL>"),
        (&["handoff", "list", "--help"], "--reason <REASON>"),
        (&["partner", "allow", "--help"], "[NETWORK]..."),
        (&["partner", "allow", "--help"], "Sets the networks"),
    ] {
        let said = daemon.output(words).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains(part), "{words:?}: {said}");
    }

    let output = daemon.output(&["agent", "update", "Echo"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("--runtime") && said.contains("--disabled"),
        "{said}"
    );
}
