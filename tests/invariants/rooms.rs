//! The rooms of `calls` and `store`: a module imports its own room and those below it, and features of a call don't know each other. A method call names no
//! module, so in `calls` a type's methods stand in its room; otherwise one could point up unseen.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Graph, without_tests};
use crate::source::Source;

/// The rooms of a crate, from top to bottom; the head of its `lib.rs` says what each is for.
pub(crate) struct House {
    folder: &'static str,
    rooms: &'static [&'static str],
    /// Modules that any room may import.
    open: &'static [&'static str],
}

pub(crate) const HOUSES: [House; 2] = [
    House {
        folder: "calls/src/",
        rooms: &ROOMS,
        open: &[],
    },
    House {
        folder: "store/src/",
        rooms: &[
            "access",
            "erasing",
            "jobs",
            "calls",
            "telephony",
            "tenants",
            "driver",
            "journal",
            "files",
        ],
        // The methods of `Store` that several aggregates begin a transaction with.
        open: &["access::store"],
    },
];

const ROOMS: [&str; 17] = [
    "shard",
    "call",
    "inbound",
    "features",
    "session",
    "dialog",
    "dial",
    "media",
    "leg",
    "invite",
    "core",
    "peers",
    "registrar",
    "flow",
    "limits",
    "trust",
    "parts",
];

/// Most methods of one type: with more, its state is to be split.
pub(crate) const MOST_METHODS: usize = 60;

/// Most files directly in one folder.
pub(crate) const MOST_FILES: usize = 20;

impl House {
    pub(crate) const fn folder(&self) -> &'static str {
        self.folder
    }

    /// Returns the imports of a room by one below it, and those of one feature by another.
    pub(crate) fn arrows_point_down(&self, graph: &Graph) -> Vec<String> {
        let edges = graph
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
        let is_wrong = |(from, to): &(&String, &String)| {
            let levels = self.level(from).zip(self.level(to));
            let points_up = levels.is_some_and(|(from, to)| to < from);
            let features = feature(from).zip(feature(to));
            let is_open = self.open.contains(&to.as_str());
            (points_up && !is_open) || features.is_some_and(|(one, other)| one != other)
        };
        edges
            .filter(is_wrong)
            .map(|(from, to)| format!("{}: {from} imports {to}", self.folder))
            .collect()
    }

    /// Returns the top modules that aren't among the rooms, and the rooms without a module.
    pub(crate) fn rooms_are_those_listed(&self, graph: &Graph) -> Vec<String> {
        let top = graph.keys().map(|module| room(module));
        let found: BTreeSet<&str> = top.filter(|room| *room != "lib").collect();
        let listed: BTreeSet<&str> = self.rooms.iter().copied().collect();
        found
            .symmetric_difference(&listed)
            .map(|room| {
                format!(
                    "{}: {room} is a module or a room, but not both",
                    self.folder
                )
            })
            .collect()
    }

    /// Returns a violation if too many files stand directly in the crate's folder.
    pub(crate) fn the_ground_floor_is_small(&self, sources: &[Source]) -> Vec<String> {
        let own = sources
            .iter()
            .filter_map(|source| source.path.strip_prefix(self.folder));
        let count = own.filter(|path| !path.contains('/')).count();
        match count > MOST_FILES {
            true => vec![format!(
                "{} has {count} files, {MOST_FILES} are enough",
                self.folder
            )],
            false => Vec::new(),
        }
    }

    /// Returns the graph without the edges to open modules.
    pub(crate) fn without_open(&self, graph: &Graph) -> Graph {
        let mut closed = graph.clone();
        for to in closed.values_mut() {
            to.retain(|to| !self.open.contains(&to.as_str()));
        }
        closed
    }

    fn level(&self, module: &str) -> Option<usize> {
        self.rooms.iter().position(|of| *of == room(module))
    }
}

/// Returns the types whose methods stand in another room than the type.
pub(crate) fn methods_stand_beside_their_type(sources: &[Source]) -> Vec<String> {
    let files = files(sources);
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (room, code) in &files {
        for name in code.lines().filter_map(defined) {
            homes.entry(name).or_default().insert(room);
        }
    }

    let impls = files.iter().flat_map(|(room, code)| {
        let names = code.lines().filter_map(implemented);
        names.map(move |name| (*room, name))
    });
    let is_away = |(room, name): &(&str, &str)| {
        let homes = homes.get(name);
        homes.is_some_and(|homes| !homes.contains(room))
    };
    impls
        .filter(is_away)
        .map(|(room, name)| {
            format!("calls/src/{room}: methods of {name}, which isn't of that room")
        })
        .collect()
}

/// Returns the types with too many methods.
pub(crate) fn types_have_few_methods(sources: &[Source]) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let files = files(sources);
    for (room, code) in &files {
        let mut inside = None;
        for line in code.lines() {
            if let Some(name) = implemented(line) {
                inside = Some(name);
            } else if line == "}" {
                inside = None;
            }

            let is_method = line.starts_with("    ") && !line.starts_with("     ");
            if let Some(name) = inside.filter(|_| is_method)
                && line.split_whitespace().any(|word| word == "fn")
            {
                *counts.entry((room, name)).or_default() += 1;
            }
        }
    }

    let many = counts
        .into_iter()
        .filter(|(_, count)| *count > MOST_METHODS);
    many.map(|((_, name), count)| format!("{name} has {count} methods, {MOST_METHODS} are enough"))
        .collect()
}

/// Rooms and code of the shipped files.
fn files(sources: &[Source]) -> Vec<(&str, String)> {
    let own = sources.iter().filter(|source| !source.is_test());
    let own = own.filter_map(|source| {
        let path = source.path.strip_prefix("calls/src/")?;
        let room = path.split(['/', '.']).next()?;
        Some((room, without_tests(&source.code)))
    });
    own.collect()
}

/// Returns the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split(' ').collect();
    let keyword = words
        .iter()
        .position(|word| matches!(*word, "struct" | "enum"))?;
    let is_item =
        !line.starts_with(' ') && words[..keyword].iter().all(|word| word.starts_with("pub"));
    name(words.get(keyword + 1)?).filter(|_| is_item)
}

/// Returns the type that an `impl` of its own begins.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once('>')?.1,
        None => rest,
    };
    let is_of_trait = rest.contains(" for ");
    name(rest.trim_start()).filter(|_| !is_of_trait)
}

/// Returns the name that a text begins with.
fn name(text: &str) -> Option<&str> {
    let end = text.find(|char: char| !char.is_alphanumeric() && char != '_');
    Some(&text[..end.unwrap_or(text.len())]).filter(|name| !name.is_empty())
}

fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

/// The feature that a module belongs to.
fn feature(module: &str) -> Option<&str> {
    module.strip_prefix("features::")?.split("::").next()
}

#[test]
fn an_arrow_that_points_up_is_found() {
    let found = |from: &str, to: &str| {
        let graph = [(from.to_owned(), [to.to_owned()].into())].into();
        !HOUSES[0].arrows_point_down(&graph).is_empty()
    };
    for (from, to, is_wrong) in [
        ("features::hold", "call", true),
        ("leg::bridge", "features::hold", true),
        ("session", "shard::dispatch", true),
        ("features::hold", "features::join", true),
        ("features::transfer::plan", "features::hold", true),
        ("features::transfer::own", "features::transfer::plan", false),
        ("call::ending", "features::hold", false),
        ("dialog::reoffer", "dialog::successor", false),
        ("shard::media", "call", false),
        ("lib", "shard", false),
        ("parts::ids", "lib", false),
    ] {
        assert_eq!(found(from, to), is_wrong, "{from} imports {to}");
    }
}

#[test]
fn what_is_open_may_be_imported_from_below() {
    let found = |from: &str, to: &str| {
        let graph = [(from.to_owned(), [to.to_owned()].into())].into();
        HOUSES[1].arrows_point_down(&graph).len()
    };
    assert_eq!(found("tenants::audit", "access::store"), 0);
    assert_eq!(found("tenants::audit", "access::pool"), 1);
}

#[test]
fn a_room_that_is_not_listed_is_found() {
    let graph: Graph = ["attic", "lib"]
        .map(|of| (of.to_owned(), BTreeSet::new()))
        .into();
    assert_eq!(
        HOUSES[0].rooms_are_those_listed(&graph).len(),
        ROOMS.len() + 1
    );
}

#[test]
fn methods_in_another_room_and_too_many_of_them_are_found() {
    let leg = Source::new(
        "calls/src/leg/x.rs",
        "//! x\npub(crate) struct Leg<'a> {}\nimpl<'a> Leg<'a> {\n    fn a() {}\n}\n",
    );
    let away = Source::new(
        "calls/src/session.rs",
        "//! x\nimpl Leg<'_> {\n    fn b() {}\n}\nimpl Drop for Leg<'_> {\n    fn drop() {}\n}\n",
    );
    let beside = Source::new(
        "calls/src/leg/y.rs",
        "//! x\nimpl Leg<'_> {\n    fn b() {}\n}\n",
    );
    let found = |sources: &[Source]| methods_stand_beside_their_type(sources).len();
    assert_eq!(found(&[leg, away]), 1);
    assert_eq!(found(&[beside]), 0);

    let of = |methods: usize| {
        let methods = "    pub(crate) const fn a(&self) {}\n".repeat(methods);
        Source::new(
            "calls/src/leg/x.rs",
            format!("//! x\nimpl Leg {{\n{methods}}}\n"),
        )
    };
    assert_eq!(types_have_few_methods(&[of(MOST_METHODS)]), [""; 0]);
    assert_eq!(types_have_few_methods(&[of(MOST_METHODS + 1)]).len(), 1);
}

#[test]
fn too_many_files_in_one_folder_are_found() {
    let files = |count: usize| -> Vec<Source> {
        let paths = (0..count).map(|at| format!("calls/src/{at}.rs"));
        paths.map(|path| Source::new(path, "//! x\n")).collect()
    };
    assert_eq!(
        HOUSES[0].the_ground_floor_is_small(&files(MOST_FILES)),
        [""; 0]
    );
    assert_eq!(
        HOUSES[0]
            .the_ground_floor_is_small(&files(MOST_FILES + 1))
            .len(),
        1
    );
}
