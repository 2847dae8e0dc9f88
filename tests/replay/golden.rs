//! Golden trace of the recorded flows: the messages that both peers send and get when each flow is played in process, on a virtual clock.
//!
//! `fixtures/golden/flows.txt` holds a digest for each flow. `just golden` writes it anew; `TRUNKLINE_GOLDEN_FLOW` prints one.

use std::net::SocketAddr;
use std::path::Path;

use crate::replay::flows::{Stage, names};
use trunkline_testkit::names::{Names, digest};

/// Address of the daemon's listener in the flows.
const LISTENER: &str = "203.0.113.5:5060";

/// Returns the messages of a flow, in both directions, as it is played.
fn trace_of(stage: &Stage, flow: &str) -> String {
    let listener: SocketAddr = LISTENER.parse().expect("an address");
    let flags = ["--json", "--seed", "1", "--messages", "played.flow"];
    let ran = stage.in_process_at(listener, flow, &flags);
    assert_eq!(ran.code, Some(0), "{flow}: {ran:?}");

    let path = stage.shell.path("played.flow");
    let played = std::fs::read_to_string(path).expect("it was written");
    let (_, messages) = played.split_once("\n--- ").expect("messages");
    let mut names = Names::default();
    let messages = stage.without_ports(messages);
    let messages = messages.split("\n--- ");
    messages
        .map(|message| names.canonical(&message.replace('\n', "\r\n")))
        .collect()
}

#[test]
fn every_flow_is_played_as_it_was() {
    let stage = Stage::of_all_flows();
    let stem = |flow: &str| {
        let stem = Path::new(flow).file_stem().expect("a name");
        stem.to_string_lossy().into_owned()
    };
    if let Ok(wanted) = std::env::var("TRUNKLINE_GOLDEN_FLOW") {
        let flow = names().into_iter().find(|flow| stem(flow) == wanted);
        println!(
            "{}",
            trace_of(&stage, &flow.expect("a flow of fixtures/flows"))
        );
        return;
    }

    let found = names()
        .iter()
        .map(|flow| format!("{} {}\n", stem(flow), digest(&trace_of(&stage, flow))))
        .collect::<Vec<_>>();

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/flows.txt");
    if std::env::var("TRUNKLINE_GOLDEN").is_ok_and(|mode| mode == "write") {
        std::fs::write(file, found.concat()).expect("the file can be written");
        return;
    }

    let recorded = std::fs::read_to_string(file).expect("fixtures/golden/flows.txt");
    let recorded: Vec<&str> = recorded.split_inclusive('\n').collect();
    let differing: Vec<_> = found
        .iter()
        .filter(|line| !recorded.contains(&line.as_str()))
        .collect();
    assert!(
        differing.is_empty() && found.len() == recorded.len(),
        "these differ from fixtures/golden/flows.txt; if that is intended, run `just golden` and say in the commit why: {differing:?}"
    );
}
