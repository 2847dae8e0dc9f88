//! The messages that docs/transfers.md shows: each has the headers, in their order, that leave on the wire.

use std::path::Path;

use serde_json::json;

use trunkline_testkit::referred::Step::{Answer, Bye, ByeComes, Pause, Refer, Rejoined};
use trunkline_testkit::{DaemonSetup, Message, Runtime, tools};

const CONTEXT: [&str; 3] = [
    "X-PLATFORM-SESSION-ID",
    "X-PLATFORM-AGENT-ID",
    "X-PLATFORM-CONTACT-ID",
];

/// Returns the message of the page that begins so and has that line.
fn shown(beginning: &str, line: &str) -> Message {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/transfers.md");
    let page = std::fs::read_to_string(page).expect("the page can be read");
    let mut blocks = page.split("```").skip(1).step_by(2);
    let found = blocks.find_map(|block| {
        let block = block.strip_prefix('\n')?;
        let is_meant = block.starts_with(beginning) && block.contains(line);
        is_meant.then(|| Message::of(block))
    });
    found.unwrap_or_else(|| panic!("the page shows no {beginning}"))
}

/// Returns the names of the headers inside the URI of Refer-To.
fn inside(refer: &Message) -> Vec<&str> {
    let to = refer.header("Refer-To").expect("a Refer-To");
    let (_, headers) = to.split_once('?').expect("headers inside");
    let names = headers
        .split('&')
        .filter_map(|field| field.split('=').next());
    names.collect()
}

#[test]
fn the_refer_is_as_the_page_shows_it() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    daemon.destination("Sales", "phone", "+442071838751");
    let pbx = daemon
        .caller()
        .takes(&[Refer, Answer("202 Accepted", ""), Pause(100), Bye]);
    let call = daemon.answered_call();
    let path = format!("/phone/calls/{call}/transfer");
    let (status, begun) = daemon.change("POST", &path, &json!({"destination": "Sales"}));
    assert_eq!(status, 202, "{begun}");

    let pbx = pbx.finish();
    let (sent, shown) = (pbx.request("REFER"), shown("REFER ", "\nRefer-To: "));
    assert_eq!(shown.header_names(), sent.header_names(), "{pbx}");
    assert_eq!(inside(&shown), inside(sent), "{pbx}");
    assert_eq!(inside(sent), CONTEXT, "{pbx}");
}

#[test]
fn the_bridged_invite_is_as_the_page_shows_it() {
    if !tools(&["sipp"]) {
        return;
    }

    let desk = Runtime::new();
    let daemon = DaemonSetup::new().serve();
    daemon.destination("Desk", "sip", &format!("sip:desk@{}", desk.address()));
    let answering = desk.play("runtime_answers");
    let pbx = daemon.caller().takes(&[
        Refer,
        Answer("405 Method Not Allowed", ""),
        Rejoined,
        ByeComes,
    ]);
    let call = daemon.answered_call();
    let path = format!("/phone/calls/{call}/transfer");
    let (status, begun) = daemon.change("POST", &path, &json!({"destination": "Desk"}));
    assert_eq!(status, 202, "{begun}");

    answering.wait_for("ACK");
    pbx.wait_for("ACK");
    daemon.hang_up(&call);
    pbx.finish();
    let answering = answering.finish();
    let (sent, shown) = (
        answering.request("INVITE"),
        shown("INVITE ", "\nSession-Expires: "),
    );
    assert_eq!(shown.header_names(), sent.header_names(), "{answering}");

    for name in CONTEXT {
        assert!(sent.header(name).is_some(), "{answering}");
    }
}
