//! One line of a comparison: a load against a server, what it cost there, and whether the server kept its promises meanwhile.
//!
//! CPU counts until every call of the load is a row that can be read, so that work that is put off counts as well. The server is a daemon with its
//! default configuration, or a Kamailio that forwards the same calls and keeps no records.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::bench::{Fault, Setting, describe_times, describe_wire, drain, make, window};
use super::held::{Phase, held};
use super::leftover;
use crate::clock::{Clock, seconds};
use crate::daemon::{Daemon, Launch};
use crate::engine::{Engine, Sockets};
use crate::exchange::{Parties, Plan, Span};
use crate::http;
use crate::kamailio::{self, Kamailio};
use crate::kernel::pin_to;
use crate::pace::Pace;
use crate::process::{ThreadTimes, cpu_seconds, thread_cpu};
use crate::report::Report;
use crate::syncs::Syncs;
use crate::tally::Failure;

/// The load of a line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// As many calls as end, with so many at once.
    Closed(usize),
    /// Calls a second, whatever becomes of them.
    Rate(f64),
    /// Calls a second beyond what the server can do: those that it refuses or leaves unanswered are no fault.
    Overload(f64),
    /// OPTIONS, so many at once.
    Options(usize),
    /// So many calls in one phase, for the memory of each.
    Held(Phase, u64),
}

/// Server under load.
#[derive(Debug)]
pub(super) enum Server {
    Trunkline(Box<Daemon>),
    Kamailio(Kamailio),
}

/// Orgs of the server besides the first.
const ORGS: u32 = 999;
/// Calls before anything is measured, at [`WARM_UP_RATE`].
const WARM_UP: u64 = 2_000;
const WARM_UP_RATE: f64 = 500.0;
/// Longest time from the last BYE until every call must be a row, in seconds.
const RECORDED: u64 = 5;

/// Runs one line against a new server, for `span` seconds, with calls that talk for so many milliseconds.
///
/// # Errors
/// There is no server to load.
pub fn line(setting: &Setting, shape: Shape, span: u64, talk_ms: u64) -> Result<Report, Fault> {
    let data = TempDir::new_in(&setting.scratch)?;
    let sockets = Sockets::bind()?;
    let (server, parties) = start(setting, data.path(), &sockets)?;
    if let Some((_, own)) = setting.cores {
        pin_to(own)?;
    }

    let plan = Plan {
        callers: setting.callers,
        // A proxy adds no context.
        context: matches!(server, Server::Trunkline(_)),
        talk: Span::For(talk_ms * 1_000),
        ..Plan::default()
    };
    let mut engine = Engine::new(sockets, &parties, plan, None, setting.room);
    let mut line = Line {
        server,
        database: data.path().join("trunkline/trunkline.db"),
        report: Report::new(format!("{shape:?}")),
    };

    make(&mut engine, WARM_UP, WARM_UP_RATE);
    drain(&mut engine);
    if engine.exchange.tally.failed() > 0 {
        line.failures(&engine, false);
        return Ok(line.report);
    }
    line.recorded(WARM_UP)?;
    engine.exchange.tally = Default::default();
    let before = match &line.server {
        Server::Trunkline(daemon) if setting.leftover => {
            Some(leftover::at_rest(daemon, &mut engine)?)
        }
        Server::Trunkline(_) | Server::Kamailio(_) => None,
    };

    let is_overload = matches!(shape, Shape::Overload(_));
    match shape {
        Shape::Closed(concurrency) => {
            let pace = Pace::Closed { concurrency };
            line.calls(&mut engine, is_overload, pace, span)?;
        }
        Shape::Rate(rate) | Shape::Overload(rate) => {
            let pace = Pace::rate(rate, engine.now());
            line.calls(&mut engine, is_overload, pace, span)?;
        }
        Shape::Options(concurrency) => line.options(&mut engine, concurrency, span)?,
        Shape::Held(phase, calls) => match &line.server {
            Server::Trunkline(daemon) => {
                held(daemon, &mut engine, &mut line.report, phase, calls)?;
                line.recorded(WARM_UP + engine.exchange.tally.answered)?;
                line.promises(&engine, is_overload)?;
            }
            // Its processes share memory, of which each counts what it has touched.
            Server::Kamailio(_) => line
                .report
                .fault("the memory of Kamailio's calls isn't measured"),
        },
    }

    line.failures(&engine, is_overload);
    if let (Server::Trunkline(daemon), Some(before)) = (&line.server, before) {
        leftover::check(daemon, &mut engine, &mut line.report, before)?;
    }
    Ok(line.report)
}

pub(super) fn start(
    setting: &Setting,
    data: &Path,
    sockets: &Sockets,
) -> Result<(Server, Parties), Fault> {
    let (caller, callee) = (sockets.caller()?, sockets.callee()?);
    let core = setting.cores.map(|(server, _)| server);
    if let Some(folder) = &setting.kamailio {
        let server = Kamailio::start(folder, data, callee, core)?;
        let parties = Parties {
            server: server.sip,
            caller,
            callee,
            user: kamailio::USER.to_owned(),
            password: kamailio::PASSWORD.to_owned(),
            number: kamailio::NUMBER.to_owned(),
        };
        return Ok((Server::Kamailio(server), parties));
    }

    // The limits are raised for the seeding alone.
    seed(&launch(setting, data, callee, many_requests()).start()?)?;
    let daemon = launch(setting, data, callee, []).start()?;
    let parties = parties(&daemon, sockets)?;
    Ok((Server::Trunkline(Box::new(daemon)), parties))
}

pub(super) fn parties(daemon: &Daemon, sockets: &Sockets) -> io::Result<Parties> {
    Ok(Parties {
        server: daemon.sip,
        caller: sockets.caller()?,
        callee: sockets.callee()?,
        user: daemon.announcement.trunk.auth_username.clone(),
        password: daemon.announcement.trunk.auth_password.clone(),
        number: daemon.announcement.phone_number.clone(),
    })
}

/// A daemon with its default configuration but for these settings.
pub(super) fn launch(
    setting: &Setting,
    data: &Path,
    callee: SocketAddrV4,
    further: impl IntoIterator<Item = (String, String)>,
) -> Launch {
    let environment = setting.environment.iter().cloned().chain(further);
    Launch {
        binary: setting.daemon.clone(),
        data_dir: data.join("trunkline"),
        runtime: Some(callee),
        core: setting.cores.map(|(server, _)| server),
        is_raised: false,
        environment: environment.collect(),
    }
}

/// Settings that let the API be asked without a pause, by names that every revision knows.
pub(super) fn many_requests() -> [(String, String); 2] {
    ["REQUESTS", "PARTNER_REQUESTS"].map(|limit| {
        let name = format!("TRUNKLINE__LIMITS__{limit}_PER_MINUTE");
        (name, "1000000".to_owned())
    })
}

/// Makes further orgs by the partner's API.
fn seed(daemon: &Daemon) -> io::Result<()> {
    for number in 0..ORGS {
        let body = json!({"name": format!("Org {number}")}).to_string();
        let key = &daemon.announcement.partner_key;
        let (status, answer) = http::post(daemon.http, "/partner/v1/orgs", key, &body)?;
        if status != 201 {
            return Err(io::Error::other(format!(
                "an org is refused with {status}: {answer}"
            )));
        }
    }
    Ok(())
}

/// A line in progress: its server, and its figures so far.
pub(super) struct Line {
    pub(super) server: Server,
    pub(super) database: PathBuf,
    pub(super) report: Report,
}

impl Line {
    /// The server's processes; those of Kamailio stay the same while it runs.
    fn processes(&self) -> io::Result<Vec<u32>> {
        match &self.server {
            Server::Trunkline(daemon) => Ok(vec![daemon.pid()]),
            Server::Kamailio(kamailio) => kamailio.processes(),
        }
    }

    /// CPU seconds of the server so far, and those of each of its threads.
    fn cpu(&self) -> io::Result<(f64, ThreadTimes)> {
        let (mut whole, mut threads) = (0.0, ThreadTimes::new());
        for process in self.processes()? {
            whole += cpu_seconds(process)?;
            threads.append(&mut thread_cpu(process)?);
        }
        Ok((whole, threads))
    }

    fn calls(
        &mut self,
        engine: &mut Engine,
        is_overload: bool,
        mut pace: Pace,
        span: u64,
    ) -> Result<(), Fault> {
        let syncs = match &self.server {
            Server::Trunkline(daemon) => Syncs::count(daemon.pid()),
            Server::Kamailio(_) => None,
        };
        let (cpu, threads) = self.cpu()?;
        let measured = window(engine, &mut pace, span)?;
        // From here on no call begins, and those that are up end.
        drain(engine);
        let tally = &engine.exchange.tally;
        let waited = self.recorded(WARM_UP + tally.answered)?;
        let (cpu_after, threads_after) = self.cpu()?;
        self.promises(engine, is_overload)?;

        let calls = tally.completed.max(1) as f64;
        let spent = cpu_after - cpu;
        self.report.measure("calls_per_second", measured.rate());
        self.report.measure("cpu_ms_a_call", spent * 1e3 / calls);
        self.report.object(
            "cpu_us_by_thread",
            by_thread(&threads, &threads_after, calls),
        );
        describe_times(&mut self.report, tally);
        self.report
            .measure("generator_cores_busy", measured.own_cpu / measured.seconds);
        if let Pace::Rate { lag, .. } = pace {
            self.report
                .measure("generator_lag_max_ms", lag as f64 / 1e3);
        }
        if let Some(syncs) = syncs.and_then(Syncs::end) {
            self.report.count("syncs", syncs);
        }
        self.report.measure("recorded_after_s", waited);
        self.report.count("calls_begun", tally.started);
        self.report.count("calls_answered", tally.answered);
        let share = tally.answered as f64 / tally.started.max(1) as f64;
        self.report.measure("answered_share", share);
        self.report.count("calls_completed", tally.completed);
        self.report.count("shed_with_503", tally.shed);
        describe_wire(&mut self.report, tally);
        Ok(())
    }

    fn options(&mut self, engine: &mut Engine, concurrency: usize, span: u64) -> Result<(), Fault> {
        let (cpu, _) = self.cpu()?;
        let measured = window(engine, &mut Pace::Probes { concurrency }, span)?;
        let spent = self.cpu()?.0 - cpu;
        drain(engine);
        self.report.measure("options_per_second", measured.rate());
        let each = spent * 1e3 / measured.completed.max(1) as f64;
        self.report.measure("cpu_ms_an_options", each);
        describe_times(&mut self.report, &engine.exchange.tally);
        describe_wire(&mut self.report, &engine.exchange.tally);
        self.promises(engine, false)
    }

    /// Waits until so many answered calls are rows with their end and their decision; returns the seconds that took. A fault if it takes too long.
    pub(super) fn recorded(&mut self, expected: u64) -> Result<f64, Fault> {
        let Server::Trunkline(_) = &self.server else {
            return Ok(0.0);
        };
        let clock = Clock::start();
        loop {
            let found = records(&self.database)?;
            let waited = clock.now();
            if found >= expected {
                return Ok(waited as f64 / 1e6);
            }
            if waited > seconds(RECORDED) {
                self.report.fault(format!(
                    "{found} of {expected} calls have a whole record after {RECORDED} s"
                ));
                return Ok(waited as f64 / 1e6);
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Adds a fault if log lines or messages of traces were left out, or there are more records than answered calls.
    fn promises(&mut self, engine: &Engine, is_overload: bool) -> Result<(), Fault> {
        let Server::Trunkline(daemon) = &self.server else {
            return Ok(());
        };
        for sample in left_out(&daemon.metrics()?) {
            self.report.fault(format!("left out: {sample}"));
        }

        let answered = WARM_UP + engine.exchange.tally.answered;
        let found = records(&self.database)?;
        // Beyond the capacity a 200 may cross the CANCEL of a caller that has waited too long: that call has a record as well.
        if found > answered && !is_overload {
            self.report
                .fault(format!("{found} records of {answered} answered calls"));
        }
        Ok(())
    }

    pub(super) fn failures(&mut self, engine: &Engine, is_overload: bool) {
        for (failure, count) in &engine.exchange.tally.failures {
            let is_expected = match failure {
                Failure::Refused(503) | Failure::NoAnswer => is_overload,
                // An ACK that is lost in a proxy's full socket comes again only with the 200, and by then the BYE has overtaken it.
                Failure::NoAck => is_overload && matches!(self.server, Server::Kamailio(_)),
                Failure::Refused(_)
                | Failure::NoByeAnswer
                | Failure::NoProbeAnswer
                | Failure::CalleeLeftOver
                | Failure::HungUpOnUs
                | Failure::CancelledOnUs
                | Failure::Challenge
                | Failure::ContextMissing
                | Failure::BodyChanged
                | Failure::Unusable
                | Failure::NoRoom => false,
            };
            if !is_expected {
                self.report.fault(format!("{count} calls: {failure}"));
            }
        }
        let log = match &self.server {
            Server::Kamailio(kamailio) if !self.report.faults.is_empty() => kamailio.log(),
            Server::Kamailio(_) | Server::Trunkline(_) => String::new(),
        };
        if !log.is_empty() {
            self.report.fault(format!("Kamailio's log ends: {log}"));
        }
    }
}

/// Returns the number of answered calls whose row has their end and their decision.
fn records(database: &Path) -> Result<u64, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let count = Connection::open_with_flags(database, flags).and_then(|open| {
        open.busy_timeout(Duration::from_secs(1))?;
        let sql = "SELECT COUNT(*) FROM calls
                   WHERE answered_at IS NOT NULL AND ended_at IS NOT NULL AND decision IS NOT NULL";
        open.query_row(sql, [], |row| row.get::<_, i64>(0))
    });
    Ok(count.map_err(crate::seed::CannotFill::from)?.unsigned_abs())
}

/// Returns the samples that count what log and traces left out, where it is more than nothing.
fn left_out(metrics: &str) -> Vec<&str> {
    let counts = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        (name.contains("dropped") || name.contains("left_out"))
            && (name.contains("log") || name.contains("trace"))
            && !line.ends_with(" 0")
    };
    metrics.lines().filter(counts).collect()
}

/// Returns the microseconds a call of each kind of thread; threads of one name count together, whatever number their name ends with.
fn by_thread(before: &ThreadTimes, after: &ThreadTimes, calls: f64) -> Value {
    let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
    for (thread, (name, spent)) in after {
        let earlier = before.get(thread).map_or(0.0, |(_, earlier)| *earlier);
        let kind =
            name.trim_end_matches(|last: char| last.is_ascii_digit() || "-_ ".contains(last));
        *kinds.entry(kind.to_owned()).or_default() += (spent - earlier) * 1e6 / calls;
    }
    let rounded = kinds
        .into_iter()
        .filter(|(_, micros)| *micros >= 0.1)
        .map(|(kind, micros)| (kind, ((micros * 10.0).round() / 10.0).into()));
    Value::Object(rounded.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_left_out_is_a_fault() {
        let metrics = "trunkline_log_lines_dropped_total 0\ntrunkline_traces_left_out_total 3\n\
                       trunkline_sip_dropped_total 5\n# HELP trunkline_log_lines_dropped_total x 1\n";
        assert_eq!(left_out(metrics), ["trunkline_traces_left_out_total 3"]);
    }

    #[test]
    fn threads_of_one_kind_count_together() {
        let at = |spent: [f64; 3]| {
            BTreeMap::from([
                (1, ("shard-0".to_owned(), spent[0])),
                (2, ("shard-1".to_owned(), spent[1])),
                (3, ("log".to_owned(), spent[2])),
            ])
        };
        let found = by_thread(&at([1.0, 1.0, 1.0]), &at([1.5, 1.25, 1.0]), 1e4);
        assert_eq!(found, json!({"shard": 75.0}));
    }
}
