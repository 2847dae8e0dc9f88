//! Memory of a daemon at rest, with calls that ring or are established, and after them.

use std::io;

use super::bench::{drain, make, run};
use crate::calls::{CallRef, CalleeState, CallerState};
use crate::clock::seconds;
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::exchange::{Plan, Span};
use crate::pace::Pace;
use crate::process::memory;
use crate::report::Report;

/// Calls a second with which held calls begin and end.
const RATE: f64 = 1_000.0;
/// Seconds after which the transactions of a set-up are gone (64·T1), and some more.
const SETTLED: u64 = 36;

/// Phase in which calls are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Ringing: between 180 and 200.
    Ringing,
    /// Established: between ACK and BYE.
    Established,
}

impl Phase {
    fn plan(self, plan: Plan) -> Plan {
        match self {
            Self::Ringing => Plan {
                ring: Span::Held,
                ..plan
            },
            Self::Established => Plan {
                talk: Span::Held,
                ..plan
            },
        }
    }

    fn held(self, engine: &Engine) -> Vec<CallRef> {
        let (caller, callee) = match self {
            Self::Ringing => (CallerState::Proceeding, CalleeState::Ringing),
            Self::Established => (CallerState::Talking, CalleeState::Talking),
        };
        engine.exchange.in_states(caller, callee)
    }

    fn release(self, engine: &mut Engine, call: CallRef) {
        let now = engine.now();
        match self {
            Self::Ringing => engine.exchange.answer(call, now),
            Self::Established => engine.exchange.hang_up(call, now),
        }
    }

    /// Seconds before the memory is measured. The finished transactions of an established call's set-up are gone by then, so that only the
    /// call is left; no phone rings that long.
    const fn settling(self) -> u64 {
        match self {
            Self::Ringing => 2,
            Self::Established => SETTLED,
        }
    }
}

/// Holds `calls` calls, and lets them go.
pub(super) fn held(
    daemon: &Daemon,
    engine: &mut Engine,
    report: &mut Report,
    phase: Phase,
    calls: u64,
) -> io::Result<()> {
    let pid = daemon.pid();
    // The warm-up's transactions end first.
    run(engine, &mut Pace::Idle, seconds(SETTLED));
    let before = memory(pid)?;
    let plan = engine.exchange.plan().clone();
    engine.exchange.set_plan(phase.plan(plan));
    make(engine, calls, RATE);
    run(engine, &mut Pace::Idle, seconds(phase.settling()));
    let held = phase.held(engine);
    let up = memory(pid)?;

    let began = engine.now();
    for (at, call) in held.iter().enumerate() {
        let due = began + (at as f64 / RATE * 1e6) as u64;
        while engine.now() < due {
            engine.turn(due);
        }
        phase.release(engine, *call);
    }
    drain(engine);
    run(engine, &mut Pace::Idle, seconds(SETTLED));
    let after = memory(pid)?;

    report.count("calls_held", held.len() as u64);
    report.measure("at_rest_mb", before.resident as f64 / 1e6);
    for (name, memory) in [
        ("at_rest_anonymous_mb", before),
        ("held_anonymous_mb", up),
        ("after_anonymous_mb", after),
    ] {
        report.measure(name, memory.anonymous as f64 / 1e6);
    }
    let grown = up.anonymous as f64 - before.anonymous as f64;
    report.measure("bytes_a_call", grown / held.len().max(1) as f64);
    if held.len() as u64 != calls {
        report.fault(format!("{} of {calls} calls are up", held.len()));
    }
    Ok(())
}
