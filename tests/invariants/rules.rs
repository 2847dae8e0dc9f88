//! The rules. Each is a function over one source that names its violations.

use std::collections::BTreeSet;

use crate::source::{Source, imports};

/// What each module of the daemon may import of the others; those that aren't listed may import nothing of them.
const MAY_IMPORT: [(&str, &[&str]); 12] = [
    ("main", &["cli"]),
    (
        "cli",
        &[
            "api",
            "config",
            "directory",
            "engine",
            "explain",
            "memory",
            "telemetry",
            "webhooks",
        ],
    ),
    (
        "api",
        &[
            "traces",
            "config",
            "directory",
            "engine",
            "explain",
            "integrations",
            "telemetry",
            "webhooks",
        ],
    ),
    (
        "engine",
        &["traces", "config", "directory", "memory", "telemetry"],
    ),
    ("explain", &["directory"]),
    ("traces", &["memory"]),
    ("memory", &[]),
    ("config", &[]),
    ("telemetry", &["config"]),
    ("integrations", &["config", "telemetry"]),
    ("webhooks", &["config", "telemetry"]),
    ("directory", &["config", "telemetry"]),
];

pub(crate) fn imports_point_one_way(source: &Source) -> Vec<String> {
    let Some(module) = source.module().filter(|module| *module != "lib") else {
        return Vec::new();
    };
    let allowed = MAY_IMPORT
        .iter()
        .find(|(name, _)| *name == module)
        .map_or(&[] as &[&str], |(_, allowed)| allowed);
    let root = if module == "main" {
        "trunkline"
    } else {
        "crate"
    };
    let foreign = imports(&source.code, root).filter(|(_, name)| {
        let is_module = MAY_IMPORT.iter().any(|(known, _)| known == name);
        is_module && name != module && !allowed.contains(&name.as_str())
    });
    foreign
        .map(|(line, name)| source.violation(line, &format!("{module} imports {name}")))
        .collect()
}

/// Words, the places where they may stand, and why.
const KEPT_IN: [(&str, &[&str], &str); 7] = [
    (
        "rsip::",
        &["sip/src/wire/"],
        "rsip is known to the wire format alone",
    ),
    (
        "sqlx::",
        &["store/src/", "bench/src/seed.rs"],
        "SQL is known to the store, and to what fills a database to be measured",
    ),
    (
        "rusqlite::",
        &["store/src/"],
        "SQL is known to the store alone",
    ),
    (
        "Instant::now",
        &["src/engine/clock.rs", "bench/src/clock.rs"],
        "time is an input",
    ),
    (
        "SystemTime::now",
        &["src/engine/clock.rs"],
        "time is an input",
    ),
    (
        "unsafe",
        &[
            "src/memory.rs",
            "net/src/listener/mmsg.rs",
            "bench/src/kernel.rs",
        ],
        "unsafe has its modules",
    ),
    (
        "allow_attributes",
        &[],
        "a lint is expected with a reason, never allowed",
    ),
];

pub(crate) fn words_are_kept_in_their_place(source: &Source) -> Vec<String> {
    let misplaced = KEPT_IN
        .iter()
        .filter(|(_, places, _)| !places.iter().any(|place| source.is_under(place)));
    misplaced
        .flat_map(|(word, _, why)| {
            source
                .lines_with(word)
                .map(move |line| source.violation(line, &format!("{word}: {why}")))
        })
        .collect()
}

/// What knows no sockets, executor, clock, disk or database.
const PURE: [&str; 4] = ["sip/src/", "routing/src/", "calls/src/", "model/src/"];
const IMPURE: [&str; 10] = [
    "tokio",
    "axum",
    "hyper",
    "sqlx",
    "socket2",
    "hickory_resolver",
    "UdpSocket",
    "TcpStream",
    "std::fs",
    "std::env",
];

pub(crate) fn the_core_is_free_of_the_world(source: &Source) -> Vec<String> {
    if source.is_test() || !PURE.iter().any(|place| source.is_under(place)) {
        return Vec::new();
    }
    let found = IMPURE
        .iter()
        .flat_map(|word| source.lines_with(word).map(move |line| (line, word)));
    found
        .map(|(line, word)| source.violation(line, &format!("{word} in the pure core")))
        .collect()
}

pub(crate) fn lints_are_never_allowed(source: &Source) -> Vec<String> {
    let lines = source
        .code
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains("#[allow(") || line.contains("#![allow("));
    lines
        .map(|(at, _)| source.violation(at + 1, "use #[expect(…, reason = \"…\")]"))
        .collect()
}

/// Names that say nothing.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "helpers", "common", "manager", "misc"];

pub(crate) fn files_say_what_they_own(source: &Source) -> Vec<String> {
    let name = source.path.trim_end_matches(".rs");
    let empty = name.split('/').any(|part| EMPTY_NAMES.contains(&part));
    let unopened = !source.text.starts_with("//!");
    let violations = [
        (empty, "a name that says nothing"),
        (unopened, "doesn't open with //!"),
    ];
    violations
        .into_iter()
        .filter(|(is, _)| *is)
        .map(|(_, what)| source.violation(1, what))
        .collect()
}

pub(crate) const LONGEST: usize = 600;

pub(crate) fn files_are_short(source: &Source) -> Vec<String> {
    let lines = source
        .code
        .find("#[cfg(test)]\nmod tests {")
        .map_or(&*source.code, |at| &source.code[..at])
        .lines()
        .count();
    if source.is_test() || lines < LONGEST {
        return Vec::new();
    }
    vec![source.violation(
        lines,
        &format!("{lines} lines before its tests, {LONGEST} are too many"),
    )]
}

/// What a crate must not depend on.
pub(crate) const NO_DEPENDENCY: [(&str, &[&str]); 4] = [
    (
        "sip/Cargo.toml",
        &[
            "trunkline-routing",
            "tokio",
            "sqlx",
            "hickory-resolver",
            "axum",
        ],
    ),
    (
        "routing/Cargo.toml",
        &["trunkline-sip", "tokio", "sqlx", "rsip"],
    ),
    (
        "bench/Cargo.toml",
        &["trunkline-sip", "trunkline-routing", "trunkline", "rsip"],
    ),
    (
        "testkit/Cargo.toml",
        &["trunkline-routing", "trunkline", "trunkline-bench", "rsip"],
    ),
];

pub(crate) fn crates_know_only_what_they_may(path: &str, manifest: &str) -> Vec<String> {
    let forbidden = NO_DEPENDENCY
        .iter()
        .find(|(of, _)| *of == path)
        .map_or(&[] as &[&str], |(_, names)| names);
    let named = manifest
        .lines()
        .filter_map(|line| line.split(['=', '.', ' ']).next());
    let found = named.filter(|name| forbidden.contains(name));
    found
        .map(|name| format!("{path}: depends on {name}"))
        .collect()
}

pub(crate) fn migrations_come_in_pairs(sqlite: &[String], postgres: &[String]) -> Vec<String> {
    let number = |name: &String| name.split('_').next().unwrap_or_default().to_owned();
    let numbers = |names: &[String]| names.iter().map(number).collect::<BTreeSet<_>>();
    let (ours, theirs) = (numbers(sqlite), numbers(postgres));
    let mut violations: Vec<_> = ours
        .symmetric_difference(&theirs)
        .map(|number| format!("migration {number} is there for one database only"))
        .collect();
    if ours.len() != sqlite.len() || theirs.len() != postgres.len() {
        violations.push("two migrations have one number".to_owned());
    }
    violations
}
