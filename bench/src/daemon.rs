//! The measured daemon: started with `quickstart --json` on free loopback ports in a given data directory, with our callee as its
//! agent's runtime, and stopped when dropped.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use serde::Deserialize;

use crate::clock::{Clock, seconds};
use crate::{http, kernel};

/// Command line and settings of a daemon to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub binary: PathBuf,
    /// Its data directory.
    pub data_dir: PathBuf,
    /// Address of the agents' runtime; the built-in echo agent when absent.
    pub runtime: Option<SocketAddrV4>,
    /// The core to run it on.
    pub core: Option<usize>,
    /// True to raise the limits of the default configuration, and to log warnings alone.
    pub is_raised: bool,
    /// Further environment variables.
    pub environment: Vec<(String, String)>,
}

/// Fields of `quickstart --json` that the bench needs.
#[derive(Clone, Debug, Deserialize)]
pub struct Announcement {
    /// A key of the org.
    pub api_key: String,
    /// A key of its partner.
    pub partner_key: String,
    /// The org.
    pub org_id: String,
    /// The org's agent.
    pub agent_id: String,
    /// The number that the agent holds.
    pub phone_number: String,
    /// The trunk's credentials.
    pub trunk: Trunk,
    /// Base address of the API.
    pub http: String,
    /// `host:port` for SIP.
    pub sip: String,
}

/// The inbound trunk.
#[derive(Clone, Debug, Deserialize)]
pub struct Trunk {
    /// Digest user name.
    pub auth_username: String,
    /// Digest password.
    pub auth_password: String,
}

/// Reason why a daemon can't be started.
#[derive(Debug, thiserror::Error)]
pub enum NoDaemon {
    /// A process, file or connection fails.
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// It ended, or printed something other than its announcement.
    #[error("the daemon printed {printed:?} instead of one JSON object; its log:\n{log}")]
    Mute {
        /// The first line of its standard output.
        printed: String,
        /// The end of its standard error.
        log: String,
    },
    /// It doesn't become ready in time.
    #[error("the daemon isn't ready after {0} s; its log:\n{1}")]
    NotReady(u64, String),
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    log: PathBuf,
    /// Address of the API.
    pub http: SocketAddr,
    /// Address of the SIP listener.
    pub sip: SocketAddrV4,
    /// Output of `quickstart` at the start.
    pub announcement: Announcement,
}

/// The limits are raised, not turned off: one caller of the load makes more calls than any person.
const RAISED: [(&str, &str); 3] = [
    ("TRUNKLINE__LOG__LEVEL", "warn"),
    ("TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE", "1000000"),
    ("TRUNKLINE__LIMITS__SETUPS_PER_CALLER", "60000"),
];

/// Longest time from a daemon's announcement until it is ready, in seconds; a slower start fails.
const START: u64 = 60;

impl Launch {
    /// Starts the daemon and waits until it is ready.
    ///
    /// # Errors
    /// The end of the daemon's log, if it doesn't become ready.
    pub fn start(&self) -> Result<Daemon, NoDaemon> {
        let log = self.data_dir.with_extension("log");
        let broken = |error| NoDaemon::Io(self.binary.clone(), error);
        let mut child = self.spawn(&log).map_err(broken)?;

        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut printed = String::new();
        // A daemon that ends instead closes its output: the line is then empty, and the log says why.
        stdout.read_line(&mut printed).map_err(broken)?;

        let announced: Result<Announcement, _> = serde_json::from_str(&printed);
        let addresses = announced.and_then(|announcement| {
            let http = announcement
                .http
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .parse();
            let sip = announcement.sip.parse();
            Ok((http.map_err(wrong)?, sip.map_err(wrong)?, announcement))
        });

        let Ok((http, sip, announcement)) = addresses else {
            stop(&mut child);
            return Err(NoDaemon::Mute {
                printed,
                log: tail(&log),
            });
        };

        let daemon = Daemon {
            child,
            _stdout: stdout,
            log,
            http,
            sip,
            announcement,
        };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    fn spawn(&self, log: &Path) -> io::Result<Child> {
        let (sip, http) = (free_port()?, free_port()?);

        let mut command = Command::new(&self.binary);
        command
            .args(["quickstart", "--json"])
            .env("TRUNKLINE__DATA_DIR", &self.data_dir)
            .env("TRUNKLINE__HTTP__LISTEN", http.to_string())
            .env("TRUNKLINE__SIP__UDP", sip.to_string())
            .env("TRUNKLINE__SIP__TCP", sip.to_string())
            .env("TRUNKLINE__SIP__PUBLIC_HOST", sip.to_string())
            .env("TRUNKLINE__MEDIA__RTP_PORTS", rtp_ports(sip))
            .envs(RAISED.iter().filter(|_| self.is_raised).copied())
            .envs(self.runtime.map(|callee| {
                (
                    "TRUNKLINE__PHONE__DEFAULT_RUNTIME",
                    format!("sip:agent@{callee}"),
                )
            }))
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Appended: a daemon that is started again on the same data keeps the first one's log.
            .stderr(fs::File::options().create(true).append(true).open(log)?);

        // A child process starts on the core of its parent's thread.
        if let Some(core) = self.core {
            kernel::pin_to(core)?;
        }

        command.spawn()
    }
}

fn wrong(error: std::net::AddrParseError) -> serde_json::Error {
    serde::de::Error::custom(error)
}

/// Returns a port that is free for UDP and TCP.
pub(crate) fn free_port() -> io::Result<SocketAddrV4> {
    for _ in 0..100 {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, udp.local_addr()?.port());
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// A few RTP ports that two daemons on one machine are unlikely to share.
fn rtp_ports(sip: SocketAddrV4) -> String {
    let first = 20_000 + sip.port() % 10_000 / 64 * 64;
    format!("{first}-{}", first + 63)
}

pub(crate) fn tail(log: &Path) -> String {
    let mut text = String::new();
    let read = fs::File::open(log).and_then(|mut file| file.read_to_string(&mut text));
    let lines: Vec<_> = text.lines().collect();
    match read {
        Ok(_) => lines[lines.len().saturating_sub(20)..].join("\n"),
        Err(error) => error.to_string(),
    }
}

pub(crate) fn stop(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        kernel::terminate(child.id());
        let clock = Clock::start();
        while clock.now() < seconds(5) && matches!(child.try_wait(), Ok(None)) {
            sleep(Duration::from_millis(20));
        }
    }
    // Both fail only if the process has already ended.
    drop(child.kill());
    drop(child.wait());
}

impl Daemon {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the daemon with SIGKILL.
    ///
    /// # Errors
    /// The process has ended already.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Returns the Prometheus metrics as text.
    ///
    /// # Errors
    /// The daemon doesn't answer, or not with 200.
    pub fn metrics(&self) -> io::Result<String> {
        match http::get(self.http, "/metrics", None)? {
            (200, text) => Ok(text),
            (status, _) => Err(io::Error::other(format!("/metrics answers {status}"))),
        }
    }

    /// Returns the end of the daemon's log.
    pub fn log(&self) -> String {
        tail(&self.log)
    }

    fn wait_until_ready(&self) -> Result<(), NoDaemon> {
        let clock = Clock::start();
        while clock.now() < seconds(START) {
            if http::get(self.http, "/readyz", None).is_ok_and(|(status, _)| status == 200) {
                return Ok(());
            }
            sleep(Duration::from_millis(20));
        }
        Err(NoDaemon::NotReady(START, self.log()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}
