//! A change takes effect at once on the node that answers it, and soon on the other of two daemons on one PostgreSQL, and on a daemon beside which
//! the command line works. Routing is tried with calls, since `route-test` waits until the node knows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_store::Signal;

use crate::e2e::clocks::metric;
use crate::e2e::kinds::{
    ALLOWED, KNOWN, Kind, LISTED, NUMBER, ON_TRUNK, of_the_api, of_the_api_alone,
    of_the_command_line, of_the_dashboard,
};
use crate::e2e::node::{Node, NodeSetup, text};
use crate::e2e::nodes::Pair;
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Deadline, Responder, http};

/// Beyond this the change isn't followed at all. It is shorter than the life of a cached key (60 s), so a change that shows only because a cache has
/// expired fails the test. That a node looks more often than once a second is a matter of [`Signal::POLL`].
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// Number of times that each change is made and undone at another node.
const ROUNDS: usize = 2;
const _: () = assert!(Signal::POLL.as_millis() < 1000);

impl Kind<'_> {
    /// Makes and undoes the change repeatedly.
    fn play(&self) {
        for _ in 0..ROUNDS {
            for on in [true, false] {
                (self.set)(on);
                let seen = Deadline::after(LIMIT).poll(|| (self.is)(on).then_some(()));
                assert!(seen.is_some(), "{}: {on} is never seen", self.name);
            }
        }
    }
}

/// Number of times that each change is made and undone where it must take effect at once.
const TURNS: usize = 8;

impl Kind<'_> {
    /// Makes and undoes the change, and checks once, right after the answer.
    fn is_in_force_at_once(&self, node: &Node) {
        let late = || metric(node, "trunkline_changes_late_total");
        for turn in 0..=TURNS {
            for on in [true, false] {
                let late_before = late();
                (self.set)(on);
                // The first time, a source has to be probed and a runtime resolved. On a machine without time for the node, an answer no longer
                // waits for the change; the node counts that.
                let is_excused = turn == 0 || late() != late_before;
                let patience = if is_excused { LIMIT } else { Duration::ZERO };
                let seen = Deadline::after(patience).poll(|| (self.is)(on).then_some(()));
                let name = self.name;
                assert!(
                    seen.is_some(),
                    "{name}: {on} isn't in force, turn {turn} of {TURNS}"
                );
            }
        }
    }
}

/// Returns the final status of a call, which is repeated if the daemon had no time for it.
fn placed(probe: &Probe, number: &str, line: &str) -> u16 {
    let status = Deadline::after(LIMIT).poll(|| probe.call(number, line));
    status.expect("the daemon takes calls")
}

/// A node on which changes are made, a node on which they are seen, and an org to change: calls to its numbers go to one of two runtimes.
pub(crate) struct Scene<'s> {
    pub(crate) writer: &'s Node,
    pub(crate) watcher: &'s Node,
    pub(crate) outset: &'s Value,
    pub(crate) key: String,
    pub(crate) org: String,
    pub(crate) second_agent: String,
    /// The runtimes of both.
    pub(crate) first: Responder,
    pub(crate) second: Responder,
    pub(crate) known: Probe,
    /// A caller at an address that no org has allowed.
    pub(crate) stranger: Probe,
}

impl<'s> Scene<'s> {
    fn new(writer: &'s Node, watcher: &'s Node, outset: &'s Value) -> Self {
        let (first, second) = (Responder::busy(), Responder::busy());
        let (org, first_agent) = (text(&outset["org_id"]), text(&outset["agent_id"]));
        let setup = &writer.setup;
        setup.run(&["trunk", "dedicate", &KNOWN.to_string(), "--org", &org]);
        for number in [NUMBER, ON_TRUNK] {
            setup.run(&["number", "add", number, "--org", &org, "--verified"]);
        }

        let at = |runtime: &Responder| format!("sip:agent@{}", runtime.address);
        let update = ["agent", "update", &first_agent, "--org", &org, "--runtime"];
        setup.run(&[&update[..], &[&at(&first)]].concat());
        let create = [
            "agent", "create", "--org", &org, "--name", "Second", "--json",
        ];
        let made = setup.run(&[&create[..], &["--runtime", &at(&second)]].concat());
        let scene = Self {
            writer,
            watcher,
            outset,
            key: text(&outset["api_key"]),
            org,
            second_agent: text(&made["id"]),
            first,
            second,
            known: Probe::new(KNOWN, watcher.setup.sip),
            stranger: Probe::new(Ipv4Addr::new(127, 0, 0, 6), watcher.setup.sip),
        };
        let named = scene.second_agent.clone();
        let ready = Deadline::after(LIMIT).poll(|| scene.reaches_second(&named).then_some(()));

        assert!(ready.is_some(), "the second agent isn't reached");

        scene
    }

    /// Returns which runtime a call to a number reaches: the first, the second, or none.
    fn called(&self, number: &str, line: &str) -> Option<bool> {
        let before = (self.first.taken(), self.second.taken());
        placed(&self.known, number, line);
        let after = (self.first.taken(), self.second.taken());
        match (after.0 > before.0, after.1 > before.1) {
            (true, false) => Some(false),
            (false, true) => Some(true),
            (false, false) | (true, true) => None,
        }
    }

    /// Places a call that names an agent.
    pub(crate) fn naming(&self, agent: &str) -> Option<bool> {
        let line = format!("X-PLATFORM-AGENT-ID: {agent}");
        self.called(&text(&self.outset["phone_number"]), &line)
    }

    fn reaches_second(&self, agent: &str) -> bool {
        self.naming(agent) == Some(true)
    }

    pub(crate) fn dialling(&self, number: &str) -> Option<bool> {
        self.called(number, "X-Agent: none named")
    }

    /// Returns whether the daemon accepts a call from there without credentials.
    pub(crate) fn takes(&self, probe: &Probe, number: &str) -> bool {
        placed(probe, number, "X-Agent: none named") != 401
    }

    /// Returns the answer to a change that must succeed.
    pub(crate) fn made(&self, method: &str, path: &str, body: &Value) -> Value {
        self.writer.made(method, path, &self.key, body)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Value {
        self.writer.setup.run(arguments)
    }

    /// The same about the org.
    pub(crate) fn of_org(&self, arguments: &[&str]) -> Value {
        let org = ["--org", &self.org, "--json"];
        self.run(&[arguments, &org].concat())
    }

    pub(crate) fn status(&self, path: &str, key: &str) -> u16 {
        self.watcher.get(path, key).0
    }

    /// Returns the signing key that the watcher publishes.
    pub(crate) fn signing(&self) -> String {
        let path = "/.well-known/jwks.json";
        let (_, set) = http::get(self.watcher.setup.http, path, None).expect("an answer");
        let set: Value = serde_json::from_str(&set).expect("JSON");
        text(&set["keys"][0]["kid"])
    }

    pub(crate) fn networks(on: bool) -> [String; 2] {
        let other = if on { ALLOWED } else { KNOWN };
        [format!("{LISTED}/32"), format!("{other}/32")]
    }

    /// Returns a key that the watcher has accepted, and its id.
    pub(crate) fn used(&self, made: &Value, key: &str, id: &str, path: &str) -> (String, String) {
        let (key, id) = (text(&made[key]), text(&made[id]));
        let taken = Deadline::after(LIMIT).poll(|| (self.status(path, &key) == 200).then_some(()));
        assert!(taken.is_some(), "the watcher doesn't take a new key");
        (key, id)
    }
}

const CAPS: [(&str, &str); 3] = [
    ("TRUNKLINE__LIMITS__OUTBOUND_CALLS", "10000"),
    ("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_MINUTE", "10000"),
    ("TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY", "10000"),
];

#[test]
fn each_change_at_one_node_is_known_to_the_other() {
    let Some(pair) = Pair::new(&CAPS) else {
        return;
    };
    let scene = Scene::new(&pair.first, &pair.second, &pair.outset);
    let mut kinds = of_the_api(&scene);
    kinds.extend(of_the_api_alone(&scene));
    kinds.push(of_the_dashboard(&scene));
    for kind in kinds {
        kind.play();
    }
}

#[test]
fn a_change_is_in_force_when_the_api_answers() {
    let caps = CAPS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let setup = NodeSetup::new(&caps);
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let node = setup.serve();
    in_force_at_once(&Scene::new(&node, &node, &outset));
    if let Some(pair) = Pair::new(&CAPS) {
        in_force_at_once(&Scene::new(&pair.first, &pair.first, &pair.outset));
    }
}

fn in_force_at_once(scene: &Scene<'_>) {
    let mut kinds = of_the_api(scene);
    kinds.extend(of_the_api_alone(scene));
    kinds.push(of_the_dashboard(scene));
    for kind in kinds {
        kind.is_in_force_at_once(scene.writer);
    }
}

#[test]
fn each_edit_by_hand_is_known_to_the_other_node() {
    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let scene = Scene::new(&pair.first, &pair.second, &pair.outset);
    for kind in of_the_command_line(&scene) {
        kind.play();
    }
}

#[test]
fn each_edit_by_hand_is_known_to_a_daemon_on_sqlite() {
    let setup = NodeSetup::new(&[]);
    let outset = setup.run(&["quickstart", "--json", "--no-serve"]);
    let node = setup.serve();
    let scene = Scene::new(&node, &node, &outset);
    for kind in of_the_command_line(&scene) {
        kind.play();
    }
}

/// A client that streams from one node gets the events of the other.
#[test]
fn a_stream_at_one_tells_what_happens_at_the_other() {
    let Some(pair) = Pair::new(&[]) else {
        return;
    };

    let mut stream = TcpStream::connect(pair.second.setup.http).expect("it listens");
    let key = &pair.key;
    write!(
        stream,
        "GET /phone/events?types=handoff.created HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
    )
    .expect("it takes this");

    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let news =
            lines.filter(|line| line.contains("text/event-stream") || line.contains("told-"));
        // The test may be over.
        news.for_each(|line| drop(tell.send(line)));
    });
    told.recv_timeout(LIMIT).expect("the stream begins");

    for turn in 0..2 * ROUNDS {
        let session = format!("told-{turn}");
        let handoff = json!({"session_id": session});
        pair.first
            .made("POST", "/handoff-analytics/events", key, &handoff);
        let line = told.recv_timeout(LIMIT).expect("it is told at all");
        assert!(line.contains(&session), "{line} instead of {session}");
    }
}
