//! Settings of a run, the steps of a load, and the entries of a report that runs share.

use std::io;
use std::path::PathBuf;

use crate::clock::seconds;
use crate::daemon::NoDaemon;
use crate::engine::Engine;
use crate::pace::Pace;
use crate::process::own_cpu_seconds;
use crate::report::Report;
use crate::tally::Tally;

/// Settings of all runs.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The daemon's program.
    pub daemon: PathBuf,
    /// The daemon's core and ours; `None` on a machine with one core.
    pub cores: Option<(usize, usize)>,
    /// Number of different callers.
    pub callers: u32,
    /// The most calls at once; a further one fails for want of room.
    pub room: usize,
    /// True to wait after the load until the daemon has no state left, and to report whether its memory is as before.
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

/// Figures of a measured interval.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Calls (or OPTIONS) completed in it.
    pub completed: u64,
    /// CPU seconds of this process.
    pub own_cpu: f64,
}

impl Measured {
    /// Completed calls (or OPTIONS) per second.
    pub fn rate(&self) -> f64 {
        self.completed as f64 / self.seconds
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

/// Clears the tally, and measures for `span` seconds.
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

    if let Some(first) = tally.first_fault {
        let count = tally.malformed;
        report.fault(format!("{count} malformed messages, the first: {first}"));
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
