//! Secrets stay secret: after every API request, and after calls in and out, no log line, answer, error, trace, metric, file of the data directory,
//! row of the database, webhook or copy for a collector holds a key, password, token or credential, nor a digest made of one.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::e2e::node::{Node, NodeSetup, text};
use crate::e2e::talk::{Heard, collector, server};
use trunkline_testkit::database::{Database, MASTER_KEY};
use trunkline_testkit::{http, tools};

const KEYS: &str = "keys.json";

/// Texts that must not appear anywhere, each with its kind.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<(&'static str, String)>);

impl Secrets {
    pub(crate) fn add(&mut self, what: &'static str, secret: &Value) -> String {
        let secret = text(secret);
        assert!(secret.len() >= 12, "{what}: {secret} may stand anywhere");
        self.0.push((what, secret.clone()));
        secret
    }

    /// Returns the secrets found in these octets, except those of a kind in `may`: as text, or in hexadecimal as databases print octets.
    fn found(&self, octets: &[u8], may: &[&str]) -> Vec<&'static str> {
        let secrets = self.0.iter().filter(|(what, _)| !may.contains(what));
        let found = secrets.filter(|(_, secret)| {
            let digits = secret.bytes().map(|octet| format!("{octet:02x}"));
            holds(octets, secret) || holds(octets, &digits.collect::<String>())
        });
        found.map(|(what, _)| *what).collect()
    }
}

fn holds(octets: &[u8], part: &str) -> bool {
    memchr::memmem::find(octets, part.as_bytes()).is_some()
}

/// Every file beneath a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let each = entries.map(|entry| entry.path());
    each.flat_map(|path| {
        if path.is_dir() {
            files(&path)
        } else {
            vec![path]
        }
    })
    .collect()
}

/// Follows a login link and returns the cookie.
fn cookie(node: &Node, url: &str) -> String {
    let (_, path) = url.split_once("/partner-login").expect("a link");
    let mut stream = TcpStream::connect(node.setup.http).expect("it listens");
    write!(
        stream,
        "GET /partner-login{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        node.setup.http
    )
    .expect("it takes this");
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut cookies = lines.filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie")
            .then(|| value.to_owned())
    });
    let cookie = cookies.next().expect("a cookie");
    let (pair, _) = cookie.split_once(';').expect("attributes");
    let (_, value) = pair.split_once('=').expect("a pair");

    value.to_owned()
}

pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) secrets: Secrets,
    pub(crate) key: String,
    reading: String,
    partner: String,
    /// User name and password of the trunk.
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) ids: BTreeMap<&'static str, String>,
    pub(crate) calls: Vec<String>,
    /// Octets that the receivers of webhooks and the collectors of messages and spans got.
    outside: [(&'static str, Heard); 3],
    database: Option<Database>,
    faults: Vec<String>,
}

impl Scene {
    /// Makes one of everything that has a secret, and two where secrets are changed.
    fn new(database: Option<Database>) -> Self {
        let (booking, _) = server(r#"{"companies":[{"shortname":"tours"}]}"#);
        let (receiver, received) = server("");
        let (hep, copied) = collector();
        let (otlp, traced) = server("{}");

        let more = [
            ("INTEGRATIONS__BOOKING__KEY", "tours".to_owned()),
            (
                "INTEGRATIONS__BOOKING__BASE_URL",
                format!("http://{booking}"),
            ),
            ("WEBHOOKS__ALLOW_PRIVATE_ADDRESSES", "true".to_owned()),
            ("TRACES__HEP", hep.to_string()),
            ("TRACES__OTLP", format!("http://{otlp}")),
            ("LOG__LEVEL", "debug".to_owned()),
            ("LOG__FORMAT", "json".to_owned()),
        ];

        let more = more.map(|(name, value)| (format!("TRUNKLINE__{name}"), value));
        let of_database = database.iter().flat_map(Database::environment);
        let environment: Vec<_> = more.into_iter().chain(of_database).collect();

        let setup = NodeSetup::new(&environment);
        let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
        let node = setup.serve();

        let mut secrets = Secrets::default();
        let key = secrets.add("the first key", &outset["api_key"]);
        let partner = secrets.add("the partner's key", &outset["partner_key"]);
        secrets.add("the trunk's password", &outset["trunk"]["auth_password"]);
        if database.is_some() {
            secrets.add("the master key", &json!(MASTER_KEY));
        } else {
            let keys = std::fs::read(node.setup.data().join(KEYS)).expect("keys");
            let keys: Value = serde_json::from_slice(&keys).expect("JSON");
            for key in ["sealing", "signing", "widget"] {
                secrets.add("an own key", &keys[key][0]);
            }
            secrets.add("an own key", &keys["mac"]);
        }

        let mut scene = Self {
            node,
            secrets,
            reading: String::new(),
            partner,
            username: String::new(),
            password: String::new(),
            ids: BTreeMap::new(),
            calls: Vec::new(),
            outside: [("a webhook", received), ("HEP", copied), ("OTLP", traced)],
            database,
            faults: Vec::new(),
            key,
        };

        scene.ids.insert("agent_id", text(&outset["agent_id"]));
        let number = text(&outset["phone_number"]);
        scene.ids.insert("phone_number", number);
        scene.of_org(&format!("http://{receiver}/x"));
        scene.of_partner();
        scene
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.change("POST", path, body)
    }

    pub(crate) fn change(&self, method: &str, path: &str, body: &Value) -> Value {
        self.node.made(method, path, &self.key, body)
    }

    fn of_org(&mut self, receiver: &str) {
        let scopes = json!({"name": "Reads", "scopes": ["phone:read", "calls:read", "handoff:read", "webhooks:write", "keys:write"]});
        let made = self.post("/api-keys", &scopes);
        self.reading = self.secrets.add("a key that reads", &made["api_key"]);
        self.ids.insert("api_key_id", text(&made["api_key_id"]));
        let path = "/phone/sip/inbound-trunk/rotate-credentials";
        let trunk = self.post(path, &json!({}));
        self.username = text(&trunk["auth_username"]);
        self.password = self
            .secrets
            .add("the trunk's new password", &trunk["auth_password"]);
        let password = json!("carrier-password-0815");
        self.secrets.add("a carrier's password", &password);
        let carrier = json!({"name": "Carrier", "host": "192.0.2.1", "username": "acme", "password": password,
            "caller_number": "+442071838750"});
        let made = self.post("/phone/sip/outbound-trunks", &carrier);
        self.ids.insert("trunk_id", text(&made["id"]));
        let made = self.post("/webhooks", &json!({"url": receiver}));
        self.secrets.add("a webhook's secret", &made["secret"]);
        let path = format!("/webhooks/{}/rotate-secret", text(&made["id"]));
        let rotated = self.post(&path, &json!({}));
        self.secrets
            .add("a webhook's new secret", &rotated["secret"]);
        self.ids.insert("webhook_id", text(&made["id"]));
        let visitor = json!({"external_id": "u-1", "name": "Ann", "http_action_overrides": {"headers": {"X-Token": "override-token-0815"}}});
        let made = self.post("/widget/authenticate-user-by-external-id", &visitor);
        self.secrets.add("a visitor's token", &made["token"]);
        self.secrets
            .add("what an action sends", &json!("override-token-0815"));
        self.post("/handoff-analytics/events", &json!({"session_id": "s"}));
        let destination =
            json!({"create": {"name": "Sales", "type": "phone", "value": "+442071838751"}});
        let path = format!(
            "/phone/sip/agents/{}/transfer-destinations",
            self.ids["agent_id"]
        );
        let made = self.post(&path, &destination);
        self.ids.insert("destination_id", text(&made["id"]));
    }

    fn of_partner(&mut self) {
        let (application, user) = (
            json!("application-key-0815"),
            json!("user-key-of-acme-0815"),
        );
        self.secrets.add("an application's key", &application);
        self.secrets.add("an integration's key", &user);

        let org = json!({"name": "Acme", "external_id": "acme", "integrations": {
            "tours": {"app_key": application, "user_key": user}}});
        let org = self
            .node
            .made("POST", "/partner/v1/orgs", &self.partner, &org);
        let org = text(&org["id"]);
        let at = |rest: &str| format!("/partner/v1/orgs/{org}/{rest}");
        let made = self
            .node
            .made("POST", &at("api-keys"), &self.partner, &json!({}));
        self.secrets
            .add("a key of a partner's org", &made["api_key"]);

        let person = json!({"email": "ada@example.org"});
        let link = self
            .node
            .made("POST", &at("login-links"), &self.partner, &person);
        let url = text(&link["url"]);
        let (_, token) = url.split_once("token=").expect("a token");
        self.secrets.add("a login link's token", &json!(token));

        let cookie = cookie(&self.node, &url);
        self.secrets.add("a session", &json!(cookie));

        let unused = self
            .node
            .made("POST", &at("login-links"), &self.partner, &person);
        let url = text(&unused["url"]);
        let (_, token) = url.split_once("token=").expect("a token");
        self.secrets.add("an unused link's token", &json!(token));
        self.ids.insert("orgId", org.clone());
        self.ids.insert("org_id", org);
        self.ids.insert("externalId", "acme".to_owned());
    }

    /// Requests every GET of the document with each of these credentials, and with invalid ones.
    fn answers(&self) -> Vec<(String, String)> {
        let (_, document) = http::get(self.node.setup.http, "/openapi.json", None).expect("it");
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let paths = document["paths"].as_object().expect("paths").iter();
        let paths = paths.filter(|(path, methods)| {
            methods.get("get").is_some() && !matches!(path.as_str(), "/events" | "/phone/events")
        });
        let mut answers = Vec::new();

        for (path, _) in paths {
            let parts = path.split('/').map(|part| {
                let name = part
                    .strip_prefix('{')
                    .and_then(|part| part.strip_suffix('}'));
                name.map_or(part, |name| {
                    self.ids
                        .get(name)
                        .map_or("00000000-0000-0000-0000-000000000000", |id| id)
                })
            });
            let filled = parts.collect::<Vec<_>>().join("/");
            for key in [&*self.key, &self.reading, &self.partner, "nonsense"] {
                let (status, body) = self.node.get(&filled, key);
                assert!(status < 500, "{filled}: {status} {body}");
                answers.push((format!("GET {filled}: {status}"), body));
            }
        }

        answers
    }

    /// Sends requests that are refused and contain a secret.
    fn refusals(&self) -> Vec<(String, String)> {
        let trunk = |password: Value| json!({"name": "C", "host": "no host", "username": "acme", "password": password, "caller_number": "12"});
        let long = format!("carrier-password-0815{}", "x".repeat(2_000));
        let integration = |user: Value| json!({"name": "B", "integrations": {"tours": {"app_key": "application-key-0815", "user_key": user, "colour": 1}}});
        let mut answers = Vec::new();

        for (path, key, body) in [
            (
                "/phone/sip/outbound-trunks",
                &self.key,
                trunk(json!("carrier-password-0815")),
            ),
            (
                "/phone/sip/outbound-trunks",
                &self.key,
                trunk(json!(["carrier-password-0815"])),
            ),
            (
                "/phone/sip/outbound-trunks",
                &self.key,
                trunk(json!("carrier-password-0815\n")),
            ),
            ("/phone/sip/outbound-trunks", &self.key, trunk(json!(long))),
            (
                "/partner/v1/orgs",
                &self.partner,
                integration(json!("user-key-of-acme-0815")),
            ),
            (
                "/partner/v1/orgs",
                &self.partner,
                integration(json!(["user-key-of-acme-0815"])),
            ),
            (
                "/partner/v1/orgs",
                &self.partner,
                integration(json!("user-key-of-acme-0815\n")),
            ),
            // Keys of one API on the other.
            ("/partner/v1/orgs", &self.key, json!({"name": "C"})),
            ("/phone", &self.partner, json!({"name": "C"})),
        ] {
            let (status, answer) = self.node.change("POST", path, key, &body);
            assert!((400..500).contains(&status), "{path} {body}: {status}");
            answers.push((format!("POST {path} {status}"), answer.to_string()));
        }

        answers
    }
}

impl Scene {
    fn fault(&mut self, where_: &str, octets: &[u8], may: &[&str]) {
        let found = self.secrets.found(octets, may);
        let found = found.iter().map(|what| format!("{where_}: {what}"));
        self.faults.extend(found);
    }

    /// Searches everything that has been stored, logged or sent so far.
    pub(crate) fn look_around(&mut self, when: &str) {
        let log = self.node.setup.log();
        assert!(log.len() > 1_000, "nothing is logged: {log}");
        self.fault(&format!("{when}, the log"), log.as_bytes(), &[]);

        // The output of the contact's actions is the org's data: nothing publishes it, but it is no credential of ours.
        let may = ["what an action sends"];

        // The installation's own keys have a file of their own.
        let kept = files(&self.node.setup.data()).into_iter();
        for file in kept.filter(|file| !file.ends_with(KEYS)) {
            // The file may have been removed since it was listed.
            let octets = std::fs::read(&file).unwrap_or_default();
            self.fault(&format!("{when}, {}", file.display()), &octets, &may);
        }

        let rows = self.database.as_ref().map(Database::rows);
        for (table, row) in rows.unwrap_or_default() {
            self.fault(&format!("{when}, a row of {table}"), row.as_bytes(), &may);
        }
        for (who, heard) in self.outside.clone() {
            self.fault(&format!("{when}, {who}"), &heard.octets(), &[]);
        }
    }

    /// Searches the traces of all calls in all their forms.
    fn look_at_traces(&mut self, when: &str) {
        for call in self.calls.clone() {
            for form in [
                "application/json",
                "text/plain",
                "application/vnd.tcpdump.pcap",
            ] {
                let path = format!("/phone/calls/{call}/trace");
                let octets = self.raw(&path, form);
                assert!(
                    holds(&octets, "INVITE"),
                    "{when}: {form} shows nothing of {call}"
                );
                self.fault(&format!("{when}, a trace as {form}"), &octets, &[]);
            }
        }
    }

    /// A whole answer, head and body.
    fn raw(&self, path: &str, accept: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.node.setup.http).expect("it listens");
        let key = &self.key;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        )
        .expect("it takes this");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("a whole answer");
        assert!(
            answer.starts_with(b"HTTP/1.1 200 "),
            "{path}: {}",
            String::from_utf8_lossy(&answer)
        );
        answer
    }

    fn look_at_answers(&mut self) {
        for (request, body) in self.answers().into_iter().chain(self.refusals()) {
            // The org's own trunk shows its password to keys that may write.
            let may: &[&str] = match request.starts_with("GET /phone/sip/inbound-trunk: 200") {
                true => &["the trunk's new password"],
                false => &[],
            };
            self.fault(&request, body.as_bytes(), may);
        }
        let (status, shown) = self.node.get("/phone/sip/inbound-trunk", &self.reading);
        assert_eq!(status, 200, "{shown}");
        self.fault("to whoever reads alone", shown.as_bytes(), &[]);
    }
}

fn nothing_is_told(database: Option<Database>) {
    let mut scene = Scene::new(database);
    scene.talk();
    scene.look_at_answers();
    scene.look_at_traces("from memory");
    let [(_, received), (_, copied), (_, traced)] = scene.outside.clone();
    received.until("\"call.ended\"");
    copied.until("INVITE sip:");
    traced.until(&scene.ids["call_id"].clone());
    scene.look_around("while it serves");
    scene.node.end();
    scene.look_around("after its end");
    let segments = files(&scene.node.setup.data().join("traces"));
    assert!(!segments.is_empty(), "no trace is on disk");

    scene.node.serve_again();
    scene.look_at_traces("from disk");

    // Checks that the search covers something.
    match &scene.database {
        Some(database) => {
            let rows = database.rows();
            assert!(
                rows.iter().any(|(_, row)| row.contains("Challenger")),
                "{rows:?}"
            );
        }
        None => {
            let file = std::fs::read(scene.node.setup.data().join("trunkline.db"));
            assert!(holds(&file.expect("the database"), "Challenger"));
        }
    }

    let faults = &scene.faults;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_secret_is_told_logged_or_stored_as_it_is() {
    if tools(&["sipp"]) {
        nothing_is_told(None);
    }
}

#[test]
fn no_secret_is_told_logged_or_stored_as_it_is_on_postgres() {
    if !tools(&["sipp"]) {
        return;
    }
    if let Some(database) = Database::new() {
        nothing_is_told(Some(database));
    }
}
