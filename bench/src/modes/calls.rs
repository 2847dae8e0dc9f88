//! Whole calls: as many as go at once, or so many a second.

use super::bench::{Bench, Fault, Setting, blame, describe};
use crate::exchange::{Plan, Span};
use crate::pace::Pace;
use crate::report::Report;

/// Load of one run.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Calls a second; as many as `concurrency` allows when absent.
    pub rate: Option<f64>,
    /// Calls at once in the closed loop.
    pub concurrency: usize,
    /// Seconds that count.
    pub seconds: u64,
    /// Milliseconds between ACK and BYE.
    pub talk_ms: u64,
}

/// Runs it against a daemon of its own, `rounds` times: one report each, in which the memory is compared with that
/// after the round before.
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
    blame(report, tally);
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
