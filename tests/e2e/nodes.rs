//! Two daemons on one PostgreSQL: calls of one are in the list of the other, and webhooks are sent once. `seconds` tests how soon they know of each
//! other's changes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::node::{Node, NodeSetup, text};
use trunkline_testkit::database::Database;
use trunkline_testkit::{Caller, Credentials, Deadline, tools};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Two daemons on a database, an org with an agent, a number and a trunk, and the org's key.
pub(crate) struct Pair {
    pub(crate) first: Node,
    pub(crate) second: Node,
    pub(crate) outset: Value,
    pub(crate) key: String,
    // Dropped last: the daemons use it.
    pub(crate) database: Database,
}

impl Pair {
    pub(crate) fn new(more: &[(&str, &str)]) -> Option<Self> {
        let database = Database::new()?;
        let more = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: Vec<_> = database.environment().into_iter().chain(more).collect();
        let mut second = environment.clone();
        second.push(("TRUNKLINE__SIP__NODE".to_owned(), "1".to_owned()));
        let first = NodeSetup::new(&environment);
        let outset = first.run(&["quickstart", "--json", "--no-serve"]);
        let first = first.serve();
        let second = NodeSetup::new(&second).serve();
        Some(Self::of(first, second, outset, database))
    }

    /// Makes a pair of two daemons that serve, and quickstart's output for the org.
    pub(crate) fn of(first: Node, second: Node, outset: Value, database: Database) -> Self {
        Self {
            first,
            second,
            key: text(&outset["api_key"]),
            outset,
            database,
        }
    }

    /// Returns the environment of a further daemon on the same database.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.database.environment()
    }

    /// Returns the statuses in events of ended calls.
    pub(crate) fn ends(&self) -> Vec<String> {
        ends(&self.database)
    }

    /// Returns the org's PBX, which calls its number through one of the nodes.
    pub(crate) fn caller(&self, node: &Node) -> Caller {
        let trunk = &self.outset["trunk"];
        Caller {
            daemon: node.setup.sip,
            credentials: Credentials {
                username: text(&trunk["auth_username"]),
                password: text(&trunk["auth_password"]),
            },
            number: "+441632960001".to_owned(),
            dials: text(&self.outset["phone_number"]),
            extra_header: "X-Agent: none named".to_owned(),
            tcp: false,
            talks: Duration::from_millis(500),
            allow: None,
        }
    }
}

/// Returns the statuses in events of ended calls, one per event.
pub(crate) fn ends(database: &Database) -> Vec<String> {
    database.texts(
        "SELECT calls.status FROM events JOIN calls ON calls.id = events.call_id WHERE events.type = 'call.ended'
         UNION ALL SELECT body::json->'data'->>'status' FROM events WHERE type = 'call.ended' AND call_id IS NULL",
    )
}

/// Credentials of a trunk, made on one node, admit a PBX's call on the other.
#[test]
fn credentials_made_on_one_are_good_on_the_other() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };

    let path = "/phone/sip/inbound-trunk/rotate-credentials";
    let trunk = pair.first.made("POST", path, &pair.key, &json!({}));

    // The list doesn't show how far the second node's directory has followed: the test waits until its routing knows the agent.
    let agent = json!({"name": "Marker", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false});
    let agent = pair.first.made("POST", "/phone", &pair.key, &agent);
    let question = json!({"to": "nobody", "agent_id": agent["id"]});
    let known = Deadline::after(LIMIT).poll(|| {
        let decided = pair
            .second
            .made("POST", "/phone/sip/route-test", &pair.key, &question);
        (decided["outcome"]["agent"]["id"] == agent["id"]).then_some(())
    });
    assert!(known.is_some(), "the second doesn't know the agent");

    let rotated = Credentials {
        username: text(&trunk["auth_username"]),
        password: text(&trunk["auth_password"]),
    };
    let caller = pair.caller(&pair.second).with(rotated);
    caller.play("caller_hangs_up").finish();

    // The first node shows the record of the second node's call.
    let ended = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = pair.first.get("/phone/calls?status=completed", &pair.key);
        let calls: Value = serde_json::from_str(&calls).unwrap_or_default();
        (calls["total"] == 1).then_some(())
    });
    assert!(ended.is_some(), "the first doesn't show the call");
}

/// Messages stay with the node that had the call; the other node fetches them from it.
#[test]
fn a_trace_is_shown_by_every_node() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let caller = pair.caller(&pair.second);
    caller.play("caller_hangs_up").finish();
    let ended = Deadline::after(LIMIT).poll(|| {
        let (_, page) = pair.first.get("/phone/calls", &pair.key);
        let page: Value = serde_json::from_str(&page).ok()?;
        let call = &page["items"][0];
        call["ended_at"].is_string().then(|| text(&call["id"]))
    });
    let path = format!("/phone/calls/{}/trace", ended.expect("a record for both"));
    let (status, trace) = pair.second.get(&path, &pair.key);
    assert!(status == 200 && trace.contains("INVITE"), "{trace}");
    assert_eq!(pair.first.get(&path, &pair.key), (200, trace));

    // A node that is down can't be asked.
    drop(pair.second);
    let (status, answer) = pair.first.get(&path, &pair.key);
    assert!(
        status == 503 && answer.contains("Node 1 has the call"),
        "{status}: {answer}"
    );
}

/// Starts a receiver that answers 200 to everything; counts the requests by `webhook-id`.
fn receiver() -> (SocketAddr, Arc<Mutex<BTreeMap<String, usize>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = listener.local_addr().expect("an address");
    let got = Arc::new(Mutex::new(BTreeMap::new()));
    let log = Arc::clone(&got);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = Arc::clone(&log);
            thread::spawn(move || receive(stream, &log));
        }
    });
    (at, got)
}

fn receive(stream: TcpStream, log: &Mutex<BTreeMap<String, usize>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut id, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            match &*name.to_ascii_lowercase() {
                "webhook-id" => id = Some(value.trim().to_owned()),
                "content-length" => length = value.trim().parse().ok()?,
                _ => {}
            }
        }

        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        *log.lock().ok()?.entry(id?).or_default() += 1;
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        reader.get_mut().write_all(answer).ok()?;
    }
}

#[test]
fn webhooks_are_sent_once_by_two() {
    const EVENTS: usize = 100;

    let private = [("TRUNKLINE__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", "true")];
    let Some(pair) = Pair::new(&private) else {
        return;
    };

    let (at, got) = receiver();
    let hook = json!({"url": format!("http://{at}/in"), "types": ["handoff.created"]});
    let hook = pair.first.made("POST", "/webhooks", &pair.key, &hook);
    for number in 0..EVENTS {
        let node = [&pair.first, &pair.second][number % 2];
        let handoff = json!({"session_id": format!("s-{number}")});
        node.made("POST", "/handoff-analytics/events", &pair.key, &handoff);
    }

    let path = format!(
        "/webhooks/{}/deliveries?status=delivered&limit=1",
        text(&hook["id"])
    );
    let settled = Deadline::after(2 * LIMIT).poll(|| {
        let (_, page) = pair.second.get(&path, &pair.key);
        let page: Value = serde_json::from_str(&page).unwrap_or_default();
        (page["total"] == EVENTS).then_some(())
    });
    let got = got.lock().expect("nobody panics").clone();
    assert!(settled.is_some(), "{} came: {got:?}", got.len());
    assert_eq!(got.len(), EVENTS);

    let more: Vec<_> = got.iter().filter(|(_, times)| **times != 1).collect();
    assert!(more.is_empty(), "sent more than once: {more:?}");
}
