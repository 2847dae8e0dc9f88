//! The generator against itself: the caller calls the callee, which challenges in the daemon's place. Shows how much load it can make.

use std::io;

use super::bench::{describe_times, describe_wire, drain, report_failures, run, window};
use crate::clock::seconds;
use crate::engine::{Engine, Sockets};
use crate::exchange::{Gate, Parties, Plan};
use crate::kernel::pin_to;
use crate::pace::Pace;
use crate::report::Report;

/// Runs `concurrency` calls at once, or calls at a rate, on one core for `span` seconds.
///
/// # Errors
/// The machine refuses sockets.
pub fn loopback(
    core: Option<usize>,
    rate: Option<f64>,
    concurrency: usize,
    span: u64,
) -> io::Result<Report> {
    if let Some(core) = core {
        pin_to(core)?;
    }

    let sockets = Sockets::bind()?;
    let (user, password) = ("bench", "bench");
    let parties = Parties {
        server: sockets.callee()?,
        caller: sockets.caller()?,
        callee: sockets.callee()?,
        user: user.into(),
        password: password.into(),
        number: "+4930111222".into(),
    };

    let plan = Plan {
        // No daemon is there to add the context headers.
        context: false,
        ..Plan::default()
    };
    let mut engine = Engine::new(
        sockets,
        &parties,
        plan,
        Some(Gate::new(user, password)),
        // A rate may have more calls at once than the closed loop.
        concurrency.max(10_000),
    );

    let mut pace = match rate {
        Some(rate) => Pace::rate(rate, engine.now()),
        None => Pace::Closed { concurrency },
    };

    engine.exchange.measuring = false;
    run(&mut engine, &mut pace, seconds(1));

    let measured = window(&mut engine, &mut pace, span)?;
    drain(&mut engine);

    let mut report =
        Report::new("loopback: the generator against itself, a challenge for each call");
    report.measure("calls_per_second", measured.rate());
    report.measure("generator_cores_busy", measured.own_cpu / measured.seconds);
    let tally = &engine.exchange.tally;
    describe_times(&mut report, tally);
    report.count("calls_completed", measured.completed);
    describe_wire(&mut report, tally);
    report_failures(&mut report, tally);
    if engine.exchange.live() > 0 {
        report.fault(format!("{} calls never ended", engine.exchange.live()));
    }

    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_complete_over_real_sockets() {
        let report = loopback(None, Some(200.0), 16, 1).expect("loopback");
        assert_eq!(report.faults, Vec::<String>::new(), "{report}");
        assert!(
            report
                .value("calls_completed")
                .is_some_and(|calls| calls > 0.0),
            "{report}"
        );
    }
}
