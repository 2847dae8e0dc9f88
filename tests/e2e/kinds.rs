//! Changes to a running installation, by the API and by the command line, and the ways to see that a daemon knows of them.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::rc::Rc;

use serde_json::{Value, json};

use crate::e2e::changes::{LIMIT, Scene};
use crate::e2e::node::{Node, text};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Credentials, Deadline, Responder};

/// Address dedicated to the org: its calls need no credentials.
pub(crate) const KNOWN: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Address that is added to the allowed sources and removed again.
pub(crate) const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const DEDICATED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
/// Address that the trunk always allows, which is good for its listed numbers only.
pub(crate) const LISTED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);

pub(crate) const NUMBER: &str = "+442071838761";
pub(crate) const ON_TRUNK: &str = "+442071838762";
const UNVERIFIED: &str = "+442071838763";

/// A value that one half of a kind passes to the other.
#[derive(Clone)]
struct Held<T>(Rc<RefCell<Option<T>>>);

impl<T: Clone> Held<T> {
    fn none() -> Self {
        Self(Rc::default())
    }

    fn put(&self, value: T) {
        *self.0.borrow_mut() = Some(value);
    }

    fn taken(&self) -> T {
        let value = self.0.borrow().clone();
        value.expect("it was put there")
    }
}

/// A kind of change, and a way to see it.
pub(crate) struct Kind<'s> {
    pub(crate) name: &'static str,
    /// Makes or undoes the change; what can't be undone is made anew.
    pub(crate) set: Box<dyn Fn(bool) + 's>,
    /// Returns whether the daemon shows the change as made, or as undone.
    pub(crate) is: Box<dyn Fn(bool) -> bool + 's>,
}

fn kind<'s>(
    name: &'static str,
    set: impl Fn(bool) + 's,
    is: impl Fn(bool) -> bool + 's,
) -> Kind<'s> {
    Kind {
        name,
        set: Box::new(set),
        is: Box::new(is),
    }
}

/// Returns changes by the API that show in the other node's calls.
pub(crate) fn of_the_api<'s>(scene: &'s Scene<'_>) -> Vec<Kind<'s>> {
    let agent = &*scene.second_agent;
    let path = format!("/phone/{agent}");
    let trunk = "/phone/sip/inbound-trunk";
    let made = Held::none();
    let new = made.clone();
    let allowed = Probe::new(ALLOWED, scene.watcher.setup.sip);
    let listed = Probe::new(LISTED, scene.watcher.setup.sip);
    let patch = move |body: Value| drop(scene.made("PATCH", &path, &body));
    let (enable, runtime) = (patch.clone(), patch);

    vec![
        kind(
            "an agent",
            move |on| {
                if on {
                    let agent = json!({"name": "New", "type": "inbound", "language": "en", "first_message": "",
                        "use_org_knowledgebase": false, "runtime": runtime_at(&scene.second)});
                    made.put(text(&scene.made("POST", "/phone", &agent)["id"]));
                } else {
                    let path = format!("/phone/{}", made.taken());
                    scene.made("DELETE", &path, &Value::Null);
                }
            },
            move |on| scene.naming(&new.taken()) == Some(on),
        ),
        kind(
            "an agent's switch",
            move |on| enable(json!({"enabled": !on})),
            move |on| scene.naming(agent) == Some(!on),
        ),
        kind(
            "a runtime",
            move |on| {
                let there = if on { &scene.first } else { &scene.second };
                runtime(json!({"runtime": runtime_at(there)}));
            },
            move |on| scene.naming(agent) == Some(!on),
        ),
        kind(
            "a number's agent",
            move |on| {
                let (_, numbers) = scene.writer.get("/phone/numbers", &scene.key);
                let numbers: Value = serde_json::from_str(&numbers).expect("JSON");
                let numbers = numbers["items"].as_array().expect("a list").iter();
                let ids = numbers.filter(|number| on && number["phone_number"] == NUMBER);
                let ids: Vec<_> = ids.map(|number| number["id"].clone()).collect();
                let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
                scene.made("PUT", &path, &json!({"phone_number_ids": ids}));
            },
            move |on| scene.dialling(NUMBER) == Some(on),
        ),
        kind(
            "the trunk's allow list",
            move |on| {
                let networks = Scene::networks(on);
                scene.made("PATCH", trunk, &json!({"allowed_addresses": networks}));
            },
            {
                let number = text(&scene.outset["phone_number"]);
                move |on| scene.takes(&allowed, &number) == on
            },
        ),
        kind(
            "the trunk's numbers",
            move |on| {
                let path = format!("{trunk}/phone-numbers");
                let body = json!({"phone_numbers": [ON_TRUNK]});
                let (path, method) = match on {
                    true => (path, "POST"),
                    false => (format!("{path}/{ON_TRUNK}"), "DELETE"),
                };
                scene.made(method, &path, if on { &body } else { &Value::Null });
            },
            move |on| scene.takes(&listed, ON_TRUNK) == on,
        ),
    ]
}

/// Returns changes by the API that show in the other node's answers.
pub(crate) fn of_the_api_alone<'s>(scene: &'s Scene<'_>) -> Vec<Kind<'s>> {
    let (pair, key) = (Held::none(), Held::none());
    let (new_pair, revoked) = (pair.clone(), key.clone());
    let agent = echo(scene);
    let call = answered(scene, &agent);
    let destinations = format!("/phone/sip/agents/{agent}/transfer-destinations");

    let destination =
        json!({"create": {"name": "Sales", "type": "phone", "value": "+442071838751"}});
    let destination = text(&scene.made("POST", &destinations, &destination)["id"]);

    let carrier = Responder::busy();
    let way_out = json!({"name": "Carrier", "host": "127.0.0.1", "port": carrier.address.port(), "caller_number": "+442071838750"});
    let way_out = text(&scene.made("POST", "/phone/sip/outbound-trunks", &way_out)["id"]);

    let caller = scene.second_agent.clone();
    let dials = json!({"phone_agent_id": caller, "phone_number": "+442071838752"});
    let limits = format!("/partner/v1/orgs/{}/limits", scene.org);
    let partner = text(&scene.outset["partner_key"]);

    vec![
        kind(
            "a limit",
            move |on| {
                let body = json!({"requests_per_minute": requests_a_minute(on)});
                scene.writer.made("PATCH", &limits, &partner, &body);
            },
            move |on| scene.shows_limit(requests_a_minute(on)),
        ),
        kind(
            "the trunk's credentials",
            move |_| {
                let path = "/phone/sip/inbound-trunk/rotate-credentials";
                let trunk = scene.made("POST", path, &json!({}));
                pair.put(credentials(&trunk));
            },
            move |_| scene.stranger.register(&new_pair.taken()) == Some(200),
        ),
        kind(
            "a destination",
            move |on| {
                if on {
                    scene.made(
                        "POST",
                        &destinations,
                        &json!({"destination_id": destination}),
                    );
                } else {
                    let path = format!("{destinations}/{destination}");
                    scene.made("DELETE", &path, &Value::Null);
                }
            },
            move |on| {
                let path = format!("/phone/calls/{call}/transfer");
                let ask = json!({"destination": "sales"});
                // The PBX refuses each transfer, and until then no other may begin.
                let status = Deadline::after(LIMIT).poll(|| {
                    let (status, _) = scene.watcher.change("POST", &path, &scene.key, &ask);
                    (status != 409).then_some(status)
                });
                status == Some(if on { 202 } else { 400 })
            },
        ),
        kind(
            "an agent's outbound trunk",
            move |on| {
                let path = format!("/phone/sip/agents/{caller}/outbound-trunk");
                let trunk = if on { json!(way_out) } else { Value::Null };
                scene.made("PUT", &path, &json!({"trunk_id": trunk}));
            },
            move |on| {
                let path = "/phone/outbound-call";
                let (status, _) = scene.watcher.change("POST", path, &scene.key, &dials);
                status == if on { 201 } else { 409 }
            },
        ),
        kind(
            "a key",
            move |_| {
                let made = scene.made("POST", "/api-keys", &json!({"name": "Short"}));
                let (token, id) = scene.used(&made, "api_key", "api_key_id", "/phone");
                key.put(token);
                scene.made("DELETE", &format!("/api-keys/{id}"), &Value::Null);
            },
            move |_| scene.status("/phone", &revoked.taken()) == 401,
        ),
    ]
}

/// Returns a limit on requests a minute, far above what a test needs.
const fn requests_a_minute(on: bool) -> u32 {
    if on { 999_998 } else { 999_999 }
}

impl Scene<'_> {
    /// Returns whether the watcher applies this limit on requests a minute.
    fn shows_limit(&self, most: u32) -> bool {
        let key = format!("Authorization: Bearer {}", self.key);
        let seen = asked(self.watcher, "GET /phone", &key, "");
        seen.contains(&format!("ratelimit-policy: \"org\";q={most};"))
    }
}

/// Returns a runtime that is up.
fn runtime_at(runtime: &Responder) -> Value {
    json!({"type": "sip", "uri": format!("sip:agent@{}", runtime.address)})
}

/// Makes an agent that answers and has no transfer destination yet.
fn echo(scene: &Scene<'_>) -> String {
    let new = json!({"name": "Echo", "type": "inbound", "language": "en", "first_message": "",
        "use_org_knowledgebase": false, "runtime": {"type": "echo"}});
    text(&scene.made("POST", "/phone", &new)["id"])
}

fn credentials(trunk: &Value) -> Credentials {
    Credentials {
        username: text(&trunk["auth_username"]),
        password: text(&trunk["auth_password"]),
    }
}

/// Makes a call at the watcher that this agent has answered.
fn answered(scene: &Scene<'_>, agent: &str) -> String {
    let number = text(&scene.outset["phone_number"]);
    let line = format!("X-PLATFORM-AGENT-ID: {agent}");
    let caller = Probe::new(KNOWN, scene.watcher.setup.sip);
    let up =
        Deadline::after(LIMIT).poll(|| (caller.call(&number, &line) == Some(200)).then_some(()));
    assert!(up.is_some(), "the call isn't answered");

    caller.refuse_transfers();
    let call = Deadline::after(LIMIT).poll(|| {
        let (_, calls) = scene
            .watcher
            .get("/phone/calls?status=in_progress", &scene.key);
        let calls: Value = serde_json::from_str(&calls).expect("JSON");
        calls["items"][0]["id"].as_str().map(ToOwned::to_owned)
    });
    call.expect("the call is up")
}

/// Returns the change of a dashboard session, opened and ended at the writer, and seen by the watcher.
pub(crate) fn of_the_dashboard<'s>(scene: &'s Scene<'_>) -> Kind<'s> {
    let partner = text(&scene.outset["partner_key"]);
    let new = json!({"name": "Visited"});
    let path = "/partner/v1/orgs";
    let org = text(&scene.writer.made("POST", path, &partner, &new)["id"]);
    let page = format!("GET /dashboard/{org}");
    let shown = page.clone();
    let cookie = Held::none();
    let held = cookie.clone();

    kind(
        "a session",
        move |_| {
            let person = json!({"email": "ada@example.org"});
            let path = format!("/partner/v1/orgs/{org}/login-links");
            let link = text(&scene.writer.made("POST", &path, &partner, &person)["url"]);
            let (_, link) = link.split_once("/partner-login").expect("a link");
            let opened = asked(scene.writer, &format!("GET /partner-login{link}"), "", "");
            let given = part(&opened, "trunkline_session=", ";");
            let given = format!("Cookie: trunkline_session={given}");
            let seen = asked(scene.watcher, &page, &given, "");
            let form = format!(
                "form_token={}",
                part(&seen, "name=\"form_token\" value=\"", "\"")
            );
            let left = asked(scene.writer, "POST /dashboard/logout", &given, &form);
            assert!(left.starts_with("HTTP/1.1 200 "), "{left}");
            cookie.put(given);
        },
        move |_| {
            let seen = asked(scene.watcher, &shown, &held.taken(), "");
            !seen.starts_with("HTTP/1.1 200 ")
        },
    )
}

/// Returns a whole answer to a request with this credential, which is a header line or nothing.
fn asked(node: &Node, request: &str, credential: &str, form: &str) -> String {
    let mut stream = TcpStream::connect(node.setup.http).expect("it listens");
    let credential = match credential {
        "" => String::new(),
        line => format!("{line}\r\n"),
    };
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {}\r\n{credential}Content-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{form}",
        node.setup.http,
        form.len()
    )
    .expect("it takes this");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a whole answer");
    answer
}

/// Returns the text between `before` and `behind`.
fn part(text: &str, before: &str, behind: &str) -> String {
    let rest = text
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(behind));
    let (part, _) = rest.unwrap_or_else(|| panic!("no {before} in {text}"));
    part.to_owned()
}

/// Returns changes by the command line.
pub(crate) fn of_the_command_line<'s>(scene: &'s Scene<'_>) -> Vec<Kind<'s>> {
    let mut kinds = of_the_operators_org(scene);
    kinds.extend(of_the_operator(scene));
    kinds
}

fn of_the_operators_org<'s>(scene: &'s Scene<'_>) -> Vec<Kind<'s>> {
    let agent = &*scene.second_agent;
    let allowed = Probe::new(ALLOWED, scene.watcher.setup.sip);
    let dedicated = Probe::new(DEDICATED, scene.watcher.setup.sip);
    let own = text(&scene.outset["phone_number"]);
    scene.of_org(&["number", "add", UNVERIFIED]);

    vec![
        kind(
            "an agent's switch by hand",
            move |on| {
                let switch = if on { "--disabled" } else { "--enabled" };
                scene.of_org(&["agent", "update", agent, switch]);
            },
            move |on| scene.naming(agent) == Some(!on),
        ),
        kind(
            "an agent's name by hand",
            move |on| {
                let name = if on { "Day" } else { "Night" };
                scene.of_org(&["agent", "update", agent, "--name", name]);
            },
            move |on| {
                let (_, shown) = scene.watcher.get(&format!("/phone/{agent}"), &scene.key);
                shown.contains(if on { "\"Day\"" } else { "\"Night\"" })
            },
        ),
        kind(
            "a runtime by hand",
            move |on| {
                let there = if on { &scene.first } else { &scene.second };
                let uri = format!("sip:agent@{}", there.address);
                scene.of_org(&["agent", "update", agent, "--runtime", &uri]);
            },
            move |on| scene.naming(agent) == Some(!on),
        ),
        kind(
            "a number's agent by hand",
            move |on| {
                if on {
                    scene.of_org(&["number", "assign", NUMBER, "--agent", agent]);
                } else {
                    scene.of_org(&["number", "unassign", NUMBER]);
                }
            },
            move |on| scene.dialling(NUMBER) == Some(on),
        ),
        kind(
            "a limit by hand",
            move |on| {
                let most = requests_a_minute(on).to_string();
                let set = ["--requests-per-minute", &most, "--json"];
                scene.run(&[&["org", "limits", &scene.org][..], &set].concat());
            },
            move |on| scene.shows_limit(requests_a_minute(on)),
        ),
        kind(
            "a number's verification",
            move |on| {
                if on {
                    scene.of_org(&["number", "verify", UNVERIFIED]);
                    scene.of_org(&["number", "assign", UNVERIFIED, "--agent", agent]);
                } else {
                    scene.of_org(&["number", "unverify", UNVERIFIED, "--yes"]);
                }
            },
            move |on| scene.dialling(UNVERIFIED) == Some(on),
        ),
        kind(
            "the trunk's allow list by hand",
            move |on| {
                let [first, second] = Scene::networks(on);
                scene.of_org(&["trunk", "update", "--allow", &first, "--allow", &second]);
            },
            move |on| scene.takes(&allowed, &own) == on,
        ),
        kind(
            "a dedication",
            move |on| {
                let network = DEDICATED.to_string();
                match on {
                    true => scene.of_org(&["trunk", "dedicate", &network]),
                    false => scene.of_org(&["trunk", "undedicate", &network, "--yes"]),
                };
            },
            move |on| scene.takes(&dedicated, NUMBER) == on,
        ),
    ]
}

fn of_the_operator<'s>(scene: &'s Scene<'_>) -> Vec<Kind<'s>> {
    let (pair, key, partners, signing) = (Held::none(), Held::none(), Held::none(), Held::none());
    let (new_pair, revoked) = (pair.clone(), key.clone());
    let (gone, signs) = (partners.clone(), signing.clone());
    let orgs = "/partner/v1/orgs";
    let partner = text(&scene.outset["partner_id"]);
    let partner_key = text(&scene.outset["partner_key"]);
    let (of_partner, listed, asking) = (partner.clone(), partner.clone(), partner_key.clone());

    vec![
        kind(
            "the trunk's credentials by hand",
            move |_| {
                let trunk = scene.of_org(&["trunk", "rotate"]);
                pair.put(credentials(&trunk));
            },
            move |_| scene.stranger.register(&new_pair.taken()) == Some(200),
        ),
        kind(
            "a key by hand",
            move |_| {
                let made = scene.of_org(&["key", "create"]);
                let (token, id) = scene.used(&made, "api_key", "api_key_id", "/phone");
                key.put(token);
                scene.of_org(&["key", "revoke", &id, "--yes"]);
            },
            move |_| scene.status("/phone", &revoked.taken()) == 401,
        ),
        kind(
            "a partner's switch",
            move |on| {
                match on {
                    true => scene.run(&["partner", "deactivate", &partner, "--yes"]),
                    false => scene.run(&["partner", "activate", &partner]),
                };
            },
            move |on| scene.status(orgs, &partner_key) == if on { 401 } else { 200 },
        ),
        kind(
            "a partner's allow list",
            move |on| {
                // The daemon sees requests from loopback.
                let network = if on { "198.51.100.0/24" } else { "127.0.0.0/8" };
                scene.run(&["partner", "allow", &listed, network]);
            },
            move |on| scene.status(orgs, &asking) == if on { 403 } else { 200 },
        ),
        kind(
            "a partner's key",
            move |_| {
                let of = ["--partner", &of_partner];
                let create = ["partner", "key", "create", "--json"];
                let made = scene.run(&[&create[..], &of].concat());
                let (token, id) = scene.used(&made, "partner_key", "id", orgs);
                partners.put(token);
                scene.run(&[&["partner", "key", "revoke", &id, "--yes"][..], &of].concat());
            },
            move |_| scene.status(orgs, &gone.taken()) == 401,
        ),
        kind(
            "the signing key",
            move |_| {
                let rotated = scene.run(&["key", "rotate-signing", "--json"]);
                signing.put(text(&rotated["kid"]));
                // A key signed with it works at once, whether or not the daemon has followed the change.
                let made = scene.of_org(&["key", "create"]);
                scene.used(&made, "api_key", "api_key_id", "/phone");
            },
            move |_| {
                // Keys signed before stay valid.
                assert_eq!(scene.status("/phone", &scene.key), 200);
                scene.signing() == signs.taken()
            },
        ),
    ]
}
