//! Attacks of one tenant on another, and of peers on calls that aren't theirs.

use std::net::Ipv4Addr;

use crate::torture::caller::{Caller, Dialling};
use crate::torture::daemon_requests::Neighbour;
use crate::torture::{one_shard, served_by_one};
use trunkline_testkit::message::{status_of, statuses_of};
use trunkline_testkit::{DaemonSetup, Message, Peer};

const THEIRS: &str = "+493099999999";

#[test]
fn credentials_open_their_own_org_alone() {
    let setup = one_shard(DaemonSetup::new());
    let neighbour = Neighbour::of(&setup, THEIRS);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let names_agent = format!("X-PLATFORM-AGENT-ID: {}", neighbour.agent);
    let dialled = [
        ("number", Dialling::new("number", THEIRS, daemon.sip())),
        (
            "agent",
            Dialling::new("agent", &daemon.setup.first_number, daemon.sip()).with(&names_agent),
        ),
        (
            "both",
            Dialling::new("both", THEIRS, daemon.sip()).with(&names_agent),
        ),
    ];

    for (case, dialling) in &dialled {
        let tag = caller.connect(dialling);
        assert_eq!(caller.hang_up(dialling, 3, &tag), 200, "{case}");
    }

    for call in daemon.records(dialled.len()) {
        assert_eq!(call["agent_id"], daemon.setup.first_agent, "{call}");
    }

    assert_eq!(neighbour.calls(&daemon), serde_json::json!([]));
}

/// A call's requests are matched by its tags: with one of them wrong there is no such call.
#[test]
fn a_forged_request_finds_no_call() {
    let daemon = served_by_one();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("live", &daemon.setup.first_number, daemon.sip());
    let tag = caller.connect(&dialling);
    let flipped = |at: usize| {
        let mut forged = tag.clone().into_bytes();
        forged[at] = if forged[at] == b'0' { b'1' } else { b'0' };
        String::from_utf8(forged).expect("still ASCII")
    };

    let attacker = Peer::on(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let here = attacker.own;
    let mut forgeries = vec![
        ("no tag", dialling.request("BYE", 90, "", here)),
        (
            "another's tag",
            dialling.request("BYE", 90, "elsewhere", here),
        ),
    ];
    forgeries.extend(
        (0..tag.len()).map(|at| ("one digit", dialling.request("BYE", 90, &flipped(at), here))),
    );
    let with_tag = |of: &Dialling| of.request("BYE", 90, &tag, here);
    let text = |octets: Vec<u8>| String::from_utf8(octets).expect("text");
    let other_from = text(with_tag(&dialling))
        .replace("tag=f-live", "tag=f-other")
        .into_bytes();
    let other_call = text(with_tag(&dialling))
        .replace("live@pbx", "other@pbx")
        .into_bytes();
    forgeries.push(("another From-tag", other_from));
    forgeries.push(("another Call-ID", other_call));

    for (case, forged) in forgeries {
        let answers = attacker.answers_to(&forged);
        let statuses = statuses_of(&answers);
        assert_eq!(statuses, [481], "{case}");
    }

    assert!(
        caller.peer.answers_until_probed().is_empty(),
        "the call has heard nothing of it"
    );
    assert_eq!(caller.hang_up(&dialling, 3, &tag), 200);
}

/// A request that an eavesdropper replays changes neither the call nor the path to its caller.
#[test]
fn a_request_sent_again_from_elsewhere_moves_nothing() {
    let daemon = served_by_one();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("moved", &daemon.setup.first_number, daemon.sip());
    let tag = caller.connect(&dialling);
    caller.send(&dialling, "INFO", 3, &tag);
    assert_eq!(status_of(&caller.peer.receive()), 200);

    let attacker = Peer::on(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let old = |from: &Peer| {
        let answers = from.answers_to(dialling.request("OPTIONS", 2, &tag, from.own));
        statuses_of(&answers)
    };
    assert_eq!(old(&attacker), [401], "another IP has to prove itself");
    let neighbour = Peer::new(daemon.sip());
    assert_eq!(old(&neighbour), [500], "another port of the caller's IP");
    assert_eq!(caller.hang_up(&dialling, 4, &tag), 200);
}

#[test]
fn replaces_takes_nobodys_call() {
    let setup = one_shard(DaemonSetup::new());
    let neighbour = Neighbour::of(&setup, THEIRS);
    let daemon = setup.serve();
    let victim = Caller::new(daemon.sip(), daemon.credentials());
    let theirs = Dialling::new("victim", &daemon.setup.first_number, daemon.sip());
    let tag = victim.connect(&theirs);
    let right = format!("Replaces: victim@pbx.invalid;to-tag={tag};from-tag=f-victim");
    let thief = Caller::new(daemon.sip(), neighbour.credentials.clone());
    let grab = Dialling::new("thief", THEIRS, daemon.sip()).with(&right);
    let required = Dialling::new("required", THEIRS, daemon.sip()).with(&right);

    for grab in [&grab, &required.with("Require: replaces")] {
        assert_eq!(status_of(&thief.call(grab)), 481, "{grab:?}");
    }

    let stranger = Peer::new(daemon.sip());
    let answers = stranger.answers_to(grab.invite(1, stranger.own));
    assert_eq!(statuses_of(&answers), [401]);
    // Its own 200 may have been repeated before the ACK arrived.
    let came = victim.peer.answers_until_probed();
    let is_repeated = |message: &Message| message.status() == Some(200);
    assert!(came.iter().all(is_repeated), "{came:?}");
    assert_eq!(victim.hang_up(&theirs, 3, &tag), 200);
}
