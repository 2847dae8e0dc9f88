//! Messages of RFC 4475 and RFC 5118 beside ours for the same cases: lexer, `rsip` and endpoint judge both alike.

use std::time::Duration;

use trunkline_sip::endpoint::{Config, Endpoint, Received};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node};
use trunkline_testkit::corpus::{Case, Lexed, RFC_SETS, cases};

use crate::{lexed, read_by_rsip};

/// A file in `rfc4475` that belongs to no section.
const NO_CASE: &str = "test";

/// Judgement of a message: the lexer's, the column `rsip`, and the endpoint's.
type Judged = (Lexed, &'static str, (&'static str, Vec<String>));

fn judged(octets: &[u8]) -> Judged {
    (lexed(octets), read_by_rsip(octets), at_endpoint(octets))
}

/// Outcome of a datagram at an endpoint without transactions, and the first lines of what it sends.
fn at_endpoint(octets: &[u8]) -> (&'static str, Vec<String>) {
    let config = Config {
        minter: Minter::new(Node(1), [9; 16]),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        t4: Duration::from_secs(5),
        server: String::new(),
        sent_by: vec!["198.51.100.1:5060".into()],
        max_transactions: 10,
    };
    let mut endpoint = Endpoint::new(config, Entropy::from_seed([7; 32]));
    let flow = Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: "198.51.100.1:5060".parse().expect("an address"),
        peer: "198.51.100.9:5060".parse().expect("an address"),
    };

    let received = match endpoint.receive(octets, flow, Moment::from_secs(1)) {
        Received::Handled => "handled",
        Received::Request(_) => "request",
        Received::Ack(_) => "ACK",
        Received::Cancel { .. } => "CANCEL",
        Received::Response { .. } => "response",
        Received::ForeignResponse { .. } => "foreign response",
        Received::StrayResponse(_) => "stray answer",
    };
    let sent = endpoint.transmits().map(|(_, octets)| {
        let text = String::from_utf8_lossy(octets);
        text.lines().next().unwrap_or_default().to_owned()
    });
    (received, sent.collect())
}

/// The RFC's message as intended, where our copy of it is damaged.
fn restored(case: &Case) -> Vec<u8> {
    let octets = case.octets.clone();
    match &*case.name {
        "baddn" => [&octets, &b"\r\n"[..]].concat(),
        "ipv6-in-sdp" | "mult-ip-in-sdp" | "ipv4-mapped-ipv6" => with_right_length(&octets),
        _ => octets,
    }
}

fn with_right_length(octets: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(octets).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a blank line");
    let lines = head.split("\r\n").map(|line| match line.split_once(": ") {
        Some(("Content-Length", _)) => format!("Content-Length: {}", body.len()),
        Some(_) | None => line.to_owned(),
    });
    let lines: Vec<String> = lines.collect();
    format!("{}\r\n\r\n{body}", lines.join("\r\n")).into_bytes()
}

/// The corpus reports it if the RFCs' messages are missing. Ours are judged by their rows in any case.
#[test]
fn our_messages_are_judged_like_those_of_the_rfcs() {
    let cases = cases();
    let mut wrong = Vec::new();
    for (set, built) in RFC_SETS {
        let ours = |name: &str| {
            let mut ours = cases.iter().filter(|case| case.set == built);
            ours.find(|case| case.name == name)
        };
        let theirs = cases.iter().filter(|case| case.set == set);
        for case in theirs.filter(|case| case.name != NO_CASE) {
            let ours = ours(&case.name).unwrap_or_else(|| panic!("no {} of ours", case.name));
            let (ours, theirs) = (judged(&ours.octets), judged(&restored(case)));
            if ours != theirs {
                wrong.push(format!("{set}/{}: {ours:?}, not {theirs:?}", case.name));
            }
        }
    }

    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// 49 cases of RFC 4475 and 12 messages of RFC 5118.
#[test]
fn each_case_has_a_message_of_ours() {
    let cases = cases();
    let count = |set| cases.iter().filter(|case| case.set == set).count();
    assert_eq!((count("built4475"), count("built5118")), (49, 12));
}
