//! `trunkline key`: rotating and retiring the signing and sealing keys.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::shell::{Shell, text};

const QUICKSTART: [&str; 2] = ["quickstart", "--no-serve"];

/// Returns the current and former keys that sign these tokens, with their states.
fn signers_of(shell: &Shell, tokens: &str) -> Vec<(String, String)> {
    let listed = shell.json(&["key", "list-signing"]);
    let listed = listed.as_array().expect("a list").iter();
    listed
        .filter(|key| key["tokens"] == tokens)
        .map(|key| {
            (
                text(&key["kid"]).to_owned(),
                text(&key["status"]).to_owned(),
            )
        })
        .collect()
}

fn signers(shell: &Shell) -> Vec<(String, String)> {
    signers_of(shell, "api_key")
}

fn states(shell: &Shell) -> Vec<String> {
    let signers = signers(shell).into_iter();
    signers.map(|(_, state)| state).collect()
}

#[test]
fn a_signing_key_is_retired_and_its_api_keys_only_on_request() {
    let shell = Shell::new();
    shell.json(&QUICKSTART);
    let kid = signers(&shell).remove(0).0;
    let retire = ["key", "retire-signing", &kid];
    let signs = shell.run(&retire);
    assert_eq!(signs.code, Some(1), "{signs:?}");
    assert!(signs.stderr.contains("rotate-signing"), "{signs:?}");

    shell.json(&["key", "rotate-signing"]);
    assert_eq!(states(&shell), ["signs", "good"]);
    let asked = shell.run(&[&retire[..], &["--api-keys", "--json"]].concat());
    assert_eq!(asked.code, Some(1), "{asked:?}");
    let counts: Value = serde_json::from_str(&asked.stdout).expect("JSON");
    assert_eq!(counts[0]["api_keys"], 1, "{counts}");
    assert_eq!(states(&shell), ["signs", "good"]);
    let unknown = shell.run(&["key", "retire-signing", "00", "--api-keys"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    let alone = shell.run(&[&retire[..], &["--yes"]].concat());
    assert_eq!(alone.code, Some(2), "{alone:?}");

    // Retiring twice changes nothing more, and API keys are revoked along with it if asked for.
    let keys = || shell.json(&["key", "list", "--org", "Quickstart"]);
    for _ in 0..2 {
        shell.json(&retire);
        assert_eq!(states(&shell), ["signs", "retired"]);
        assert_eq!(keys().as_array().map(Vec::len), Some(1));
    }
    shell.json(&[&retire[..], &["--api-keys", "--yes"]].concat());
    assert_eq!(keys(), json!([]));
}

#[test]
fn keys_of_widget_tokens_are_rotated_apart_from_those_of_api_keys() {
    let shell = Shell::new();
    shell.json(&QUICKSTART);
    let widget = || signers_of(&shell, "widget_contact");
    let (of_keys, first) = (signers(&shell), widget().remove(0).0);
    let retire = ["key", "retire-signing", &first];
    let signs = shell.run(&retire);
    assert_eq!(signs.code, Some(1), "{signs:?}");
    assert!(
        signs.stderr.contains("rotate-signing --widget"),
        "{signs:?}"
    );

    let made = shell.json(&["key", "rotate-signing", "--widget"]);
    assert_eq!(made["published"], 2, "{made}");
    let second = text(&made["kid"]).to_owned();
    let state = |kid: &str, state: &str| (kid.to_owned(), state.to_owned());
    assert_eq!(widget(), [state(&second, "signs"), state(&first, "good")]);
    shell.json(&retire);
    assert_eq!(
        widget(),
        [state(&second, "signs"), state(&first, "retired")]
    );
    assert_eq!(signers(&shell), of_keys);
}

#[test]
fn a_rotation_that_is_killed_is_run_again() {
    let shell = Shell::new();
    let made = shell.json(&QUICKSTART)["trunk"].clone();
    let trunk = || shell.json(&QUICKSTART)["trunk"].clone();
    let file = shell.path("trunkline-data/keys.json");
    let sealing = || -> Vec<Value> {
        let text = std::fs::read(&file).expect("the keys");
        let keys: Value = serde_json::from_slice(&text).expect("JSON");
        keys["sealing"].as_array().expect("keys").clone()
    };
    let first = sealing();

    // Killed at a moment usually before the new key seals, and at one usually after.
    for after in [500, 3_500] {
        let mut command = shell.command(&["key", "rotate-sealing"]);
        let mut rotation = command.stdout(Stdio::null()).spawn().expect("it runs");
        sleep(Duration::from_millis(after));
        rotation.kill().expect("it is killed");
        rotation.wait().expect("it ends");
        assert_eq!(trunk(), made, "{after} ms");
    }
    assert!(sealing().contains(&first[0]));

    shell.json(&["key", "rotate-sealing"]);
    assert_eq!(trunk(), made);
    shell.json(&["key", "retire-sealing"]);
    let last = sealing();
    assert!(last.len() == 1 && last != first);
    assert_eq!(trunk(), made);
    let mode = std::fs::metadata(&file).expect("the file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);

    let none = shell.run(&["key", "rotate-master", "--new-key-file", "absent"]);
    assert_eq!(none.code, Some(1), "{none:?}");
}
