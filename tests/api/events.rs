//! `/phone/events`: a stream of events, over a socket.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use trunkline::api::Server;
use trunkline::console;
use trunkline_store::{EventType, NewEvent, Suspender, orgs, partners};
use uuid::Uuid;

use crate::pages::org_of;
use crate::test_api::{Tenant, TestApi, all_lack, now};

const EVENTS: &str = "/phone/events";
const PATIENCE: Duration = Duration::from_secs(10);
/// Below the ten seconds after which a stream checks its key without being woken.
const BEFORE_CHECK: Duration = Duration::from_secs(8);

/// An API that answers on a socket.
struct Serving {
    api: TestApi,
    server: Server,
    address: SocketAddr,
}

impl Serving {
    async fn new(toml: &str) -> Self {
        let api = TestApi::with(toml).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let server = Server::start(
            api.state.clone(),
            console::router(api.state.clone()),
            listener,
            None,
            usize::MAX,
        );
        Self {
            api,
            server,
            address,
        }
    }

    async fn emit(&self, org: Uuid, kind: EventType, number: u32) {
        let event = NewEvent::new(org, kind, &json!({ "number": number }), now());
        let emitted = self.api.store.emit(event).await;
        emitted.expect("emitted");
    }

    /// Opens a stream with further header lines.
    async fn open(&self, path: &str, token: &str, headers: &str) -> Stream {
        let (head, stream) = self.ask(path, token, headers).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        assert!(head.contains("cache-control: no-cache"), "{head}");
        assert!(head.contains("\"org-streams\";q=1000;w=60"), "{head}");
        stream
    }

    /// Opens a stream as soon as the server has a place for it.
    async fn open_when_free(&self, path: &str, token: &str) -> Stream {
        let asked = async {
            loop {
                let (head, stream) = self.ask(path, token, "").await;
                if head.starts_with("http/1.1 200") {
                    return stream;
                }
                assert!(head.starts_with("http/1.1 429"), "{head}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let opened = tokio::time::timeout(PATIENCE, asked).await;
        opened.expect("a place becomes free")
    }

    /// Requests a stream; returns the answer's head in lower case and the rest of the connection.
    async fn ask(&self, path: &str, token: &str, headers: &str) -> (String, Stream) {
        let mut stream = TcpStream::connect(self.address).await.expect("connected");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut stream = Stream(BufReader::new(stream));
        let mut head = String::new();

        loop {
            let line = stream.line().await.expect("a head");
            if line.is_empty() {
                break;
            }
            head.push_str(&line.to_ascii_lowercase());
            head.push('\n');
        }

        (head, stream)
    }
}

/// An open stream.
struct Stream(BufReader<TcpStream>);

/// One event of it.
#[derive(PartialEq, Debug, Default)]
struct Received {
    id: String,
    kind: String,
    body: Value,
}

impl Received {
    fn number(&self) -> u64 {
        self.body["data"]["number"].as_u64().expect("a number")
    }
}

impl Stream {
    /// Returns the next line without its end; `None` at the end of the stream.
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_line(&mut line)).await;
        let octets = read.expect("in time").expect("readable");
        (octets > 0).then(|| line.trim_end().to_owned())
    }

    /// Returns the next event; skips comments and chunk sizes.
    async fn event(&mut self) -> Option<Received> {
        let mut received = Received::default();

        loop {
            let line = self.line().await?;
            if let Some(id) = line.strip_prefix("id: ") {
                received.id = id.to_owned();
            } else if let Some(kind) = line.strip_prefix("event: ") {
                received.kind = kind.to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                received.body = serde_json::from_str(data).expect("JSON");
            } else if line.is_empty() && !received.id.is_empty() {
                assert_eq!(received.body["id"], received.id);
                assert_eq!(received.body["type"], received.kind);
                return Some(received);
            } else if line == "0" {
                return None;
            }
        }
    }
}

async fn two(serving: &Serving) -> (Tenant, Tenant) {
    let api = &serving.api;
    (api.tenant("Acme").await, api.tenant("Bolt").await)
}

#[tokio::test]
async fn events_arrive_as_they_happen_and_only_the_orgs_own() {
    let serving = Serving::new("").await;
    let (acme, bolt) = two(&serving).await;
    serving.emit(acme.org, EventType::TrunkLost, 0).await;

    let mut ours = serving.open(EVENTS, &acme.token, "").await;
    let mut theirs = serving.open(EVENTS, &bolt.token, "").await;
    serving.emit(acme.org, EventType::TrunkRegistered, 1).await;
    serving.emit(bolt.org, EventType::TrunkLost, 2).await;
    serving.emit(acme.org, EventType::TrunkLost, 3).await;

    let first = ours.event().await.expect("an event");
    assert_eq!(
        (first.kind.as_str(), first.number()),
        ("trunk.registered", 1)
    );
    assert_eq!(first.body["timestamp"], "2026-01-31T12:00:00.000Z");
    assert_eq!(ours.event().await.expect("an event").number(), 3);
    assert_eq!(theirs.event().await.expect("an event").number(), 2);
    serving.server.stop().await;

    assert_eq!(ours.event().await, None);
    assert_eq!(theirs.event().await, None);
}

#[tokio::test]
async fn a_stream_goes_on_where_it_was_cut() {
    let serving = Serving::new("").await;
    let (acme, bolt) = two(&serving).await;
    let mut stream = serving.open(EVENTS, &acme.token, "").await;
    for number in 0..150 {
        serving.emit(acme.org, EventType::TrunkLost, number).await;
        serving.emit(bolt.org, EventType::TrunkLost, 1_000).await;
    }

    let first = stream.event().await.expect("an event");
    assert_eq!(first.number(), 0);
    drop(stream);

    let header = format!("Last-Event-ID: {}\r\n", first.id);
    let by_query = format!("{EVENTS}?last_event_id={}", first.id);
    for (path, header) in [(EVENTS, &*header), (&by_query, "")] {
        let mut stream = serving.open(path, &acme.token, header).await;
        for number in 1..150 {
            assert_eq!(stream.event().await.expect("an event").number(), number);
        }
    }

    // The stream begins at the oldest event kept: on request, or because the last seen event has expired or is another org's.
    let gone = format!("Last-Event-ID: {}\r\n", Uuid::now_v7());
    for header in ["Last-Event-ID: 0\r\n", &gone] {
        let mut stream = serving.open(EVENTS, &acme.token, header).await;
        assert_eq!(stream.event().await.expect("an event").number(), 0);
    }

    let mut stream = serving
        .open(
            EVENTS,
            &bolt.token,
            &format!("Last-Event-ID: {}\r\n", first.id),
        )
        .await;
    assert_eq!(stream.event().await.expect("an event").number(), 1_000);

    drop(stream);
    serving.server.stop().await;
}

#[tokio::test]
async fn a_key_sees_the_types_that_its_scopes_allow() {
    let serving = Serving::new("").await;
    let (acme, _) = two(&serving).await;
    let (_, token) = serving.api.key(acme.org, &["calls:read"]).await;
    let mut narrow = serving.open(EVENTS, &token, "").await;
    let mut wide = serving
        .open(
            "/phone/events?types=trunk.lost,key.revoked",
            &acme.token,
            "",
        )
        .await;

    for (number, kind) in EventType::ALL.into_iter().enumerate() {
        serving.emit(acme.org, kind, number as u32).await;
    }

    for expected in [
        "call.started",
        "call.ringing",
        "call.answered",
        "call.ended",
        "call.refused",
        "transfer.updated",
    ] {
        assert_eq!(narrow.event().await.expect("an event").kind, expected);
    }

    for expected in ["trunk.lost", "key.revoked"] {
        assert_eq!(wide.event().await.expect("an event").kind, expected);
    }
    drop((narrow, wide));
    let api = &serving.api;
    let refused = api.get("/phone/events?types=key.revoked", &token).await;

    all_lack(&[refused], "keys:write");

    let (_, other) = api.key(acme.org, &["phone:read"]).await;
    all_lack(&[api.get(EVENTS, &other).await], "calls:read");

    let wrong = api
        .get(
            "/phone/events?types=call.lost&last_event_id=x&colour=red",
            &acme.token,
        )
        .await
        .with(400);
    let message = wrong["message"].as_str().expect("a message");

    for fault in [
        "types: \"call.lost\" is none of call.started",
        "last_event_id: is no event's id",
        "colour: is no parameter",
    ] {
        assert!(message.contains(fault), "{message}");
    }

    assert_eq!(api.get(EVENTS, "x").await.status, 401);

    serving.server.stop().await;
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_their_key() {
    let serving =
        Serving::new("[events]\nmax_streams_per_org = 3\nmax_streams_per_key = 2\n").await;
    let (acme, _) = two(&serving).await;
    let api = &serving.api;
    let (other, token) = api.key(acme.org, &["calls:read"]).await;
    let first = serving.open(EVENTS, &acme.token, "").await;
    let _second = serving.open(EVENTS, &acme.token, "").await;
    let refused = api.get(EVENTS, &acme.token).await;
    assert_eq!(refused.header("retry-after"), Some("10"));
    assert_eq!(
        refused.with(429)["message"],
        "This API key has 2 event streams open already"
    );

    let mut third = serving.open(EVENTS, &token, "").await;
    assert_eq!(
        api.get(EVENTS, &token).await.with(429)["message"],
        "The org has 3 event streams open already"
    );
    let revoked = api
        .delete(&format!("/api-keys/{}", other.id), &acme.token)
        .await;
    revoked.with(200);
    let ended = tokio::time::timeout(BEFORE_CHECK, third.event()).await;
    assert_eq!(ended.expect("in time"), None, "its key is revoked");
    drop(first);

    // The place becomes free once the server sees that the client has closed.
    let (_, token) = api.key(acme.org, &["calls:read"]).await;
    let _fourth = serving.open_when_free(EVENTS, &token).await;
    serving.server.stop().await;
}

/// The end of a credential wakes its streams: nothing else happens in the org that would.
#[tokio::test]
async fn a_stream_ends_when_its_org_is_suspended() {
    let serving = Serving::new("").await;
    let (acme, bolt) = two(&serving).await;
    let mut suspended = serving.open(EVENTS, &acme.token, "").await;
    let mut other = serving.open(EVENTS, &bolt.token, "").await;

    let (org, now) = (acme.org, now());
    let suspend = serving
        .api
        .store
        .write(move |tx| orgs::suspend(tx, org, Suspender::Operator, Some(now), now));
    suspend.await.expect("suspended");

    let ended = tokio::time::timeout(BEFORE_CHECK, suspended.event()).await;
    assert_eq!(ended.expect("in time"), None);

    // The other org's stream goes on.
    serving.emit(bolt.org, EventType::CallStarted, 1).await;
    assert_eq!(other.event().await.expect("open").number(), 1);
    serving.server.stop().await;
}

/// A partner's streams have places of their own, in all of its orgs together, and end with what they were opened by.
#[tokio::test]
async fn a_partners_streams_are_bounded_and_end_with_its_right() {
    let serving =
        Serving::new("[events]\nmax_streams_per_org = 2\nmax_streams_per_key = 2\n").await;
    let api = &serving.api;
    let reseller = api.reseller("Reseller").await;
    let mut orgs = Vec::new();
    for name in ["First", "Second"] {
        orgs.push(org_of(api, &reseller, name).await);
    }
    let open = async |org: Uuid| {
        let header = format!("Trunkline-Org: {org}\r\n");
        serving.ask(EVENTS, &reseller.key, &header).await
    };

    let mut streams = Vec::new();
    for org in &orgs {
        let (head, stream) = open(*org).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        streams.push(stream);
    }
    let (head, _) = open(orgs[0]).await;
    assert!(head.starts_with("http/1.1 429"), "{head}");
    // The org's own keys have theirs.
    let (_, token) = api.key(orgs[0], &["calls:read"]).await;
    let mut own = serving.open(EVENTS, &token, "").await;

    let networks = ["10.9.9.0/24".parse().expect("a network")];
    let (partner, now) = (reseller.id, now());
    let allow = api
        .store
        .write(move |tx| partners::allow(tx, partner, Some(&networks), now));
    allow.await.expect("allowed");
    for stream in &mut streams {
        let ended = tokio::time::timeout(BEFORE_CHECK, stream.event()).await;
        assert_eq!(ended.expect("in time"), None);
    }
    serving.emit(orgs[0], EventType::CallStarted, 1).await;
    assert_eq!(own.event().await.expect("open").number(), 1);
    serving.server.stop().await;
}
