//! Licences, sources and bans of the dependency tree, by the rules of `deny.toml`: the part of `cargo deny check` that needs no network.
//!
//! CI installs a prebuilt cargo-deny, which looks for advisories besides. Elsewhere it may be missing, so these rules are checked here on every
//! run, from `cargo metadata`. A rule that this reader doesn't know fails the test.

use std::process::Command;

use serde_json::Value;
use toml_edit::{DocumentMut, Item};

/// The only registry that cargo-deny allows by default.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Names of the rules that [`Rules::read`] knows, by section. Those of `advisories` are left to cargo-deny.
const KNOWN: [(&str, &[&str]); 5] = [
    ("graph", &["targets"]),
    (
        "advisories",
        &["version", "yanked", "ignore", "unused-ignored-advisory"],
    ),
    ("licenses", &["version", "allow", "private"]),
    (
        "bans",
        &[
            "multiple-versions",
            "wildcards",
            "allow-wildcard-paths",
            "deny",
        ],
    ),
    ("sources", &["unknown-registry", "unknown-git"]),
];

/// Crates whose manifests name a file instead of a licence: name, licence, and words of that file.
const LICENSED_BY_FILE: [(&str, &str, &str); 2] = [
    (
        "rsip",
        "X11-swapped",
        "shall not be used in advertising or otherwise",
    ),
    (
        "rsip-derives",
        "X11-swapped",
        "shall not be used in advertising or otherwise",
    ),
];

/// Rules of `deny.toml` that [`Rules::violations`] applies.
pub(crate) struct Rules {
    pub(crate) targets: Vec<String>,
    licenses: Vec<String>,
    banned: Vec<String>,
}

impl Rules {
    /// Reads the rules.
    ///
    /// # Panics
    /// The text isn't TOML, or has a rule or a value that isn't known here.
    pub(crate) fn read(text: &str) -> Self {
        let document: DocumentMut = text.parse().expect("deny.toml is TOML");
        for (section, rules) in document.iter() {
            let known = KNOWN.iter().find(|(name, _)| *name == section);
            let (_, known) =
                known.unwrap_or_else(|| panic!("deny.toml: unknown section {section}"));
            for (rule, _) in rules.as_table().expect("a section").iter() {
                assert!(
                    known.contains(&rule),
                    "deny.toml: unknown rule {section}.{rule}"
                );
            }
        }

        let demands = |section: &str, rule: &str, value: &str| {
            let found = document[section][rule].as_str();
            assert_eq!(found, Some(value), "deny.toml: {section}.{rule}");
        };
        demands("bans", "multiple-versions", "allow");
        demands("bans", "wildcards", "deny");
        demands("sources", "unknown-registry", "deny");
        demands("sources", "unknown-git", "deny");

        let is_on = |item: &Item, rule: &str| assert_eq!(item.as_bool(), Some(true), "{rule}");
        is_on(
            &document["bans"]["allow-wildcard-paths"],
            "allow-wildcard-paths",
        );
        is_on(&document["licenses"]["private"]["ignore"], "private.ignore");

        let bans = document["bans"]["deny"].as_array().expect("a list of bans");
        let banned = bans.iter().map(|ban| {
            let ban = ban.as_inline_table().expect("a ban is a table");
            for (key, _) in ban.iter() {
                assert!(matches!(key, "crate" | "reason"), "unknown in a ban: {key}");
            }
            let name = ban["crate"].as_str().expect("a ban names a crate");
            assert!(
                !name.contains(['@', ':']),
                "one version of a crate is banned: {name}"
            );
            name.to_owned()
        });
        Self {
            targets: strings(&document["graph"]["targets"]),
            licenses: strings(&document["licenses"]["allow"]),
            banned: banned.collect(),
        }
    }

    /// Returns the packages of `cargo metadata` that break a rule, each with the reason.
    pub(crate) fn violations(&self, metadata: &Value) -> Vec<String> {
        let packages = metadata["packages"].as_array().expect("packages");
        packages
            .iter()
            .flat_map(|package| {
                let name = format!("{} {}", text(package, "name"), text(package, "version"));
                let reasons = self.reasons(package);
                reasons
                    .into_iter()
                    .map(move |reason| format!("{name}: {reason}"))
            })
            .collect()
    }

    fn reasons(&self, package: &Value) -> Vec<String> {
        let name = text(package, "name");
        let mut reasons = Vec::new();
        if self.banned.iter().any(|banned| banned == name) {
            reasons.push("is banned".to_owned());
        }

        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        // A dependency on a path is ours (`allow-wildcard-paths`).
        let wildcards = dependencies.filter(|on| text(on, "req") == "*" && on["path"].is_null());
        reasons
            .extend(wildcards.map(|on| format!("depends on any version of {}", text(on, "name"))));

        // Our own crates have no source, and their licence is ours to choose (`licenses.private`).
        let Some(source) = package["source"].as_str() else {
            return reasons;
        };
        if source != CRATES_IO {
            reasons.push(format!("comes from {source}"));
        }

        match license_of(package) {
            Some(license) if is_allowed(&license, &self.licenses) => {}
            Some(license) => reasons.push(format!("is licensed {license}")),
            None => reasons.push("names no licence".to_owned()),
        }
        reasons
    }
}

fn strings(item: &Item) -> Vec<String> {
    let list = item.as_array().expect("a list").iter();
    list.map(|value| value.as_str().expect("a string").to_owned())
        .collect()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Returns the licence in the manifest, or that of the licence file that it names.
fn license_of(package: &Value) -> Option<String> {
    if let Some(license) = package["license"].as_str() {
        return Some(license.to_owned());
    }

    let name = text(package, "name");
    let (_, license, words) = LICENSED_BY_FILE.iter().find(|(known, ..)| *known == name)?;
    let manifest = std::path::Path::new(text(package, "manifest_path"));
    let file = manifest.parent()?.join(package["license_file"].as_str()?);
    let found = std::fs::read_to_string(file).ok()?;

    // Line breaks may fall between the words.
    let found: Vec<&str> = found.split_whitespace().collect();
    found
        .join(" ")
        .contains(words)
        .then(|| (*license).to_owned())
}

/// Returns whether the allowed licences can satisfy an SPDX expression. A slash is an `OR`, as in old manifests.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any_of(&mut rest, allowed) && rest.is_empty()
}

/// Reads `A OR B`, which binds less than `AND`; returns true if it is met. Reads all of it even if its first part decides.
fn any_of(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = all_of(rest, allowed);
    while let ["OR", behind @ ..] = *rest {
        *rest = behind;
        met |= all_of(rest, allowed);
    }
    met
}

/// Reads `A AND B`; returns true if it is met.
fn all_of(rest: &mut &[&str], allowed: &[String]) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", behind @ ..] = *rest {
        *rest = behind;
        met &= one(rest, allowed);
    }
    met
}

/// Reads a licence, one with an exception, or an expression in parentheses; returns true if it is met.
fn one(rest: &mut &[&str], allowed: &[String]) -> bool {
    match *rest {
        ["(", behind @ ..] => {
            *rest = behind;
            let met = any_of(rest, allowed);
            let [")", behind @ ..] = *rest else {
                return false;
            };
            *rest = behind;
            met
        }
        [license, "WITH", exception, behind @ ..] => {
            *rest = behind;
            allowed.contains(&format!("{license} WITH {exception}"))
        }
        [license, behind @ ..] => {
            *rest = behind;
            allowed.iter().any(|known| known == license)
        }
        [] => false,
    }
}

/// Returns the dependency tree for a target, from the crates that are on this machine.
///
/// # Errors
/// Cargo's message, if a crate of the tree was never fetched.
pub(crate) fn metadata(target: &str) -> Result<Value, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", target])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).expect("metadata is JSON"))
}

#[test]
fn licence_expressions_are_met_or_not() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);

    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("MIT AND ISC", true),
        ("GPL-3.0 OR MIT AND ISC", true),
        ("(GPL-3.0 OR MIT) AND GPL-2.0", false),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("MIT WITH Classpath-exception-2.0", false),
        ("(MIT", false),
        ("MIT ISC", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn a_rule_or_a_value_that_is_not_known_fails() {
    let rules = include_str!("../../deny.toml");
    Rules::read(rules);

    for (known, unknown) in [
        ("yanked = ", "unmaintained = \"all\"\nyanked = "),
        ("wildcards = \"deny\"", "wildcards = \"warn\""),
        ("wildcard-paths = true", "wildcard-paths = false"),
        ("ignore = true", "ignore = false"),
        (
            "reason = \"one runtime: tokio\"",
            "wrappers = [\"wrapper\"]",
        ),
        ("\"openssl\"", "\"openssl@0.10\""),
    ] {
        let changed = rules.replace(known, unknown);
        assert_ne!(changed, rules, "{known}");
        let read = std::panic::catch_unwind(|| Rules::read(&changed));
        assert!(read.is_err(), "{unknown}");
    }
}

#[test]
fn each_rule_of_the_dependency_tree_finds_a_violation() {
    let rules = Rules {
        targets: Vec::new(),
        licenses: vec!["MIT".to_owned()],
        banned: vec!["bad".to_owned()],
    };

    let package = |name: &str, source: &str, license: Option<&str>, dependencies: Value| {
        serde_json::json!({"packages": [{
            "name": name, "version": "1.0.0", "source": source, "license": license, "dependencies": dependencies,
        }]})
    };

    let none = || serde_json::json!([]);
    let found = |metadata: &Value| rules.violations(metadata).len();
    assert_eq!(found(&package("good", CRATES_IO, Some("MIT"), none())), 0);
    assert_eq!(found(&package("bad", CRATES_IO, Some("MIT"), none())), 1);
    assert_eq!(
        found(&package(
            "good",
            "git+https://example.org/x",
            Some("MIT"),
            none()
        )),
        1
    );

    assert_eq!(
        found(&package("good", CRATES_IO, Some("GPL-3.0"), none())),
        1
    );
    assert_eq!(found(&package("good", CRATES_IO, None, none())), 1);

    let any = |path: Option<&str>| serde_json::json!([{"name": "x", "req": "*", "path": path}]);
    assert_eq!(
        found(&package("good", CRATES_IO, Some("MIT"), any(None))),
        1
    );
    assert_eq!(
        found(&package("good", CRATES_IO, Some("MIT"), any(Some("/x")))),
        0
    );
}
