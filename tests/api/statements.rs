//! Checks that the tests named in `statements.md` exist. Its table has each statement about the API with the tests that hold it.

use std::path::Path;

/// Returns whether the source has a test of this name: a function marked as a test, or one that `on_both!` runs on both databases.
fn has_test(source: &str, name: &str) -> bool {
    let at = source.find(&format!("fn {name}("));
    let before = at.map_or("", |at| source[..at].trim_end());
    let before = before.strip_suffix("async").unwrap_or(before).trim_end();
    let last = before.lines().last().unwrap_or_default().trim_start();
    let is_marked = ["#[test", "#[tokio::test"]
        .iter()
        .any(|mark| last.starts_with(mark));
    let told = source.rsplit_once("on_both!(").map_or("", |(_, told)| told);
    is_marked || (at.is_some() && told.lines().any(|line| line.trim() == format!("{name},")))
}

#[test]
fn every_statement_has_its_tests() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let table = std::fs::read_to_string(tests.join("api/statements.md")).expect("the table");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut named = 0;

    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let [_, statement, held] = &*cells else {
            panic!("not three columns: {row}");
        };
        let held: Vec<_> = held.split('`').filter(|part| part.contains("::")).collect();
        assert!(!held.is_empty(), "nothing holds: {statement}");
        for test in held {
            let (file, name) = test.split_once("::").expect("a file and a test");
            let source = std::fs::read_to_string(tests.join(file)).unwrap_or_default();
            assert!(has_test(&source, name), "{test} is no test");
            named += 1;
        }
    }

    assert!(named > 180, "the table has lost rows: {named}");
}

#[test]
fn a_test_that_is_gone_is_missed() {
    let source = "#[tokio::test]\nasync fn there() {}\nasync fn story(api: &TestApi) {}\nfn no_test() {}\non_both!(\n    story,\n);\n";
    for (name, is_there) in [
        ("there", true),
        ("story", true),
        ("no_test", false),
        ("the", false),
        ("gone", false),
    ] {
        assert_eq!(has_test(source, name), is_there, "{name}");
    }
}
