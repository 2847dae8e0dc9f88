//! What is secret stays so: after everything that the API can be asked, no log line, answer to a GET, error or file of the data
//! directory holds a key, password, token or credential.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::harness::http;
use crate::node::{Node, Plot, text};

/// The booking platform: whoever comes sees one company.
fn booking() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let body = r#"{"companies":[{"shortname":"tours"}]}"#;
            let length = body.len();
            let _ = write!(
                reader.get_mut(),
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    at
}

/// What must not be seen anywhere, by what it is.
#[derive(Debug, Default)]
struct Secrets(Vec<(&'static str, String)>);

impl Secrets {
    fn add(&mut self, what: &'static str, secret: &Value) -> String {
        let secret = text(secret);
        assert!(secret.len() >= 12, "{what}: {secret} may stand anywhere");
        self.0.push((what, secret.clone()));
        secret
    }

    /// Those that are found in these octets, but for what may be there.
    fn found(&self, octets: &[u8], may: &[&str]) -> Vec<&'static str> {
        let secrets = self.0.iter().filter(|(what, _)| !may.contains(what));
        let found = secrets.filter(|(_, secret)| {
            let secret = secret.as_bytes();
            octets.windows(secret.len()).any(|part| part == secret)
        });
        found.map(|(what, _)| *what).collect()
    }
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

/// The cookie that following a login link gives.
fn cookie(node: &Node, url: &str) -> String {
    let (_, path) = url.split_once("/partner-login").expect("a link");
    let mut stream = TcpStream::connect(node.plot.http).expect("it listens");
    write!(
        stream,
        "GET /partner-login{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        node.plot.http
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

struct Scene {
    node: Node,
    secrets: Secrets,
    key: String,
    reading: String,
    partner: String,
    ids: BTreeMap<&'static str, String>,
}

impl Scene {
    /// One of everything that has a secret, twice where secrets are changed.
    fn new() -> Self {
        let more = [
            ("INTEGRATIONS__BOOKING__KEY", "tours".to_owned()),
            (
                "INTEGRATIONS__BOOKING__BASE_URL",
                format!("http://{}", booking()),
            ),
            ("LOG__LEVEL", "debug".to_owned()),
            ("LOG__FORMAT", "json".to_owned()),
        ];
        let more = more.map(|(name, value)| (format!("TRUNKLINE__{name}"), value));
        let plot = Plot::new(&more);
        let outset = plot.run(&["quickstart", "--json", "--no-serve"]);
        let node = plot.serve();
        let mut secrets = Secrets::default();
        let key = secrets.add("the first key", &outset["api_key"]);
        let partner = secrets.add("the partner's key", &outset["partner_key"]);
        secrets.add("the trunk's password", &outset["trunk"]["auth_password"]);
        let mut scene = Self {
            node,
            secrets,
            reading: String::new(),
            partner,
            ids: BTreeMap::new(),
            key,
        };
        scene.ids.insert("agent_id", text(&outset["agent_id"]));
        scene
            .ids
            .insert("phone_number", text(&outset["phone_number"]));
        scene.of_org();
        scene.of_partner();
        scene
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.node.made("POST", path, &self.key, body)
    }

    fn of_org(&mut self) {
        let scopes = json!({"name": "Reads", "scopes": ["phone:read", "calls:read", "handoff:read", "webhooks:write", "keys:write"]});
        let made = self.post("/api-keys", &scopes);
        self.reading = self.secrets.add("a key that reads", &made["api_key"]);
        self.ids.insert("api_key_id", text(&made["api_key_id"]));
        let path = "/phone/sip/inbound-trunk/rotate-credentials";
        let trunk = self.post(path, &json!({}));
        self.secrets
            .add("the trunk's new password", &trunk["auth_password"]);
        let password = json!("carrier-password-0815");
        self.secrets.add("a carrier's password", &password);
        let carrier = json!({"name": "Carrier", "host": "192.0.2.1", "username": "acme", "password": password,
            "caller_number": "+442071838750"});
        let made = self.post("/phone/sip/outbound-trunks", &carrier);
        self.ids.insert("trunk_id", text(&made["id"]));
        let made = self.post("/webhooks", &json!({"url": "https://hooks.example.com/x"}));
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

    /// Every GET of the document, with each of these credentials, and those of no use as well.
    fn answers(&self) -> Vec<(String, String)> {
        let (_, document) = http::get(self.node.plot.http, "/openapi.json", None).expect("it");
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let paths = document["paths"].as_object().expect("paths").iter();
        let paths = paths
            .filter(|(path, methods)| methods.get("get").is_some() && *path != "/phone/events");
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

    /// Requests that are refused although, or because, a secret stands in them.
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
            // The keys of each other's API.
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

#[test]
fn no_secret_is_told_logged_or_stored_as_it_is() {
    let scene = Scene::new();
    let mut faults = Vec::new();
    for (request, body) in scene.answers().into_iter().chain(scene.refusals()) {
        // The org's own trunk shows its password to keys that may write.
        let may: &[&str] = match request.starts_with("GET /phone/sip/inbound-trunk: 200") {
            true => &["the trunk's new password"],
            false => &[],
        };
        let found = scene.secrets.found(body.as_bytes(), may);
        faults.extend(found.iter().map(|what| format!("{request} shows {what}")));
    }
    let reading = scene.node.get("/phone/sip/inbound-trunk", &scene.reading);
    let found = scene.secrets.found(reading.1.as_bytes(), &[]);
    assert_eq!(
        (reading.0, found),
        (200, Vec::new()),
        "to whoever reads alone"
    );
    let log = scene.node.plot.log();
    assert!(log.len() > 1_000, "nothing is logged: {log}");
    let found = scene.secrets.found(log.as_bytes(), &[]);
    faults.extend(found.iter().map(|what| format!("the log shows {what}")));
    let kept = files(&scene.node.plot.data());
    assert!(
        kept.iter().any(|file| file.ends_with("trunkline.db")),
        "{kept:?}"
    );
    for file in kept {
        let octets = std::fs::read(&file).expect("a file");
        // What the contact's actions send is the org's to keep: it is told to nobody, but it is no credential of ours.
        let found = scene.secrets.found(&octets, &["what an action sends"]);
        let shown = file.display();
        faults.extend(found.iter().map(|what| format!("{shown} holds {what}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
