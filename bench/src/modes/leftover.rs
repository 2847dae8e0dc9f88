//! State that the daemon still holds after its load has ended.

use std::io;

use super::bench::run;
use crate::clock::seconds;
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::pace::Pace;
use crate::process::{Memory, memory};
use crate::report::Report;

/// Longest time that state may be left after well-behaved peers, in seconds; a longer time is a fault.
const ALLOWED: u64 = 40;
/// Longest time that a run waits for state to go, in seconds. After it the run goes on all the same.
const PATIENCE: u64 = 75;
const ALIVE: [&str; 3] = [
    "trunkline_calls_active",
    "trunkline_sip_dialogs",
    "trunkline_sip_transactions",
];
/// Octets by which memory may have grown, besides a quarter of its size before, and still count as freed.
const SLACK: u64 = 16 << 20;

/// Waits until the daemon has no state of its calls, and measures its memory.
pub(super) fn at_rest(daemon: &Daemon, engine: &mut Engine) -> io::Result<Memory> {
    wait_for_nothing(daemon, engine)?;
    // The daemon has time to free what it can.
    run(engine, &mut Pace::Idle, seconds(5));
    memory(daemon.pid())
}

/// Waits until calls, dialogs and transactions are gone; reports how long that took, and how the memory compares with that before the load.
pub(super) fn check(
    daemon: &Daemon,
    engine: &mut Engine,
    report: &mut Report,
    before: Memory,
) -> io::Result<()> {
    let began = engine.now();
    let late = wait_for_nothing(daemon, engine)?;
    report.measure("nothing_left_after_s", (engine.now() - began) as f64 / 1e6);
    if let Some(late) = late {
        report.fault(format!(
            "{ALLOWED} s after the load, the daemon still has:{late}"
        ));
    }

    let after = at_rest(daemon, engine)?;
    report.measure("memory_before_mb", before.anonymous as f64 / 1e6);
    report.measure("memory_after_mb", after.anonymous as f64 / 1e6);
    if after.anonymous > before.anonymous + before.anonymous / 4 + SLACK {
        report.fault("the daemon hasn't freed the memory of the load");
    }
    Ok(())
}

/// Waits until no state is left, at most for [`PATIENCE`]; returns the state that was left after [`ALLOWED`].
fn wait_for_nothing(daemon: &Daemon, engine: &mut Engine) -> io::Result<Option<String>> {
    let began = engine.now();
    let mut late = None;
    loop {
        let left = left(&daemon.metrics()?);
        let waited = engine.now() - began;
        if left.is_empty() || waited > seconds(PATIENCE) {
            return Ok(late);
        }
        // The wait goes on beyond the allowance, so that the report can say how late the state went.
        if waited > seconds(ALLOWED) {
            late.get_or_insert(left);
        }
        run(engine, &mut Pace::Idle, seconds(1) / 2);
    }
}

/// The samples of live state that aren't 0.
fn left(metrics: &str) -> String {
    let alive = metrics
        .lines()
        .filter(|line| ALIVE.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0"));
    alive.map(|line| format!(" {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alive_is_left() {
        let metrics = "# HELP trunkline_calls_active Calls\ntrunkline_calls_active{shard=\"0\"} 0\n\
            trunkline_sip_transactions{kind=\"a\"} 2\ntrunkline_ready 1\n";
        assert_eq!(left(metrics), " trunkline_sip_transactions{kind=\"a\"} 2");
        assert_eq!(left("trunkline_sip_dialogs 0\n"), "");
    }
}
