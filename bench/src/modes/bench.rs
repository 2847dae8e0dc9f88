//! A daemon under load, and the entries of a report, shared by all runs.

use std::io;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::clock::seconds;
use crate::daemon::{Daemon, Launch, NoDaemon};
use crate::engine::{Engine, Sockets};
use crate::exchange::{Parties, Plan};
use crate::kernel::pin_to;
use crate::pace::Pace;
use crate::process::{cpu_seconds, own_cpu_seconds};
use crate::report::Report;
use crate::tally::Tally;

/// Settings of all runs.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The daemon's program.
    pub daemon: PathBuf,
    /// The daemon's core and ours; `None` on a machine with one core.
    pub cores: Option<(usize, usize)>,
    /// True to use one nonce for many calls instead of a 401 for each.
    pub reuse_nonce: bool,
    /// Number of different callers.
    pub callers: u32,
    /// The most calls at once; a further one fails for want of room.
    pub room: usize,
    /// True to wait until the daemon has no state left, and to report whether it has.
    pub leftover: bool,
    /// Seconds before measuring starts.
    pub warm_up: u64,
    /// Folder with the configuration of a Kamailio to be loaded in the daemon's place.
    pub kamailio: Option<PathBuf>,
    /// Folder for the data of the server: it decides on which disk that lies.
    pub scratch: PathBuf,
    /// Further environment variables of the daemon.
    pub environment: Vec<(String, String)>,
}

/// Reason why a run fails.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The daemon can't be started.
    #[error(transparent)]
    Daemon(#[from] NoDaemon),
    /// A socket, /proc or the metrics failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The database can't be filled.
    #[error("the database can't be filled: {0}")]
    Database(#[from] crate::seed::CannotFill),
}

/// A daemon under load.
#[derive(Debug)]
pub struct Bench {
    /// The daemon that is measured.
    pub daemon: Daemon,
    /// The engine that loads it.
    pub engine: Engine,
    pub(super) leftover: bool,
    warm_up: u64,
    _data: TempDir,
}

/// Figures of a measured interval.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Calls (or OPTIONS) completed in it.
    pub completed: u64,
    /// CPU seconds of the daemon.
    pub cpu: f64,
    /// CPU seconds of this process.
    pub own_cpu: f64,
}

impl Measured {
    /// Completed calls (or OPTIONS) per second.
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.seconds
    }
}

impl Bench {
    /// Starts a daemon whose agent is our callee.
    ///
    /// # Errors
    /// The daemon doesn't start.
    pub fn start(setting: &Setting, plan: Plan) -> Result<Self, Fault> {
        let data = TempDir::new()?;
        let sockets = Sockets::bind()?;
        let daemon = Launch {
            binary: setting.daemon.clone(),
            data_dir: data.path().join("trunkline"),
            runtime: Some(sockets.callee()?),
            core: setting.cores.map(|(daemon, _)| daemon),
            is_raised: true,
            environment: setting.environment.clone(),
        }
        .start()?;
        // Starting the daemon has left this thread on the daemon's core.
        if let Some((_, own)) = setting.cores {
            pin_to(own)?;
        }

        let parties = Parties {
            server: daemon.sip,
            caller: sockets.caller()?,
            callee: sockets.callee()?,
            user: daemon.announcement.trunk.auth_username.clone(),
            password: daemon.announcement.trunk.auth_password.clone(),
            number: daemon.announcement.phone_number.clone(),
        };

        let plan = Plan {
            reuse_nonce: setting.reuse_nonce,
            callers: setting.callers,
            ..plan
        };

        let engine = Engine::new(sockets, &parties, plan, None, setting.room);
        Ok(Self {
            daemon,
            engine,
            leftover: setting.leftover,
            warm_up: setting.warm_up,
            _data: data,
        })
    }

    /// Warms up, then measures for `span` seconds, then waits until every call has ended.
    ///
    /// # Errors
    /// /proc can't be read.
    pub fn measure(&mut self, pace: &mut Pace, span: u64) -> io::Result<Measured> {
        self.engine.exchange.measuring = false;
        run(&mut self.engine, pace, seconds(self.warm_up));
        let cpu = cpu_seconds(self.daemon.pid())?;
        let measured = window(&mut self.engine, pace, span)?;
        let cpu = cpu_seconds(self.daemon.pid())? - cpu;
        // Calls that began in the window may still fail, which the tally counts. The CPU that they take now isn't the
        // window's.
        drain(&mut self.engine);
        Ok(Measured { cpu, ..measured })
    }
}

/// Keeps the pace for `micros` microseconds.
pub fn run(engine: &mut Engine, pace: &mut Pace, micros: u64) {
    let end = engine.now() + micros;
    while engine.now() < end {
        let look_again = pace.feed(engine);
        engine.turn(look_again.min(end));
    }
}

/// Begins `calls` calls, and runs for a second more, for the last of them.
pub(super) fn make(engine: &mut Engine, calls: u64, per_second: f64) {
    let mut pace = Pace::Rate {
        per_second,
        next: engine.now() as f64,
        left: calls,
        lag: 0,
    };
    let length = calls as f64 / per_second * 1e6 + 1e6;
    run(engine, &mut pace, length as u64);
}

/// Clears the tally, and measures for `span` seconds; the caller adds the daemon's CPU.
pub(super) fn window(engine: &mut Engine, pace: &mut Pace, span: u64) -> io::Result<Measured> {
    let own_cpu = own_cpu_seconds()?;
    engine.exchange.tally = Tally::default();
    engine.exchange.measuring = true;
    let begin = engine.now();
    run(engine, pace, seconds(span));
    let took = engine.now() - begin;
    engine.exchange.measuring = false;
    Ok(Measured {
        seconds: took as f64 / 1e6,
        completed: engine.exchange.tally.completed,
        cpu: 0.0,
        own_cpu: own_cpu_seconds()? - own_cpu,
    })
}

/// Runs until every call has ended, at most for the plan's patience and 40 s.
pub fn drain(engine: &mut Engine) {
    // The longest wait of a caller, then 64·T1 (32 s) of a BYE without an answer, and 8 s.
    let end = engine.now() + engine.exchange.plan().patience + seconds(40);
    while engine.exchange.live() > 0 && engine.now() < end {
        engine.turn(end);
    }
}

/// Reports the results of a run's calls and their cost to the daemon.
pub(super) fn describe(report: &mut Report, measured: &Measured, tally: &Tally) {
    report.measure("calls_per_second", measured.rate());
    report.measure("daemon_cores_busy", measured.cpu / measured.seconds);
    if measured.completed > 0 {
        let each = measured.cpu / measured.completed as f64;
        report.measure("cpu_seconds_per_1000_calls", each * 1e3);
    }
    describe_calls(report, measured, tally);
}

pub(super) fn describe_calls(report: &mut Report, measured: &Measured, tally: &Tally) {
    report.measure("generator_cores_busy", measured.own_cpu / measured.seconds);
    describe_times(report, tally);
    report.count("calls_completed", measured.completed);
    report.count("calls_failed", tally.failed());
    describe_wire(report, tally);
}

pub(super) fn describe_times(report: &mut Report, tally: &Tally) {
    for (name, share) in [
        ("set_up_p50_ms", 0.5),
        ("set_up_p99_ms", 0.99),
        ("set_up_max_ms", 1.0),
    ] {
        report.measure(name, tally.set_up.quantile(share) as f64 / 1e3);
    }
}

pub(super) fn describe_wire(report: &mut Report, tally: &Tally) {
    report.count("daemon_retransmissions", tally.daemon.total());
    report.count("our_retransmissions", tally.ours.total());
    report.count("stray_messages", tally.strays);
    report.count("socket_errors", tally.socket_errors);

    if tally.malformed > 0 {
        report.fault(format!(
            "{} malformed messages, the first: {}",
            tally.malformed,
            tally.first_fault.unwrap_or_default()
        ));
    }

    if tally.unexpected > 0 {
        report.fault(format!(
            "{} requests that the daemon had no reason to send",
            tally.unexpected
        ));
    }
}

/// Reports each kind of failure as a fault.
pub(super) fn report_failures(report: &mut Report, tally: &Tally) {
    for (failure, count) in &tally.failures {
        report.fault(format!("{count} calls: {failure}"));
    }
}
