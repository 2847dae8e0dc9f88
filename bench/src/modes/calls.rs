//! Whole calls: as many as possible, or at a rate.

use super::bench::{Bench, Fault, Setting, describe, report_failures};
use crate::exchange::{Plan, Span};
use crate::pace::Pace;
use crate::report::Report;

/// Load of one run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls per second; `None` for as many as `concurrency` allows.
    pub rate: Option<f64>,
    /// Calls at once in the closed loop.
    pub concurrency: usize,
    /// Seconds measured.
    pub seconds: u64,
    /// Milliseconds between ACK and BYE.
    pub talk_ms: u64,
}

/// Loads a new daemon, `rounds` times. Each round gives one report, which compares the memory with that after the previous
/// round.
///
/// # Errors
/// There is no daemon to load.
pub fn calls(setting: &Setting, load: Load, rounds: u32) -> Result<Vec<Report>, Fault> {
    let plan = Plan {
        talk: Span::For(load.talk_ms * 1_000),
        ..Plan::default()
    };

    let mut bench = Bench::start(setting, plan)?;
    let named = |round| Report::new(title(setting, load, (round, rounds)));
    let mut reports = Vec::new();
    let mut report = named(1);
    let mut memory = bench.settle(&mut report)?;

    for round in 1..=rounds {
        once(&mut bench, load, &mut report)?;
        memory = bench.check_leftover(&mut report, memory)?;
        reports.push(std::mem::replace(&mut report, named(round + 1)));
    }
    Ok(reports)
}

fn once(bench: &mut Bench, load: Load, report: &mut Report) -> Result<(), Fault> {
    let mut pace = match load.rate {
        Some(rate) => Pace::rate(rate, bench.engine.now()),
        None => Pace::Closed {
            concurrency: load.concurrency,
        },
    };

    let measured = bench.measure(&mut pace, load.seconds)?;
    let tally = &bench.engine.exchange.tally;
    describe(report, &measured, tally);
    if let Pace::Rate { lag, .. } = pace {
        report.measure("generator_lag_max_ms", lag as f64 / 1e3);
    }
    report_failures(report, tally);
    Ok(())
}

fn title(setting: &Setting, load: Load, (round, rounds): (u32, u32)) -> String {
    let pace = match load.rate {
        Some(rate) => format!("{rate} calls/s"),
        None => format!("closed loop, {} at once", load.concurrency),
    };

    let digest = if setting.reuse_nonce {
        "one nonce for many calls"
    } else {
        "a 401 for each call"
    };

    let of = if rounds > 1 {
        format!(", round {round} of {rounds}")
    } else {
        String::new()
    };
    format!("calls: {pace}, {digest}, {} s{of}", load.seconds)
}
