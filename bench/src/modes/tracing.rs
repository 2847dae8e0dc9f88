//! Cost of traces: the same load with and without them, alternating, so that a slowdown of the machine affects both.

use super::bench::{Bench, Fault, Setting, report_failures};
use crate::exchange::Plan;
use crate::pace::Pace;
use crate::report::Report;

/// Most that a call may cost with traces, as a multiple of its cost without; more is a fault.
const MOST: f64 = 1.1;

/// Runs calls at a rate; the median of the turns counts.
///
/// # Errors
/// There is no daemon to load.
pub fn tracing(setting: &Setting, rate: f64, span: u64, turns: u32) -> Result<Report, Fault> {
    let title = format!("traces: {rate} calls/s, {span} s, {turns} turns with and without");
    let mut report = Report::new(title);
    let (mut with, mut without) = (Vec::new(), Vec::new());

    for _ in 0..turns {
        for (enabled, costs) in [("true", &mut with), ("false", &mut without)] {
            let mut setting = setting.clone();
            let switch = ("TRUNKLINE__TRACES__ENABLED".to_owned(), enabled.to_owned());
            setting.environment.push(switch);

            let mut bench = Bench::start(&setting, Plan::default())?;
            let mut pace = Pace::rate(rate, bench.engine.now());
            let measured = bench.measure(&mut pace, span)?;
            report_failures(&mut report, &bench.engine.exchange.tally);
            costs.push(measured.cpu / measured.completed.max(1) as f64 * 1e3);
        }
    }

    let (with, without) = (median(with), median(without));
    report.measure("cpu_seconds_per_1000_calls_with_traces", with);
    report.measure("cpu_seconds_per_1000_calls_without", without);

    let ratio = with / without;
    report.measure("with_to_without", ratio);
    if ratio > MOST {
        report.fault(format!(
            "a call costs {ratio:.2} times as much with traces, more than {MOST}"
        ));
    }

    Ok(report)
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}
