//! One of several daemons, configured by its environment only.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use trunkline_testkit::http;
use trunkline_testkit::process::{Deadline, Process, free_port, free_range, started};

const READY: Duration = Duration::from_secs(60);
/// Enough for a test's calls.
const RTP_PORTS: u16 = 16;

/// A data directory and an environment, before a daemon serves them.
#[derive(Debug)]
pub(crate) struct NodeSetup {
    folder: TempDir,
    environment: Vec<(String, String)>,
    pub(crate) http: SocketAddr,
    pub(crate) sip: SocketAddr,
}

/// A daemon that serves.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) setup: NodeSetup,
    process: Process,
}

impl NodeSetup {
    pub(crate) fn new(more: &[(String, String)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let sip = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let rtp = free_range(RTP_PORTS);
        let own = [
            ("DATA_DIR", folder.path().join("data").display().to_string()),
            ("HTTP__LISTEN", http.to_string()),
            ("SIP__UDP", sip.to_string()),
            ("SIP__TCP", sip.to_string()),
            ("SIP__PUBLIC_HOST", sip.to_string()),
            ("SIP__SHARDS", "1".to_owned()),
            ("SIP__ALLOW_PRIVATE_PEERS", "127.0.0.0/8,::1".to_owned()),
            ("SIP__TRUSTED_RUNTIMES", "127.0.0.0/8".to_owned()),
            ("MEDIA__RTP_PORTS", format!("{rtp}-{}", rtp + RTP_PORTS - 1)),
            ("LIMITS__REQUESTS_PER_MINUTE", "1000000".to_owned()),
            ("LIMITS__PARTNER_REQUESTS_PER_MINUTE", "1000000".to_owned()),
        ];
        let own = own.map(|(name, value)| (format!("TRUNKLINE__{name}"), value));
        let environment = own.into_iter().chain(more.iter().cloned()).collect();

        Self {
            folder,
            environment,
            http,
            sip,
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.to_string_lossy().starts_with("TRUNKLINE__")) {
            command.env_remove(name);
        }
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.current_dir(self.folder.path()).envs(environment);
        command
    }

    /// Runs a command, which must succeed; returns its JSON.
    pub(crate) fn run(&self, arguments: &[&str]) -> Value {
        let output = self
            .command()
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the binary runs");
        let (told, complaint) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{told}\n{complaint}",
            output.status
        );

        serde_json::from_str(told.trim()).unwrap_or_default()
    }

    /// Runs a command to its end; returns exit code and output.
    pub(crate) fn said(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command();
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.expect("the binary runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// Starts a daemon; returns once it is ready.
    pub(crate) fn serve(self) -> Node {
        Node {
            process: self.start(),
            setup: self,
        }
    }

    fn start(&self) -> Process {
        let is_ready = || {
            let answer = http::get(self.http, "/readyz", None);
            answer.is_some_and(|(status, _)| status == 200)
        };
        let process = started(READY, || self.begin(), is_ready, || self.log());
        process.unwrap_or_else(|log| panic!("not ready:\n{log}"))
    }

    /// Starts a daemon, which may take long to be ready.
    pub(crate) fn begin(&self) -> Process {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file());
        let log = log.expect("the log can be written");
        let mut command = self.command();
        let both = log.try_clone().expect("a second handle");
        command.arg("serve").stdout(both).stderr(log);
        Process::start("trunkline serve", &mut command)
    }

    fn log_file(&self) -> std::path::PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Node {
    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.process.signal("KILL");
        self.gone();
    }

    /// Sends SIGTERM and waits for the end.
    pub(crate) fn end(&mut self) {
        self.process.terminate();
        self.gone();
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    fn gone(&mut self) {
        let gone = self.process.wait(Deadline::after(READY));
        assert!(gone.is_some(), "it doesn't end");
    }

    /// Starts the daemon again after its end.
    pub(crate) fn serve_again(&mut self) {
        self.process = self.setup.start();
    }

    /// Returns status and body of a GET.
    pub(crate) fn get(&self, path: &str, key: &str) -> (u16, String) {
        http::get(self.setup.http, path, Some(key)).expect("an answer")
    }

    /// Returns status and JSON of a request that changes something.
    pub(crate) fn change(&self, method: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
        http::change(method, self.setup.http, path, key, body)
    }

    /// Returns status and JSON of a POST with an `Idempotency-Key`.
    pub(crate) fn post_once(
        &self,
        path: &str,
        key: &str,
        idempotency_key: &str,
        body: &Value,
    ) -> (u16, Value) {
        http::post_once(self.setup.http, path, key, idempotency_key, body)
    }

    /// Returns the body of a change that must succeed.
    pub(crate) fn made(&self, method: &str, path: &str, key: &str, body: &Value) -> Value {
        let (status, made) = self.change(method, path, key, body);
        let is_made = (200..300).contains(&status);
        assert!(is_made, "{method} {path}: {status} {made}");
        made
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.setup.log());
        }
    }
}

/// Returns the text of a field.
pub(crate) fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}
