//! Events of calls and trunks. A daemon that is killed between commit and delivery delivers them after its restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Pbx, Runtime, http, tools};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the events so far, oldest first, once there are `enough`. Skips those of the numbers that the org was made with.
pub(crate) fn told(daemon: &Daemon, mut enough: impl FnMut(&[Value]) -> bool) -> Vec<Value> {
    let mut stream = TcpStream::connect(daemon.setup.http).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");

    let request = format!(
        "GET /phone/events?last_event_id=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        daemon.setup.key
    );
    stream.write_all(request.as_bytes()).expect("sent");

    let mut told = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap_or_else(|error| panic!("{error}, after {told:#?}"));
        if let Some(data) = line.strip_prefix("data: ") {
            let event: Value = serde_json::from_str(data).expect("JSON");
            if event["type"] == "number.verified" {
                continue;
            }
            told.push(event);
            if enough(&told) {
                return told;
            }
        }
    }

    panic!("the stream ended after {told:#?}");
}

fn types(told: &[Value]) -> Vec<&str> {
    let types = told.iter().map(|event| event["type"].as_str());
    types.map(|kind| kind.expect("a type")).collect()
}

#[test]
fn a_call_and_a_refused_one_are_told() {
    if !tools(&["sipp"]) {
        return;
    }

    let runtime = Runtime::new();
    let setup = DaemonSetup::new();
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    let agent = runtime.play("runtime_answers");
    daemon.caller().play("caller_hangs_up").finish();
    agent.finish();
    let call = daemon.record();
    let disabled = json!({"enabled": false});
    let agent = format!("/phone/{}", daemon.setup.first_agent);
    assert_eq!(daemon.change("PATCH", &agent, &disabled).0, 200);

    daemon.setup.settle();
    daemon.caller().play("caller_is_refused").finish();
    let told = told(&daemon, |told| told.len() == 6);
    assert_eq!(
        types(&told),
        [
            "call.started",
            "call.ringing",
            "call.answered",
            "call.ended",
            "call.started",
            "call.refused"
        ]
    );

    for event in &told[..4] {
        assert_eq!(event["data"]["call_id"], call["id"], "{event}");
        assert_eq!(event["data"]["session_id"], call["session_id"], "{event}");
    }

    let trunk = daemon.shown("/phone/sip/inbound-trunk");
    assert_eq!(call["trunk_id"], trunk["id"], "{call}");

    for field in [
        "status",
        "agent_id",
        "from_e164",
        "to_number",
        "answered_at",
        "ended_at",
        "hangup_by",
        "duration_s",
        "answered_s",
        "trunk_id",
        "caller_call_id",
    ] {
        assert_eq!(told[3]["data"][field], call[field], "{field}");
    }

    assert_eq!(told[5]["data"]["reason"], "no_agent", "{}", told[5]);
    assert!(daemon.stop(), "an open stream holds nothing up");
}

#[test]
fn a_pbx_that_comes_and_goes_is_told() {
    let daemon = DaemonSetup::new().serve();
    let mut pbx = Pbx::udp(&daemon);
    let contact = format!("sip:pbx@{}", pbx.address());
    let register = format!("Contact: <{contact}>\r\nExpires: 120\r\n");

    for _ in 0..2 {
        assert_eq!(pbx.register(&register).status(), Some(200));
    }
    pbx.register("Contact: *\r\nExpires: 0\r\n");
    let told = told(&daemon, |told| told.len() == 2);
    assert_eq!(types(&told), ["trunk.registered", "trunk.lost"]);
    assert_eq!(told[0]["data"]["contact"], json!(contact));
    assert_eq!(told[1]["data"]["reason"], "removed");
    assert_eq!(told[0]["data"]["trunk_id"], told[1]["data"]["trunk_id"]);
}

/// A receiver that records requests, and answers once the test lets it.
#[derive(Clone)]
struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    answers: bool,
    /// Bodies by `webhook-id`.
    bodies: BTreeMap<String, BTreeSet<String>>,
    requests: usize,
    /// Sessions of the requests that were answered.
    taken: BTreeSet<String>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Self {
            address: listener.local_addr().expect("an address"),
            seen: Arc::default(),
        };
        let shared = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let receiver = shared.clone();
                std::thread::spawn(move || receiver.take(stream));
            }
        });
        receiver
    }

    /// Reads a request; `None` if the sender was killed.
    fn take(&self, stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut id, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader
                .read_line(&mut line)
                .ok()
                .filter(|octets| *octets > 0)?;
            match line.trim_end().split_once(": ") {
                Some(("webhook-id", value)) => value.clone_into(&mut id),
                Some(("content-length", value)) => length = value.parse().expect("a length"),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }

        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;

        let body = String::from_utf8(body).expect("text");
        let event: Value = serde_json::from_str(&body).expect("JSON");
        let answers = {
            let mut seen = self.seen.lock().expect("unpoisoned");
            seen.requests += 1;
            seen.bodies.entry(id).or_default().insert(body);
            if seen.answers {
                let session = event["data"]["session_id"].as_str();
                seen.taken.insert(session.expect("a session").to_owned());
            }
            seen.answers
        };

        if answers {
            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
            return reader.get_mut().write_all(answer).ok();
        }

        // The connection stays open until the sender dies.
        let mut rest = [0];
        let _ = reader.read(&mut rest);
        None
    }
}

#[test]
fn kill_9_between_commit_and_delivery_loses_nothing() {
    const ROUNDS: usize = 3;
    const HANDOFFS: usize = 12;

    let receiver = Receiver::start();
    let setup = DaemonSetup::new().set("TRUNKLINE__WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", "true");
    let mut acknowledged = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut process = setup.start();
        let tried = || receiver.seen.lock().expect("unpoisoned").requests;
        let before = tried();
        if round == 0 {
            let url = format!("http://{}/", receiver.address);
            let webhook = json!({"url": url, "types": ["handoff.created"]});
            let (status, made) =
                http::change("POST", setup.http, "/webhooks", &setup.key, &webhook);
            assert_eq!(status, 201, "{made}");
        }
        for turn in 0..HANDOFFS {
            let session = format!("{round}-{turn}");
            let handoff = json!({ "session_id": session });
            let path = "/handoff-analytics/events";
            let (status, made) = http::change("POST", setup.http, path, &setup.key, &handoff);
            assert_eq!(status, 201, "{made}");
            acknowledged.insert(session);
        }
        // The first round kills at once, the others while attempts are under way.
        if round > 0 {
            Deadline::after(PATIENCE).poll(|| (tried() > before).then_some(()));
            std::thread::sleep(Duration::from_millis(150 * round as u64));
        }
        process.kill();
        drop(process);
    }
    receiver.seen.lock().expect("unpoisoned").answers = true;

    let daemon = setup.serve();
    let all = Deadline::after(PATIENCE).poll(|| {
        let seen = receiver.seen.lock().expect("unpoisoned");
        (seen.taken == acknowledged).then_some(())
    });
    let seen = receiver.seen.lock().expect("unpoisoned");
    assert!(all.is_some(), "{:?} of {acknowledged:?}", seen.taken);
    assert!(
        seen.requests > seen.taken.len(),
        "nothing was under way when it was killed"
    );
    assert_eq!(seen.bodies.len(), acknowledged.len());

    for (id, bodies) in &seen.bodies {
        assert_eq!(bodies.len(), 1, "{id} had more than one body: {bodies:#?}");
    }
    drop(seen);

    let told = told(&daemon, |told| told.len() == ROUNDS * HANDOFFS);
    let sessions = told
        .iter()
        .map(|event| event["data"]["session_id"].as_str());
    let sessions: BTreeSet<_> = sessions
        .map(|session| session.expect("a session").to_owned())
        .collect();
    assert_eq!(sessions, acknowledged, "the stream tells each once");
}
