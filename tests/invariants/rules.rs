//! The rules. Each is a function over one source that names its violations.

use std::collections::BTreeSet;

use crate::modules::{Graph, cycles, top};
use crate::rooms::HOUSES;
use crate::source::{Source, imports};

/// Modules that each module of the daemon may import; those that aren't listed may import none.
const MAY_IMPORT: [(&str, &[&str]); 15] = [
    ("main", &["cli"]),
    (
        "cli",
        &[
            "api",
            "config",
            "console",
            "directory",
            "engine",
            "explain",
            "jobs",
            "memory",
            "speech",
            "telemetry",
            "webhooks",
        ],
    ),
    (
        "console",
        &[
            "api",
            "config",
            "directory",
            "engine",
            "explain",
            "telemetry",
            "traces",
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
            "jobs",
            "telemetry",
            "webhooks",
        ],
    ),
    (
        "engine",
        &[
            "traces",
            "config",
            "directory",
            "jobs",
            "memory",
            "speech",
            "telemetry",
        ],
    ),
    ("explain", &["directory"]),
    ("traces", &["memory"]),
    ("memory", &[]),
    ("jobs", &[]),
    ("config", &[]),
    ("telemetry", &["config"]),
    ("integrations", &["config", "telemetry"]),
    ("webhooks", &["config", "jobs", "telemetry"]),
    ("speech", &["config", "webhooks"]),
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

/// Words, the places where they may occur, and why.
const KEPT_IN: [(&str, &[&str], &str); 6] = [
    (
        "rsip::",
        &["sip/src/wire/"],
        "rsip is known to the wire format alone",
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
        "time::interval",
        &[
            "src/jobs.rs",
            // Commands and calls that a person has begun, what systemd asks for, and segments of the journal.
            "src/cli/",
            "src/console/phone_call.rs",
            "store/src/journal/projector.rs",
            // Its peers in tests.
            "net/",
        ],
        "what looks once per period is a job",
    ),
    (
        "unsafe",
        &[
            "src/memory.rs",
            "net/src/listener/mmsg.rs",
            "net/src/listener/tcp_info.rs",
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

/// Crates without sockets, clock or disk. Their manifests ensure that they have no executor and no database.
const PURE: [&str; 4] = ["sip/src/", "routing/src/", "model/src/", "calls/src/"];
const IMPURE: [&str; 4] = ["UdpSocket", "TcpStream", "std::fs", "std::env"];

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

/// Names without meaning.
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

/// A concept that needs more lines than these is two.
pub(crate) const LONGEST: usize = 1_000;

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

/// Our crates, and those of ours that each may depend on. Cargo lets no crate name another that it doesn't depend on.
pub(crate) const MAY_DEPEND: [(&str, &[&str]); 11] = [
    ("bounds", &[]),
    ("sip", &[]),
    ("routing", &[]),
    ("model", &["bounds", "routing", "sip"]),
    ("store", &["model", "routing", "sip"]),
    ("calls", &["bounds", "model", "routing", "sip"]),
    ("net", &["bounds", "sip"]),
    ("capture", &["sip"]),
    ("testkit", &["sip"]),
    ("bench", &["sip"]),
    (
        ".",
        &[
            "bounds", "calls", "capture", "model", "net", "routing", "sip", "store",
        ],
    ),
];

/// Crates that only some of ours may depend on.
const RESERVED: [(&str, &[&str]); 6] = [
    ("rsip", &["sip"]),
    ("sqlx", &["store", "testkit"]),
    ("rusqlite", &["store", "testkit", "bench"]),
    ("tokio", &["store", "net", "testkit", "."]),
    ("axum", &["."]),
    ("hickory-resolver", &["."]),
];

/// Returns the faults in the dependencies of one of our crates; those of its tests aren't read.
pub(crate) fn crates_know_only_what_they_may(of: &str, manifest: &str) -> Vec<String> {
    let may = MAY_DEPEND.iter().find(|(name, _)| *name == of);
    let may = may.map_or(&[] as &[&str], |(_, may)| may);
    let is_forbidden = |name: &str| match name.strip_prefix("trunkline-") {
        Some(ours) => !may.contains(&ours),
        None => RESERVED
            .iter()
            .any(|(reserved, to)| *reserved == name && !to.contains(&of)),
    };
    let is_shipped = |table: &&str| {
        let name = table.split(']').next().unwrap_or_default();
        let of_tests = name.contains("dev-dependencies") || name.starts_with("workspace.");
        name.ends_with("dependencies") && !of_tests
    };
    let tables = manifest.split("\n[").filter(is_shipped);
    let named = tables.flat_map(|table| table.lines().skip(1));
    let named = named.filter_map(|line| line.split(['=', '.', ' ']).next());

    named
        .filter(|name| is_forbidden(name))
        .map(|name| format!("{of} depends on {name}"))
        .collect()
}

/// Returns the files and the top modules of a crate that depend on each other; what is open to every room counts for files only.
pub(crate) fn modules_depend_one_way(folder: &str, graph: &Graph) -> Vec<String> {
    let house = HOUSES.iter().find(|house| house.folder() == folder);
    let closed = house.map(|house| house.without_open(graph));
    let circles: BTreeSet<_> = cycles(graph)
        .into_iter()
        .chain(cycles(&top(closed.as_ref().unwrap_or(graph))))
        .collect();

    circles
        .iter()
        .map(|circle| {
            let names: Vec<&str> = circle.iter().map(String::as_str).collect();
            format!(
                "{folder}: these modules depend on each other: {}",
                names.join(", ")
            )
        })
        .collect()
}

/// Returns the table of imports as a graph.
pub(crate) fn allowed_imports() -> Graph {
    let edges = MAY_IMPORT.map(|(module, allowed)| {
        let allowed = allowed.iter().map(|name| (*name).to_owned());
        (module.to_owned(), allowed.collect())
    });
    edges.into()
}

/// Returns the table of crates as a graph.
pub(crate) fn allowed_dependencies() -> Graph {
    let edges = MAY_DEPEND.map(|(of, allowed)| {
        let allowed = allowed.iter().map(|name| (*name).to_owned());
        (of.to_owned(), allowed.collect())
    });
    edges.into()
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
