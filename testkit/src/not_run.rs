//! Tests that a run left out because this machine lacks something: each notes itself, and the end of the run says it once.
//!
//! The notes are in a file beside their binaries, which are several. The last one of a run (`tests/not_run.rs` of this crate) says it and
//! removes the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

/// PostgreSQL, as tests note it.
pub const POSTGRES: &str = "PostgreSQL";

/// Debian packages of programs that have another name.
const PACKAGES: [(&str, &str); 13] = [
    ("sipp", "sip-tester"),
    ("chromedriver", "chromium-driver"),
    ("dumpcap", "wireshark-common"),
    ("fail2ban-regex", "fail2ban"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("node", "nodejs"),
    ("nsenter", "util-linux"),
    ("pg_ctl", "postgresql"),
    ("promtool", "prometheus"),
    ("script", "util-linux"),
    ("unshare", "util-linux"),
    ("setcap", "libcap2-bin"),
];

/// Notes that the present test, or a part of it, isn't run without `missing`: the name of a program, [`POSTGRES`], or a sentence.
///
/// # Panics
/// Under CI, where nothing may be missing.
pub fn without(missing: &str) {
    let is_ci = std::env::var_os("CI").is_some();
    assert!(!is_ci, "{missing} missing, and CI leaves nothing out");
    note(missing);
}

/// Notes the same of something that the machine forbids, which CI can't change either.
pub fn note(missing: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let file = OpenOptions::new().create(true).append(true).open(file());
    let noted = file.and_then(|mut file| file.write_all(format!("{test}\t{missing}\n").as_bytes()));
    noted.expect("it can be noted beside the tests' binaries");
}

/// Returns what this run left out and how to run it, and forgets it; `None` if everything has run.
pub fn take() -> Option<String> {
    let notes = fs::read_to_string(file()).ok()?;
    fs::remove_file(file()).expect("the notes can be removed");
    summary(&notes, on_path)
}

pub(crate) fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn summary(notes: &str, is_here: impl Fn(&str) -> bool) -> Option<String> {
    let mut tests: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (test, missing) in notes.lines().filter_map(|line| line.split_once('\t')) {
        // Noted by a run that was cut off, before the program was installed.
        if !is_here(missing) {
            tests.entry(missing).or_default().insert(test);
        }
    }

    let count = tests.values().flatten().collect::<BTreeSet<_>>().len();
    let lines = tests.iter().map(|(missing, tests)| {
        let (count, way) = (tests.len(), way_to_have(missing));
        format!("  {missing:<14} {count:>4}   {way}\n")
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then(|| {
        format!("Not run, or not whole, on this machine: {count} tests. Missing, for how many, and how to have it:\n{lines}")
    })
}

fn way_to_have(missing: &str) -> String {
    if missing == POSTGRES {
        return "set TRUNKLINE_TEST_POSTGRES to a server's URL; the head of tests/store/main.rs starts one".to_owned();
    }
    if missing.contains(' ') {
        return String::new();
    }
    let named = PACKAGES.iter().find(|(program, _)| *program == missing);
    let package = named.map_or(missing, |(_, package)| package);
    format!("apt-get install {package}")
}

fn file() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.with_file_name("trunkline-tests-not-run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_once_with_the_way_to_have_it() {
        let notes = "a\tsipp\nb\tsipp\nb\tPostgreSQL\nc\tjq\nc\tno raw sockets here\n";
        let said = summary(notes, |program| program == "jq").expect("something is missing");
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].contains("3 tests"), "{said}");
        assert!(
            lines[1].contains("PostgreSQL        1   set TRUNKLINE_TEST_POSTGRES"),
            "{said}"
        );
        assert!(lines[2].contains("no raw sockets here"), "{said}");
        assert!(
            lines[3].contains("sipp              2   apt-get install sip-tester"),
            "{said}"
        );
        assert_eq!(lines.len(), 4);

        assert_eq!(summary("c\tjq\n", |_| true), None);
        assert_eq!(summary("", |_| false), None);
    }
}
