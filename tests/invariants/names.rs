//! Names: a public type's name is unique in its crate, and words of our own that were replaced don't come back.

use std::collections::BTreeMap;

use crate::modules::without_tests;
use crate::source::Source;

/// Crates, by the folders of their sources.
const CRATES: [&str; 11] = [
    "bounds/src/",
    "sip/src/",
    "routing/src/",
    "model/src/",
    "store/src/",
    "calls/src/",
    "net/src/",
    "capture/src/",
    "testkit/src/",
    "bench/src/",
    "src/",
];

/// Types that are a module's obvious local: several modules of a crate may each have one.
const LOCAL: [&str; 4] = ["Error", "State", "Row", "Config"];

/// Words of our own that were replaced by those of RFC 3261 or of the field.
const REPLACED: [&str; 40] = [
    "Asked",
    "Asking",
    "Belief",
    "Came",
    "Caps",
    "Courier",
    "Deed",
    "Enrol",
    "Errand",
    "Farewell",
    "Farewells",
    "Hops",
    "Kept",
    "Manner",
    "Moved",
    "Outset",
    "Outside",
    "Places",
    "Proofs",
    "Question",
    "Rehearsal",
    "Speaker",
    "Standing",
    "Stands",
    "StrayAnswer",
    "Strays",
    "Theirs",
    "Told",
    "Tried",
    "Wanted",
    "WayOut",
    "Ways",
    "What",
    "Whose",
    "NOBODY",
    "blame",
    "caps",
    "mend",
    "outset",
    "proofs",
];

/// Keywords before the name of an item.
const ITEMS: [&str; 8] = [
    "struct ", "enum ", "trait ", "type ", "union ", "const ", "fn ", "mod ",
];

/// Returns the name of the item that the line defines, and its keyword. `after` cuts the visibility off.
fn item<'l>(
    line: &'l str,
    after: impl Fn(&'l str) -> Option<&'l str>,
) -> Option<(&'l str, &'l str)> {
    let rest = after(line.trim_start())?;
    let rest = rest
        .strip_prefix("const fn ")
        .map_or(rest, |_| &rest["const ".len()..]);
    let keyword = ITEMS.iter().find(|keyword| rest.starts_with(**keyword))?;

    let name = &rest[keyword.len()..];
    let end = name.find(|char: char| !char.is_alphanumeric() && char != '_');
    Some((keyword.trim_end(), &name[..end.unwrap_or(name.len())]))
}

/// Cuts `pub` or `pub(crate)` off; `None` for an item that other modules of the crate don't see.
fn of_crate(line: &str) -> Option<&str> {
    line.strip_prefix("pub ")
        .or_else(|| line.strip_prefix("pub(crate) "))
}

/// Cuts any visibility off.
fn of_any(line: &str) -> Option<&str> {
    let Some(rest) = line.strip_prefix("pub") else {
        return Some(line);
    };
    match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(") ").map(|(_, rest)| rest),
        None => rest.strip_prefix(' '),
    }
}

/// Returns the type names that two modules of one crate define.
pub(crate) fn type_names_are_unique(sources: &[Source]) -> Vec<String> {
    let mut found: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let Some(of) = CRATES.into_iter().find(|folder| source.is_under(folder)) else {
            continue;
        };

        let code = without_tests(&source.code);
        let types = code.lines().filter_map(|line| item(line, of_crate));
        let types = types.filter(|(keyword, _)| !matches!(*keyword, "const" | "fn" | "mod"));
        for (_, name) in types.filter(|(_, name)| !LOCAL.contains(name)) {
            found
                .entry((of, name.to_owned()))
                .or_default()
                .push(&source.path);
        }
    }

    let twice = found.into_iter().filter(|(_, paths)| paths.len() > 1);
    twice
        .map(|((_, name), paths)| format!("{name} is defined in {}", paths.join(" and ")))
        .collect()
}

/// Returns the items that have a replaced word as their name.
pub(crate) fn replaced_words_name_nothing(source: &Source) -> Vec<String> {
    if source.is_test() {
        return Vec::new();
    }

    let lines = source.code.lines().enumerate();
    let named = lines.filter_map(|(at, line)| Some((at + 1, item(line, of_any)?.1)));
    named
        .filter(|(_, name)| REPLACED.contains(name))
        .map(|(line, name)| source.violation(line, &format!("{name}: the field has another word")))
        .collect()
}

#[test]
fn a_name_of_two_types_is_found() {
    let one = Source::new(
        "calls/src/a.rs",
        "//! x\npub(crate) struct Twice<'a>;\npub(super) struct Once;",
    );
    let local = Source::new(
        "calls/src/c.rs",
        "//! x\nstruct Twice;\npub enum State {}\n",
    );
    let other = Source::new(
        "sip/src/a.rs",
        "//! x\npub enum Twice {}\npub enum State {}\n",
    );
    assert_eq!(type_names_are_unique(&[one, local, other]), [""; 0]);

    let one = Source::new("calls/src/a.rs", "//! x\npub struct Twice;\n");
    let two = Source::new("calls/src/b.rs", "//! x\npub(crate) type Twice = u8;\n");
    assert_eq!(
        type_names_are_unique(&[one, two]),
        ["Twice is defined in calls/src/a.rs and calls/src/b.rs"]
    );
}
