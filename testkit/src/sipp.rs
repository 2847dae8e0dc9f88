//! sipp as caller and as runtime, playing the scenarios of `fixtures/sipp`.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::digest::Credentials;
use crate::process::{Deadline, Process, free_port};
use crate::referred::{self, Step};
use crate::trace::Trace;

/// Longer than any scenario lasts.
const LIMIT: Duration = Duration::from_secs(60);

/// Longest time that sipp may take to listen.
const LISTENING: Duration = Duration::from_secs(30);

/// A running sipp.
#[derive(Debug)]
pub struct SippProcess {
    process: Process,
    scenario: String,
    messages: PathBuf,
    errors: PathBuf,
    /// Its files live as long as it does.
    _folder: tempfile::TempDir,
}

impl SippProcess {
    fn start(
        scenario: &str,
        text: &str,
        own: SocketAddr,
        configure: impl FnOnce(&mut Command),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let script = folder.path().join("scenario.xml");
        std::fs::write(&script, expand(text)).expect("the scenario can be written");
        let [messages, errors, output] =
            ["messages", "errors", "output"].map(|name| folder.path().join(name));
        let output = std::fs::File::create(output).expect("the output can be written");

        let mut command = Command::new("sipp");
        command.args([
            "-nostdin",
            "-m",
            "1",
            "-r",
            "1",
            "-i",
            &own.ip().to_string(),
            "-p",
            &own.port().to_string(),
        ]);

        // A message that doesn't come fails the scenario before the whole of it times out, so that the error names it.
        command.args([
            "-timeout_error",
            "-timeout",
            &LIMIT.as_secs().to_string(),
            "-recv_timeout",
            "50000",
        ]);

        command
            .arg("-sf")
            .arg(&script)
            .arg("-trace_msg")
            .arg("-message_file")
            .arg(&messages);
        command.arg("-trace_err").arg("-error_file").arg(&errors);
        command
            .current_dir(folder.path())
            .stdout(Stdio::from(output))
            .stderr(Stdio::null());

        configure(&mut command);
        let process = Process::start("sipp", &mut command);
        Self {
            process,
            scenario: scenario.to_owned(),
            messages,
            errors,
            _folder: folder,
        }
    }

    /// Waits for the end of the scenario, which must have succeeded.
    pub fn finish(mut self) -> Trace {
        let status = self.process.wait(Deadline::after(LIMIT));
        let fine = status.is_some_and(|status| status.success());
        assert!(
            fine,
            "{} ended with {status:?}\n{}\n{}",
            self.scenario,
            self.complaints(),
            self.log()
        );
        Trace::read(&self.messages)
    }

    /// Waits until a request of this method has been received.
    pub fn wait_for(&self, method: &str) {
        let came =
            || self.messages.exists() && !Trace::read(&self.messages).requests(method).is_empty();
        let waited = Deadline::after(LIMIT).poll(|| came().then_some(()));
        assert!(
            waited.is_some(),
            "{}: no {method} came\n{}",
            self.scenario,
            self.log()
        );
    }

    /// Messages sent and received so far.
    pub fn so_far(&self) -> Trace {
        Trace::read(&self.messages)
    }

    fn complaints(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    fn log(&self) -> String {
        if self.messages.exists() {
            Trace::read(&self.messages).to_string()
        } else {
            "no message at all".to_owned()
        }
    }
}

/// Identity and behaviour of a caller.
#[derive(Debug, Clone)]
pub struct Caller {
    pub daemon: SocketAddr,
    pub credentials: Credentials,
    /// Its own number, the user of From.
    pub number: String,
    /// The user of the Request-URI.
    pub dials: String,
    /// A whole header line besides the usual ones, such as the one that names an agent.
    pub extra_header: String,
    pub tcp: bool,
    /// Length of a call that the caller ends itself.
    pub talks: Duration,
    /// Methods of its Allow header, if other than the scenario's.
    pub allow: Option<&'static str>,
}

impl Caller {
    pub fn names_agent(self, id: &str) -> Self {
        self.with_header(&format!("X-PLATFORM-AGENT-ID: {id}"))
    }

    pub fn with_header(mut self, line: &str) -> Self {
        line.clone_into(&mut self.extra_header);
        self
    }

    pub fn dials(mut self, user: &str) -> Self {
        user.clone_into(&mut self.dials);
        self
    }

    pub fn over_tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    pub fn talks(mut self, duration: Duration) -> Self {
        self.talks = duration;
        self
    }

    pub fn allows(mut self, methods: &'static str) -> Self {
        self.allow = Some(methods);
        self
    }

    pub fn with(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    pub fn play(&self, scenario: &str) -> SippProcess {
        self.play_text(scenario, &fixture(&format!("{scenario}.xml")))
    }

    /// Plays a PBX that takes these steps once it is answered.
    pub fn takes(&self, steps: &[Step]) -> SippProcess {
        self.play_text("pbx", &referred::scenario(steps))
    }

    fn play_text(&self, scenario: &str, text: &str) -> SippProcess {
        let own = SocketAddr::new(self.daemon.ip(), free_port());
        let mut text = expand(text);
        if let Some(methods) = self.allow {
            // A scenario that has changed must fail here: the replacement would silently do nothing.
            let usual = "Allow: INVITE, ACK, BYE, CANCEL, OPTIONS, UPDATE, INFO, REFER, NOTIFY";
            assert!(text.contains(usual), "the scenario has another Allow");
            text = text.replace(usual, &format!("Allow: {methods}"));
        }

        SippProcess::start(scenario, &text, own, |command| {
            command.args([
                "-au",
                &self.credentials.username,
                "-ap",
                &self.credentials.password,
            ]);
            // Without this option sipp hashes a URI without a user, unlike any phone.
            command.args(["-auth_uri", &format!("{}@{}", self.dials, self.daemon)]);
            command.args(["-s", &self.dials, "-key", "caller", &self.number]);
            command.args(["-key", "extra_header", &self.extra_header]);
            command.args(["-d", &self.talks.as_millis().to_string()]);
            command
                .args(["-t", if self.tcp { "t1" } else { "u1" }])
                .arg(self.daemon.to_string());
        })
    }
}

/// Address at which a runtime listens.
#[derive(Debug, Clone, Copy)]
pub struct Runtime {
    address: SocketAddr,
    tcp: bool,
}

impl Runtime {
    /// A port on which no process listens until a scenario is played.
    pub fn new() -> Self {
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())),
            tcp: false,
        }
    }

    pub fn over_tcp(self) -> Self {
        Self { tcp: true, ..self }
    }

    pub fn uri(self) -> String {
        let transport = if self.tcp { ";transport=tcp" } else { "" };
        format!("sip:{{agent_id}}@{}{transport}", self.address)
    }

    pub const fn address(self) -> SocketAddr {
        self.address
    }

    pub const fn is_tcp(self) -> bool {
        self.tcp
    }

    fn is_taken(self) -> bool {
        if self.tcp {
            TcpListener::bind(self.address).is_err()
        } else {
            UdpSocket::bind(self.address).is_err()
        }
    }

    /// Answers one call. Returns once it listens.
    pub fn play(self, scenario: &str) -> SippProcess {
        self.refers_to("nobody", scenario)
    }

    /// Answers one call, and then takes these steps.
    pub fn takes(self, steps: &[Step]) -> SippProcess {
        self.play_text("nobody", "runtime", &referred::of_runtime(steps))
    }

    /// Answers one call with a scenario that names this user.
    pub fn refers_to(self, user: &str, scenario: &str) -> SippProcess {
        self.play_text(user, scenario, &fixture(&format!("{scenario}.xml")))
    }

    /// The same, with these headers inside the Refer-To.
    pub fn refers_with(self, user: &str, headers: &str, scenario: &str) -> SippProcess {
        let text = fixture(&format!("{scenario}.xml"));
        let plain = "@anywhere.example>";
        assert!(text.contains(plain), "the scenario has another Refer-To");
        let text = text.replace(plain, &format!("@anywhere.example?{headers}>"));
        self.play_text(user, scenario, &text)
    }

    fn play_text(self, user: &str, scenario: &str, text: &str) -> SippProcess {
        let peer = SippProcess::start(scenario, text, self.address, |command| {
            command.args(["-s", user]);
            command.args(["-t", if self.tcp { "t1" } else { "u1" }]);
        });
        // An INVITE that comes before sipp listens would be lost over UDP, and refused over TCP.
        let listens = Deadline::after(LISTENING).poll(|| self.is_taken().then_some(()));
        assert!(listens.is_some(), "sipp doesn't listen on {}", self.address);
        peer
    }
}

fn fixture(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/sipp");
    let path = fixtures.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces each `<!-- include NAME -->` of a scenario by its part.
fn expand(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let part = line
            .trim()
            .strip_prefix("<!-- include ")
            .and_then(|rest| rest.strip_suffix(" -->"));
        part.map_or_else(|| format!("{line}\n"), fixture)
    });
    lines.collect()
}
