//! Thousands of calls over a virtual network that loses, doubles and reorders what it carries, by a virtual clock.
//!
//! The real endpoint and the real calls stand between callers and runtimes that are written apart from them. What happens in a
//! run follows from one number: the weather, the calls, what each peer does and when (`plan`). Afterwards every call has
//! reached its end, every peer knows it, every record is whole, and nothing is left over (`verdict`, `wiretap`).
//!
//! `TRUNKLINE_SIM_CALLS` says how many calls; `TRUNKLINE_SIM_SEED` runs one seed alone and prints all it did.

mod acts;
mod caller;
mod cases;
mod dice;
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
mod runtime;
mod session;
mod trunk;
mod verdict;
mod wire;
mod wiretap;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use plan::Plan;
use trunkline_model::record::Fact;
use world::World;

/// Calls of a run that isn't told how many.
const CALLS: usize = 5_000;
/// The lines of a trace that a failure shows.
const SHOWN: usize = 400;

/// What happens in any run of some length: who sees nothing of it, tests nothing.
const SURE: [&str; 64] = [
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
    "completed media_silent",
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

/// What happened how often, so that a simulation in which nothing happens can't pass.
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
fn explain(seed: u64) -> String {
    let plan = Plan::draw(seed);
    let told = format!("{plan:#?}");
    let Report { faults, trace, .. } = run(plan, true);
    let from = trace.len().saturating_sub(SHOWN);
    format!(
        "{told}\n{}\n{}\nTRUNKLINE_SIM_SEED={seed}",
        trace[from..].join("\n"),
        faults.join("\n")
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_call_reaches_its_end_and_nothing_is_left() {
    if let Some(seed) = number("TRUNKLINE_SIM_SEED") {
        let told = explain(seed);
        println!("{told}");
        let report = run(Plan::draw(seed), false);
        assert!(report.faults.is_empty(), "{}", report.faults.join("\n"));
        return;
    }
    let wanted = number("TRUNKLINE_SIM_CALLS").map_or(CALLS, |calls| calls as usize);
    let (done, seeds) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        let (mut tally, mut failed) = (Tally::new(), Vec::new());
        while done.load(Ordering::Relaxed) < wanted && failed.len() < 200 {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            let plan = Plan::draw(seed);
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
    println!("{tally:#?}");
    if wanted >= CALLS {
        let missed: Vec<_> = SURE
            .iter()
            .filter(|what| !tally.contains_key(**what))
            .collect();
        assert!(missed.is_empty(), "never happened: {missed:?}");
    }
    if let Some((seed, _)) = failed.first() {
        let others: Vec<_> = failed
            .iter()
            .map(|(seed, faults)| format!("seed {seed}: {}", faults[0]))
            .collect();
        panic!("{}\n{}", explain(*seed), others.join("\n"));
    }
}
