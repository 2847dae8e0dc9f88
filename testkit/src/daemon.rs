//! The built daemon: set up through its own command line, run on free ports, stopped when the test ends.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::digest::Credentials;
use crate::http;
use crate::process::{self, Deadline, Process, free_port, free_range, started, trunkline};
use crate::sipp::{Caller, Runtime};

const READY: Duration = Duration::from_secs(30);
/// Far longer than a record takes to be stored, since other tests may occupy the machine.
const RECORDED: Duration = Duration::from_secs(30);

/// Number of RTP ports, enough for the few calls of a test.
const RTP_PORTS: u16 = 64;

/// A data directory and its configuration, before a daemon runs on it.
#[derive(Debug)]
pub struct DaemonSetup {
    pub folder: TempDir,
    settings: Vec<(&'static str, String)>,
    pub sip: SocketAddr,
    pub http: SocketAddr,
    pub org: String,
    pub first_agent: String,
    pub first_number: String,
    credentials: Credentials,
    pub key: String,
    /// Files that the daemon may open.
    open_files: Option<u32>,
}

impl DaemonSetup {
    /// An org with an agent, a number and a trunk, as `quickstart` creates them.
    pub fn new() -> Self {
        Self::on(Ipv4Addr::LOCALHOST.into())
    }

    /// The same, with SIP on another loopback address.
    pub fn on(ip: IpAddr) -> Self {
        Self::with(ip, Vec::new())
    }

    /// The same, with more settings from the start.
    pub fn with(ip: IpAddr, more: Vec<(&'static str, String)>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sip = SocketAddr::new(ip, free_port());
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let rtp = free_range(RTP_PORTS);

        let mut settings = vec![
            (
                "TRUNKLINE__DATA_DIR",
                folder.path().join("data").display().to_string(),
            ),
            ("TRUNKLINE__HTTP__LISTEN", http.to_string()),
            ("TRUNKLINE__SIP__UDP", sip.to_string()),
            ("TRUNKLINE__SIP__TCP", sip.to_string()),
            ("TRUNKLINE__SIP__PUBLIC_HOST", sip.ip().to_string()),
            (
                "TRUNKLINE__MEDIA__RTP_PORTS",
                format!("{rtp}-{}", rtp + RTP_PORTS - 1),
            ),
            ("TRUNKLINE__SIP__SHARDS", "2".to_owned()),
            // The agent echoes at once, as most tests want it.
            ("TRUNKLINE__PHONE__DEFAULT_RUNTIME", "echo".to_owned()),
            // Tests poll the list of calls.
            (
                "TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE",
                "1000000".to_owned(),
            ),
        ];
        settings.extend(more);

        let made = run(
            folder.path(),
            &settings,
            &["quickstart", "--json", "--no-serve"],
        );

        let is_sqlite = settings
            .iter()
            .all(|(name, _)| *name != "TRUNKLINE__DATABASE__URL");
        if is_sqlite {
            refer_callers(&folder.path().join("data/trunkline.db"));
        }
        let credentials = Credentials {
            username: text(&made["trunk"]["auth_username"]),
            password: text(&made["trunk"]["auth_password"]),
        };

        Self {
            org: text(&made["org_id"]),
            first_agent: text(&made["agent_id"]),
            first_number: text(&made["phone_number"]),
            key: text(&made["api_key"]),
            credentials,
            settings,
            sip,
            http,
            folder,
            open_files: None,
        }
    }

    /// Limits the files that the daemon may open.
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    pub fn set(mut self, variable: &'static str, value: &str) -> Self {
        self.settings.push((variable, value.to_owned()));
        self
    }

    /// A new inbound agent of the first org.
    pub fn agent(&self, name: &str, runtime: Runtime) -> String {
        let made = self.run(&[
            "agent",
            "create",
            "--org",
            &self.org,
            "--name",
            name,
            "--runtime",
            &runtime.uri(),
            "--json",
        ]);
        text(&made["id"])
    }

    /// Verifies a number and assigns it.
    pub fn assign(&self, number: &str, agent: &str) {
        self.run(&[
            "number",
            "add",
            number,
            "--org",
            &self.org,
            "--verified",
            "--json",
        ]);
        self.run(&[
            "number", "assign", number, "--org", &self.org, "--agent", agent, "--json",
        ]);
    }

    /// Puts a number at the end of the trunk's list.
    pub fn list(&self, number: &str) {
        self.run(&["trunk", "add-number", number, "--org", &self.org, "--json"]);
    }

    /// Allows calls from this network to the trunk's numbers without credentials.
    pub fn allow(&self, network: &str) {
        self.run(&[
            "trunk", "update", "--org", &self.org, "--allow", network, "--json",
        ]);
    }

    /// Dedicates this network to the org.
    pub fn dedicate(&self, network: &str) {
        self.run(&["trunk", "dedicate", network, "--org", &self.org, "--json"]);
    }

    /// Lists a network in which the org's phone system has its media.
    pub fn media_address(&self, network: &str) {
        let listed = [
            "trunk",
            "media-address",
            network,
            "--org",
            &self.org,
            "--json",
        ];
        self.run(&listed);
    }

    pub fn disable(&self, agent: &str) {
        self.run(&[
            "agent",
            "update",
            agent,
            "--org",
            &self.org,
            "--disabled",
            "--json",
        ]);
    }

    pub fn limit(&self, agent: &str, calls: u32) {
        self.run(&[
            "agent",
            "update",
            agent,
            "--org",
            &self.org,
            "--max-concurrent-calls",
            &calls.to_string(),
            "--json",
        ]);
    }

    pub fn runtime(&self, agent: &str, uri: &str) {
        self.run(&[
            "agent",
            "update",
            agent,
            "--org",
            &self.org,
            "--runtime",
            uri,
            "--json",
        ]);
    }

    pub fn runtime_with_fallback(&self, agent: &str, uri: &str, fallback: &str) {
        self.run(&[
            "agent",
            "update",
            agent,
            "--org",
            &self.org,
            "--runtime",
            uri,
            "--fallback",
            fallback,
            "--json",
        ]);
    }

    /// Waits until the daemon follows a change made by another process: two seconds, and then until it routes by the change.
    pub fn settle(&self) {
        const CATCHES_UP: Duration = Duration::from_secs(1);
        std::thread::sleep(2 * CATCHES_UP);

        // The answer to a route test waits up to a second for earlier changes: one that comes sooner includes them.
        let known = Deadline::after(RECORDED).poll(|| {
            let waits = Deadline::after(CATCHES_UP);
            let question = serde_json::json!({"to": "1"});
            let path = "/phone/sip/route-test";
            let (status, decision) = http::change("POST", self.http, path, &self.key, &question);
            assert_eq!(status, 200, "{decision}");
            (!waits.is_over()).then_some(())
        });
        assert!(known.is_some(), "the daemon never takes the change over");
    }

    /// An agent of another org.
    pub fn foreign_agent(&self) -> String {
        let org = text(&self.run(&["org", "create", "--name", "Other Ltd", "--json"])["id"]);
        text(
            &self.run(&[
                "agent", "create", "--org", &org, "--name", "Foreign", "--json",
            ])["id"],
        )
    }

    /// Runs a command of the command line, which must succeed. Returns its JSON, or null.
    pub fn run(&self, arguments: &[&str]) -> Value {
        run(self.folder.path(), &self.settings, arguments)
    }

    /// Another program, run in this daemon's folder and with its settings.
    pub fn program(&self, name: &str) -> Command {
        program(name.as_ref(), self.folder.path(), &self.settings)
    }

    /// Runs a command of the command line and returns its output, whatever the exit code.
    pub fn output(&self, arguments: &[&str]) -> Output {
        let mut command = command(self.folder.path(), &self.settings);
        let output = command.args(arguments).stdin(Stdio::null()).output();
        output.expect("the daemon's binary runs")
    }

    /// Runs the doctor; returns its exit code and its report.
    pub fn doctor(&self) -> (Option<i32>, Value) {
        let output = self.output(&["doctor", "--json"]);
        let report = serde_json::from_slice(&output.stdout);
        (output.status.code(), report.expect("a report"))
    }

    pub fn serve(self) -> Daemon {
        Daemon {
            process: self.start(),
            setup: self,
        }
    }

    /// Returns true if the daemon is ready. Its log says so where HTTP has TLS, since the client here speaks plain HTTP.
    fn is_ready(&self, log: &Path) -> bool {
        let https = |(name, _): &(&str, String)| *name == "TRUNKLINE__HTTP__TLS_CERTIFICATE";
        if self.settings.iter().any(https) {
            process::read(log).contains("INFO ready ")
        } else {
            http::get(self.http, "/readyz", None).is_some_and(|(status, _)| status == 200)
        }
    }

    /// Starts a daemon, and returns once it is ready.
    pub fn start(&self) -> Process {
        let log = self.folder.path().join("log");
        let process = started(
            READY,
            || self.begin(&log),
            || self.is_ready(&log),
            || process::read(&log),
        );
        process.unwrap_or_else(|log| panic!("the daemon isn't ready:\n{log}"))
    }

    fn begin(&self, log: &Path) -> Process {
        let file = File::create(log).expect("the log can be written");
        let mut command = match self.open_files {
            None => command(self.folder.path(), &self.settings),
            Some(most) => {
                let mut shell = program(Path::new("sh"), self.folder.path(), &self.settings);
                let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
                shell.args(["-c", &script]).arg(trunkline());
                shell
            }
        };
        command
            .arg("serve")
            .stderr(file.try_clone().expect("a second handle"))
            .stdout(file);
        Process::start("trunkline serve", &mut command)
    }
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    pub process: Process,
    pub setup: DaemonSetup,
}

impl Daemon {
    pub fn sip(&self) -> SocketAddr {
        self.setup.sip
    }

    pub fn credentials(&self) -> Credentials {
        self.setup.credentials.clone()
    }

    /// A caller with the trunk's credentials that dials the first number and names no agent.
    pub fn caller(&self) -> Caller {
        Caller {
            daemon: self.setup.sip,
            credentials: self.credentials(),
            number: "+441632960001".to_owned(),
            dials: self.setup.first_number.clone(),
            extra_header: "X-Agent: none named".to_owned(),
            tcp: false,
            talks: Duration::from_millis(500),
            allow: None,
        }
    }

    /// The records of all calls, newest first.
    pub fn calls(&self) -> Vec<Value> {
        let mut page = http::json(self.setup.http, "/phone/calls", &self.setup.key);
        match page["items"].take() {
            Value::Array(items) => items,
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => panic!("no list of calls: {page}"),
        }
    }

    /// The record of the only call, once it has ended.
    pub fn record(&self) -> Value {
        self.records(1).remove(0)
    }

    /// The records of exactly `count` calls, once they have ended and are stored.
    pub fn records(&self, count: usize) -> Vec<Value> {
        let ended = Deadline::after(RECORDED).poll(|| {
            let calls = self.calls();
            // A call too many fails at once: waiting can't make it disappear.
            assert!(calls.len() <= count, "a call leaves one record: {calls:?}");
            let over = calls.iter().all(|call| !call["ended_at"].is_null());
            // Read again once the ends are stored: the first reading may have been of memory.
            (over && calls.len() == count && self.are_rows(&calls)).then(|| self.calls())
        });
        ended.unwrap_or_else(|| panic!("not {count} records of ended calls: {:?}", self.calls()))
    }

    /// Returns true if the ends of these calls are stored. On a busy machine the API shows a call as over before that, while events,
    /// handoffs and commands that read the database don't know of its end yet.
    fn are_rows(&self, calls: &[Value]) -> bool {
        let rows = http::json_lines(self.setup.http, "/phone/calls", &self.setup.key);
        let is_row = |call: &Value| rows.iter().any(|row| row["id"] == call["id"]);
        calls.iter().all(is_row)
    }

    /// Returns a call once its end is stored.
    pub fn stored(&self, call: &str) -> Value {
        let path = format!("/phone/calls/{call}");
        let stored = Deadline::after(RECORDED).poll(|| {
            let shown = self.shown(&path);
            self.are_rows(std::slice::from_ref(&shown))
                .then(|| self.shown(&path))
        });
        stored.unwrap_or_else(|| panic!("no record of an end: {}", self.shown(&path)))
    }

    /// Hangs up both sides of a call; returns the call once its end is stored, since the response doesn't wait for that long.
    pub fn hang_up(&self, call: &str) -> Value {
        let path = format!("/phone/calls/{call}/hangup");
        let (status, body) = self.change("POST", &path, &serde_json::json!({}));
        assert!(matches!(status, 200 | 202), "{status}: {body}");
        self.stored(call)
    }

    /// Waits until a call has this status.
    pub fn wait_for_status(&self, id: &Value, status: &str) {
        let path = format!("/phone/calls/{}", text(id));
        let seen = Deadline::after(RECORDED).poll(|| {
            let call = http::json(self.setup.http, &path, &self.setup.key);
            (call["status"] == status).then_some(())
        });
        assert!(seen.is_some(), "the call is never {status}");
    }

    /// The stored decision of a call.
    pub fn routing(&self, call: &Value) -> Value {
        http::json(
            self.setup.http,
            &format!("/phone/calls/{}/routing", text(&call["id"])),
            &self.setup.key,
        )
    }

    /// Status and body of a GET of the API with this credential.
    pub fn read(&self, path: &str, credential: &str) -> (u16, Value) {
        let (status, body) = http::get(self.setup.http, path, Some(credential)).expect("an answer");
        let body = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        (status, body)
    }

    /// The key of the first org.
    pub fn key(&self) -> &str {
        &self.setup.key
    }

    /// Status and body of a request that changes something through the API.
    pub fn change(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        http::change(method, self.setup.http, path, &self.setup.key, body)
    }

    /// Creates a destination of the first agent; returns its id.
    pub fn destination(&self, name: &str, kind: &str, value: &str) -> String {
        self.destination_via("pbx", name, kind, value)
    }

    /// The same. `via` names the way on which the destination is called: `pbx` or `trunk`.
    pub fn destination_via(&self, via: &str, name: &str, kind: &str, value: &str) -> String {
        let path = format!(
            "/phone/sip/agents/{}/transfer-destinations",
            self.setup.first_agent
        );
        let create =
            serde_json::json!({"create": {"name": name, "type": kind, "value": value, "via": via}});
        let (status, made) = self.change("POST", &path, &create);
        assert_eq!(status, 201, "{made}");
        text(&made["id"])
    }

    /// The id of the only call, once it has been answered and its contact is known.
    pub fn answered_call(&self) -> String {
        let is_up =
            |call: &Value| call["status"] == "in_progress" && call["contact_id"].is_string();
        let up = || self.calls().into_iter().find(is_up);
        let call = Deadline::after(RECORDED).poll(up);
        text(&call.expect("a call that is answered")["id"])
    }

    /// Returns the JSON that the API has at `path`.
    pub fn shown(&self, path: &str) -> Value {
        http::json(self.setup.http, path, &self.setup.key)
    }

    pub fn log(&self) -> String {
        process::read(&self.setup.folder.path().join("log"))
    }

    /// Waits for a log line that has all these parts. The daemon writes its log on a thread of its own, so a line comes later than what it tells of.
    pub fn log_line(&self, parts: &[&str]) -> String {
        process::log_line(|| self.log(), parts)
    }

    /// Stops the daemon and starts it again with further settings.
    pub fn restart(&mut self, more: &[(&'static str, &str)]) {
        self.process.terminate();
        let ended = self.process.wait(Deadline::after(READY));
        assert!(ended.is_some_and(|status| status.success()), "it ends");
        let more = more
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        self.setup.settings.extend(more);
        self.process = self.setup.start();
    }

    /// Sends SIGTERM and waits; returns true if the daemon has ended with success.
    pub fn stop(mut self) -> bool {
        self.process.terminate();
        self.process
            .wait(Deadline::after(READY))
            .is_some_and(|status| status.success())
    }
}

impl Drop for Daemon {
    /// Prints the daemon's log if the test failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
    }
}

fn command(folder: &Path, settings: &[(&'static str, String)]) -> Command {
    program(&trunkline(), folder, settings)
}

fn program(name: &Path, folder: &Path, settings: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(name);
    // A setting in the developer's own environment must not reach the daemon under test.
    let ours = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_string_lossy().starts_with("TRUNKLINE__"));
    for name in ours {
        command.env_remove(name);
    }
    command
        .current_dir(folder)
        .envs(settings.iter().map(|(name, value)| (name, value)));
    command
}

/// Checks the end of a call whose caller was handed over by REFER: it is `transferred` if the destination is known to have answered, which an answer
/// that comes at once doesn't show. How soon it comes depends on the machine.
pub fn assert_handed_over(record: &Value) {
    let ended = match record["transfer"]["answer_confirmed"] == true {
        true => ("transferred", Value::Null),
        false => ("completed", Value::from("transfer_unconfirmed")),
    };
    let (status, reason) = ended;
    assert_eq!(record["status"], status, "{record}");
    assert_eq!(record["reason"], reason, "{record}");
}

/// Has transfers go by REFER, which most tests of transfers are about: the trunk of `quickstart` has `auto`. Written into the database, since a
/// command for each test would take longer.
fn refer_callers(database: &Path) {
    let database = rusqlite::Connection::open(database).expect("quickstart has made a database");
    let changed = database.execute("UPDATE inbound_trunks SET transfer_way = 'refer'", []);
    assert_eq!(changed.expect("the trunk is changed"), 1);
}

fn run(folder: &Path, settings: &[(&'static str, String)], arguments: &[&str]) -> Value {
    let output = command(folder, settings)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the daemon's binary runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{stdout}\n{complaint}",
        output.status
    );

    if stdout.trim().is_empty() {
        return Value::Null;
    }

    serde_json::from_str(stdout.trim())
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stdout}"))
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}
