//! User instructions of a call, over all threads of the daemon, counted by callgrind while it serves real calls on loopback.
//!
//! They say more than CPU time where a machine is shared: the same program takes the same instructions, but for how it batches its work. The rate
//! of the calls is therefore part of the figure. The kernel's share isn't counted.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value};
use tempfile::TempDir;

use super::bench::{Fault, Setting, describe_wire, drain, make, run};
use super::line::{Line, Server, launch, parties, start};
use crate::clock::seconds;
use crate::engine::{Engine, Sockets};
use crate::exchange::Plan;
use crate::kernel::pin_to;
use crate::pace::Pace;
use crate::report::Report;

/// Calls to count.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Number of calls that count.
    pub calls: u64,
    /// Calls a second, few enough for a daemon that runs fifty times slower.
    pub rate: f64,
    /// Folder where the profiles stay, for `callgrind_annotate`; without it they are removed.
    pub profile: Option<PathBuf>,
}

/// Calls before any are counted.
const WARM_UP: u64 = 100;
/// Seconds for which the idle daemon is counted.
const IDLE: u64 = 5;
/// Runs the daemon under callgrind. Valgrind replaces the shell, so that the process id is the daemon's.
const SCRIPT: &str = "#!/bin/sh\n\
    exec valgrind --tool=callgrind --separate-threads=yes --instr-atstart=no \"--callgrind-out-file=$COUNTED_PROFILE\" \
    \"$COUNTED_DAEMON\" \"$@\"\n";

/// Counts the instructions of a daemon with its default configuration.
///
/// # Errors
/// There is no daemon or no valgrind.
pub fn instructions(setting: &Setting, counted: &Counted) -> Result<Report, Fault> {
    let data = TempDir::new_in(&setting.scratch)?;
    let sockets = Sockets::bind()?;
    // Makes the orgs, at full speed.
    drop(start(setting, data.path(), &sockets)?);

    let profiles = match &counted.profile {
        Some(folder) => {
            fs::create_dir_all(folder)?;
            folder.clone()
        }
        None => data.path().to_owned(),
    };
    let profile = profiles.join(format!("callgrind.{}", std::process::id()));
    let program = data.path().join("counted");
    fs::write(&program, SCRIPT)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700))?;
    let slowed = Setting {
        daemon: program,
        ..setting.clone()
    };
    let variable = |name: &str, path: &Path| (name.to_owned(), path.to_string_lossy().into_owned());
    let further = [
        variable("COUNTED_DAEMON", &fs::canonicalize(&setting.daemon)?),
        variable("COUNTED_PROFILE", &profile),
    ];
    let daemon = launch(&slowed, data.path(), sockets.callee()?, further).start()?;
    if let Some((_, own)) = setting.cores {
        pin_to(own)?;
    }

    let pid = daemon.pid();
    let plan = Plan {
        callers: setting.callers,
        ..Plan::default()
    };
    let parties = parties(&daemon, &sockets)?;
    let mut engine = Engine::new(sockets, &parties, plan, None, setting.room);
    let mut line = Line {
        server: Server::Trunkline(Box::new(daemon)),
        database: data.path().join("trunkline/trunkline.db"),
        report: Report::new(format!(
            "user instructions of {}: {} calls at {} a second",
            setting.daemon.display(),
            counted.calls,
            counted.rate
        )),
    };

    valgrind(pid, &["instrumentation", "on"])?;
    make(&mut engine, WARM_UP, counted.rate);
    drain(&mut engine);
    line.recorded(WARM_UP)?;

    valgrind(pid, &["zero"])?;
    run(&mut engine, &mut Pace::Idle, seconds(IDLE));
    valgrind(pid, &["dump"])?;
    let idle = total(&totals(&profile, 1)?) / IDLE as f64;

    engine.exchange.tally = Default::default();
    let mut names = threads(pid)?;
    valgrind(pid, &["zero"])?;
    let began = engine.now();
    make(&mut engine, counted.calls, counted.rate);
    drain(&mut engine);
    line.recorded(WARM_UP + counted.calls)?;
    let took = (engine.now() - began) as f64 / 1e6;
    valgrind(pid, &["dump"])?;
    // A thread that has begun since has its name only now, and one that has ended had it only before.
    names.extend(threads(pid)?);

    let found = totals(&profile, 2)?;
    let calls = counted.calls as f64;
    // What the daemon does without calls isn't a call's.
    let whole = total(&found) - idle * took;
    line.report
        .count("instructions_a_call", (whole / calls) as u64);
    line.report
        .object("by_thread", by_name(&found, &names, calls));
    line.report.count("idle_instructions_a_second", idle as u64);
    let tally = &engine.exchange.tally;
    line.report.count("calls_completed", tally.completed);
    describe_wire(&mut line.report, tally);
    if tally.daemon.total() + tally.ours.total() > 0 {
        line.report
            .fault("messages were sent again, which counts as well: take a lower rate");
    }
    // The daemon's metrics would say whether log lines or traces were left out, which happens at no such rate. It can't render them here:
    // valgrind hides the auxiliary vector from which rustix takes the size of a page.
    line.failures(&engine, false);
    Ok(line.report)
}

/// Sends a command to the valgrind of a process; returns its answer.
fn valgrind(pid: u32, command: &[&str]) -> io::Result<String> {
    let done = Command::new("vgdb")
        .arg(format!("--pid={pid}"))
        .args(command)
        .output()?;
    if !done.status.success() {
        return Err(io::Error::other(format!(
            "vgdb {}: {}",
            command.join(" "),
            String::from_utf8_lossy(&done.stderr)
        )));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Returns the name of each of valgrind's threads.
fn threads(pid: u32) -> io::Result<BTreeMap<u32, String>> {
    let shown = valgrind(pid, &["v.info", "scheduler"])?;
    Ok(shown
        .lines()
        .filter_map(thread)
        .filter_map(|(thread, kernels)| {
            let name = fs::read_to_string(format!("/proc/{pid}/task/{kernels}/comm")).ok()?;
            Some((thread, name.trim_end().to_owned()))
        })
        .collect())
}

/// Reads `Thread 2: status = VgTs_Runnable (lwpid 23530)`: valgrind's number of the thread, and the kernel's.
fn thread(line: &str) -> Option<(u32, u32)> {
    let (number, rest) = line.strip_prefix("Thread ")?.split_once(':')?;
    let (_, kernels) = rest.split_once("(lwpid ")?;
    Some((
        number.parse().ok()?,
        kernels.strip_suffix(')')?.parse().ok()?,
    ))
}

/// Reads the instructions of each thread from the files of one dump, `PROFILE.DUMP-THREAD`.
fn totals(profile: &Path, dump: u32) -> io::Result<BTreeMap<u32, u64>> {
    let name = profile.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}.{dump}-");
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(profile.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let file = entry.file_name();
        let thread = file
            .to_str()
            .and_then(|file| file.strip_prefix(&prefix)?.parse().ok());
        if let Some(thread) = thread {
            let text = fs::read(entry.path())?;
            let text = String::from_utf8_lossy(&text);
            let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
            let total = total.and_then(|total| total.trim().parse().ok());
            found.insert(thread, total.ok_or(io::ErrorKind::InvalidData)?);
        }
    }
    if found.is_empty() {
        return Err(io::Error::other("callgrind has written no profile"));
    }
    Ok(found)
}

fn total(found: &BTreeMap<u32, u64>) -> f64 {
    found.values().sum::<u64>() as f64
}

/// Instructions a call of the threads of each name, the idle ones' included; those that take less than one in a thousand are left out.
fn by_name(found: &BTreeMap<u32, u64>, names: &BTreeMap<u32, String>, calls: f64) -> Value {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (thread, count) in found {
        let name = names.get(thread).map_or("ended", String::as_str);
        let kind =
            name.trim_end_matches(|last: char| last.is_ascii_digit() || "-_ ".contains(last));
        *kinds.entry(kind).or_default() += count;
    }
    let least = total(found) / 1e3;
    let shown = kinds
        .into_iter()
        .filter(|(_, count)| *count as f64 >= least)
        .map(|(kind, count)| (kind.to_owned(), ((count as f64 / calls) as u64).into()));
    Value::Object(shown.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_from_the_rest_of_the_answer() {
        let shown = [
            "sched status:",
            "Thread 1: status = VgTs_WaitSys syscall 202 (lwpid 23528)",
            "==23528==    at 0x48CBF16: __futex_abstimed_wait_common (futex-internal.c:57)",
            "Thread 12: status = VgTs_Runnable (lwpid 23530)",
        ];
        let found: Vec<_> = shown.into_iter().filter_map(thread).collect();
        assert_eq!(found, [(1, 23528), (12, 23530)]);
    }

    #[test]
    fn a_dump_is_the_sum_of_its_threads() {
        let folder = TempDir::new().expect("a folder");
        let profile = folder.path().join("callgrind.7");
        for (file, total) in [("1-01", 5), ("2-01", 1_000), ("2-02", 3_000), ("2-13", 1)] {
            let text = format!("events: Ir\nsummary: {total}\n\ntotals: {total}\n");
            fs::write(folder.path().join(format!("callgrind.7.{file}")), text).expect("written");
        }
        let found = totals(&profile, 2).expect("a dump");
        assert_eq!(total(&found), 4_001.0);

        let names = BTreeMap::from([(1, "shard-0".to_owned()), (2, "shard-1".to_owned())]);
        let shown = by_name(&found, &names, 10.0);
        assert_eq!(shown, serde_json::json!({"shard": 400}));
        assert!(totals(&profile, 3).is_err());
    }
}
