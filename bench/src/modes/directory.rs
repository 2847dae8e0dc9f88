//! A large directory: the duration of a start, and the duration and cost of a change. The daemon answers a change once it is in
//! force, so the response time is the change's lag at that node.

use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use super::bench::{Fault, Setting};
use crate::clock::{Clock, seconds};
use crate::daemon::{Daemon, Launch};
use crate::http;
use crate::kernel::pin_to;
use crate::process::{cpu_seconds, memory};
use crate::report::Report;
use crate::seed::{self, Rows};

/// Size of the directory, and the number of changes.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Orgs besides the one that is changed.
    pub orgs: u32,
    /// Numbers of each of them.
    pub numbers: u32,
    /// Agents of the org that is changed, besides its first.
    pub agents: u32,
    /// Number of changes, one after the other.
    pub changes: u32,
}

/// Changes and reads before measuring starts.
const WARM_UP: u32 = 50;
/// Seconds for which the idle daemon is watched.
const IDLE: u64 = 5;

/// Measures one size.
///
/// # Errors
/// There is no daemon, or the database can't be filled.
pub fn directory(setting: &Setting, size: Size) -> Result<Report, Fault> {
    let Size {
        orgs,
        numbers,
        agents,
        changes,
    } = size;
    let mut report = Report::new(format!(
        "directory: {orgs} orgs, {} numbers, {agents} agents in the org that is changed; {changes} changes",
        orgs * numbers
    ));

    let data = TempDir::new()?;
    let launch = Launch {
        binary: setting.daemon.clone(),
        data_dir: data.path().join("trunkline"),
        runtime: None,
        core: setting.cores.map(|(daemon, _)| daemon),
        is_raised: true,
        environment: Vec::new(),
    };

    // The first start creates the org.
    drop(launch.start()?);
    let rows = Rows {
        orgs,
        agents,
        numbers: orgs * numbers,
    };
    seed::fill(&launch.data_dir.join("trunkline.db"), rows)?;

    let clock = Clock::start();
    let daemon = launch.start()?;
    report.measure("ready_s", in_seconds(clock.now()));
    report.measure("resident_mb", memory(daemon.pid())?.resident as f64 / 1e6);
    if let Some((_, own)) = setting.cores {
        pin_to(own)?;
    }

    let agent = ProbedAgent::new(&daemon);
    for turn in 0..WARM_UP {
        agent.change(turn)?;
        agent.read()?;
    }

    let (reads, _) = timed(&daemon, changes, |_| agent.read())?;
    let (changed, mut lags) = timed(&daemon, changes, |turn| agent.change(turn))?;
    report.measure("read_cpu_ms", reads * 1e3);
    report.measure("change_cpu_ms", changed * 1e3);

    lags.sort_unstable();
    let quantile = |share: f64| {
        let place = (lags.len() as f64 * share) as usize;
        lags.get(place.min(lags.len().saturating_sub(1)))
            .map_or(0.0, |lag| in_seconds(*lag) * 1e3)
    };
    report.measure("change_p50_ms", quantile(0.5));
    report.measure("change_p99_ms", quantile(0.99));

    let before = cpu_seconds(daemon.pid())?;
    sleep(Duration::from_secs(IDLE));
    let idle = cpu_seconds(daemon.pid())? - before;
    report.measure("idle_cpu_share", idle / IDLE as f64);
    Ok(report)
}

/// Returns the daemon's CPU seconds per request, and the duration of each request in microseconds.
fn timed(
    daemon: &Daemon,
    count: u32,
    mut ask: impl FnMut(u32) -> Result<(), Fault>,
) -> Result<(f64, Vec<u64>), Fault> {
    let clock = Clock::start();
    let before = cpu_seconds(daemon.pid())?;
    let mut times = Vec::new();
    for turn in 0..count {
        let began = clock.now();
        ask(turn)?;
        times.push(clock.now() - began);
    }
    let used = cpu_seconds(daemon.pid())? - before;
    Ok((used / f64::from(count.max(1)), times))
}

fn in_seconds(micros: u64) -> f64 {
    micros as f64 / seconds(1) as f64
}

/// The agent that is read and changed.
struct ProbedAgent<'d> {
    daemon: &'d Daemon,
    path: String,
}

impl<'d> ProbedAgent<'d> {
    fn new(daemon: &'d Daemon) -> Self {
        let path = format!("/phone/{}", daemon.announcement.agent_id);
        Self { daemon, path }
    }

    fn read(&self) -> Result<(), Fault> {
        let key = Some(&*self.daemon.announcement.api_key);
        expect_200(http::get(self.daemon.http, &self.path, key)?)
    }

    /// Makes a change that routing reads.
    fn change(&self, turn: u32) -> Result<(), Fault> {
        let key = &self.daemon.announcement.api_key;
        let body = format!(r#"{{"max_concurrent_calls":{}}}"#, turn % 1_000 + 1);
        expect_200(http::patch(self.daemon.http, &self.path, key, &body)?)
    }
}

fn expect_200((status, body): (u16, String)) -> Result<(), Fault> {
    match status {
        200 => Ok(()),
        _ => Err(std::io::Error::other(format!("answered {status}: {body}")).into()),
    }
}
