//! INVITE with Replaces: a PBX puts a new leg in the caller's place, as at the end of an attended transfer.

use trunkline_sip::wire::HeaderName;

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{accepting, runtime};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::status_of;
use trunkline_testkit::{Daemon, DaemonSetup, Message, Peer};

/// Returns the Replaces header that names the call of `old`.
fn replaces(old: &Dialling, tag: &str) -> String {
    let id = &old.id;
    format!("Replaces: {id}@pbx.invalid;to-tag={tag};from-tag=f-{id}")
}

/// Returns the INVITE of a new leg as a PBX sends it, to the daemon's Contact in the old call.
fn takeover(id: &str, daemon: &Daemon, replaces: &str) -> Dialling {
    let mut dialling = Dialling::new(id, "trunkline", daemon.sip())
        .with(replaces)
        .with("Require: replaces");
    dialling.body = OFFER.replace("40000", "40002");
    dialling
}

/// Waits for a request of this method and answers 200.
fn accept_request(caller: &Caller, method: &str) {
    let request = caller.peer.request(method);
    caller.peer.answer(&request, "200 OK", "", "");
}

/// Waits until the daemon has handled the ACK: it answers an OPTIONS that follows the ACK inside the call.
fn wait_for_ack(pbx: &Caller, old: &Dialling, tag: &str) {
    pbx.send(old, "OPTIONS", 3, tag);
    assert_eq!(status_of(&pbx.peer.outcome("3 OPTIONS")), 200);
}

fn cseq_of(invite: &Message) -> u32 {
    invite.wire().cseq().number
}

/// Returns the runtime's next INVITE after that of this CSeq; skips retransmissions.
fn invite_after(runtime: &Peer, cseq: u32) -> Message {
    runtime.next("a later INVITE", |message| {
        message.is_request("INVITE") && cseq_of(message) > cseq
    })
}

/// Returns true if the peer got no request. It may have got retransmitted answers.
fn is_left_alone(caller: &Caller) -> bool {
    let received = caller.peer.answers_until_probed();
    received.iter().all(|message| message.method().is_none())
}

#[test]
fn a_new_leg_takes_the_callers_place() {
    let daemon = DaemonSetup::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let tag = pbx.connect(&old);
    wait_for_ack(&pbx, &old, &tag);

    let other = Caller::new(daemon.sip(), daemon.credentials());
    let new = takeover("new", &daemon, &replaces(&old, &tag));
    let answered = other.call(&new);
    assert_eq!(status_of(&answered), 200, "{answered:?}");
    assert!(
        answered.body().contains("m=audio "),
        "the echo agent answers"
    );

    let new_tag = answered.to_tag();
    other.send(&new, "ACK", 2, &new_tag);
    let bye = pbx.peer.request("BYE");
    assert_eq!(
        pbx.hang_up(&old, 4, &tag),
        200,
        "a BYE that crosses the daemon's"
    );
    pbx.peer.answer(&bye, "200 OK", "", "");
    assert_eq!(other.hang_up(&new, 3, &new_tag), 200);

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");

    // The trace shows the old and the new leg as the caller's.
    let id = record["id"].as_str().expect("an id");
    let trace = daemon.shown(&format!("/phone/calls/{id}/trace"));
    let items = trace["items"].as_array().expect("items").iter();
    let passed: Vec<(&str, &str)> = items
        .filter(|item| item["type"] == "message" && item["leg"] == "caller")
        .map(|item| {
            let text = item["text"].as_str().unwrap_or_default();
            let leg = if text.contains("Call-ID: new@") {
                "new"
            } else {
                "old"
            };
            (leg, item["summary"].as_str().unwrap_or_default())
        })
        .collect();

    for expected in [
        ("old", "200 OK (INVITE)"),
        ("new", "INVITE"),
        ("new", "401 Unauthorized (INVITE)"),
        ("new", "200 OK (INVITE)"),
        ("old", "BYE"),
        ("new", "BYE"),
    ] {
        assert!(passed.contains(&expected), "{expected:?}: {passed:?}");
    }
}

/// Connects a caller to the daemon's runtime.
fn connected(daemon: &Daemon, runtime: &Peer, old: &Dialling) -> (Caller, String) {
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let answer = (&*accepting(runtime), OFFER);
    let (tag, _) = pbx.connect_to(runtime, old, answer);
    wait_for_ack(&pbx, old, &tag);
    (pbx, tag)
}

#[test]
fn the_runtime_is_offered_the_new_legs_media() {
    let setup = DaemonSetup::new();
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let (pbx, tag) = connected(&daemon, &runtime, &old);
    let other = Caller::new(daemon.sip(), daemon.credentials());

    // If the runtime refuses the new media, the new leg is refused and the old call goes on.
    let new = takeover("refused", &daemon, &replaces(&old, &tag));
    let provisional = other.dial(&new);
    let change = invite_after(&runtime, 1);
    assert!(!change.to_tag().is_empty(), "inside the call");
    runtime.answer(&change, "488 Not Acceptable Here", "", "");

    let refused = other.final_answer(&new, provisional);
    assert_eq!(status_of(&refused), 488);
    other.send(&new, "ACK", 2, &refused.to_tag());
    assert!(is_left_alone(&pbx), "the old leg has heard nothing of it");

    // If it accepts them, the new leg takes over.
    let new = takeover("new", &daemon, &replaces(&old, &tag));
    let provisional = other.dial(&new);
    let change = invite_after(&runtime, cseq_of(&change));
    let offered = change.body();
    assert!(offered.contains("m=audio 40002 "), "{offered}");
    assert!(offered.contains("o=- 1 2 IN IP4 127.0.0.1"), "{offered}");

    runtime.answer(&change, "200 OK", &accepting(&runtime), OFFER);
    runtime.request("ACK");
    let accepted = other.final_answer(&new, provisional);
    assert_eq!(status_of(&accepted), 200, "{accepted:?}");

    let new_tag = accepted.to_tag();
    other.send(&new, "ACK", 2, &new_tag);
    accept_request(&pbx, "BYE");

    // The old leg can't be replaced again.
    let again = takeover("again", &daemon, &replaces(&old, &tag));
    assert_eq!(status_of(&other.call(&again)), 481);
    assert_eq!(other.hang_up(&new, 3, &new_tag), 200);

    let bye = runtime.request("BYE");
    runtime.answer(&bye, "200 OK", "", "");
    let records = daemon.records(2);
    let completed = |record: &&serde_json::Value| record["status"] == "completed";
    assert_eq!(records.iter().filter(completed).count(), 1, "{records:?}");
    let refused = |record: &&serde_json::Value| record["reason"] == "nothing_replaced";
    assert_eq!(records.iter().filter(refused).count(), 1, "{records:?}");
}

/// The new leg's CANCEL is answered at once, whichever shard has the old call; six legs make it likely that some are on another shard. If the
/// runtime accepts the new media all the same, it gets the ACK and then the old media again.
#[test]
fn a_new_leg_that_gives_up_leaves_the_call_as_it_was() {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__SHARDS", "4");
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let (pbx, tag) = connected(&daemon, &runtime, &old);
    let other = Caller::new(daemon.sip(), daemon.credentials());
    let mut cseq = 1;

    for id in ["one", "two", "three", "four", "five", "six"] {
        let new = takeover(id, &daemon, &replaces(&old, &tag));
        let provisional = other.dial(&new);
        assert!(status_of(&provisional) < 200, "{id}");
        let change = invite_after(&runtime, cseq);
        runtime.answer(&change, "100 Trying", "", "");

        other.send(&new, "CANCEL", 2, "");
        let mut statuses = Vec::new();
        let refused = loop {
            let answer = other.answer(&new);
            if answer.answers("CANCEL") {
                assert_eq!(status_of(&answer), 200, "{id}: the CANCEL");
            }
            statuses.push(status_of(&answer));
            if status_of(&answer) == 487 {
                break answer;
            }
        };
        assert!(statuses.contains(&200), "{id}: {statuses:?}");
        other.send(&new, "ACK", 2, &refused.to_tag());

        let cancel = runtime.request("CANCEL");
        runtime.answer(&cancel, "200 OK", "", "");
        runtime.answer(&change, "200 OK", &accepting(&runtime), OFFER);
        runtime.request("ACK");

        let restoring = invite_after(&runtime, cseq_of(&change));
        let offered = restoring.body();
        assert!(offered.contains("m=audio 40000 "), "{id}: {offered}");
        cseq = cseq_of(&restoring);
        runtime.answer(&restoring, "200 OK", &accepting(&runtime), OFFER);
        runtime.request("ACK");
    }

    assert!(is_left_alone(&pbx), "the old leg has heard nothing of it");
    assert_eq!(pbx.hang_up(&old, 4, &tag), 200);

    let bye = runtime.request("BYE");
    runtime.answer(&bye, "200 OK", "", "");
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
}

#[test]
fn a_replaces_that_fits_no_answered_call_is_refused() {
    let daemon = DaemonSetup::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let tag = pbx.connect(&old);
    wait_for_ack(&pbx, &old, &tag);

    let right = replaces(&old, &tag);
    let cases = [
        ("early", format!("{right};early-only"), 486),
        ("wrong", right.replace("f-old", "f-new"), 481),
        (
            "gone",
            replaces(&Dialling::new("gone", "1", daemon.sip()), &tag),
            481,
        ),
        ("unread", "Replaces: old@pbx.invalid".to_owned(), 400),
        ("twice", format!("{right}\r\n{right}"), 400),
    ];

    for (id, line, status) in &cases {
        let other = Caller::new(daemon.sip(), daemon.credentials());
        let answer = other.call(&takeover(id, &daemon, line));
        assert_eq!(status_of(&answer), *status, "{id}: {answer:?}");
    }

    assert!(is_left_alone(&pbx));
    assert_eq!(pbx.hang_up(&old, 4, &tag), 200);
}

/// A runtime may name only its own dialogs in Replaces, with the daemon's tag as the remote one. A pair with the tag of the caller's leg is
/// refused, and so is a Replaces that can't be read.
#[test]
fn a_runtime_cannot_name_another_dialog_in_replaces() {
    let setup = DaemonSetup::new();
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", "+442071838751");
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let answer = (&*accepting(&runtime), OFFER);
    let (tag, invite) = pbx.connect_to(&runtime, &old, answer);
    wait_for_ack(&pbx, &old, &tag);

    let from = invite.value("From");
    let (_, ours) = from.split_once(";tag=").expect("a tag");
    let dialog = Dialog::called(&invite, runtime.tag);

    for (cseq, replaces, status) in [
        (1, format!("x%3Bto-tag%3Druntime%3Bfrom-tag%3D{tag}"), 403),
        (2, format!("x%3Bto-tag%3D{ours}%3Bfrom-tag%3D{tag}"), 403),
        (3, "x%3Bto-tag%3Druntime".to_owned(), 400),
        (
            4,
            "x%0D%0AX%3A1%3Bto-tag%3D1%3Bfrom-tag%3D2".to_owned(),
            400,
        ),
    ] {
        let refer_to = format!("Refer-To: <sip:sales@pbx.invalid?Replaces={replaces}>\r\n");
        let refer = dialog.request(&runtime, (cseq, "REFER"), &refer_to, "");
        runtime.send(refer);
        let answer = runtime.outcome(&format!("{cseq} REFER"));
        assert_eq!(answer.status(), Some(status), "{replaces}: {answer:?}");
    }

    assert_eq!(pbx.hang_up(&old, 4, &tag), 200);
    let bye = runtime.request("BYE");
    runtime.answer(&bye, "200 OK", "", "");
    assert!(daemon.record()["transfer"].is_null());
}

/// REFER is served inside a call only.
#[test]
fn refer_outside_a_call_is_not_allowed() {
    let daemon = DaemonSetup::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("stray", &daemon.setup.first_number, daemon.sip());
    pbx.send(&dialling, "REFER", 1, "");
    let refused = pbx.answer(&dialling);
    assert_eq!(status_of(&refused), 405);
    assert!(refused.header("Allow").is_some(), "{refused:?}");

    pbx.send(&dialling, "OPTIONS", 2, "");
    let answer = pbx.answer(&dialling);
    // Allow lists the methods that are served outside a call.
    assert!(!answer.wire().has_token(HeaderName::Allow, "REFER"));
    assert!(answer.wire().has_token(HeaderName::Supported, "replaces"));
}
