//! kill -9 at the moment a call is listed or answered: it has a record all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::torture::caller::{Caller, Dialling};
use crate::torture::daemon_requests::{runtime, until};
use crate::torture::one_shard;
use trunkline_testkit::peer::is_shed;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, http};

const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn a_call_that_was_listed_has_a_record_after_kill_9() {
    let setup = one_shard(DaemonSetup::new());
    let _silent = runtime(&setup);
    let mut daemon = setup.serve();

    for round in 1..=ROUNDS {
        let caller = Caller::new(daemon.sip(), daemon.credentials());
        let number = daemon.setup.first_number.clone();
        caller.dial(&Dialling::new(
            &format!("kept{round}"),
            &number,
            daemon.sip(),
        ));
        until(|| {
            let calls = daemon.calls();
            let is_listed = calls.iter().any(|call| call["status"] == "ringing");
            is_listed.then_some(())
        });

        daemon.process.signal("KILL");
        let ended = daemon.process.wait(Deadline::after(LIMIT));
        assert!(ended.is_some(), "it can't catch that");
        daemon.process = daemon.setup.start();
        for call in daemon.records(round) {
            assert_eq!(call["status"], "lost", "round {round}: {call}");
        }
    }
}

#[test]
fn a_call_whose_bye_was_answered_is_over_at_once() {
    let daemon = one_shard(DaemonSetup::new()).serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let number = daemon.setup.first_number.clone();
    let shown = |path: &str| http::json(daemon.setup.http, path, &daemon.setup.key);
    for round in 1..=ROUNDS {
        let dialling = Dialling::new(&format!("over{round}"), &number, daemon.sip());
        let tag = caller.connect(&dialling);
        let live = shown("/phone/calls?status=in_progress");
        assert_eq!(live["total"], 1, "round {round}: {live}");
        let id = live["items"][0]["id"].as_str().expect("an id").to_owned();

        assert_eq!(caller.hang_up(&dialling, 3, &tag), 200);
        let live = shown("/phone/calls?status=in_progress");
        assert_eq!(live["items"], serde_json::json!([]), "round {round}");
        assert_eq!(live["total"], 0, "round {round}");
        let call = shown(&format!("/phone/calls/{id}"));
        assert_eq!(call["status"], "completed", "round {round}: {call}");
        assert_eq!(call["hangup_by"], "caller", "round {round}: {call}");
        let all = shown("/phone/calls?limit=1");
        assert_eq!(all["items"][0], call, "round {round}: as its row says");
    }
}

/// Calls dialled together, so that the kill meets them in every state.
const TOGETHER: usize = 8;

/// Returns the number of rounds: ten, or as `TRUNKLINE_KILL_ANSWERS` sets.
fn rounds() -> usize {
    let given = std::env::var("TRUNKLINE_KILL_ANSWERS").ok();
    given.map_or(10, |rounds| {
        rounds.parse().expect("TRUNKLINE_KILL_ANSWERS is a number")
    })
}

#[test]
fn a_call_that_was_answered_has_a_record_after_kill_9() {
    // The built-in agent answers in the INVITE's own turn, so no fact of the call was on disk before.
    let mut daemon = DaemonSetup::new().serve();
    let mut answered = 0;
    for round in 1..=rounds() {
        let callers = answered_and_killed(&mut daemon, round);
        answered += callers.len();
        daemon.process = daemon.setup.start();
        let calls = http::json(
            daemon.setup.http,
            "/phone/calls?limit=100",
            &daemon.setup.key,
        );
        let calls = calls["items"].as_array().expect("a list");
        for caller in callers {
            let is_its = |call: &&serde_json::Value| call["from_number"] == *caller;
            let call = calls.iter().find(is_its);
            let call = call.unwrap_or_else(|| panic!("round {round}: no record of {caller}"));
            assert_eq!(call["status"], "lost", "round {round}: {call}");
            assert!(call["answered_at"].is_string(), "round {round}: {call}");
        }
    }

    assert!(answered >= rounds(), "{answered}");
}

/// Dials some calls and kills the daemon at one of the first answers, another in each round. Returns the callers whose 200 came.
fn answered_and_killed(daemon: &mut Daemon, round: usize) -> BTreeSet<String> {
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let number = daemon.setup.first_number.clone();
    let from = |call: usize| format!("+44163{round:04}{call:03}");
    let diallings = (0..TOGETHER).map(|call| {
        let mut dialling = Dialling::new(&format!("{round}.{call}"), &number, daemon.sip());
        dialling.from = format!("<sip:{}@pbx.invalid>", from(call));
        let challenge = caller.challenge(&dialling);
        let line = caller.authorization(&challenge, &dialling, 1);
        dialling.with(&line)
    });
    let diallings: Vec<_> = diallings.collect();

    for dialling in &diallings {
        caller.peer.send(dialling.invite(2, caller.peer.own));
    }

    let mut answered = BTreeSet::new();
    let mut note = |message: &Message| {
        if message.answers("INVITE") && message.status() == Some(200) {
            let call_id = message.value("Call-ID");
            let (_, call) = call_id.split_once('.').expect("one of ours");
            let call = call.trim_end_matches("@pbx.invalid").parse();
            answered.insert(from(call.expect("its number")));
        }
        answered.len()
    };

    let fatal = 1 + round % (TOGETHER / 2);
    loop {
        let message = caller.peer.receive();
        assert!(!is_shed(&message), "round {round}: too many at once");
        if note(&message) >= fatal {
            break;
        }
    }

    daemon.process.kill();
    while let Some(message) = caller.peer.soon() {
        note(&message);
    }
    answered
}
