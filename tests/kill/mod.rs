//! kill -9 under load. After each restart no acknowledged record is missing, calls that were cut are closed as `lost`, and the daemon takes calls at
//! once. Three rounds; `TRUNKLINE_KILL_ROUNDS` sets more.

mod records;
mod upgrade;
mod usage;
mod writes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use trunkline_bench::clock::{Clock, seconds};
use trunkline_bench::daemon::{Daemon, Launch};
use trunkline_bench::engine::{Engine, Sockets};
use trunkline_bench::exchange::{Parties, Plan, Span};
use trunkline_bench::modes::{drain, run};
use trunkline_bench::pace::Pace;

use records::{Records, Status};

/// Calls a second: enough to cut calls in every state, few enough for a debug build.
const RATE: f64 = 60.0;
/// Length of each phase of a call, in microseconds.
const PHASE: u64 = 150_000;
/// A live call counts as acknowledged when it was listed this long before the kill.
const SETTLED: Duration = Duration::from_millis(250);

fn rounds() -> u64 {
    let given = std::env::var("TRUNKLINE_KILL_ROUNDS").ok();
    given.map_or(3, |rounds| {
        rounds.parse().expect("TRUNKLINE_KILL_ROUNDS is a number")
    })
}

#[test]
fn nothing_acknowledged_is_lost() {
    let folder = TempDir::new().expect("a temporary folder");
    let mut sockets = Sockets::bind().expect("loopback");
    let mut acknowledged = Records::default();
    let mut cut = 0;

    for round in 1..=rounds() {
        let mut daemon = start(&folder, &sockets);
        let mut engine = engine(sockets, &daemon);
        one_call_completes(&mut engine, round);
        let before = records_after_restart(&daemon, &acknowledged, round);
        let seen = load_and_kill(&mut engine, &mut daemon, round);
        cut += before.count(Status::Lost);
        acknowledged = before;
        acknowledged.extend(seen);
        sockets = engine.into_sockets();
    }

    let daemon = start(&folder, &sockets);
    one_call_completes(&mut engine(sockets, &daemon), rounds() + 1);

    let last = records_after_restart(&daemon, &acknowledged, rounds() + 1);
    assert!(
        cut + last.count(Status::Lost) > 0,
        "no call was cut: the kills prove nothing"
    );
}

fn start(folder: &TempDir, sockets: &Sockets) -> Daemon {
    let launch = Launch {
        binary: env!("CARGO_BIN_EXE_trunkline").into(),
        data_dir: folder.path().join("data"),
        runtime: Some(sockets.callee().expect("bound")),
        core: None,
        is_raised: true,
        environment: vec![(
            "TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE".into(),
            "100000".into(),
        )],
    };
    launch.start().unwrap_or_else(|fault| panic!("{fault}"))
}

fn engine(sockets: Sockets, daemon: &Daemon) -> Engine {
    let parties = Parties {
        server: daemon.sip,
        caller: sockets.caller().expect("bound"),
        callee: sockets.callee().expect("bound"),
        user: daemon.announcement.trunk.auth_username.clone(),
        password: daemon.announcement.trunk.auth_password.clone(),
        number: daemon.announcement.phone_number.clone(),
    };

    let plan = Plan {
        ring: Span::For(PHASE),
        talk: Span::For(PHASE),
        ..Plan::default()
    };
    Engine::new(sockets, &parties, plan, None, 10_000)
}

/// Returns all records once no call of an earlier run is shown as alive. Checks that each acknowledged record exists and, if it had ended, is
/// unchanged.
fn records_after_restart(daemon: &Daemon, acknowledged: &Records, round: u64) -> Records {
    let clock = Clock::start();
    let mut records = Records::all(daemon);
    while records.count(Status::Alive) > 0 && clock.now() < seconds(30) {
        thread::sleep(Duration::from_millis(250));
        records = Records::all(daemon);
    }

    assert_eq!(
        records.count(Status::Alive),
        0,
        "round {round}: cut calls aren't closed; log:\n{}",
        daemon.log()
    );

    let wrong = records.contradictions(acknowledged);
    assert!(
        wrong.is_empty(),
        "round {round}: of {} acknowledged records:\n{}\nlog:\n{}",
        acknowledged.len(),
        wrong.join("\n"),
        daemon.log()
    );

    records
}

fn one_call_completes(engine: &mut Engine, round: u64) {
    let before = engine.exchange.tally.completed;
    let now = engine.now();
    engine.exchange.begin_call(now, now);
    drain(engine);
    let tally = &engine.exchange.tally;
    assert_eq!(
        (tally.completed - before, tally.failures.clone()),
        (1, BTreeMap::new()),
        "round {round}: the first call"
    );
}

/// Returns the records that the API showed before the kill, which comes at another moment each round.
fn load_and_kill(engine: &mut Engine, daemon: &mut Daemon, round: u64) -> Records {
    let mut pace = Pace::rate(RATE, engine.now());
    let done = AtomicBool::new(false);
    let polled = thread::scope(|scope| {
        let poller = scope.spawn(|| poll(daemon, &done));
        run(engine, &mut pace, seconds(2) + round * 137_000 % seconds(1));
        done.store(true, Ordering::Relaxed);
        poller.join().expect("the poller ends well")
    });

    // The load goes on until the last list is old enough to count as acknowledged.
    run(
        engine,
        &mut pace,
        u64::try_from(SETTLED.as_micros()).expect("short"),
    );
    daemon.kill().expect("it runs");

    let tally = &engine.exchange.tally;
    assert_eq!(
        tally.failures,
        BTreeMap::new(),
        "round {round}: calls failed before the kill"
    );
    assert!(
        polled.len() > 20,
        "round {round}: only {} records were seen",
        polled.len()
    );

    polled
}

/// Lists the newest calls repeatedly.
fn poll(daemon: &Daemon, done: &AtomicBool) -> Records {
    let mut seen = Records::default();
    while !done.load(Ordering::Relaxed) {
        seen.extend(Records::newest(daemon));
        thread::sleep(Duration::from_millis(50));
    }
    seen
}
