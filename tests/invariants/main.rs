//! Rules of the sources: imports between modules and between the rooms of a crate, names, uses of the clock, `unsafe`, SQL and rsip, the length of a
//! file, migrations in pairs, licences of dependencies. Each rule has a test that it finds a violation.

mod codes;
mod deny;
mod docs;
mod modules;
mod names;
mod rooms;
mod rules;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use trunkline_testkit::not_run;

use modules::{Crate, cycles};
use names::{replaced_words_name_nothing, type_names_are_unique};
use rooms::{HOUSES, methods_stand_beside_their_type, types_have_few_methods};
use rules::{
    LONGEST, MAY_DEPEND, allowed_dependencies, allowed_imports, crates_know_only_what_they_may,
    files_are_short, files_say_what_they_own, imports_point_one_way, lints_are_never_allowed,
    migrations_come_in_pairs, modules_depend_one_way, the_core_is_free_of_the_world,
    words_are_kept_in_their_place,
};
use source::Source;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    for folder in [
        "src",
        "bounds/src",
        "sip/src",
        "routing/src",
        "model/src",
        "store/src",
        "calls/src",
        "calls/tests",
        "net/src",
        "capture/src",
        "testkit/src",
        "bench/src",
        "bench/tests",
        "tests",
    ] {
        rust_files(&root().join(folder), &mut files);
    }

    let relative = |path: &PathBuf| {
        path.strip_prefix(root())
            .expect("below the root")
            .to_string_lossy()
            .into_owned()
    };
    files
        .iter()
        .map(|path| Source::new(relative(path), fs::read_to_string(path).expect("readable")))
        .collect()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    entries
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

type Rule = fn(&Source) -> Vec<String>;

/// The rules for shipped code; tests may read the clock and the disk.
const SHIPPED: [Rule; 4] = [
    imports_point_one_way,
    replaced_words_name_nothing,
    words_are_kept_in_their_place,
    the_core_is_free_of_the_world,
];
const EVERYWHERE: [Rule; 3] = [
    lints_are_never_allowed,
    files_say_what_they_own,
    files_are_short,
];

#[test]
fn the_sources_keep_their_rules() {
    let sources = sources();
    assert!(
        sources.len() > 60,
        "only {} sources were found",
        sources.len()
    );

    let of_tests = ["tests/", "bench/tests/", "testkit/"];
    let shipped = sources
        .iter()
        .filter(|source| !of_tests.iter().any(|folder| source.is_under(folder)));
    let mut violations: Vec<_> = shipped
        .flat_map(|source| SHIPPED.iter().flat_map(move |rule| rule(source)))
        .collect();
    violations.extend(
        sources
            .iter()
            .flat_map(|source| EVERYWHERE.iter().flat_map(move |rule| rule(source))),
    );
    violations.extend(type_names_are_unique(&sources));

    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn crates_keep_to_themselves() {
    for (of, _) in MAY_DEPEND {
        let manifest = text(&format!("{of}/Cargo.toml"));
        assert_eq!(
            crates_know_only_what_they_may(of, &manifest),
            Vec::<String>::new()
        );
    }
}

/// Crates, the daemon's modules, and the files inside each crate.
#[test]
fn dependencies_have_no_cycle() {
    assert_eq!(cycles(&allowed_dependencies()), []);
    assert_eq!(cycles(&allowed_imports()), []);
    let sources = sources();
    let folders = MAY_DEPEND.map(|(of, _)| match of {
        "." => "src/".to_owned(),
        of => format!("{of}/src/"),
    });
    let found = folders.iter().flat_map(|folder| {
        let graph = Crate::read(&sources, folder).graph();
        // The leaf that all others may know is small.
        let fewest = if folder == "bounds/src/" { 1 } else { 5 };
        let files = graph.len();
        assert!(files > fewest, "{folder} has only {files} files");
        modules_depend_one_way(folder, &graph)
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// An arrow goes down, never up or between features, and no object is spread over the rooms.
#[test]
fn rooms_keep_their_order() {
    let sources = sources();
    let mut found = methods_stand_beside_their_type(&sources);
    found.extend(types_have_few_methods(&sources));
    for house in HOUSES {
        let graph = Crate::read(&sources, house.folder()).graph();
        found.extend(house.rooms_are_those_listed(&graph));
        found.extend(house.arrows_point_down(&graph));
        found.extend(house.the_ground_floor_is_small(&sources));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Under CI the crates of every target have been fetched; on other machines those of another processor may be missing.
#[test]
fn dependencies_keep_the_rules_of_deny_toml() {
    let rules = deny::Rules::read(&text("deny.toml"));
    assert!(!rules.targets.is_empty());

    for target in &rules.targets {
        let metadata = match deny::metadata(target) {
            Ok(metadata) => metadata,
            Err(missing) => {
                not_run::without(&format!(
                    "dependencies of {target}: cargo fetch --locked: {missing}"
                ));
                continue;
            }
        };
        let found = rules.violations(&metadata);
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }
}

#[test]
fn migrations_are_there_for_both_databases() {
    let (sqlite, postgres) = (
        names_in("migrations/sqlite"),
        names_in("migrations/postgres"),
    );
    assert!(!sqlite.is_empty());
    assert_eq!(
        migrations_come_in_pairs(&sqlite, &postgres),
        Vec::<String>::new()
    );
}

/// The files of `src/config` that are sections.
const SECTIONS: [&str; 14] = [
    "audit",
    "database",
    "http",
    "limits",
    "log",
    "media",
    "phone",
    "retention",
    "secrets",
    "sip",
    "speech",
    "events",
    "traces",
    "webhooks",
];

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("readable")
}

/// Returns the keys that the sections of `src/config` read.
fn keys_of_the_configuration() -> BTreeSet<String> {
    let section =
        |(name, file): (&str, &str)| docs::keys_read(name, &text(&format!("src/config/{file}.rs")));
    let sections = SECTIONS.map(|name| (name, name));
    let inner = [
        ("integrations.booking", "integrations"),
        ("phone.verification_trunk", "verification"),
    ];
    sections
        .into_iter()
        .chain(inner)
        .flat_map(section)
        .collect()
}

#[test]
fn every_key_of_the_configuration_is_documented_and_read() {
    assert_eq!(
        docs::first_column(&text("docs/configuration.md"), "."),
        keys_of_the_configuration()
    );
}

/// A key is worth its place if an operator tunes it; anything else is a constant.
#[test]
fn the_configuration_has_few_keys() {
    // `data_dir` is of no section.
    let count = keys_of_the_configuration().len() + 1;
    assert!(count <= 95, "{count} keys");
}

#[test]
fn every_metric_is_documented_and_exists() {
    let sources = sources();
    let sets_metrics = |source: &&Source| {
        source.is_under("src/telemetry/metrics.rs") || source.text.contains("metrics::")
    };
    let shipped = sources.iter().filter(|source| !source.is_under("tests/"));

    let defined: BTreeSet<String> = shipped
        .filter(sets_metrics)
        .flat_map(|source| docs::metrics_defined(&source.text))
        // A cookie and two channels of the database have names that look like metrics.
        .filter(|name| !name.ends_with("_session") && !name.ends_with("_changes"))
        .collect();
    assert!(defined.len() > 20);
    assert_eq!(
        docs::first_column(&text("docs/operating.md"), "trunkline_"),
        defined
    );
}

#[test]
fn every_job_is_documented_and_exists() {
    let jobs = text("src/jobs.rs");
    let names = jobs
        .lines()
        .filter_map(|line| line.trim().strip_prefix("name: \""));
    let names: BTreeSet<_> = names.filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 10, "{names:?}");

    let page = text("docs/operating.md");
    let part = page
        .split("## Jobs")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next());
    let documented = docs::first_column(part.expect("the page has the table"), "");
    assert!(documented.iter().map(String::as_str).eq(names));
}

#[test]
fn documents_use_the_fields_words() {
    let pages = fs::read_dir(root().join("docs")).expect("a folder");
    let pages = pages.map(|page| page.expect("readable").path());
    let pages = pages.filter(|page| page.extension().is_some_and(|kind| kind == "md"));
    let top = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    let documents: Vec<_> = pages.chain(top.map(|page| root().join(page))).collect();
    assert!(documents.len() > 20);

    for document in documents {
        let text = fs::read_to_string(&document).expect("readable");
        let found = docs::replaced_words(&text);
        assert!(found.is_empty(), "{}: {found:#?}", document.display());
    }
}

/// `tests/guarantees.md` promises nothing that no test shows.
#[test]
fn every_guarantee_names_a_test_that_exists() {
    let document = text("tests/guarantees.md");
    let named = docs::tests_named(&document);
    let sources = sources();
    let missing: Vec<_> = named
        .iter()
        .filter(|name| {
            let definition = format!("fn {name}(");
            !sources
                .iter()
                .any(|source| source.text.contains(&definition))
        })
        .collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
}

/// For each rule, a source that breaks it and one that doesn't.
#[test]
fn each_rule_finds_a_violation_and_only_that() {
    let long = format!("//! x\n{}", "x();\n".repeat(LONGEST));
    let long_tests = format!(
        "//! x\n#[cfg(test)]\nmod tests {{\n{}}}\n",
        "x();\n".repeat(LONGEST)
    );
    let cases: [(Rule, &str, &str, &str, &str); 19] = [
        (
            replaced_words_name_nothing,
            "calls/src/x.rs",
            "pub(super) enum Asked {}",
            "calls/src/x.rs",
            "pub(super) enum Request { Asked }",
        ),
        (
            imports_point_one_way,
            "src/directory/entry.rs",
            "use crate::api::Server;",
            "src/directory/entry.rs",
            "use crate::config::x; // crate::api",
        ),
        (
            imports_point_one_way,
            "src/directory/mod.rs",
            "use crate::{config::x, api::y};",
            "src/directory/mod.rs",
            "use crate::{config::{x, api}, telemetry};",
        ),
        (
            imports_point_one_way,
            "src/directory/builder.rs",
            "fn x() { crate::engine::y() }",
            "src/engine/shard.rs",
            "fn x() { crate::directory::y() }",
        ),
        (
            imports_point_one_way,
            "src/main.rs",
            "trunkline::engine::x();",
            "src/main.rs",
            "trunkline::cli::run();",
        ),
        (
            imports_point_one_way,
            "src/config/sip.rs",
            "use crate::telemetry::x;",
            "src/config/sip.rs",
            "use crate::config::x;",
        ),
        (
            words_are_kept_in_their_place,
            "sip/src/auth/mod.rs",
            "use rsip::Request;",
            "sip/src/wire/invite.rs",
            "use rsip::Request;",
        ),
        (
            words_are_kept_in_their_place,
            "src/engine/shard.rs",
            "let now = Instant::now();",
            "src/engine/clock.rs",
            "let now = Instant::now();",
        ),
        (
            words_are_kept_in_their_place,
            "routing/src/e164.rs",
            "std::time::SystemTime::now()",
            "routing/src/e164.rs",
            "\"SystemTime::now()\"",
        ),
        (
            words_are_kept_in_their_place,
            "net/src/listener/udp.rs",
            "unsafe { x() }",
            "net/src/listener/udp.rs",
            "#![expect(unsafe_code)]",
        ),
        (
            the_core_is_free_of_the_world,
            "calls/src/leg.rs",
            "use std::fs;",
            "src/engine/leg.rs",
            "use std::fs;",
        ),
        (
            the_core_is_free_of_the_world,
            "sip/src/flow.rs",
            "use std::net::UdpSocket;",
            "sip/src/flow.rs",
            "use std::net::SocketAddr;",
        ),
        (
            lints_are_never_allowed,
            "src/x.rs",
            "#[allow(dead_code)]",
            "src/x.rs",
            "#[expect(dead_code, reason = \"#[allow(\")]",
        ),
        (
            lints_are_never_allowed,
            "tests/x.rs",
            "#![allow(dead_code)]",
            "tests/x.rs",
            "// #![allow(dead_code)]",
        ),
        (
            files_say_what_they_own,
            "src/api/utils.rs",
            "//! x",
            "src/api/errors.rs",
            "//! x",
        ),
        (
            files_say_what_they_own,
            "src/common/x.rs",
            "//! x",
            "src/uncommon/x.rs",
            "//! x",
        ),
        (
            files_say_what_they_own,
            "src/x.rs",
            "fn x() {}",
            "src/x.rs",
            "//! x",
        ),
        (files_are_short, "src/x.rs", &long, "src/x/tests.rs", &long),
        (files_are_short, "src/x.rs", &long, "src/x.rs", &long_tests),
    ];

    for (rule, bad_path, bad, good_path, good) in cases {
        assert_ne!(
            rule(&Source::new(bad_path, bad)),
            Vec::<String>::new(),
            "{bad_path}: {bad:.60} is let through"
        );
        assert_eq!(
            rule(&Source::new(good_path, good)),
            Vec::<String>::new(),
            "{good_path}: {good:.60} is refused"
        );
    }
}

#[test]
fn crates_and_migrations_out_of_order_are_found() {
    let depends = |of: &str, name: &str| {
        let manifest = format!(
            "[package]\n[dependencies]\n{name}.workspace = true\n[dev-dependencies]\nx = 1\n"
        );
        crates_know_only_what_they_may(of, &manifest)
    };

    assert_eq!(depends("sip", "tokio"), ["sip depends on tokio"]);
    assert_eq!(
        depends("calls", "trunkline-store"),
        ["calls depends on trunkline-store"]
    );
    assert_eq!(depends("calls", "trunkline-sip"), [""; 0]);
    assert_eq!(depends("store", "sqlx"), [""; 0]);
    let of_target = "[package]\n[build-dependencies]\ntokio = \"1\"\n[target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n";
    assert_eq!(crates_know_only_what_they_may("sip", of_target).len(), 2);
    assert_eq!(depends("net", "x"), [""; 0]);

    let edge = |from: &str, to: &str| (from.to_owned(), [to.to_owned()].into());
    let circle = [edge("a", "b"), edge("b", "a")].into();
    assert_eq!(modules_depend_one_way("x/src/", &circle).len(), 1);

    let one_way = [edge("a", "b"), ("b".to_owned(), [].into())].into();
    assert_eq!(modules_depend_one_way("x/src/", &one_way), [""; 0]);

    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };

    assert_eq!(
        migrations_come_in_pairs(
            &names(&["0001_a.sql", "0002_b.sql"]),
            &names(&["0001_a.sql"])
        )
        .len(),
        1
    );

    assert_eq!(
        migrations_come_in_pairs(
            &names(&["0001_a.sql", "0001_b.sql"]),
            &names(&["0001_a.sql"])
        )
        .len(),
        1
    );

    assert_eq!(
        migrations_come_in_pairs(&names(&["0001_a.sql"]), &names(&["0001_b.sql"])).len(),
        0
    );
}
