//! The golden trace: what both peers of each run send and get, in a form that is equal whenever the behaviour is.
//!
//! Random values get names by their order of appearance: tags, branches, Call-IDs, nonces and what follows from
//! them. Everything else stays: start lines, headers and bodies in their order, and the virtual time of each message.
//!
//! `fixtures/golden/simulation.txt` holds a digest for each seed. `every_run_is_as_it_was` compares; `just golden` writes the
//! file anew, and `TRUNKLINE_GOLDEN_SEED` prints the trace of one seed.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::network::{Datagram, Sent};
use crate::plan::Plan;
use crate::world::World;
use trunkline_testkit::names::{Names, digest};

/// Seeds that have a digest.
const SEEDS: u64 = 5_000;
/// Differing seeds that a failure names.
const NAMED: usize = 40;
/// All messages of a run in the order in which they were sent.
fn canonical(sent: &[Sent]) -> String {
    let (mut names, mut trace) = (Names::default(), String::new());
    for Sent {
        after,
        copies,
        datagram,
    } in sent
    {
        let Datagram { from, to, .. } = datagram;
        let transport = match datagram.connection {
            Some(_) => "tcp",
            None => "udp",
        };
        let millis = after.as_millis();
        writeln!(
            trace,
            "--- {millis} ms, {from} > {to} {transport}, arrives {copies} times"
        )
        .expect("a string takes all");
        let text = String::from_utf8_lossy(&datagram.octets);
        trace.push_str(&names.canonical(&text));
        trace.push('\n');
    }

    trace
}

fn trace_of(seed: u64) -> String {
    let mut world = World::new(Plan::draw(seed), false).recorded();
    world.run();
    canonical(world.sent.as_deref().expect("it is recorded"))
}

fn digests(seeds: u64) -> Vec<String> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return done;
            }
            done.push((seed, digest(&trace_of(seed))));
        }
    };

    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let finished = running.into_iter();
        finished
            .flat_map(|thread| thread.join().expect("no run panics"))
            .collect()
    });

    done.sort();
    done.into_iter().map(|(_, digest)| digest).collect()
}

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden/simulation.txt")
}

/// The trace of every seed is the recorded one.
#[test]
fn every_run_is_as_it_was() {
    if let Some(seed) = crate::number("TRUNKLINE_GOLDEN_SEED") {
        println!("{}", trace_of(seed));
        return;
    }
    if std::env::var("TRUNKLINE_GOLDEN").is_ok_and(|mode| mode == "write") {
        let all = digests(SEEDS).join("\n");
        std::fs::write(file(), all + "\n").expect("the file can be written");
        return;
    }
    let recorded = std::fs::read_to_string(file()).expect("fixtures/golden/simulation.txt");
    let recorded: Vec<&str> = recorded.lines().collect();
    assert_eq!(
        recorded.len() as u64,
        SEEDS,
        "`just golden` writes the file anew"
    );

    let found = digests(SEEDS);
    let pairs = found.iter().zip(recorded).enumerate();
    let differing = pairs.filter(|(_, (found, recorded))| found != recorded);
    let differing: Vec<usize> = differing.map(|(seed, _)| seed).collect();
    let (count, first) = (differing.len(), &differing[..differing.len().min(NAMED)]);
    assert!(
        differing.is_empty(),
        "{count} of {SEEDS} runs differ from fixtures/golden/simulation.txt. If that is intended, run `just golden` and say in the \
         commit which cases differ and why; `just golden-trace SEED` prints one. Seeds: {first:?}"
    );
}
