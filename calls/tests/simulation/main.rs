//! Thousands of calls over a virtual network that loses, doubles and reorders what it carries, by a virtual clock.
//!
//! The real endpoint and the real calls stand between callers and runtimes that are written apart from them. What happens in a
//! run follows from one number: the weather, the calls, what each peer does and when (`plan`). Afterwards every call has
//! reached its end, every peer knows it, every record is whole, and nothing is left over (`verdict`, `wiretap`).
//!
//! Three tests run such numbers, called seeds: the first ones, in which everything in [`SURE`] must happen; those from a number on that each run
//! draws anew and prints; those that found a fault once ([`FOUND`]).
//!
//! `TRUNKLINE_SIM_CALLS` sets the number of calls from the fresh seed; `TRUNKLINE_SIM_SEED` runs one seed alone and prints all it did, with bots in
//! the place of runtimes where `TRUNKLINE_SIM_BOTS` is set, and with built-in agents where `TRUNKLINE_SIM_FLOWS` is.

mod acts;
mod bots;
mod builtin;
mod caller;
mod cases;
mod crowded;
mod dice;
mod forged;
mod glare;
mod golden;
mod handed;
mod handover;
mod hands;
mod network;
mod node;
mod orders;
mod party;
mod plan;
mod proofs;
mod runtime;
mod scheduled;
mod script;
mod scripted;
mod session;
mod trunk;
mod verdict;
mod wire;
mod wiretap;
mod world;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use plan::Plan;
use trunkline_model::record::Fact;
use world::World;

/// Calls from the first seed on: enough that everything in [`SURE`] happens.
const CALLS: usize = 5_000;
/// Calls from the fresh seed of one run. `just fuzz` looks for what one call in a million meets.
const FRESH_CALLS: usize = 10_000;
/// Seeds that found a fault, and the fault. A seed names its run for as long as plans are drawn in the same way: a fault that must never come back is
/// a case in `cases` as well.
const FOUND: [(u64, &str); 14] = [
    (
        8546,
        "a BYE of a target that was given up was dropped until the call was up",
    ),
    (
        14_037_862_765_954_688_682,
        "the judge took the CSeq of an early dialog for that of the fork which answered",
    ),
    (
        1_353_243_889_500_922_999,
        "the judge wanted a refresh though a BYE for the early dialog had crossed the 2xx",
    ),
    (
        14_154_719_359_382_566_909,
        "a runtime's REFER was taken while a new leg came, and its outcome was lost with the old one",
    ),
    (
        14_154_719_359_382_605_664,
        "the same of a transfer that the API had asked for",
    ),
    (
        14_154_719_359_382_571_881,
        "the judge took a re-INVITE for open whose 100 came after timer B",
    ),
    (
        15_057_111_302_093_114_682,
        "the judge took a re-INVITE for open 64*T1 after its CANCEL",
    ),
    (
        14_154_719_359_382_597_645,
        "the contact of an outbound call was recorded after its end",
    ),
    (
        14_154_719_359_382_642_048,
        "the answer to OPTIONS, which probed the PBX, ended the session timer",
    ),
    (
        683_540_745_588_496_240,
        "the judge wanted a 200 for a copy of a re-INVITE that came after timer L",
    ),
    (
        683_540_745_588_541_597,
        "the judge wanted a 200 for a copy of a BYE that came after timer J",
    ),
    (
        13_383_621_513_604_244_288,
        "the judge took a re-INVITE for open that went over a broken connection",
    ),
    (
        13_383_621_513_604_438_903,
        "a runtime of the simulation answered two INVITEs under one tag",
    ),
    (
        12_434_379_532_832_473_278,
        "an ACK with an SDP came after our BYE, and media that was closed by then was told of it",
    ),
];
/// Failed seeds after which a run stops.
const MOST_FAILED: usize = 200;
/// The lines of a trace that a failure shows.
const SHOWN: usize = 400;

/// Events of any run of some length: a run without one of them tests nothing.
const SURE: [&str; 63] = [
    "Refused(401)",
    "Refused(422)",
    "Refused(480)",
    "Refused(486)",
    "Refused(487)",
    "Refused(503)",
    "Silence",
    "Up",
    "answers a CANCEL with 200",
    "busy callee_busy",
    "busy declined",
    "canceled caller_canceled",
    "canceled operator",
    "cancelled",
    "change agreed",
    "change refused",
    "completed dialog_gone",
    "completed hung up",
    "completed join_refused",
    "completed max_duration",
    "completed no_common_media",
    "completed operator",
    "completed session_expired",
    "expired",
    "failed no_ack",
    "failed no_media_port",
    "failed number_unreachable",
    "failed runtime_refused",
    "failed runtime_unreachable",
    "failed trunk_refused",
    "failed trunk_unreachable",
    "forks",
    "glare",
    "held",
    "hold refused",
    "hold under way",
    "hangs up early",
    "info",
    "no PRACK",
    "no_answer ringing_timeout",
    "no_answer setup_timeout",
    "offers early",
    "pracked",
    "probed",
    "re-INVITE cancelled",
    "referred",
    "refers",
    "refused agent_busy",
    "refused call_changing",
    "refused nothing_replaced",
    "resumed",
    "stale nonce",
    "told",
    "told the outcome",
    "took over",
    "transfer by bridge completed",
    "transfer by bridge failed",
    "transfer by refer completed",
    "transfer by refer failed",
    "transfer by refer unknown",
    "transferred dialog_gone",
    "transferred hung up",
    "transferred max_duration",
];

/// Counts of events, so that a simulation in which nothing happens can't pass.
type Tally = BTreeMap<String, u64>;

struct Report {
    faults: Vec<String>,
    tally: Tally,
    trace: Vec<String>,
}

fn run(plan: Plan, traced: bool) -> Report {
    let mut world = World::new(plan, traced);
    let survived = catch_unwind(AssertUnwindSafe(|| world.run()));
    let mut faults = verdict::faults(&world);
    if survived.is_err() {
        faults.insert(0, "a panic".into());
    }
    Report {
        faults,
        tally: tally(&world),
        trace: world.trace.unwrap_or_default(),
    }
}

fn tally(world: &World) -> Tally {
    let mut tally = Tally::new();
    let mut count = |what: String| *tally.entry(what).or_default() += 1;
    for party in verdict::parties(world) {
        party.seen.iter().for_each(|what| count((*what).into()));
    }

    world
        .node
        .holds
        .iter()
        .for_each(|what| count((*what).into()));
    let bots = world.node.bots_seen.iter();
    bots.for_each(|what| count((*what).into()));
    for caller in &world.callers {
        count(format!("{:?}", caller.outcome));
    }

    for fact in world.node.facts.iter().chain(&world.earlier) {
        if let Fact::Ended(ended) = fact {
            let reason = ended.reason.as_deref().unwrap_or("hung up");
            count(format!("{} {reason}", ended.status.as_str()));
        }
        if let Fact::Transfer(transfer) = fact
            && !transfer.state.is_open()
        {
            let (way, state) = (transfer.way.as_str(), transfer.state.as_str());
            count(format!("transfer by {way} {state}"));
        }
    }

    tally
}

/// The same run once more, with everything it did.
fn explain(draw: Draw, seed: u64) -> String {
    let plan = draw(seed);
    let told = format!("{plan:#?}");
    let Report { faults, trace, .. } = run(plan, true);
    let from = trace.len().saturating_sub(SHOWN);
    format!(
        "{told}\n{}\n{}\n{}",
        trace[from..].join("\n"),
        faults.join("\n"),
        repeated_by(draw, seed)
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A number that no run had before. The standard library draws it for its hash maps, from the operating system.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Makes the plan of a seed.
type Draw = fn(u64) -> Plan;

/// A seed and what was wrong in its run.
type Failed = (u64, Vec<String>);

/// Runs the seeds from `first` on, on all processors, until they had `wanted` calls.
fn run_from(draw: Draw, first: u64, wanted: usize) -> (Tally, Vec<Failed>) {
    let (done, seeds) = (AtomicUsize::new(0), AtomicU64::new(first));
    let work = || {
        let (mut tally, mut failed) = (Tally::new(), Vec::new());
        while done.load(Ordering::Relaxed) < wanted && failed.len() < MOST_FAILED {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            let plan = draw(seed);
            done.fetch_add(plan.calls.len(), Ordering::Relaxed);

            let report = run(plan, false);
            for (what, count) in report.tally {
                *tally.entry(what).or_default() += count;
            }
            if !report.faults.is_empty() {
                failed.push((seed, report.faults));
            }
        }
        (tally, failed)
    };

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("panics are caught"))
            .collect()
    });

    let mut tally = Tally::new();
    let mut failed = Vec::new();
    for (seen, faults) in results {
        for (what, count) in seen {
            *tally.entry(what).or_default() += count;
        }
        failed.extend(faults);
    }
    failed.sort();
    (tally, failed)
}

/// Fails with the trace of the first failed seed and the command that repeats its run.
fn assert_none(draw: Draw, failed: &[Failed]) {
    if let Some((seed, _)) = failed.first() {
        let all: Vec<_> = failed
            .iter()
            .map(|(seed, faults)| format!("seed {seed}: {}", faults[0]))
            .collect();
        panic!(
            "{}\n{}\n{}",
            explain(draw, *seed),
            all.join("\n"),
            repeated_by(draw, *seed)
        );
    }
}

fn repeated_by(draw: Draw, seed: u64) -> String {
    let is = |other: Draw| std::ptr::fn_addr_eq(draw, other);
    let agents = match (is(bots::plan), is(builtin::plan)) {
        (true, _) => "TRUNKLINE_SIM_BOTS=1 ",
        (_, true) => "TRUNKLINE_SIM_FLOWS=1 ",
        (false, false) => "",
    };
    format!(
        "{agents}TRUNKLINE_SIM_SEED={seed} cargo test -p trunkline-calls --test simulation one_seed -- --nocapture"
    )
}

#[test]
fn every_call_reaches_its_end_and_nothing_is_left() {
    run_known(Plan::draw, CALLS, &SURE);
}

/// Runs the seeds from 0 on until they had so many calls; everything in `sure` has to happen in them.
fn run_known(draw: Draw, calls: usize, sure: &[&str]) {
    let (tally, failed) = run_from(draw, 0, calls);
    println!("{tally:#?}");
    let missed: Vec<_> = sure
        .iter()
        .filter(|what| !tally.contains_key(**what))
        .collect();
    assert_none(draw, &failed);
    assert!(missed.is_empty(), "never happened: {missed:?}");
}

#[test]
fn fresh_seeds_find_no_fault() {
    run_fresh(Plan::draw, FRESH_CALLS);
}

/// Runs seeds that no run had before, until they had so many calls, or as many as the environment says.
fn run_fresh(draw: Draw, calls: usize) {
    let wanted = number("TRUNKLINE_SIM_CALLS").map_or(calls, |calls| calls as usize);
    let first = fresh_seed();
    // Straight to the stream: what goes through eprintln! is only shown for tests that fail.
    writeln!(
        std::io::stderr(),
        "simulation: {wanted} calls of the seeds from {first} on"
    )
    .expect("standard error can be written");
    let (_, failed) = run_from(draw, first, wanted);
    assert_none(draw, &failed);
}

#[test]
fn found_seeds_stay_fixed() {
    stay_fixed(Plan::draw, &FOUND);
}

fn stay_fixed(draw: Draw, seeds: &[(u64, &str)]) {
    for (seed, found) in seeds {
        let faults = run(draw(*seed), false).faults;
        let repeated = repeated_by(draw, *seed);
        assert!(faults.is_empty(), "{found}\n{faults:?}\n{repeated}");
    }
}

/// The run of `TRUNKLINE_SIM_SEED`, with all that it did; without that, of seed 0.
#[test]
fn one_seed_is_explained() {
    let seed = number("TRUNKLINE_SIM_SEED").unwrap_or_default();
    let has = |name| std::env::var_os(name).is_some();
    let draw: Draw = match (has("TRUNKLINE_SIM_BOTS"), has("TRUNKLINE_SIM_FLOWS")) {
        (true, _) => bots::plan,
        (_, true) => builtin::plan,
        (false, false) => Plan::draw,
    };
    println!("{}", explain(draw, seed));
    let report = run(draw(seed), false);
    assert!(report.faults.is_empty(), "{}", report.faults.join("\n"));
}
