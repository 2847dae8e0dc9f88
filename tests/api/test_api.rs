//! An API over its own store, without sockets, on a clock that only the test moves.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tower::ServiceExt as _;
use trunkline::api::{self, Api, ApiDeps, SCOPES};
use trunkline::config::{Config, Sources};
use trunkline::console;
use trunkline::directory::{Defaults, Directory};
use trunkline::telemetry::metrics;
use trunkline_calls::core::live::LiveCalls;
use trunkline_model::record::Fact;
use trunkline_model::settings::Runtime;
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use trunkline_store::journal::Origin;
use trunkline_store::{
    Error, NewAgent, NewOrg, NewOrgKey, NewPartner, Number, Options, OrgKey, Store, Tx, agents,
    numbers, orgs, partners, project,
};
use uuid::Uuid;

use crate::test_db::TestDb;

/// 2026-01-31T12:00:00Z
pub(crate) const NOW: Moment = Moment::from_secs(1_769_860_800);

thread_local! {
    /// Time that has passed since `NOW`. A test and its API share a thread.
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Returns the time that the API sees.
pub(crate) fn now() -> Moment {
    NOW + PASSED.get()
}

/// Returns the time so many seconds after [`NOW`], below an hour, as the API writes it.
pub(crate) fn written(seconds: u64) -> String {
    format!("2026-01-31T12:{:02}:{:02}.000Z", seconds / 60, seconds % 60)
}

/// Lets time pass.
pub(crate) fn pass(seconds: u64) {
    PASSED.set(PASSED.get() + Duration::from_secs(seconds));
}

pub(crate) struct TestApi {
    pub(crate) db: TestDb,
    pub(crate) store: Store,
    pub(crate) state: Api,
    router: Router,
    operator: Router,
}

/// A tenant with a key.
pub(crate) struct Tenant {
    pub(crate) org: Uuid,
    pub(crate) key: OrgKey,
    pub(crate) token: String,
}

/// A partner with a key.
pub(crate) struct Reseller {
    pub(crate) id: Uuid,
    pub(crate) key: String,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// Sends a request, again while the database of a busy machine has no time for it.
pub(crate) async fn until_taken(ask: impl AsyncFn() -> Answer) -> Answer {
    const ATTEMPTS: usize = 20;
    for _ in 1..ATTEMPTS {
        let answer = ask().await;
        if answer.status != 503 {
            return answer;
        }
    }
    ask().await
}

impl TestApi {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// An API whose configuration is this TOML.
    pub(crate) async fn with(toml: &str) -> Self {
        Self::built(toml, TestDb::any().await).await
    }

    /// An API on this database.
    pub(crate) async fn built(toml: &str, db: TestDb) -> Self {
        // The clock is frozen, so a test that isn't about limits must not reach one.
        let limits = if toml.contains("[limits]") {
            ""
        } else {
            "\n[limits]\nrequests_per_minute = 1000000\npartner_requests_per_minute = 1000000\nlogin_links_per_minute = 1000000\n"
        };

        let sources = Sources {
            file: Some(("test.toml".into(), format!("{toml}{limits}"))),
            ..Sources::default()
        };
        let config = Config::load(&sources).expect("a sound configuration");
        let options = Options {
            data_dir: db.folder.path().to_owned(),
            url: db.url(),
            master_key: Some("the tests' own master key, long enough".to_owned().into()),
            max_connections: 4,
        };

        let store = Store::open(&options, NOW).await.expect("a new store opens");
        let defaults = Defaults {
            realm: config.sip.realm().into(),
            runtime: Runtime::Echo,
            addresses: Default::default(),
        };

        let directory = Directory::start(store.clone(), defaults, now)
            .await
            .expect("the store is read");
        let state = Api::new(ApiDeps {
            config: arc(config),
            store: store.clone(),
            directory,
            live: LiveCalls::new(),
            engine: None,
            metrics: metrics::install(),
            sip_addresses: Vec::new(),
            base_url: "https://api.example".to_owned(),
            dashboard_url: "https://dashboard.example".to_owned(),
            clock: now,
            monotonic: now,
        });

        let router = console::router(state.clone());
        let operator = console::router_of_operator(state.clone(), 1000);
        Self {
            db,
            store,
            state,
            router,
            operator,
        }
    }

    /// Makes an org, and a key of it that has every scope.
    pub(crate) async fn tenant(&self, name: &str) -> Tenant {
        let new = NewOrg::named(name);
        let org = done(&self.store, move |tx, _| orgs::create(tx, None, &new, NOW))
            .await
            .id;
        let (key, token) = self.key(org, &SCOPES).await;
        Tenant { org, key, token }
    }

    /// Returns the expected `RateLimit-Policy`. On PostgreSQL, which nodes may share, it has `scope=node`: each node counts for itself.
    pub(crate) fn policy(&self, fields: &str) -> String {
        match self.db.is_postgres() {
            true => fields.replace(";w=60", ";w=60;scope=node"),
            false => fields.to_owned(),
        }
    }

    pub(crate) async fn key(&self, org: Uuid, scopes: &[&str]) -> (OrgKey, String) {
        api::token::issue(&self.store, org, NewOrgKey::lasting("Test", scopes), NOW)
            .await
            .expect("a key is made")
    }

    /// Makes an agent that answers; the test cares only about its name.
    pub(crate) async fn agent(&self, org: Uuid, name: &str) -> Uuid {
        let new = NewAgent::named(name);
        done(&self.store, move |tx, now| {
            agents::create(tx, org, &new, now)
        })
        .await
        .id
    }

    pub(crate) async fn partner(&self, new: NewPartner) -> Reseller {
        let partner = done(&self.store, move |tx, now| partners::create(tx, &new, now)).await;
        let key = format!("tlp_{}", Uuid::new_v4().simple());
        let hash = Sha256::digest(&key).into();
        done(&self.store, move |tx, now| {
            partners::add_key(tx, partner.id, "Test", hash, now)
        })
        .await;
        Reseller {
            id: partner.id,
            key,
        }
    }

    /// Makes a partner without limits of its own.
    pub(crate) async fn reseller(&self, name: &str) -> Reseller {
        let name = name.to_owned();
        self.partner(NewPartner {
            name,
            ..NewPartner::default()
        })
        .await
    }

    /// Returns address, name and role of each member of the org, one row per role.
    pub(crate) async fn members(&self, org: Uuid) -> Vec<(String, String, String)> {
        let sql = "SELECT users.email, users.name, roles.name FROM membership_roles JOIN users ON users.id = user_id
                   JOIN roles ON roles.id = role_id WHERE membership_roles.org_id = $1 ORDER BY users.email, roles.name";
        let rows = self.db.beside().await.rows(sql, Some(org)).await;
        let members = rows
            .into_iter()
            .map(|row| row.try_into().expect("three columns"));
        members
            .map(|[email, name, role]: [String; 3]| (email, name, role))
            .collect()
    }

    /// Breaks the schema by a statement past the store: the database goes on answering, and requests that need the table fail.
    pub(crate) async fn break_by(&self, sql: &'static str) {
        self.db.beside().await.execute(sql, None).await;
    }

    /// The same by statements on one connection.
    pub(crate) async fn break_by_all(&self, all: &[&'static str]) {
        let mut beside = self.db.beside().await;
        for sql in all {
            beside.execute(sql, None).await;
        }
    }

    /// Runs a query past the store and returns its texts.
    pub(crate) async fn rows(&self, sql: &'static str) -> Vec<String> {
        self.db.beside().await.rows(sql, None).await.concat()
    }

    /// Runs a query past the store and returns its octets.
    pub(crate) async fn octets(&self, sql: &'static str) -> Vec<Vec<u8>> {
        self.db.beside().await.rows(sql, None).await.concat()
    }

    /// Makes a verified number of the org.
    pub(crate) async fn number(&self, org: Uuid, number: &str) -> Number {
        let number = E164::parse(number).expect("a number");
        done(&self.store, move |tx, now| {
            numbers::create(tx, org, number, true, now)
        })
        .await
    }

    /// Projects facts into the store, as the journal would.
    pub(crate) async fn project(&self, facts: &[Fact]) {
        let (run, facts) = (Origin { node: 0, boot: 1 }, facts.to_vec());
        done(&self.store, move |tx, _| project(tx, run, &facts)).await;
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(
            Request::get(path)
                .header("Authorization", format!("Bearer {token}"))
                .body(Body::empty()),
        )
        .await
    }

    pub(crate) async fn delete(&self, path: &str, token: &str) -> Answer {
        self.send(
            Request::delete(path)
                .header("Authorization", format!("Bearer {token}"))
                .body(Body::empty()),
        )
        .await
    }

    /// Sends a request with a JSON body.
    pub(crate) async fn json(&self, method: &str, path: &str, token: &str, body: Value) -> Answer {
        self.send(
            Request::builder()
                .method(method)
                .uri(path)
                .header("Authorization", format!("Bearer {token}"))
                .header("Content-Type", "application/json")
                .body(Body::from(body.to_string())),
        )
        .await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        self.json("POST", path, token, body).await
    }

    pub(crate) async fn patch(&self, path: &str, token: &str, body: Value) -> Answer {
        self.json("PATCH", path, token, body).await
    }

    /// Runs `act` so many times concurrently, with the number of each run, and returns the results.
    pub(crate) async fn at_once<T, F: Future<Output = T>>(
        &self,
        times: usize,
        act: impl Fn(usize) -> F,
    ) -> Vec<T> {
        futures_util::future::join_all((0..times).map(&act)).await
    }

    /// Stops the API; its database keeps the data.
    pub(crate) async fn leave(self) -> TestDb {
        self.store.close().await;
        self.db
    }

    /// Sends a request and returns the answer with its body unread.
    pub(crate) async fn begin(
        &self,
        request: axum::http::Result<Request<Body>>,
    ) -> axum::response::Response {
        let request = request.expect("a sound request");
        let answer = self.router.clone().oneshot(request);
        answer.await.expect("a router always answers")
    }

    pub(crate) async fn send(&self, request: axum::http::Result<Request<Body>>) -> Answer {
        Answer::read(self.begin(request).await).await
    }

    /// Sends a request as the operator of this machine.
    pub(crate) async fn send_as_operator(
        &self,
        request: axum::http::Result<Request<Body>>,
    ) -> Answer {
        let request = request.expect("a sound request");
        let answer = self.operator.clone().oneshot(request).await;
        Answer::read(answer.expect("a router always answers")).await
    }
}

impl Answer {
    async fn read(response: axum::response::Response) -> Self {
        let (parts, body) = response.into_parts();
        let content_type = parts.headers.get("Content-Type");

        // A stream never ends, so its body isn't read.
        let octets = match content_type.is_some_and(|kind| kind == "text/event-stream") {
            true => Bytes::new(),
            false => body.collect().await.expect("a whole body").to_bytes(),
        };
        let text = String::from_utf8_lossy(&octets).into_owned();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Checks the status and returns the body.
    pub(crate) fn with(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a text"))
    }
}

/// Returns the body with its ids numbered in order of appearance, so that a snapshot shows which are equal.
pub(crate) fn masked(mut body: Value) -> Value {
    /// Returns the position of the first id in a text.
    fn id_in(text: &str) -> Option<usize> {
        let places = 0..text.len().saturating_sub(35);
        let is_id = |at: &usize| {
            text.get(*at..at + 36)
                .is_some_and(|id| id.parse::<Uuid>().is_ok())
        };
        places.into_iter().find(is_id)
    }

    fn mask(value: &mut Value, seen: &mut HashMap<String, usize>) {
        match value {
            Value::String(text) => {
                while let Some(at) = id_in(text) {
                    let next = seen.len() + 1;
                    let number = seen.entry(text[at..at + 36].to_owned()).or_insert(next);
                    text.replace_range(at..at + 36, &format!("<id {number}>"));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| mask(item, seen)),
            Value::Object(fields) => fields.values_mut().for_each(|field| mask(field, seen)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    mask(&mut body, &mut HashMap::new());
    body
}

/// The id in a body.
pub(crate) fn id_of(body: &Value) -> String {
    body["id"].as_str().expect("an id").to_owned()
}

/// Walks the list at `path` with `limit` items a page, and returns `field` of each item.
pub(crate) async fn walk(
    api: &TestApi,
    path: &str,
    token: &str,
    limit: u8,
    field: &str,
) -> Vec<Value> {
    let mut found = Vec::new();
    let mut next = Some(format!("{path}?limit={limit}"));
    while let Some(path_of_page) = next {
        let page = api.get(&path_of_page, token).await.with(200);
        let items = page["items"].as_array().expect("items");
        found.extend(items.iter().map(|item| item[field].clone()));
        next = page["next"]
            .as_str()
            .map(|cursor| format!("{path}?limit={limit}&cursor={cursor}"));
    }
    found
}

/// Checks that each request answers 404 with this body and no other.
pub(crate) fn all_absent(answers: &[Answer], thing: &str) {
    let body = format!(
        r#"{{"statusCode":404,"message":"There is no such {thing}","error":"Not Found","code":"not_found"}}"#
    );
    for answer in answers {
        assert_eq!((answer.status, &answer.text), (404, &body));
    }
}

/// Checks that each request is refused for lack of this scope.
pub(crate) fn all_lack(answers: &[Answer], scope: &str) {
    for answer in answers {
        let message = format!("This API key lacks the scope {scope}");
        assert_eq!(answer.with(403)["message"], message);
    }
}

/// Wraps a value in an [`Arc`].
pub(crate) fn arc<T>(value: T) -> Arc<T> {
    Arc::new(value)
}

/// Runs a write transaction that succeeds, at the time of the test.
pub(crate) async fn done<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&mut Tx, Moment) -> Result<T, Error> + Send + 'static,
) -> T {
    let now = now();
    let done = store.write(move |tx| work(tx, now)).await;
    done.expect("a change")
}

/// Runs a read transaction.
pub(crate) async fn found<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
) -> T {
    store.read_inline(work).await.expect("what is there")
}
