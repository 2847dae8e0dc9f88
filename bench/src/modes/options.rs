//! OPTIONS, as many as possible.

use super::bench::{Bench, Fault, Setting, describe_times, describe_wire, report_failures};
use crate::exchange::Plan;
use crate::pace::Pace;
use crate::report::Report;

/// Runs `concurrency` OPTIONS at once for `seconds`.
///
/// # Errors
/// There is no daemon to load.
pub fn options(setting: &Setting, concurrency: usize, seconds: u64) -> Result<Report, Fault> {
    let mut bench = Bench::start(setting, Plan::default())?;
    let mut report = Report::new(format!(
        "OPTIONS: closed loop, {concurrency} at once, {seconds} s"
    ));
    let before = bench.settle(&mut report)?;
    let measured = bench.measure(&mut Pace::Probes { concurrency }, seconds)?;
    let tally = &bench.engine.exchange.tally;

    report.measure("options_per_second", measured.rate());
    report.measure(
        "cpu_seconds_per_1000_options",
        measured.cpu * 1e3 / measured.completed.max(1) as f64,
    );
    report.measure("generator_cores_busy", measured.own_cpu / measured.seconds);
    describe_times(&mut report, tally);
    describe_wire(&mut report, tally);
    report_failures(&mut report, tally);
    bench.check_leftover(&mut report, before)?;
    Ok(report)
}
