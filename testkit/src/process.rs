//! Processes with a bounded life: no process outlives its test, and every wait ends.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::not_run::{self, on_path};

const POLL: Duration = Duration::from_millis(20);

/// End of a wait.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    pub fn after(limit: Duration) -> Self {
        Self(now() + limit)
    }

    pub fn is_over(&self) -> bool {
        now() >= self.0
    }

    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(now())
    }

    /// Returns the next of a series of deadlines. A deadline missed by more than `every` isn't made up for.
    #[must_use]
    pub fn after_another(self, every: Duration) -> Self {
        Self((self.0 + every).max(now() - every))
    }

    /// Calls `ask` until it returns a value or the time is over.
    pub fn poll<T>(self, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            // Asks before it looks at the time: on a busy machine the last sleep may outlast the deadline.
            if let Some(answer) = ask() {
                return Some(answer);
            }
            if now() >= self.0 {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "other processes are waited for in real time"
)]
fn now() -> Instant {
    Instant::now()
}

/// A child that is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    pub fn start(name: &str, command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{name} doesn't start: {error}"));
        Self {
            child,
            name: name.to_owned(),
        }
    }

    /// Waits for the end; `None`: still running at the deadline.
    pub fn wait(&mut self, deadline: Deadline) -> Option<ExitStatus> {
        deadline.poll(|| self.exited())
    }

    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes the child's output.
    ///
    /// # Panics
    /// It isn't a pipe, or was taken before.
    pub fn stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("a pipe")
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends SIGKILL directly, which is faster than running kill.
    pub fn kill(&mut self) {
        // Waited for as well: a test may start its successor on the same ports and files.
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    pub fn signal(&self, name: &str) {
        // The shell's own: a small system has no program of this name.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.id())])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "{} can't be sent {name}",
            self.name
        );
    }
}

/// Starts a server, and returns once `is_ready`.
///
/// A server that found its port taken is started again: between the choice of a free port and its use, another program of the tests may
/// hold it for a moment. A browser binds its queries to any port from 1024 to 65535.
///
/// # Errors
/// The server's log, if it ends or isn't ready within `limit`.
pub fn started(
    limit: Duration,
    begin: impl Fn() -> Process,
    mut is_ready: impl FnMut() -> bool,
    log: impl Fn() -> String,
) -> Result<Process, String> {
    let deadline = Deadline::after(limit);
    let mut process = begin();
    let ready = deadline.poll(|| {
        if process.exited().is_none() {
            return is_ready().then_some(true);
        }

        let log = log();
        let complaint = log.trim_end().lines().next_back().unwrap_or_default();
        if !complaint.contains("the port is taken") {
            return Some(false);
        }
        process = begin();
        None
    });

    match ready {
        Some(true) => Ok(process),
        Some(false) | None => Err(log()),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the child has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The built daemon, which Cargo puts into the folder above the test's executable.
///
/// # Panics
/// It isn't there: Cargo builds it only with the tests of its own package.
pub fn trunkline() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test
        .parent()
        .and_then(Path::parent)
        .expect("a target folder");
    let daemon = built.join("trunkline");
    assert!(daemon.is_file(), "{} isn't built", daemon.display());
    daemon
}

/// Returns true if these programs are installed. A missing one fails the test under CI; otherwise the end of the run says that the test was
/// left out.
pub fn tools(names: &[&str]) -> bool {
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| !on_path(name))
        .collect();
    if missing.is_empty() {
        return true;
    }
    for name in missing {
        not_run::without(name);
    }
    false
}

/// The first of `size` consecutive free UDP ports, below the kernel's ephemeral ports. Begins at an even port. No two calls in a process
/// get the same ports.
pub fn free_range(size: u16) -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u32 = 12_000;
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let size = size.next_multiple_of(2);

    // Test processes that run in parallel begin at different places.
    let start = std::process::id() % (COUNT / 2) * 2;
    let is_free = |port: u16| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let found = (0..COUNT).find_map(|_| {
        // Counted up even where a port is taken, so that no two callers try the same range.
        let at = (start + TAKEN.fetch_add(u32::from(size), Ordering::Relaxed)) % COUNT;
        let first = FIRST + u16::try_from(at).ok()?;
        (first..first + size).all(is_free).then_some(first)
    });
    found.expect("a free range of UDP ports")
}

/// A loopback port that is free for UDP and TCP, above the kernel's ephemeral ports: from those the kernel could give the port to a
/// connecting socket before the test uses it. No two calls in a process get the same.
pub fn free_port() -> u16 {
    const FIRST: u16 = 61_000;
    const COUNT: u16 = 4_500;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
    let is_free = |port: &u16| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    let mut ports = (0..COUNT).map(|_| {
        let index = TAKEN.fetch_add(1, Ordering::Relaxed) % COUNT;
        FIRST + (start + index) % COUNT
    });
    ports.find(is_free).expect("a free port")
}

/// Reads a log, as far as it has been written.
pub(crate) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Time within which a line is written, also by a daemon on a busy machine.
const LOGGED: Duration = Duration::from_secs(30);

/// Waits until a log has a line with all these parts.
pub fn log_line(log: impl Fn() -> String, parts: &[&str]) -> String {
    let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
    let found = || log().lines().find(has_all).map(str::to_owned);
    let line = Deadline::after(LOGGED).poll(found);
    line.unwrap_or_else(|| panic!("no line with {parts:?}:\n{}", log()))
}
