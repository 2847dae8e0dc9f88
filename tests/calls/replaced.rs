//! Attended transfers that a PBX completes: a new leg of sipp replaces the old one, if both belong to one org.

use std::time::Duration;

use trunkline_testkit::referred::Step::ByeComes;
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Deadline, Message, Trace, tools};

/// Returns the Replaces header that names the call of a PBX.
fn replaces(old: &Trace) -> String {
    let answer = old.response(200, "INVITE");
    let of = |name: &str| answer.header(name).expect("it is there").to_owned();
    let tag = |name: &str| {
        let value = of(name);
        let (_, tag) = value.split_once(";tag=").expect("a tag");
        tag.to_owned()
    };
    format!(
        "Replaces: {};to-tag={};from-tag={}",
        of("Call-ID"),
        tag("To"),
        tag("From")
    )
}

/// Makes another org with a trunk.
fn neighbour(setup: &DaemonSetup) -> Credentials {
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let org = text(&setup.run(&["org", "create", "--name", "Neighbour", "--json"])["id"]);
    let number = [
        "number",
        "add",
        "+493099999999",
        "--org",
        &org,
        "--verified",
        "--json",
    ];
    setup.run(&number);
    let trunk = setup.run(&["trunk", "create", "--org", &org, "--json"]);

    Credentials {
        username: text(&trunk["auth_username"]),
        password: text(&trunk["auth_password"]),
    }
}

fn is_up(daemon: &Daemon) -> bool {
    daemon
        .calls()
        .iter()
        .any(|call| call["status"] == "in_progress")
}

#[test]
fn a_pbx_completes_an_attended_transfer_and_nobody_elses() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    let theirs = neighbour(&setup);
    let daemon = setup.serve();
    let old = daemon.caller().takes(&[ByeComes]);
    daemon.answered_call();
    let is_acknowledged = || {
        let so_far = old.so_far();
        let acks = |message: &Message| message.header("CSeq") == Some("2 ACK");
        so_far.sent().any(acks).then_some(())
    };
    let limit = Deadline::after(Duration::from_secs(20));
    assert!(limit.poll(is_acknowledged).is_some());

    let names = replaces(&old.so_far());
    let thief = daemon.caller().with(theirs).dials("+493099999999");
    let refused = thief.with_header(&names).play("caller_is_refused").finish();
    assert_eq!(
        refused.response(481, "INVITE").status(),
        Some(481),
        "{refused}"
    );
    assert!(is_up(&daemon), "nothing has happened to the call");

    let new = daemon.caller().dials("trunkline").with_header(&names);
    let new = new.play("caller_hangs_up").finish();
    let old = old.finish();
    assert_eq!(old.requests("BYE").len(), 1, "{old}");
    assert!(
        new.response(200, "INVITE").body().contains("m=audio"),
        "{new}"
    );

    let records = daemon.records(1);
    assert_eq!(records[0]["status"], "completed", "{records:?}");
    assert_eq!(records[0]["hangup_by"], "caller", "{records:?}");
    assert_eq!(
        records[0]["caller_call_id"].as_str(),
        old.response(200, "INVITE").header("Call-ID"),
        "one call, one record: {records:?}"
    );
}
