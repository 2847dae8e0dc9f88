//! Daemons on one PostgreSQL whose clocks differ. libfaketime shifts the wall clock of one process.

use std::path::PathBuf;
use std::time::Duration;
use trunkline_testkit::not_run;

use serde_json::json;

use crate::e2e::control::answered;
use crate::e2e::node::{Node, NodeSetup};
use crate::e2e::nodes::{Pair, ends};
use trunkline_testkit::database::Database;
use trunkline_testkit::referred::Step::ByeComes;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, tools};

/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the path of the threaded library; `None` where it isn't installed, which fails under CI.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let mut found = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let found = found.find(|library| library.exists());
    if found.is_none() {
        not_run::without("the library libfaketime (apt-get install libfaketime)");
    }
    found
}

/// Returns the environment that shifts a process's wall clock by so many seconds and leaves the monotonic clock alone.
fn turned(library: &std::path::Path, by: &str) -> Vec<(String, String)> {
    let library = library.display().to_string();
    [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME", by),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

/// Value of a metric without labels.
pub(crate) fn metric(node: &Node, name: &str) -> Option<f64> {
    let (_, metrics) = node.get("/metrics", "");
    let line = metrics.lines().find(|line| line.starts_with(name))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Returns the seconds printed before these words.
fn seconds_before(words: &str, said: &str) -> f64 {
    let before = said.split_once(words).map(|(before, _)| before);
    let number = before.and_then(|before| before.rsplit(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number before {words:?}: {said}"))
}

#[test]
fn a_node_whose_clock_is_ahead_takes_nothing_from_the_others() {
    if !tools(&["sipp"]) {
        return;
    }

    let (Some(library), Some(database)) = (library(), Database::new()) else {
        return;
    };
    let told = |more: Vec<(String, String)>| {
        let lease = ("TRUNKLINE__SIP__NODE_LEASE_S".to_owned(), "5".to_owned());
        let environment = database.environment().into_iter().chain([lease]);
        environment.chain(more).collect::<Vec<_>>()
    };
    let number = |number: &str| ("TRUNKLINE__SIP__NODE".to_owned(), number.to_owned());
    let first = NodeSetup::new(&told(Vec::new()));
    let outset = first.run(&["quickstart", "--json", "--no-serve"]);
    let first = first.serve();

    // Less than a lease, so that right after each renewal the first node's lease still ends after the time of the fast clock.
    let mut ahead = turned(&library, "+4.5s");
    ahead.push(number("1"));
    let ahead = NodeSetup::new(&told(ahead));
    let (code, report) = ahead.said(&["doctor", "--quiet"]);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.contains("4 seconds apart: it is "), "{report}");
    // The duration of the query isn't counted.
    let ahead_by = seconds_before(" s ahead of", &report);
    assert!((4.0..=4.5).contains(&ahead_by), "{report}");
    let ahead = ahead.serve();

    let pair = Pair::of(first, ahead, outset, database);
    let mut caller = pair.caller(&pair.first);
    caller.talks = Duration::from_secs(12);
    caller.play("caller_hangs_up").finish();
    let ended = Deadline::after(LIMIT).poll(|| (pair.ends().len() == 1).then_some(()));
    assert!(ended.is_some(), "{:?}", pair.ends());
    assert_eq!(pair.ends(), ["completed"]);

    let log = pair.second.setup.log();
    assert!(!log.contains("closed the calls"), "{log}");
    assert!(
        log.contains("ahead of the database's: set both by NTP"),
        "{log}"
    );
    let skew = metric(&pair.second, "trunkline_clock_skew_seconds").expect("it is measured");
    assert!((3.0..5.0).contains(&skew), "{skew}");
    let skew = metric(&pair.first, "trunkline_clock_skew_seconds").expect("it is measured");
    assert!(skew.abs() < 1.0, "{skew}");
    assert!(!pair.first.setup.log().contains("set both by NTP"));

    for (by, said) in [("+8s", " s ahead of"), ("-8s", " s behind")] {
        let mut off = turned(&library, by);
        off.push(number("2"));
        let off = NodeSetup::new(&[pair.environment(), off].concat());
        let (code, complaint) = off.said(&["serve"]);
        assert_eq!(code, Some(2), "{by}: {complaint}");
        let off_by = seconds_before(said, &complaint);
        let is_said = (7.0..=8.0).contains(&off_by) && complaint.contains("set both by NTP");
        assert!(is_said, "{by}: {complaint}");
    }
}

/// Each clock is off by less than a node starts with, and the two by more than a command waits for.
#[test]
fn a_node_that_is_ahead_takes_the_commands_of_one_that_is_behind() {
    if !tools(&["sipp"]) {
        return;
    }

    let (Some(library), Some(database)) = (library(), Database::new()) else {
        return;
    };
    let told = |by: &str, number: &str| {
        let mut environment = database.environment();
        environment.extend(turned(&library, by));
        environment.push(("TRUNKLINE__SIP__NODE".to_owned(), number.to_owned()));
        environment
    };
    let behind = NodeSetup::new(&told("-4s", "0"));
    let outset = behind.run(&["quickstart", "--json", "--no-serve"]);
    let behind = behind.serve();
    let ahead = NodeSetup::new(&told("+4s", "1")).serve();
    let pair = Pair::of(behind, ahead, outset, database);

    let pbx = pair.caller(&pair.second).takes(&[ByeComes]);
    let call = answered(&pair.first, &pair.key);
    let path = format!("/phone/calls/{call}/hangup");
    let (status, ended) = pair.first.change("POST", &path, &pair.key, &json!({}));
    assert!([200, 202].contains(&status), "{status}: {ended}");
    pbx.finish();
}

#[test]
fn a_node_number_that_is_taken_says_so() {
    let Some(pair) = Pair::new(&[]) else {
        return;
    };
    let second = NodeSetup::new(&pair.environment());
    let (code, complaint) = second.said(&["serve"]);
    assert_eq!(code, Some(2), "{complaint}");
    assert!(
        complaint.contains("node 0 is served by") && complaint.contains("sip.node"),
        "{complaint}"
    );
    assert!(!complaint.contains("disk"), "{complaint}");
    assert_eq!(ends(&pair.database), Vec::<String>::new());
}

/// Wall clock of a daemon that a test sets, by libfaketime; the clock of timers goes on.
struct SettableClock {
    library: PathBuf,
    folder: tempfile::TempDir,
}

impl SettableClock {
    /// The machine's own time, until it is set; `None` without libfaketime.
    fn new() -> Option<Self> {
        let clock = Self {
            library: library()?,
            folder: tempfile::tempdir().expect("a folder"),
        };
        clock.set(0);
        Some(clock)
    }

    fn offset(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Sets the clock so many seconds ahead of the machine's.
    fn set(&self, seconds: i64) {
        std::fs::write(self.offset(), format!("{seconds:+}")).expect("written");
    }

    fn serve(&self) -> Daemon {
        DaemonSetup::new()
            .set("LD_PRELOAD", &self.library.display().to_string())
            .set(
                "FAKETIME_TIMESTAMP_FILE",
                &self.offset().display().to_string(),
            )
            .set("FAKETIME_CACHE_DURATION", "1")
            .set("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .serve()
    }
}

/// The clock is set while a call is up: its record ends as long after the answer as the call lasted, the next record follows the clock, and
/// nothing ends early.
#[test]
fn a_clock_that_is_set_changes_no_duration_and_no_timer() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(clock) = SettableClock::new() else {
        return;
    };
    let daemon = clock.serve();
    let talk = daemon
        .caller()
        .talks(Duration::from_secs(15))
        .play("caller_hangs_up");
    let call = daemon.answered_call();

    // Far beyond every timer of a call and every limit.
    const DAY: i64 = 86_400;
    clock.set(DAY);
    daemon.log_line(&["the wall clock was set"]);

    let shown = daemon.shown(&format!("/phone/calls/{call}"));
    assert_eq!(shown["status"], "in_progress", "{shown}");
    talk.finish();
    let ended = &daemon.records(1)[0];
    assert_eq!(ended["status"], "completed", "{ended}");

    let seconds = |field: &str| {
        let text = ended[field].as_str().expect("a time");
        text.parse::<jiff::Timestamp>()
            .expect("RFC 3339")
            .as_second()
    };
    let apart = seconds("ended_at") - seconds("answered_at");
    assert!((10..60).contains(&apart), "{apart}: {ended}");
    let billed = ended["answered_s"].as_i64();
    assert!(
        billed.is_some_and(|billed| (10..60).contains(&billed)),
        "{ended}"
    );

    // The trace has the BYE although it came a day later by the clock.
    let path = format!("/phone/calls/{call}/trace");
    let trace = daemon.shown(&path).to_string();
    assert!(trace.contains("BYE sip:"), "{trace}");

    // A clock that is set back blocks nobody: limits per minute don't block for a day.
    clock.set(0);
    let back =
        Deadline::after(LIMIT).poll(|| daemon.log().contains("direction=back").then_some(()));
    assert!(back.is_some(), "{}", daemon.log());

    daemon.caller().play("caller_hangs_up").finish();
    let second = daemon
        .records(2)
        .into_iter()
        .find(|call| call["id"] != ended["id"]);
    let second = second.expect("a second call");
    let took = |call: &serde_json::Value| {
        let at = |field: &str| {
            call[field]
                .as_str()
                .expect("a time")
                .parse::<jiff::Timestamp>()
                .expect("RFC 3339")
        };
        at("ended_at").as_second() - at("started_at").as_second()
    };
    assert!((0..60).contains(&took(&second)), "{second}");
}

/// The clock is set while a call is up, and then the process is killed: the call ends at the last sign of life by the clock of timers.
#[test]
fn a_clock_that_is_set_before_a_kill_bills_nobody() {
    if !tools(&["sipp"]) {
        return;
    }

    let Some(clock) = SettableClock::new() else {
        return;
    };
    let mut daemon = clock.serve();
    let talk = daemon
        .caller()
        .talks(Duration::from_secs(60))
        .play("caller_hangs_up");
    let call = daemon.answered_call();

    const DAY: i64 = 86_400;
    clock.set(DAY);
    daemon.log_line(&["the wall clock was set"]);

    daemon.process.kill();
    daemon.process = daemon.setup.start();
    let lost = daemon.stored(&call);
    assert_eq!(lost["status"], "lost", "{lost}");
    let billed = lost["answered_s"].as_i64();
    assert!(
        billed.is_some_and(|billed| (0..120).contains(&billed)),
        "{lost}"
    );
    drop(talk);
}
