//! Documents and sources agree: keys of the configuration and metrics are documented, and those documented exist. Documents use the
//! field's words, and name tests that exist.

use std::collections::BTreeSet;

/// Spellings by which a section's reader asks for a key.
const ASKS: [&str; 10] = [
    ".text(",
    ".parsed(",
    ".number(",
    ".switch(",
    ".list(",
    ".word(",
    ".secret(",
    ".days(",
    "(section,",
    "section,",
];

/// Keys that a section's reader asks for together.
const CERTIFICATE: [&str; 2] = ["tls_certificate", "tls_key"];

/// Returns the keys that a section's source reads.
pub(crate) fn keys_read(section: &str, source: &str) -> BTreeSet<String> {
    let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
    let quoted = shipped.match_indices('"').filter(|(at, _)| {
        let before = shipped[..*at].trim_end();
        ASKS.iter().any(|ask| before.ends_with(ask))
    });
    let keys = quoted.map(|(at, _)| shipped[at + 1..].split('"').next().unwrap_or_default());
    let of_certificate = match shipped.contains("section.certificate()") {
        true => &CERTIFICATE[..],
        false => &[],
    };
    keys.chain(of_certificate.iter().copied())
        .map(|key| format!("{section}.{key}"))
        .collect()
}

/// Returns the names of metrics that a source sets: those in the module of metrics, and those written where they are counted.
pub(crate) fn metrics_defined(source: &str) -> BTreeSet<String> {
    let constants = source.split("const ").skip(1);
    let constants = constants.filter_map(|text| text.split_once(": &str = \"trunkline_"));
    let constants = constants.filter(|(name, _)| !name.contains(char::is_whitespace));
    let in_place = ["counter!(\"", "gauge!(\"", "histogram!(\""].map(|call| {
        let calls = source.split(call).skip(1);
        calls.filter_map(|rest| rest.strip_prefix("trunkline_"))
    });
    let named = in_place.into_iter().flatten();
    constants
        .map(|(_, rest)| rest)
        .chain(named)
        .filter_map(|rest| Some(format!("trunkline_{}", rest.split_once('"')?.0)))
        .collect()
}

/// Returns the code in the first column of the document's tables, if it holds `part`.
pub(crate) fn first_column(document: &str, part: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next())
        .filter(|name| name.contains(part))
        .map(str::to_owned)
        .collect()
}

/// Returns the test functions in the last column of the document's tables: each is the last part of a name in code, such as
/// `credentials::a_callee_gets_no_digest`.
pub(crate) fn tests_named(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.trim_end_matches([' ', '|']).rsplit('|').next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names
        .filter_map(|name| name.rsplit("::").next())
        .map(str::to_owned)
        .collect()
}

/// Words of our own that readers stumble over, and better ones.
const REPLACED: [(&str, &str); 7] = [
    ("whoever", "the peer, the caller, anybody who"),
    ("stranger", "unauthenticated peer"),
    ("strangers", "unauthenticated peers"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("stands", "is, exists, runs"),
    ("somebody", "a person, a peer"),
];

/// Returns the lines of a document that use a replaced word outside code, each with the better word.
pub(crate) fn replaced_words(document: &str) -> Vec<String> {
    let mut is_code = false;
    let prose = document.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    });

    let used = prose.flat_map(|line| {
        let text: String = line.split('`').step_by(2).collect();
        let text = text.to_lowercase();
        let words: BTreeSet<_> = text.split(|char: char| !char.is_alphabetic()).collect();
        let found = REPLACED
            .iter()
            .filter(|(word, _)| words.contains(word))
            .map(|(word, better)| format!("{word}: better {better}; {line}"));
        found.collect::<Vec<_>>()
    });
    used.collect()
}

#[test]
fn replaced_words_are_found_in_prose_alone() {
    let document = "It stands.\n`stands`\n```\nwhoever\n```\nIt understands.\nStrangers\n";
    let found = replaced_words(document);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("stands: ") && found[1].starts_with("strangers: "));
}

#[test]
fn tests_are_found_in_the_last_column() {
    let document =
        "| Guarantee | Test |\n|---|---|\n| `sip.x` holds | `calls::a_b`, `c` |\n| more | d |\n";
    let expected = ["a_b", "c"].map(str::to_owned);
    assert_eq!(tests_named(document), BTreeSet::from(expected));
}

#[test]
fn keys_are_found_where_they_stand() {
    let source = "section.text(\"url\"); section\n.number(\"most\", 1..2); seconds(section, \"wait_s\"); refuse(\"no\");\n#[cfg(test)] x.text(\"t\")";
    let expected = ["a.url", "a.most", "a.wait_s"].map(str::to_owned);
    assert_eq!(keys_read("a", source), BTreeSet::from(expected));
    let document = "| Key | Default |\n|---|---|\n| `a.url` | `x.y` |\n| `data_dir` | z |\n";
    assert_eq!(
        first_column(document, "."),
        BTreeSet::from(["a.url".to_owned()])
    );
}

#[test]
fn metrics_are_found_where_they_are_named() {
    let source = "/// x\nconst A: &str = \"trunkline_a_total\";\nconst B: &str = \"other\";\n";
    assert_eq!(
        metrics_defined(source),
        BTreeSet::from(["trunkline_a_total".to_owned()])
    );
}
