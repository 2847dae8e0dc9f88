//! The built-in echo agent with a real phone: audio, RTCP reports, and a transfer by a key.

use std::time::Duration;

use trunkline_testkit::baresip::Phone;
use trunkline_testkit::{
    Baresip, Daemon, DaemonSetup, Deadline, Runtime, assert_handed_over, tools,
};

#[test]
fn a_phone_hears_itself() {
    if !tools(&["baresip"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let phone = Baresip::call(
        daemon.sip(),
        &daemon.credentials(),
        &daemon.setup.first_number,
        440.0,
    );

    assert!(
        phone.heard.len() > 2 * 8000,
        "{} samples came back:\n{}",
        phone.heard.len(),
        phone.output
    );

    let share = phone.share_of(440.0);
    assert!(
        share > 0.9,
        "the tone is {share} of what came back:\n{}",
        phone.output
    );

    let call = daemon.record();
    assert_eq!(call["status"], "completed", "{call}");
    assert_eq!(call["agent_id"], daemon.setup.first_agent, "{call}");
    let media = &call["media"];
    for way in ["received", "sent"] {
        let packets = media[way]["packets"].as_u64();
        assert!(packets > Some(50), "{way}: {media}");
    }
    assert!(media["first_word_ms"].is_number(), "{media}");
}

/// Waits until the phone's call is answered.
fn wait_until_up(daemon: &Daemon, phone: &Phone) {
    let in_progress = || {
        let calls = daemon.calls();
        let is_up = calls.iter().any(|call| call["status"] == "in_progress");
        is_up.then_some(())
    };
    let up = Deadline::after(Duration::from_secs(20)).poll(in_progress);
    assert!(up.is_some(), "{}", phone.output());
}

/// The phone sends a report every five seconds. The round trip needs two; the call lasts for three, in case one is lost.
#[test]
fn the_reports_of_a_phone_are_in_the_record() {
    if !tools(&["baresip"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let number = daemon.setup.first_number.clone();
    let phone = Baresip::dial(daemon.sip(), &daemon.credentials(), &number);
    wait_until_up(&daemon, &phone);
    std::thread::sleep(Duration::from_secs(17));
    let output = phone.leave();

    let media = &daemon.record()["media"];
    assert_eq!(media["sent"]["packets_lost"], 0, "{media}\n{output}");
    for figure in [
        &media["sent"]["mos"],
        &media["sent"]["jitter_ms"],
        &media["round_trip_ms"],
    ] {
        assert!(figure.is_number(), "{media}\n{output}");
    }
}

/// On a key that the phone sends as a telephone-event (RFC 4733) the daemon sends it REFER; the phone calls the destination and reports the
/// outcome.
#[test]
fn a_phone_is_transferred_by_a_key() {
    if !tools(&["baresip", "sipp"]) {
        return;
    }

    let desk = Runtime::new();
    let daemon = DaemonSetup::new().serve();
    daemon.destination("Sales", "phone", "+442071838751");
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.address()));

    let answering = desk.play("runtime_answers");
    let number = daemon.setup.first_number.clone();
    let phone = Baresip::dial(daemon.sip(), &daemon.credentials(), &number);
    wait_until_up(&daemon, &phone);

    phone.press("2");
    answering.wait_for("ACK");

    // The outcome may stay `unknown` until the phone hangs up, if the destination answers at once.
    let is_settled = || {
        let state = &daemon.calls()[0]["transfer"]["status"];
        (state == "completed" || state == "unknown").then_some(())
    };
    let settled = Deadline::after(Duration::from_secs(20)).poll(is_settled);
    assert!(
        settled.is_some(),
        "{:?}\n{}",
        daemon.calls(),
        phone.output()
    );

    phone.leave();
    let record = daemon.record();
    let answering = answering.finish();
    assert_handed_over(&record);
    assert_eq!(record["transfer"]["destination"], "Desk", "{record}");
    assert_eq!(record["transfer"]["way"], "refer", "{record}");

    let line = answering.request("INVITE").start_line();
    let desk = format!("INVITE sip:desk@{}", desk.address());
    assert!(line.starts_with(&desk), "{line}");

    let session = record["session_id"].as_str().expect("an id");
    assert!(line.contains(session), "with the context: {line}");
}
