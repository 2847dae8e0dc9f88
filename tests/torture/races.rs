//! Peers that act at the wrong moment or too often: they cancel another's call, answer a finished one, never acknowledge.

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{metric, runtime, until};
use crate::torture::one_shard;
use trunkline_testkit::message::{status_of, statuses_of};
use trunkline_testkit::{DaemonSetup, Deadline, Message, Peer};

#[test]
fn only_its_caller_cancels_a_call() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("ringing", &daemon.setup.first_number, daemon.sip());
    caller.dial(&dialling);
    let invite = runtime.request("INVITE");
    runtime.answer(
        &invite,
        "180 Ringing",
        "Contact: <sip:agent@127.0.0.1>\r\n",
        "",
    );
    assert_eq!(status_of(&caller.peer.receive()), 180);

    let cancel = dialling.request("CANCEL", 2, "", caller.peer.own);
    let attacker = Peer::on(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let answers = attacker.answers_to(&cancel);
    assert_eq!(statuses_of(&answers), [481]);
    assert!(
        caller.peer.answers_until_probed().is_empty(),
        "the call rings on"
    );

    let statuses = statuses_of(&caller.peer.answers_to(&cancel));
    assert_eq!(statuses, [200, 487]);
    runtime.request("CANCEL");
}

/// Each 2xx for a finished call gets its ACK (RFC 3261 §13.2.2.4); the legs kept for their BYEs are bounded.
#[test]
fn answers_to_what_is_over_are_bounded() {
    const ANSWERS: usize = 1_000;
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("over", &daemon.setup.first_number, daemon.sip());
    caller.dial(&dialling);
    let invite = runtime.request("INVITE");
    runtime.answer(&invite, "486 Busy", "", "");
    runtime.request("ACK");

    // Nothing reads at that Contact.
    let sink = Peer::new(daemon.sip());
    let contact = format!("Contact: <sip:agent@{}>\r\n", sink.own);
    for number in 0..ANSWERS {
        runtime.send(invite.answer("200 OK", &format!("late-{number}"), &contact, ""));
        if number % 50 == 0 {
            runtime.answers_until_probed();
        }
    }

    runtime.answers_until_probed();
    let waiting = || metric(&daemon, "trunkline_sip_transactions");
    until(|| (waiting() > 0.0).then_some(()));

    // The gauge is published twice a second, so its first value may lack the last answers.
    let mut highest = 0.0_f64;
    Deadline::after(Duration::from_secs(2)).poll(|| {
        highest = highest.max(waiting());
        None::<()>
    });
    assert!(
        highest <= 300.0,
        "{highest} transactions for answers that nobody asked for"
    );
}

#[test]
fn a_caller_that_never_acknowledges_runs_out_of_room() {
    let daemon = crate::torture::served_by_one();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("unacknowledged", &daemon.setup.first_number, daemon.sip());
    let tag = caller.connect(&dialling);
    let mut statuses = Vec::new();

    for cseq in 3..40 {
        let body = String::from_utf8(dialling.request("INVITE", cseq, &tag, caller.peer.own))
            .expect("text");
        let reinvite = body.replace(
            "Content-Length: 0\r\n\r\n",
            &format!(
                "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{OFFER}",
                OFFER.len()
            ),
        );
        caller.peer.send(reinvite.as_bytes());
        let answers = caller.peer.answers_until_probed();
        let of_this = format!("{cseq} INVITE");
        let finals = answers.iter().filter(|answer| answer.answers(&of_this));
        let finals = finals.map(status_of);
        statuses.extend(finals.filter(|status| *status >= 200));
    }

    let accepted = statuses.iter().filter(|status| **status == 200).count();
    assert!((1..=8).contains(&accepted), "{statuses:?}");
    assert!(
        statuses[accepted..].iter().all(|status| *status >= 400),
        "{statuses:?}"
    );
    caller.send(&dialling, "BYE", 99, &tag);

    let last = caller.peer.outcome("99 BYE");
    assert_eq!(status_of(&last), 200, "hanging up always works");
}

#[test]
fn a_call_that_rings_for_another_leaves_its_tags() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("forks", &daemon.setup.first_number, daemon.sip());
    caller.dial(&dialling);
    let invite = runtime.request("INVITE");

    // More early dialogs than a call may have.
    for fork in 0..100 {
        let ringing = invite.answer(
            "180 Ringing",
            &format!("fork-{fork}"),
            "Contact: <sip:agent@127.0.0.1>\r\n",
            "",
        );
        runtime.send(&ringing);
    }
    runtime.answers_until_probed();

    let rung = caller.peer.answers_until_probed();
    let mut tags: Vec<String> = rung.iter().map(Message::to_tag).collect();
    tags.sort();
    tags.dedup();

    assert!(
        (2..=16).contains(&tags.len()),
        "{} early dialogs",
        tags.len()
    );

    let cancel = dialling.request("CANCEL", 2, "", caller.peer.own);
    let statuses = statuses_of(&caller.peer.answers_to(&cancel));
    assert_eq!(statuses, [200, 487]);
    runtime.answer(&invite, "487 Terminated", "", "");

    let left = until(|| Some(metric(&daemon, "trunkline_sip_dialogs")).filter(|left| *left == 0.0));
    assert_eq!(left, 0.0);
}
