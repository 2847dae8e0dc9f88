//! INVITE with Replaces: a PBX puts a new leg in the caller's place, as at the end of an attended transfer.

use trunkline_sip::wire::{self, HeaderName};

use crate::caller::{Caller, Dialling, OFFER};
use crate::daemon_requests::{accepting, runtime};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::message::status_of;
use trunkline_testkit::{Daemon, DaemonSetup, Message, Peer};

/// Returns the Replaces header that names the call of `old`.
fn replaces(old: &Dialling, tag: &str) -> String {
    let id = &old.id;
    format!("Replaces: {id}@pbx.invalid;to-tag={tag};from-tag=f-{id}")
}

/// Returns the INVITE of a new leg, as a PBX sends it: to our Contact in the old call.
fn takeover(id: &str, daemon: &Daemon, replaces: &str) -> Dialling {
    let mut dialling = Dialling::new(id, "trunkline", daemon.sip())
        .with(replaces)
        .with("Require: replaces");
    dialling.body = OFFER.replace("40000", "40002");
    dialling
}

/// Expects a request and answers 200.
fn obeys(caller: &Caller, method: &str) {
    let request = caller.peer.request(method);
    caller.peer.answer(&request, "200 OK", "", "");
}

/// Waits until the ACK has been served, by an OPTIONS behind it inside the call.
fn settled(pbx: &Caller, old: &Dialling, tag: &str) {
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

/// Returns whether the peer got no request; answers may have been retransmitted.
fn is_left_alone(caller: &Caller) -> bool {
    let came = caller.peer.answers_until_probed();
    came.iter().all(|message| message.method().is_none())
}

#[test]
fn a_new_leg_takes_the_callers_place() {
    let daemon = DaemonSetup::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let tag = pbx.connect(&old);
    settled(&pbx, &old, &tag);
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
    assert_eq!(pbx.hang_up(&old, 4, &tag), 200, "a BYE that crosses ours");

    pbx.peer.answer(&bye, "200 OK", "", "");
    assert_eq!(other.hang_up(&new, 3, &new_tag), 200);

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");

    // Both legs are the caller's, in one ladder.
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
    settled(&pbx, old, &tag);
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

    // The INVITE is refused, and the old call goes on.
    let new = takeover("refused", &daemon, &replaces(&old, &tag));
    let came = other.dial(&new);
    let change = invite_after(&runtime, 1);
    assert!(!change.to_tag().is_empty(), "inside the call");
    runtime.answer(&change, "488 Not Acceptable Here", "", "");
    let came = other.final_answer(&new, came);
    assert_eq!(status_of(&came), 488);
    other.send(&new, "ACK", 2, &came.to_tag());
    assert!(is_left_alone(&pbx), "the old leg has heard nothing of it");

    let new = takeover("new", &daemon, &replaces(&old, &tag));
    let came = other.dial(&new);
    let change = invite_after(&runtime, cseq_of(&change));
    let offered = change.body();
    assert!(offered.contains("m=audio 40002 "), "{offered}");
    assert!(offered.contains("o=- 1 2 IN IP4 127.0.0.1"), "{offered}");

    runtime.answer(&change, "200 OK", &accepting(&runtime), OFFER);
    runtime.request("ACK");
    let came = other.final_answer(&new, came);
    assert_eq!(status_of(&came), 200, "{came:?}");

    let new_tag = came.to_tag();
    other.send(&new, "ACK", 2, &new_tag);
    obeys(&pbx, "BYE");
    // The old leg can't be replaced again.
    let again = takeover("again", &daemon, &replaces(&old, &tag));
    assert_eq!(status_of(&other.call(&again)), 481);
    assert_eq!(other.hang_up(&new, 3, &new_tag), 200);

    let bye = runtime.request("BYE");
    runtime.answer(&bye, "200 OK", "", "");
    let of_call = |record: &&serde_json::Value| record["status"] == "completed";
    let records = daemon.records(2);
    assert_eq!(records.iter().filter(of_call).count(), 1, "{records:?}");
    let refused = |record: &&serde_json::Value| record["reason"] == "nothing_replaced";
    assert_eq!(records.iter().filter(refused).count(), 1, "{records:?}");
}

/// The call to replace may be on any shard; its INVITE is answered at once. A runtime that accepts all the same gets its ACK, and the caller's old
/// media again.
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
        let came = other.dial(&new);
        let change = invite_after(&runtime, cseq);
        runtime.answer(&change, "100 Trying", "", "");
        assert!(status_of(&came) < 200, "{id}");
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
fn what_names_no_call_is_refused() {
    let daemon = DaemonSetup::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let tag = pbx.connect(&old);
    settled(&pbx, &old, &tag);

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

/// A runtime names its own dialogs with our tag as the remote one. An unreadable Replaces is no attended transfer.
#[test]
fn a_runtime_names_no_dialog_from_our_side() {
    let setup = DaemonSetup::new();
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", "+442071838751");
    let old = Dialling::new("old", &daemon.setup.first_number, daemon.sip());
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let answer = (&*accepting(&runtime), OFFER);
    let (tag, invite) = pbx.connect_to(&runtime, &old, answer);
    settled(&pbx, &old, &tag);
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
    let lists = |message: &wire::Message<'_>, name, token| message.has_token(name, token);
    // Allow lists the methods served there.
    assert!(!lists(&answer.wire(), HeaderName::Allow, "REFER"));
    assert!(lists(&answer.wire(), HeaderName::Supported, "replaces"));
}
