//! kill -9 of a process that records simulated calls. Afterwards usage equals the calls made, to the call and to the second, however often
//! facts without an acknowledgement are written again. 6,000 calls and 3 kills, unless `TRUNKLINE_KILL_USAGE_CALLS` and
//! `TRUNKLINE_KILL_USAGE_KILLS` say otherwise.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::journal::{Full, Journal, Origin, Settings};
use trunkline_store::{Options, Store, UsageParts, UsageRow, UsageWindow, lost, usage};
use trunkline_testkit::Deadline;
use uuid::Uuid;

const BEGINNING: Moment = Moment::from_secs(1_800_000_000);
/// Number of calls that are up at the same time: each call ends when the one this many places later starts.
const UP: u64 = 40;
/// Longest wait for room in the journal.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ended calls between two acknowledgements.
const ACKNOWLEDGE_EVERY: u64 = 50;
/// Environment variables of a recording process: its folder, the number of its first call, and the number of its boot.
const FOLDER: &str = "TRUNKLINE_KILL_USAGE_FOLDER";
const FROM: &str = "TRUNKLINE_KILL_USAGE_FROM";
const BOOT: &str = "TRUNKLINE_KILL_USAGE_BOOT";

/// Returns the number in an environment variable.
fn number(name: &str, default: u64) -> u64 {
    let given = std::env::var(name).ok();
    given.map_or(default, |given| given.parse().expect(name))
}

fn calls() -> u64 {
    number("TRUNKLINE_KILL_USAGE_CALLS", 6_000)
}

/// A call that depends only on its number.
struct Made {
    started: Started,
    answered_at: Option<Moment>,
    ended_at: Moment,
}

impl Made {
    fn new(number: u64) -> Self {
        // Knuth's MMIX generator, one step for each part.
        let mut state = number;
        let mut below = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };

        let id = |id: u64| Uuid::from_u128(u128::from(id));
        let at = BEGINNING + Duration::from_secs(below(3 * 86_400));
        let talked_ms = below(2) * (1 + below(90_000));
        let answered_at = (talked_ms > 0).then(|| at + Duration::from_millis(700));
        let started = Started {
            call: id(1_000 + number),
            org: id(1 + below(3)),
            session: id(1_000_000_000 + number),
            agent: [None, Some(id(50)), Some(id(51))][below(3) as usize],
            trunk: [None, Some(id(60))][below(2) as usize],
            direction: [Direction::Inbound, Direction::Outbound][below(2) as usize],
            from: "100".into(),
            to: "200".into(),
            from_e164: None,
            to_e164: None,
            caller_call_id: "a@b".into(),
            at,
            decision: None,
            headers: Vec::new(),
            metadata: None,
            invite_facts: None,
            clock_offset: 0,
        };

        Self {
            started,
            answered_at,
            ended_at: at + Duration::from_millis(700 + talked_ms),
        }
    }

    /// Returns the facts after the beginning: the answer, if there is one, and the end.
    fn end(&self) -> Vec<Fact> {
        let (call, org) = (self.started.call, self.started.org);
        let answered = self.answered_at.map(|at| Fact::Answered {
            call,
            org,
            at,
            runtime_call_id: "r".into(),
        });
        let ended = Ended {
            call,
            org,
            at: self.ended_at,
            status: match self.answered_at {
                Some(_) => Status::Completed,
                None => Status::NoAnswer,
            },
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: HangupBy::Caller,
            cause: None,
        };
        let ended = Fact::Ended(Box::new(ended));

        answered.into_iter().chain([ended]).collect()
    }
}

/// Day, org, agent, trunk and direction.
type Group = (
    Option<i64>,
    Option<Uuid>,
    Option<Uuid>,
    Option<Uuid>,
    Option<&'static str>,
);
/// Calls, answered calls and answered seconds.
type Counts = (i64, i64, i64);

/// Returns the usage of all calls made.
fn made_usage() -> BTreeMap<Group, Counts> {
    let mut usage: BTreeMap<Group, Counts> = BTreeMap::new();
    for made in (0..calls()).map(Made::new) {
        let started = &made.started;
        let day = i64::try_from(started.at.as_micros() / 86_400_000_000).expect("a day");
        let group = (
            Some(day),
            Some(started.org),
            started.agent,
            started.trunk,
            Some(started.direction.as_str()),
        );

        let counts = usage.entry(group).or_default();
        counts.0 += 1;
        if let Some(answered_at) = made.answered_at {
            let micros = made.ended_at.as_micros() - answered_at.as_micros();
            counts.1 += 1;
            counts.2 += i64::try_from(micros.div_ceil(1_000_000)).expect("seconds");
        }
    }

    usage
}

/// Returns the usage that the store has counted.
async fn counted_usage(folder: &Path) -> BTreeMap<Group, Counts> {
    let store = open(folder).await;
    let window = UsageWindow {
        from: Moment::from_micros(0),
        to: Moment::from_secs(4_000_000_000),
    };
    let parts = UsageParts {
        day: true,
        org: true,
        agent: true,
        trunk: true,
        direction: true,
    };

    let mut usage = BTreeMap::new();
    for org in 1..=3 {
        let rows =
            store.read(move |tx| usage::of_org(tx, Uuid::from_u128(org), window, parts, 10_000));
        for row in rows.await.expect("usage") {
            let counts = (row.calls, row.answered_calls, row.answered_seconds);
            usage.insert(group(&row), counts);
        }
    }

    usage
}

fn group(row: &UsageRow) -> Group {
    let direction = row.direction.map(Direction::as_str);
    (row.day, row.org_id, row.agent_id, row.trunk_id, direction)
}

async fn open(folder: &Path) -> Store {
    let options = Options {
        data_dir: folder.to_owned(),
        url: None,
        master_key: None,
        max_connections: 4,
    };
    Store::open(&options, BEGINNING).await.expect("a store")
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn usage_is_what_was_made_after_kills() {
    let folder = TempDir::new().expect("a folder");
    let kills = number("TRUNKLINE_KILL_USAGE_KILLS", 3);
    let each = calls() / (kills + 1);
    let mut acknowledged = 0;

    for boot in 1..=kills {
        // Half a share to a whole one after the last acknowledgement. The process records on until the signal comes, so it dies at any point.
        let enough = acknowledged + each / 2 + boot * 7_919 % each.max(1) / 2;
        acknowledged = record(folder.path(), boot, acknowledged, Some(enough));
        assert!(acknowledged < calls(), "kill {boot} came too late");
    }

    let done = record(folder.path(), kills + 1, acknowledged, None);
    assert_eq!(done, calls());

    let counted = runtime().block_on(counted_usage(folder.path()));
    assert_eq!(counted, made_usage());
}

/// Records calls from number `from` on in a separate process, which is killed once `enough` are acknowledged. Returns the number acknowledged.
fn record(folder: &Path, boot: u64, from: u64, enough: Option<u64>) -> u64 {
    let this = std::env::current_exe().expect("a test binary");
    let mut child = Command::new(this)
        .args([
            "--exact",
            "kill::usage::records_until_it_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .env(FROM, from.to_string())
        .env(BOOT, boot.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");

    let mut acknowledged = from;
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for line in lines.map_while(Result::ok) {
        let Some(calls) = line.strip_prefix("acknowledged ") else {
            continue;
        };

        acknowledged = calls.parse().expect("a number");
        if enough.is_some_and(|enough| acknowledged >= enough) {
            child.kill().expect("it runs");
        }
    }

    let ended = child.wait().expect("it has run");
    assert_eq!(ended.success(), enough.is_none(), "{ended}");

    acknowledged
}

#[test]
#[ignore = "a process of usage_is_what_was_made_after_kills"]
fn records_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    runtime().block_on(write(folder.as_ref()));
}

/// Records the calls from number [`FROM`] on, and prints how many are acknowledged.
async fn write(folder: &Path) {
    let (from, boot) = (number(FROM, 0), number(BOOT, 1));
    let store = open(folder).await;
    let run = Origin {
        node: 1,
        boot: i64::try_from(boot).expect("small"),
    };
    let settings = Settings::default();
    let (mut journal, mut projector) =
        Journal::open(&folder.join("journal"), run, settings).expect("a journal");
    projector
        .replay(&store)
        .await
        .expect("facts of earlier runs");

    // Calls that were cut end at an assumed time; their true end is recorded below.
    let closed = store
        .write(move |tx| lost::close(tx, run.node, run.boot, BEGINNING))
        .await;
    closed.expect("closed");

    let projecting = tokio::spawn(projector.run(store.clone()));

    // Starts with the first call that isn't acknowledged, so that facts of up to a batch of calls are written again.
    for number in from..calls() + UP {
        let mut facts = Vec::new();
        if number < calls() {
            facts.push(Fact::Started(Arc::new(Made::new(number).started)));
        }

        // Calls before `from` have ended, acknowledged by an earlier process. Those after it are written again from their beginning.
        let ends = number.checked_sub(UP).filter(|ended| *ended >= from);
        facts.extend(ends.into_iter().flat_map(|ended| Made::new(ended).end()));

        let deadline = Deadline::after(PATIENCE);
        let position = loop {
            match journal.append(&mut facts) {
                Ok(position) => break position,
                Err(Full) if deadline.is_over() => panic!("the journal has no room"),
                // The queue is full until the disk has caught up.
                Err(Full) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };

        let ended = (number + 1).saturating_sub(UP);
        if ended > from && (ended % ACKNOWLEDGE_EVERY == 0 || ended == calls()) {
            journal.synced(position).await.expect("synced");
            let mut out = std::io::stdout().lock();
            writeln!(out, "acknowledged {ended}").expect("written");
            out.flush().expect("written");
        }
    }

    drop(journal);
    projecting.await.expect("no panic").expect("projected");
    store.close().await;
}
