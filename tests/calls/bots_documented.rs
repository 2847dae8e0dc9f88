//! The steps of `docs/bots.md`, from the token to the greeting of a call, as they are printed there.

use std::path::Path;

use serde_json::json;

use crate::calls::bots::{Bot, Caller, is_tone, setup};
use trunkline_testkit::process::free_port;
use trunkline_testkit::tools;

/// Returns the words of the command that begins like this, with some replaced.
fn printed(command: &str, values: &[(&str, &str)]) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bots.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let line = page
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with(command));
    let mut line = line.expect("the command is printed").to_owned();

    for (name, value) in values {
        assert!(line.contains(name), "{name}: {line}");
        line = line.replace(name, value);
    }
    let words = line.split_whitespace();
    words
        .map(|word| word.trim_matches(['"', '\'']).to_owned())
        .collect()
}

#[test]
fn the_documented_steps_lead_to_a_greeting() {
    if !tools(&["python3"]) {
        return;
    }
    let daemon = setup().serve();

    // Step 1.
    let ask = printed("AUTH_TOKEN=$(curl", &[]).join(" ");
    let path = ask
        .split_once("$BASE")
        .and_then(|(_, rest)| rest.split(' ').next());
    let path = path.expect("a path").trim_matches('"');
    let (status, token) = daemon.change("POST", path, &json!({}));
    assert_eq!(status, 201, "{token}");
    let token = token["auth_token"].as_str().expect("a token");

    // Step 2.
    let port = free_port().to_string();
    let base = format!("http://{}", daemon.setup.http);
    let values = [("8765", &*port), ("$AUTH_TOKEN", token), ("$BASE", &*base)];
    let words = printed("python3 fixtures/bot/bot.py", &values);
    let arguments: Vec<&str> = words[2..].iter().map(String::as_str).collect();
    let bot = Bot::run(format!("ws://127.0.0.1:{port}/ws"), &arguments);

    // Step 3.
    let (agent, org) = (&*daemon.setup.first_agent, &*daemon.setup.org);
    let values = [("8765", &*port), ("$AGENT_ID", agent), ("Quickstart", org)];
    let words = printed("trunkline agent update", &values);
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let output = daemon.setup.output(&arguments);
    assert!(output.status.success(), "{output:?}");
    daemon.setup.settle();

    // Step 4.
    let caller = Caller::call(&daemon);
    bot.event("start");
    assert!(caller.hears(0xff, is_tone), "the greeting");
}
