//! A database that becomes unreachable and comes back while a daemon serves, and one that is down when the daemon starts.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::node::{Node, NodeSetup, text};
use crate::e2e::nodes::Pair;
use crate::e2e::proxy::Proxy;
use trunkline_testkit::database::Database;
use trunkline_testkit::{DaemonSetup, Deadline, tools};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest time that counts as "at once" on a busy machine: shorter than any wait for a connection.
const AT_ONCE: Duration = Duration::from_secs(3);
/// Number of times that a request may be late: other tests share the machine.
const TRIES: usize = 5;

/// Returns the head of the answer to a request, which must arrive at once.
fn head(node: &Node, method: &str, path: &str, key: &str) -> String {
    let mut tries = (0..TRIES).map(|_| tried(node, method, path, key));
    let answered = tries.find_map(Result::ok);
    answered.unwrap_or_else(|| panic!("{method} {path}: never at once"))
}

fn tried(node: &Node, method: &str, path: &str, key: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(node.setup.http).expect("it listens");
    stream.set_read_timeout(Some(AT_ONCE)).expect("a time-out");
    let body = if method == "GET" { "" } else { "{}" };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, _) = answer.split_once("\r\n\r\n").expect("a head");
    Ok(head.to_ascii_lowercase())
}

fn is_refused(head: &str) -> bool {
    head.starts_with("http/1.1 503 ") && head.contains("\r\nretry-after: ")
}

#[test]
fn what_needs_the_database_is_503_at_once_and_all_else_goes_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(database) = Database::new() else {
        return;
    };
    let proxy = Proxy::new(&database);
    proxy.repair();
    // The caller sends no RTP, and answers no UPDATE.
    let silent = ("TRUNKLINE__MEDIA__SILENCE_S".to_owned(), "0".to_owned());
    let setup = NodeSetup::new(&[proxy.environment(&database), vec![silent]].concat());
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let node = setup.serve();
    let other = NodeSetup::new(
        &[
            database.environment(),
            vec![("TRUNKLINE__SIP__NODE".to_owned(), "1".to_owned())],
        ]
        .concat(),
    );
    let pair = Pair::of(node, other.serve(), outset, database);
    let (node, key) = (&pair.first, &pair.key);
    let live = || -> Vec<Value> {
        let (status, page) = node.get("/phone/calls?status=in_progress", key);
        assert_eq!(status, 200, "{page}");
        let page: Value = serde_json::from_str(&page).expect("JSON");
        page["items"].as_array().expect("a page").clone()
    };
    let mut caller = pair.caller(node);
    caller.talks = Duration::from_secs(40);
    let talk = caller.play("caller_is_hung_up_on");
    let up = Deadline::after(LIMIT).poll(|| live().first().cloned());
    let call = format!("/phone/calls/{}", text(&up.expect("a call")["id"]));

    proxy.cut();
    for (method, path) in [
        ("GET", "/phone"),
        ("GET", "/phone/calls"),
        ("GET", "/phone/numbers"),
        ("POST", "/phone"),
        ("GET", "/phone"),
    ] {
        // A malformed body is refused before the database is used.
        let head = head(node, method, path, key);
        let expected = is_refused(&head) || (method == "POST" && head.starts_with("http/1.1 400 "));
        assert!(expected, "{method} {path}: {head}");
    }

    let agent = json!({"name": "New", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false});
    let (status, refused) = node.change("POST", "/phone", key, &agent);
    assert_eq!(status, 503, "{refused}");
    assert_eq!(live().len(), 1);

    let (status, shown) = node.get(&call, key);
    assert!(
        status == 200 && shown.contains("in_progress"),
        "{status}: {shown}"
    );

    let question = json!({"to": text(&pair.outset["phone_number"])});
    let (status, decision) = node.change("POST", "/phone/sip/route-test", key, &question);
    assert_eq!(status, 200, "{decision}");
    let (_, ready) = node.get("/readyz", "");
    assert!(ready.contains("unavailable"), "{ready}");
    // Another caller is served.
    pair.caller(node).play("caller_hangs_up").finish();
    let (status, ended) = node.change("POST", &format!("{call}/hangup"), key, &json!({}));
    assert!(matches!(status, 200 | 202), "{status}: {ended}");
    drop(talk);

    proxy.repair();
    let back = Deadline::after(LIMIT).poll(|| (node.get("/phone", key).0 == 200).then_some(()));
    assert!(back.is_some(), "it doesn't come back");
    let recorded = Deadline::after(LIMIT).poll(|| (pair.ends().len() == 2).then_some(()));
    assert!(recorded.is_some(), "{:?}", pair.ends());
}

#[test]
fn a_start_waits_for_its_database_with_closed_ports() {
    let Some(database) = Database::new() else {
        return;
    };
    let proxy = Proxy::new(&database);
    let setup = NodeSetup::new(&proxy.environment(&database));
    let mut process = setup.begin();
    let said = || setup.log().matches("waiting for the database").count();
    let again = Deadline::after(LIMIT).poll(|| (said() >= 2).then_some(()));
    assert!(again.is_some(), "it says nothing:\n{}", setup.log());
    assert!(TcpStream::connect(setup.http).is_err(), "HTTP listens");
    assert!(UdpSocket::bind(setup.sip).is_ok(), "SIP listens");

    proxy.repair();
    let ready = Deadline::after(LIMIT).poll(|| {
        let answer = trunkline_testkit::http::get(setup.http, "/readyz", None)?;
        (answer.0 == 200).then_some(())
    });
    assert!(ready.is_some(), "{}", setup.log());
    process.terminate();
    assert!(process.wait(Deadline::after(LIMIT)).is_some(), "it ends");

    // A start that waits for its database ends on a signal.
    proxy.cut();
    let before = said();
    let mut process = setup.begin();
    let waits = Deadline::after(LIMIT).poll(|| (said() > before).then_some(()));
    assert!(waits.is_some(), "{}", setup.log());
    process.terminate();
    let ended = process.wait(Deadline::after(LIMIT)).expect("it ends");
    assert_eq!(ended.code(), Some(0), "{}", setup.log());

    // Waiting doesn't help against a wrong name.
    let mut wrong = database.environment();
    for (_, value) in &mut wrong {
        *value = value.replace("/trunkline_test_", "/no_such_");
    }
    let (code, complaint) = NodeSetup::new(&wrong).said(&["serve"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("database.url"), "{complaint}");
}

/// Another program holds the file longer than a request waits.
#[test]
fn what_a_locked_file_keeps_from_being_written_is_503() {
    let daemon = DaemonSetup::new().serve();
    let file = daemon.setup.folder.path().join("data/trunkline.db");
    let holder = rusqlite::Connection::open(file).expect("the database opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("it is held");
    let agent = json!({"name": "New", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false});
    let (status, refused) = daemon.change("POST", "/phone", &agent);
    assert_eq!(status, 503, "{refused}");
    daemon.shown("/phone");
    holder.execute_batch("ROLLBACK").expect("it is let go");
    let (status, made) = daemon.change("POST", "/phone", &agent);
    assert_eq!(status, 201, "{made}");
}
