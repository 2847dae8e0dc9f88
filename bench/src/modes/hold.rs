//! Memory of a call while it rings and while it is established.

use super::bench::{Bench, Fault, Setting, describe_wire, drain, make, report_failures, run};
use crate::calls::{CallRef, CalleeState, CallerState};
use crate::clock::seconds;
use crate::exchange::{Plan, Span};
use crate::pace::Pace;
use crate::process::memory;
use crate::report::Report;

/// Phase in which calls are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Ringing: between 180 and 200.
    Ringing,
    /// Established: between ACK and BYE.
    Established,
}

impl Phase {
    fn plan(self) -> Plan {
        match self {
            Self::Ringing => Plan {
                ring: Span::Held,
                ..Plan::default()
            },
            Self::Established => Plan {
                talk: Span::Held,
                ..Plan::default()
            },
        }
    }

    fn held(self, bench: &Bench) -> Vec<CallRef> {
        let exchange = &bench.engine.exchange;
        match self {
            Self::Ringing => exchange.in_states(CallerState::Proceeding, CalleeState::Ringing),
            Self::Established => exchange.in_states(CallerState::Talking, CalleeState::Talking),
        }
    }

    fn release(self, bench: &mut Bench, call: CallRef) {
        let now = bench.engine.now();
        match self {
            Self::Ringing => bench.engine.exchange.answer(call, now),
            Self::Established => bench.engine.exchange.hang_up(call, now),
        }
    }

    /// Seconds before the memory is measured again. For established calls the finished transactions of the set-up are gone by then
    /// (64·T1), so that only the call is left.
    const fn settling(self) -> u64 {
        match self {
            Self::Ringing => 2,
            Self::Established => 36,
        }
    }
}

/// Holds `calls` calls, begun at `rate` per second.
///
/// # Errors
/// There is no daemon to load.
pub fn hold(setting: &Setting, phase: Phase, calls: u64, rate: f64) -> Result<Report, Fault> {
    let mut bench = Bench::start(setting, Plan::default())?;
    let mut report = Report::new(format!(
        "memory: {calls} calls {}",
        format!("{phase:?}").to_lowercase()
    ));

    let before = bench.settle(&mut report)?;
    bench.engine.exchange.set_plan(Plan {
        reuse_nonce: setting.reuse_nonce,
        callers: setting.callers,
        ..phase.plan()
    });
    make(&mut bench.engine, calls, rate);

    let at_once = memory(bench.daemon.pid())?.anonymous;
    run(
        &mut bench.engine,
        &mut Pace::Idle,
        seconds(phase.settling()),
    );

    let held = phase.held(&bench);
    let settled = memory(bench.daemon.pid())?.anonymous;
    let each = |now: u64| (now as f64 - before.anonymous as f64) / held.len().max(1) as f64;
    report.count("calls_held", held.len() as u64);
    report.measure("bytes_per_call_at_once", each(at_once));
    report.measure("bytes_per_call", each(settled));
    if held.len() as u64 != calls {
        report.fault(format!("{} of {calls} calls are held", held.len()));
    }

    release(&mut bench, phase, &held, rate);
    drain(&mut bench.engine);
    describe_wire(&mut report, &bench.engine.exchange.tally);
    report_failures(&mut report, &bench.engine.exchange.tally);
    bench.check_leftover(&mut report, before)?;
    Ok(report)
}

/// Ends the calls at the rate at which they began.
fn release(bench: &mut Bench, phase: Phase, held: &[CallRef], rate: f64) {
    let begin = bench.engine.now();
    for (at, call) in held.iter().enumerate() {
        let due = begin + (at as f64 / rate * 1e6) as u64;
        while bench.engine.now() < due {
            bench.engine.turn(due);
        }
        phase.release(bench, *call);
    }
}
