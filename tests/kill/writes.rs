//! kill -9 while clients write over the API. After each restart everything that was answered 2xx exists, what was deleted with a 2xx is gone, and a
//! request that was cut off is repeated under its `Idempotency-Key` and takes effect once. On SQLite and PostgreSQL, ten rounds each;
//! `TRUNKLINE_KILL_WRITE_ROUNDS` sets more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use trunkline_bench::clock::{Clock, seconds};
use trunkline_bench::daemon::{Daemon, Launch};

use trunkline_testkit::database::Database;

/// Concurrent clients.
const CLIENTS: usize = 4;
/// Least number of writes in a round before the kill.
const ENOUGH: usize = 40;
const DESTINATIONS: &str = "/phone/sip/transfer-destinations";
const HANDOFFS: &str = "/handoff-analytics/events";
const KEYS: &str = "/api-keys";

fn rounds() -> u64 {
    let given = std::env::var("TRUNKLINE_KILL_WRITE_ROUNDS").ok();
    given.map_or(10, |rounds| {
        rounds
            .parse()
            .expect("TRUNKLINE_KILL_WRITE_ROUNDS is a number")
    })
}

#[test]
fn what_the_api_acknowledged_survives_on_sqlite() {
    play(vec![ports("10000-11999")]);
}

#[test]
fn what_the_api_acknowledged_survives_on_postgresql() {
    let Some(database) = Database::new() else {
        return;
    };
    let mut environment = database.environment();
    environment.push(ports("12000-13999"));
    play(environment);
}

/// Nobody calls here: one free port will do.
fn ports(range: &str) -> (String, String) {
    ("TRUNKLINE__MEDIA__RTP_PORTS".to_owned(), range.to_owned())
}

fn play(environment: Vec<(String, String)>) {
    let folder = TempDir::new().expect("a temporary folder");
    let launch = Launch {
        binary: env!("CARGO_BIN_EXE_trunkline").into(),
        data_dir: folder.path().join("data"),
        runtime: None,
        core: None,
        is_raised: true,
        environment,
    };
    let start = || launch.start().unwrap_or_else(|fault| panic!("{fault}"));
    let mut known = Ledger::default();
    let mut cut = 0;

    for round in 1..=rounds() {
        let mut daemon = start();
        if round == 1 {
            raise_limits(&launch);
        }
        known.make_again(&daemon, round);
        known.check(&daemon, round);
        let ledgers = write_and_kill(&mut daemon, round);
        cut += ledgers.iter().filter(|ledger| ledger.is_cut).count();
        ledgers.into_iter().for_each(|ledger| known.extend(ledger));
    }

    let daemon = start();
    known.make_again(&daemon, rounds() + 1);
    known.check(&daemon, rounds() + 1);
    assert!(cut > 0, "no request was cut: the kills prove nothing");
}

/// Raises the org's limits to what all rounds together make.
fn raise_limits(launch: &Launch) {
    let run = |arguments: &[&str]| -> Value {
        let mut command = Command::new(&launch.binary);
        let environment = launch.environment.iter().cloned();
        command.env("TRUNKLINE__DATA_DIR", &launch.data_dir);
        let output = command.envs(environment).args(arguments).output();
        let output = output.expect("the binary runs");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };

    let orgs = run(&["org", "list", "--json"]);
    let org = orgs[0]["id"].as_str().expect("an org");
    let (keys, destinations) = ("--api-keys", "--destinations");

    run(&[
        "org",
        "limits",
        org,
        keys,
        "1000000",
        destinations,
        "1000000",
        "--json",
    ]);
}

/// Returns the answers that the clients got before the kill, which comes at another moment each round.
fn write_and_kill(daemon: &mut Daemon, round: u64) -> Vec<Ledger> {
    let (at, key) = (daemon.http, daemon.announcement.api_key.clone());
    let done = AtomicUsize::new(0);

    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = Client {
                    at,
                    key: &key,
                    name: format!("{round}.{number}"),
                    done: &done,
                };
                scope.spawn(move || client.write())
            })
            .collect();
        let clock = Clock::start();
        while done.load(Ordering::Relaxed) < ENOUGH && clock.now() < seconds(60) {
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(round * 37 % 150));
        daemon.kill().expect("it runs");
        let ledgers = clients.into_iter();
        let ledgers = ledgers.map(|client| client.join().expect("a client ends well"));
        let ledgers: Vec<_> = ledgers.collect();
        let written = done.load(Ordering::Relaxed);
        assert!(
            written >= ENOUGH,
            "round {round}: only {written} writes; log:\n{}",
            daemon.log()
        );
        ledgers
    })
}

/// Objects that must exist after the kill, and objects that must not.
#[derive(Debug, Default)]
struct Ledger {
    /// Destinations by id, each with the names that it may have.
    destinations: BTreeMap<String, BTreeSet<String>>,
    handoffs: BTreeSet<String>,
    keys: BTreeSet<String>,
    gone: BTreeSet<String>,
    /// Deletions under way when the daemon died: each may have happened or not.
    unsure: BTreeSet<String>,
    /// A request was under way when the daemon died.
    is_cut: bool,
    /// Creations under way when the daemon died.
    cut: Vec<Cut>,
}

/// A request without a whole answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Unanswered {
    /// It couldn't be sent.
    NotSent,
    /// It was sent.
    Cut,
}

/// A `POST` without an answer.
#[derive(Debug)]
struct Cut {
    path: &'static str,
    body: Value,
    /// API key of the request.
    credential: String,
}

impl Cut {
    /// Repeats the request: it takes effect now, or did before.
    fn again(&self, daemon: &Daemon) -> Result<Value, String> {
        let client = Client {
            at: daemon.http,
            key: &self.credential,
            name: String::new(),
            done: &AtomicUsize::new(0),
        };
        match client.ask("POST", self.path, Some(&self.body)) {
            Ok((201, made)) => Ok(made),
            answer => Err(format!("{self:?}, made again: {answer:?}")),
        }
    }

    /// Returns the field of the body that identifies the object in its list.
    fn field(&self) -> &'static str {
        match self.path {
            HANDOFFS => "session_id",
            _ => "name",
        }
    }
}

impl Ledger {
    fn extend(&mut self, mut other: Self) {
        self.destinations.append(&mut other.destinations);
        self.handoffs.append(&mut other.handoffs);
        self.keys.append(&mut other.keys);
        self.gone.append(&mut other.gone);
        self.unsure.append(&mut other.unsure);
        self.cut.append(&mut other.cut);
    }

    /// Repeats what was cut off, and checks that each has taken effect once.
    fn make_again(&mut self, daemon: &Daemon, round: u64) {
        for cut in std::mem::take(&mut self.cut) {
            let made = cut.again(daemon);
            let made = made.unwrap_or_else(|wrong| {
                panic!("round {round}: {wrong}; log:\n{}", daemon.log());
            });
            let (field, items) = (cut.field(), all(daemon, cut.path));
            let same = items.iter().filter(|item| item[field] == cut.body[field]);
            assert_eq!(same.count(), 1, "round {round}: {cut:?}: {made}");
        }
    }

    fn check(&mut self, daemon: &Daemon, round: u64) {
        let destinations: BTreeMap<_, _> = all(daemon, DESTINATIONS)
            .iter()
            .map(|item| (text(&item["id"]), text(&item["name"])))
            .collect();
        let keys: BTreeSet<_> = all(daemon, KEYS)
            .iter()
            .map(|item| text(&item["api_key_id"]))
            .collect();
        let handoffs: BTreeSet<_> = all(daemon, HANDOFFS)
            .iter()
            .map(|item| text(&item["session_id"]))
            .collect();
        let mut wrong = Vec::new();

        for (id, names) in &self.destinations {
            match destinations.get(id) {
                Some(name) if names.contains(name) => {}
                None if self.unsure.contains(id) => {}
                found => wrong.push(format!("destination {id}: {found:?}, not one of {names:?}")),
            }
        }

        let missing = self.keys.difference(&keys);
        let missing = missing.filter(|id| !self.unsure.contains(*id));
        wrong.extend(missing.map(|id| format!("key {id} is missing")));

        let missing = self.handoffs.difference(&handoffs);
        wrong.extend(missing.map(|session| format!("handoff {session} is missing")));

        let back = self
            .gone
            .iter()
            .filter(|id| destinations.contains_key(*id) || keys.contains(*id));
        wrong.extend(back.map(|id| format!("{id} is back")));

        assert!(
            wrong.is_empty(),
            "round {round}:\n{}\nlog:\n{}",
            wrong.join("\n"),
            daemon.log()
        );

        // What was uncertain is known now.
        for id in std::mem::take(&mut self.unsure) {
            if !destinations.contains_key(&id) && !keys.contains(&id) {
                self.destinations.remove(&id);
                self.keys.remove(&id);
                self.gone.insert(id);
            }
        }
        for (id, names) in &mut self.destinations {
            names.retain(|name| destinations.get(id) == Some(name));
        }
    }
}

/// Returns every item of a list, page by page.
fn all(daemon: &Daemon, path: &str) -> Vec<Value> {
    let client = Client {
        at: daemon.http,
        key: &daemon.announcement.api_key,
        name: String::new(),
        done: &AtomicUsize::new(0),
    };

    let mut items = Vec::new();
    let mut next = Some(String::new());
    while let Some(cursor) = next {
        let answer = client.ask("GET", &format!("{path}?limit=100{cursor}"), None);
        let Ok((200, mut page)) = answer else {
            panic!("{path}: {answer:?}; log:\n{}", daemon.log());
        };
        let Value::Array(found) = page["items"].take() else {
            panic!("{path} is no list: {page}");
        };
        items.extend(found);
        let cursor = page["next"].as_str();
        next = cursor.map(|cursor| format!("&cursor={cursor}"));
    }

    items
}

struct Client<'k> {
    at: SocketAddr,
    key: &'k str,
    name: String,
    /// Counts the answers to all clients.
    done: &'k AtomicUsize,
}

impl Client<'_> {
    /// Writes until the daemon no longer answers.
    fn write(&self) -> Ledger {
        let mut ledger = Ledger::default();
        let mut turn = 0;
        let last = loop {
            match self.turn(turn, &mut ledger) {
                Ok(()) => turn += 1,
                Err(unanswered) => break unanswered,
            }
        };
        ledger.is_cut = last == Unanswered::Cut;
        ledger
    }

    /// Makes, changes and deletes, until the daemon is gone.
    fn turn(&self, turn: u32, ledger: &mut Ledger) -> Result<(), Unanswered> {
        let name = format!("{} {turn}", self.name);
        let handoff = json!({"session_id": name});
        self.made(HANDOFFS, handoff, ledger)?;
        ledger.handoffs.insert(name.clone());

        let destination = json!({"name": name, "type": "phone", "value": "+442071838750"});
        let made = self.made(DESTINATIONS, destination, ledger)?;
        let id = text(&made["id"]);
        let names = BTreeSet::from([name.clone()]);
        ledger.destinations.insert(id.clone(), names);

        let path = format!("{DESTINATIONS}/{id}");
        let changed = format!("{name}, changed");
        let names = ledger.destinations.get_mut(&id).expect("it was made");
        names.insert(changed.clone());
        self.acknowledged("PATCH", &path, Some(&json!({"name": changed})), 200)?;
        names.remove(&name);

        let made = self.made(KEYS, json!({"name": name}), ledger)?;
        let key = text(&made["api_key_id"]);
        ledger.keys.insert(key.clone());
        if turn.is_multiple_of(3) {
            ledger.unsure.insert(id.clone());
            self.acknowledged("DELETE", &path, None, 200)?;
            ledger.unsure.insert(key.clone());
            ledger.unsure.remove(&id);
            ledger.destinations.remove(&id);
            ledger.gone.insert(id);
            self.acknowledged("DELETE", &format!("{KEYS}/{key}"), None, 200)?;
            ledger.unsure.remove(&key);
            ledger.keys.remove(&key);
            ledger.gone.insert(key);
        }

        Ok(())
    }

    /// Makes an object; notes the request for a repeat if no answer comes.
    fn made(
        &self,
        path: &'static str,
        body: Value,
        ledger: &mut Ledger,
    ) -> Result<Value, Unanswered> {
        let made = self.acknowledged("POST", path, Some(&body), 201);
        if made.is_err() {
            ledger.cut.push(Cut {
                path,
                body,
                credential: self.key.to_owned(),
            });
        }
        made
    }

    fn acknowledged(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        expected: u16,
    ) -> Result<Value, Unanswered> {
        let (status, body) = self.ask(method, path, body)?;
        assert_eq!(status, expected, "{method} {path}: {body}");
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(body)
    }

    /// Returns status and body of the answer. A request for which the database of a busy machine has no time is sent again, as a client does.
    fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Unanswered> {
        const ATTEMPTS: usize = 20;
        for attempt in 1.. {
            let (status, body) = self.ask_once(method, path, body)?;
            if status == 503 && attempt < ATTEMPTS {
                continue;
            }
            // The attempt that was answered 503 may have had its effect.
            let is_gone = method == "DELETE" && status == 404 && attempt > 1;
            return Ok((if is_gone { 200 } else { status }, body));
        }
        unreachable!("the loop returns")
    }

    fn ask_once(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), Unanswered> {
        let connected = TcpStream::connect_timeout(&self.at, Duration::from_secs(30));
        let mut stream = connected.map_err(|_| Unanswered::NotSent)?;
        let limit = stream.set_read_timeout(Some(Duration::from_secs(60)));
        limit.expect("a limit above zero");

        let body = body.map(Value::to_string).unwrap_or_default();
        let content = match body.len() {
            0 => String::new(),
            length => {
                format!("Content-Type: application/json\r\nContent-Length: {length}\r\n")
            }
        };

        // The body names the object, so it identifies the request.
        let once = match method {
            "POST" => format!(
                "Idempotency-Key: {:x}\r\n",
                crc32fast::hash(body.as_bytes())
            ),
            _ => String::new(),
        };
        let (at, key) = (self.at, self.key);

        // HTTP/1.0: the connection closes after the answer, whose length is known.
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {at}\r\nAuthorization: Bearer {key}\r\n{once}{content}\r\n{body}"
        );
        let sent = stream.write_all(request.as_bytes());
        sent.map_err(|_| Unanswered::NotSent)?;

        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        read.map_err(|_| Unanswered::Cut)?;
        parse(&answer).ok_or(Unanswered::Cut)
    }
}

/// Status and body of an answer; `None` if it isn't whole.
fn parse(answer: &str) -> Option<(u16, Value)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}
