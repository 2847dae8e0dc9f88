//! Two daemons on one PostgreSQL, one of them suspended: the other's live page names it, and so does the operator's page.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::e2e::node::{Node, text};
use crate::e2e::nodes::Pair;
use trunkline_testkit::Deadline;

const LIMIT: Duration = Duration::from_secs(40);

/// Returns head and body of an answer that closes the connection.
fn ask(at: SocketAddr, method: &str, path: &str, more: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("the daemon listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}"
    )
    .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a whole answer");
    answer
}

/// Returns the cookie that an answer sets, as a request header.
fn cookie(answer: &str) -> String {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "));
    let line = line.unwrap_or_else(|| panic!("no cookie: {answer}"));
    let pair = line.split(';').next().expect("a pair");
    format!("Cookie: {pair}\r\n")
}

/// Returns path and query of a link that a command prints.
fn link(node: &Node, arguments: &[&str]) -> String {
    let url = text(&node.setup.run(arguments)["url"]);
    let (_, rest) = url.split_once("://").expect("a scheme");
    rest[rest.find('/').expect("a path")..].to_owned()
}

#[test]
fn a_node_that_does_not_answer_is_named() {
    let Some(pair) = Pair::new(&[("TRUNKLINE__SIP__NODE_LEASE_S", "5")]) else {
        return;
    };
    let (node, at) = (&pair.first, pair.first.setup.http);
    let org = text(&pair.outset["org_id"]);
    let opened = ask(at, "GET", &link(node, &["console", "--json"]), "", "");
    let person = cookie(&opened);
    let live = || ask(at, "GET", &format!("/dashboard/{org}/live"), &person, "");

    let operators = link(node, &["console", "--operator", "--json"]);
    let (login, token) = operators.split_once('?').expect("a token");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let operator = cookie(&ask(at, "POST", login, form, token));
    let nodes = || ask(at, "GET", "/operator-console/nodes", &operator, "");
    let state = || {
        let listed = node.setup.run(&["node", "list", "--json"]);
        text(&listed[1]["status"])
    };

    assert!(!live().contains("answer</strong>"), "{}", live());
    assert_eq!(state(), "serving");
    pair.second.signal("STOP");
    let named = || live().contains("Node 1 doesn't answer").then_some(());
    let named = Deadline::after(LIMIT).poll(named);
    let (page, listed, known) = (live(), nodes(), state());
    pair.second.signal("CONT");
    assert!(named.is_some(), "{page}");
    assert!(listed.contains(">silent</span>"), "{listed}");
    assert_eq!(known, "silent");

    let is_back = || (!live().contains("Node 1 doesn't answer")).then_some(());
    assert!(Deadline::after(LIMIT).poll(is_back).is_some());
    assert_eq!(state(), "serving");
}
