//! INVITE with Replaces: a PBX puts a new leg in the caller's place, as at the end of an attended transfer.

use trunkline_sip::wire::{HeaderName, Message};

use crate::caller::{Caller, Dialling, OFFER, read, to_tag};
use crate::peer::status_of;
use crate::runtime::Runtime;
use trunkline_testkit::answer::answer;
use trunkline_testkit::{Daemon, House};

/// What a runtime's 200 says besides.
fn accepting(runtime: &Runtime) -> String {
    let address = runtime.peer.address();
    format!("Contact: <sip:agent@{address}>\r\nContent-Type: application/sdp\r\n")
}

/// What names the call of `old`.
fn replaces(old: &Dialling, tag: &str) -> String {
    let id = &old.id;
    format!("Replaces: {id}@pbx.invalid;to-tag={tag};from-tag=f-{id}")
}

/// The INVITE of a new leg, as a PBX sends it: to our Contact in the old call.
fn takeover(id: &str, daemon: &Daemon, replaces: &str) -> Dialling {
    let mut dialling = Dialling::new(id, "trunkline", daemon.sip())
        .with(replaces)
        .with("Require: replaces");
    dialling.body = OFFER.replace("40000", "40002");
    dialling
}

/// The next request; answered with 200.
fn obeys(caller: &Caller, method: &str) -> Vec<u8> {
    loop {
        let octets = caller.peer.receive();
        let message = read(&octets);
        if message.is_request() && message.method_token() == method.as_bytes() {
            caller.peer.send(answer(&message, "200 OK", "pbx", "", ""));
            return octets;
        }
    }
}

/// Waits until the ACK before it has been served: an OPTIONS inside the call goes the same way, behind it.
fn settled(pbx: &Caller, old: &Dialling, tag: &str) {
    pbx.send(old, "OPTIONS", 3, tag);
    loop {
        let octets = pbx.answer(old);
        if read(&octets).cseq().number == 3 {
            return assert_eq!(status_of(&octets), 200);
        }
    }
}

/// The runtime's next INVITE after that of this CSeq, which may have been sent more than once.
fn invite_after(runtime: &Runtime, cseq: u32) -> Vec<u8> {
    loop {
        let octets = runtime.request("INVITE");
        if read(&octets).cseq().number > cseq {
            return octets;
        }
    }
}

/// Whether nothing was asked of a peer; answers may have come twice.
fn is_left_alone(caller: &Caller) -> bool {
    let came = caller.peer.answers_until_probed();
    came.iter().all(|octets| !read(octets).is_request())
}

fn body(octets: &[u8]) -> String {
    String::from_utf8_lossy(read(octets).body()).into_owned()
}

#[test]
fn a_new_leg_takes_the_callers_place() {
    let daemon = House::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let old = Dialling::new("old", &daemon.house.first_number, daemon.sip());
    let tag = pbx.connect(&old);
    settled(&pbx, &old, &tag);
    let other = Caller::new(daemon.sip(), daemon.credentials());
    let new = takeover("new", &daemon, &replaces(&old, &tag));
    let answered = other.call(&new);
    assert_eq!(status_of(&answered), 200, "{}", answered.escape_ascii());
    assert!(
        body(&answered).contains("m=audio "),
        "the echo agent answers"
    );
    let new_tag = to_tag(&answered);
    other.send(&new, "ACK", 2, &new_tag);
    obeys(&pbx, "BYE");
    assert_eq!(pbx.hang_up(&old, 4, &tag), 200, "a BYE that crosses ours");
    assert_eq!(other.hang_up(&new, 3, &new_tag), 200);
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["hangup_by"], "caller", "{record}");
    // Both legs are the caller's, and in one ladder.
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

/// The caller of `house`'s runtime, connected.
fn connected(daemon: &Daemon, runtime: &Runtime, old: &Dialling) -> (Caller, String) {
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let mut came = pbx.dial(old);
    let invite = runtime.request("INVITE");
    runtime.answer(&invite, "200 OK", &accepting(runtime), OFFER);
    while status_of(&came) < 200 {
        came = pbx.answer(old);
    }
    let tag = to_tag(&came);
    pbx.send(old, "ACK", 2, &tag);
    runtime.request("ACK");
    settled(&pbx, old, &tag);
    (pbx, tag)
}

fn final_answer(caller: &Caller, dialling: &Dialling, mut came: Vec<u8>) -> Vec<u8> {
    while status_of(&came) < 200 {
        came = caller.answer(dialling);
    }
    came
}

#[test]
fn the_runtime_is_offered_the_new_legs_media() {
    let house = House::new();
    let runtime = Runtime::of(&house);
    let daemon = house.serve();
    let old = Dialling::new("old", &daemon.house.first_number, daemon.sip());
    let (pbx, tag) = connected(&daemon, &runtime, &old);
    let other = Caller::new(daemon.sip(), daemon.credentials());

    // Refused, and nothing has happened.
    let new = takeover("refused", &daemon, &replaces(&old, &tag));
    let came = other.dial(&new);
    let change = invite_after(&runtime, 1);
    assert!(read(&change).to_tag().is_some(), "inside the call");
    runtime.answer(&change, "488 Not Acceptable Here", "", "");
    let came = final_answer(&other, &new, came);
    assert_eq!(status_of(&came), 488);
    other.send(&new, "ACK", 2, &to_tag(&came));
    assert!(is_left_alone(&pbx), "the old leg has heard nothing of it");

    let new = takeover("new", &daemon, &replaces(&old, &tag));
    let came = other.dial(&new);
    let change = invite_after(&runtime, read(&change).cseq().number);
    let offered = body(&change);
    assert!(offered.contains("m=audio 40002 "), "{offered}");
    assert!(offered.contains("o=- 1 2 IN IP4 127.0.0.1"), "{offered}");
    runtime.answer(&change, "200 OK", &accepting(&runtime), OFFER);
    runtime.request("ACK");
    let came = final_answer(&other, &new, came);
    assert_eq!(status_of(&came), 200, "{}", came.escape_ascii());
    let new_tag = to_tag(&came);
    other.send(&new, "ACK", 2, &new_tag);
    obeys(&pbx, "BYE");
    // The old leg is nobody's any more.
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

/// On whichever shard the call is that was to be replaced; its INVITE has its answer at once. A runtime that says yes all the same
/// gets its ACK, and the caller's media again.
#[test]
fn a_new_leg_that_gives_up_leaves_the_call_as_it_was() {
    let house = House::new().set("TRUNKLINE__SIP__SHARDS", "4");
    let runtime = Runtime::of(&house);
    let daemon = house.serve();
    let old = Dialling::new("old", &daemon.house.first_number, daemon.sip());
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
            if read(&answer).method_token() == b"CANCEL" {
                assert_eq!(status_of(&answer), 200, "{id}: the CANCEL");
            }
            statuses.push(status_of(&answer));
            if status_of(&answer) == 487 {
                break answer;
            }
        };
        assert!(statuses.contains(&200), "{id}: {statuses:?}");
        other.send(&new, "ACK", 2, &to_tag(&refused));
        let cancel = runtime.request("CANCEL");
        runtime.answer(&cancel, "200 OK", "", "");
        runtime.answer(&change, "200 OK", &accepting(&runtime), OFFER);
        runtime.request("ACK");
        let restoring = invite_after(&runtime, read(&change).cseq().number);
        let offered = body(&restoring);
        assert!(offered.contains("m=audio 40000 "), "{id}: {offered}");
        cseq = read(&restoring).cseq().number;
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
    let daemon = House::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let old = Dialling::new("old", &daemon.house.first_number, daemon.sip());
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
        assert_eq!(
            status_of(&answer),
            *status,
            "{id}: {}",
            answer.escape_ascii()
        );
    }
    assert!(is_left_alone(&pbx));
    assert_eq!(pbx.hang_up(&old, 4, &tag), 200);
}

/// A runtime names its own dialogs as we have them: with our tag as the one that the INVITE would go to. Replaces that can't be read is no
/// attended transfer.
#[test]
fn a_runtime_names_no_dialog_from_our_side() {
    let house = House::new();
    let runtime = Runtime::of(&house);
    let daemon = house.serve();
    daemon.destination("Sales", "phone", "+442071838751");
    let old = Dialling::new("old", &daemon.house.first_number, daemon.sip());
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let mut came = pbx.dial(&old);
    let invite = runtime.request("INVITE");
    runtime.answer(&invite, "200 OK", &accepting(&runtime), OFFER);
    while status_of(&came) < 200 {
        came = pbx.answer(&old);
    }
    let tag = to_tag(&came);
    pbx.send(&old, "ACK", 2, &tag);
    runtime.request("ACK");
    settled(&pbx, &old, &tag);
    let asked = read(&invite);
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let value = |name| text(asked.first(name).expect("it is there"));
    let ours = text(asked.from_tag().expect("a tag"));
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
        let address = runtime.peer.address();
        let refer = format!(
            "REFER sip:trunkline@{} SIP/2.0\r\nVia: SIP/2.0/UDP {address};branch=z9hG4bKr{cseq}\r\nMax-Forwards: 70\r\n\
             From: {};tag=runtime\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {cseq} REFER\r\nContact: <sip:agent@{address}>\r\n\
             Refer-To: <sip:sales@pbx.invalid?Replaces={replaces}>\r\nContent-Length: 0\r\n\r\n",
            daemon.sip(),
            value(HeaderName::To),
            value(HeaderName::From),
            value(HeaderName::CallId),
        );
        runtime.peer.send(refer.as_bytes());
        let answer = loop {
            let octets = runtime.peer.receive();
            if !read(&octets).is_request() && read(&octets).cseq().number == cseq {
                break octets;
            }
        };
        assert_eq!(
            status_of(&answer),
            status,
            "{replaces}: {}",
            answer.escape_ascii()
        );
    }
    assert_eq!(pbx.hang_up(&old, 4, &tag), 200);
    let bye = runtime.request("BYE");
    runtime.answer(&bye, "200 OK", "", "");
    assert!(daemon.record()["transfer"].is_null());
}

/// REFER is known, and taken inside a call alone.
#[test]
fn refer_outside_a_call_is_forbidden() {
    let daemon = House::new().serve();
    let pbx = Caller::new(daemon.sip(), daemon.credentials());
    let dialling = Dialling::new("stray", &daemon.house.first_number, daemon.sip());
    pbx.send(&dialling, "REFER", 1, "");
    assert_eq!(status_of(&pbx.answer(&dialling)), 403);
    pbx.send(&dialling, "OPTIONS", 2, "");
    let answer = pbx.answer(&dialling);
    let lists = |message: &Message<'_>, name, token| message.has_token(name, token);
    // Allow lists what is served there.
    assert!(!lists(&read(&answer), HeaderName::Allow, "REFER"));
    assert!(lists(&read(&answer), HeaderName::Supported, "replaces"));
}
