//! Share of the best goodput that is left at twice the load.

use super::bench::{Bench, Fault, Setting, describe, drain};
use crate::exchange::Plan;
use crate::pace::Pace;
use crate::report::Report;
use crate::tally::Failure;

/// Least share of the best goodput that must be left.
const KEPT: f64 = 0.9;

/// Finds the capacity in a closed loop, then offers twice that.
///
/// # Errors
/// There is no daemon to load.
pub fn overload(setting: &Setting, concurrency: usize, seconds: u64) -> Result<Report, Fault> {
    let mut bench = Bench::start(setting, Plan::default())?;
    let mut report = Report::new(format!("overload: twice the capacity, {seconds} s"));
    let before = bench.settle(&mut report)?;

    let best = bench
        .measure(&mut Pace::Closed { concurrency }, seconds)?
        .rate();
    drain(&mut bench.engine);

    let mut pace = Pace::rate(2.0 * best, bench.engine.now());
    let measured = bench.measure(&mut pace, seconds)?;
    let tally = &bench.engine.exchange.tally;

    report.measure("best_goodput", best);
    report.measure("offered", tally.started as f64 / measured.seconds);
    report.count("shed_with_503", tally.shed);
    describe(&mut report, &measured, tally);

    let kept = measured.rate() / best;
    report.measure("goodput_kept", kept);
    if kept < KEPT {
        report.fault(format!(
            "only {:.0} % of the best goodput is kept",
            kept * 100.0
        ));
    }

    for (failure, count) in &tally.failures {
        match failure {
            // At twice the capacity half the calls can't be answered: to shed them, or to let them wait too long, is no
            // fault.
            Failure::Refused(503) | Failure::NoAnswer => {}
            Failure::Refused(_)
            | Failure::NoByeAnswer
            | Failure::NoProbeAnswer
            | Failure::NoAck
            | Failure::CalleeLeftOver
            | Failure::HungUpOnUs
            | Failure::CancelledOnUs
            | Failure::Challenge
            | Failure::ContextMissing
            | Failure::BodyChanged
            | Failure::Unusable
            | Failure::NoRoom => report.fault(format!("{count} calls: {failure}")),
        }
    }

    report.count(
        "without_any_answer",
        tally
            .failures
            .get(&Failure::NoAnswer)
            .copied()
            .unwrap_or_default(),
    );
    bench.check_leftover(&mut report, before)?;
    Ok(report)
}
