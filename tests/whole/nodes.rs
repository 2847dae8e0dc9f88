//! Two daemons on one PostgreSQL: what one is told the other knows, and what both could send is sent once.
//!
//! How long that takes is bounded by the time-outs of the peers alone: a second on a machine that has nothing else to do.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Caller, Credentials, Deadline, tools};
use crate::node::{Node, Plot, text};
use crate::server::Database;

/// What the document allows for the revocation of a key.
const REVOCATION: Duration = Duration::from_secs(60);
/// For everything else: far beyond the second that it takes, since other tests may have the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Two daemons on a database, an org with an agent, a number and a trunk, and the org's key.
struct Pair {
    first: Node,
    second: Node,
    outset: Value,
    key: String,
    // Dropped last: the daemons use it.
    _database: Database,
}

impl Pair {
    fn new(more: &[(&str, &str)]) -> Option<Self> {
        let database = Database::new()?;
        let more = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment: Vec<_> = database.environment().into_iter().chain(more).collect();
        let mut second = environment.clone();
        second.push(("TRUNKLINE__SIP__NODE".to_owned(), "1".to_owned()));
        let first = Plot::new(&environment);
        let outset = first.run(&["quickstart", "--json", "--no-serve"]);
        Some(Self {
            first: first.serve(),
            second: Plot::new(&second).serve(),
            key: text(&outset["api_key"]),
            outset,
            _database: database,
        })
    }

    /// Waits until the node's route-test says so.
    fn routed(&self, node: &Node, to: &str, outcome: &Value) {
        let question = json!({"to": to});
        let mut last = Value::Null;
        let routed = Deadline::after(LIMIT).poll(|| {
            last = node.made("POST", "/phone/sip/route-test", &self.key, &question);
            (last["outcome"] == *outcome).then_some(())
        });
        assert!(routed.is_some(), "{to} isn't routed to {outcome}: {last}");
    }
}

#[test]
fn agents_and_numbers_of_one_are_routed_to_by_the_other() {
    let Some(pair) = Pair::new(&[("TRUNKLINE__PHONE__AUTO_VERIFY_NUMBERS", "true")]) else {
        return;
    };
    let (first, second, key) = (&pair.first, &pair.second, &pair.key);
    let agent = json!({"name": "Night", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false});
    let agent = text(&first.made("POST", "/phone", key, &agent)["id"]);
    let number = json!({"phone_number": "+442071838759"});
    let number = second.made("POST", "/phone/numbers", key, &number);
    let ids = json!({"phone_number_ids": [number["id"]]});
    let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
    first.made("PUT", &path, key, &ids);
    let assigned = json!({"agent": {"id": agent, "step": "assigned_number"}});
    pair.routed(second, "+442071838759", &assigned);
    pair.routed(first, "+442071838759", &assigned);
    let path = format!("/phone/{agent}");
    second.made("PATCH", &path, key, &json!({"enabled": false}));
    let question = json!({"to": "+442071838759"});
    let passed = Deadline::after(LIMIT).poll(|| {
        let decided = first.made("POST", "/phone/sip/route-test", key, &question);
        (decided["outcome"]["agent"]["id"] == pair.outset["agent_id"]).then_some(())
    });
    assert!(passed.is_some(), "the first still routes to {agent}");
}

/// The trunk's pair, made on one, lets a PBX call through the other.
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
    // The listing shows the directory's view only by its effects: wait until the second knows the change's edits.
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
    let caller = Caller {
        daemon: pair.second.plot.sip,
        credentials: Credentials {
            username: text(&trunk["auth_username"]),
            password: text(&trunk["auth_password"]),
        },
        number: "+441632960001".to_owned(),
        dials: text(&pair.outset["phone_number"]),
        extra_header: "X-Agent: none named".to_owned(),
        tcp: false,
        talks: Duration::from_millis(500),
        allow: None,
    };
    caller.play("caller_hangs_up").finish();
    // And the record of the second's call is the first's to show.
    let ended = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = pair.first.get("/phone/calls?status=completed", &pair.key);
        let calls: Value = serde_json::from_str(&calls).unwrap_or_default();
        (calls["total"] == 1).then_some(())
    });
    assert!(ended.is_some(), "the first doesn't show the call");
}

#[test]
fn a_key_revoked_on_one_ends_on_the_other() {
    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let new = json!({"name": "Short"});
    let made = pair.first.made("POST", "/api-keys", &pair.key, &new);
    let short = text(&made["api_key"]);
    assert_eq!(pair.second.get("/phone", &short).0, 200);
    let path = format!("/api-keys/{}", text(&made["api_key_id"]));
    pair.first.made("DELETE", &path, &pair.key, &Value::Null);
    assert_eq!(pair.first.get("/phone", &short).0, 401);
    let ended = Deadline::after(REVOCATION)
        .poll(|| (pair.second.get("/phone", &short).0 == 401).then_some(()));
    assert!(ended.is_some(), "the second still takes the key");
}

/// Somebody who listens at one hears what the other is told.
#[test]
fn a_stream_at_one_tells_what_happens_at_the_other() {
    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let mut stream = TcpStream::connect(pair.second.plot.http).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
    let key = &pair.key;
    write!(
        stream,
        "GET /phone/events?types=handoff.created HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    )
    .expect("it takes this");
    let mut lines = BufReader::new(stream).lines();
    let mut until = |part: &str| {
        let line = lines.find(|line| line.as_ref().map_or(true, |line| line.contains(part)));
        line.expect("the stream goes on").expect("in time")
    };
    until("text/event-stream");
    let handoff = json!({"session_id": "told at the first"});
    pair.first
        .made("POST", "/handoff-analytics/events", key, &handoff);
    until("told at the first");
}

/// A receiver that says 200 to everything, and what it got: how often each delivery came, by `webhook-id`.
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
        "/webhooks/{}/deliveries?state=delivered&limit=1",
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
