//! Codes of refusals and the documentation agree: the table of `docs/api.md` has the codes of the API, and each reason of
//! a call is on a page.

use std::collections::BTreeSet;

use crate::docs::first_column;
use crate::{names_in, sources, text};

/// Spellings before a code of the API in `src/api/error.rs`.
const OF_ERRORS: [&str; 2] = ["=> \"", ": &str = \""];
/// Spelling before a code that a handler gives to its refusal.
const OF_HANDLERS: [&str; 1] = [".with_code(\""];
/// Spellings before the code of a reason: the status in the record of the call.
const OF_REASONS: [&str; 5] = [
    "Refused \"",
    "Failed \"",
    "NoAnswer \"",
    "Canceled \"",
    "Busy \"",
];

/// Returns the codes that follow one of the spellings in shipped code.
fn codes_after(spellings: &[&str], source: &str) -> BTreeSet<String> {
    let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
    let quoted = spellings
        .iter()
        .flat_map(|spelling| shipped.split(*spelling).skip(1));
    quoted
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// Returns the codes in the table of the section "Codes".
fn codes_listed(page: &str) -> BTreeSet<String> {
    let section = page.split("\n## Codes\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    first_column(section, "")
}

/// Returns the codes that no page has as code.
fn undocumented(codes: BTreeSet<String>, pages: &str) -> Vec<String> {
    let missing = |code: &String| !pages.contains(&format!("`{code}`"));
    codes.into_iter().filter(missing).collect()
}

#[test]
fn every_code_of_the_api_is_in_the_table_and_exists() {
    let mut made = codes_after(&OF_ERRORS, &text("src/api/error.rs"));
    for source in sources().iter().filter(|one| one.is_under("src/api/")) {
        made.extend(codes_after(&OF_HANDLERS, &source.text));
    }

    assert!(made.len() > 50, "{made:?}");
    assert_eq!(codes_listed(&text("docs/api.md")), made);
}

#[test]
fn every_reason_of_a_call_is_on_a_page() {
    let names = names_in("docs");
    let pages = names.iter().filter_map(|name| name.strip_suffix(".md"));
    // The codes of the API's page are others, although some have the name of a reason.
    let pages = pages.filter(|name| *name != "api");
    let pages: Vec<_> = pages.map(|name| text(&format!("docs/{name}.md"))).collect();

    let reasons = codes_after(&OF_REASONS, &text("calls/src/parts/refusal.rs"));
    assert!(reasons.len() > 40, "{reasons:?}");
    assert_eq!(
        undocumented(reasons, &pages.join("\n")),
        Vec::<String>::new()
    );
}

#[test]
fn codes_are_found_where_they_are_made_and_listed() {
    let error = "Self::A => \"a\",\nconst B: &str = \"b\";\n#[cfg(test)] x => \"c\"";
    let expected = ["a", "b"].map(str::to_owned);
    assert_eq!(codes_after(&OF_ERRORS, error), BTreeSet::from(expected));

    let reasons = "NoAgent = 480 Refused \"no_agent\" \"No agent\";\n";
    let found = codes_after(&OF_REASONS, reasons);
    assert_eq!(undocumented(found.clone(), "`no_agents`"), ["no_agent"]);
    assert!(undocumented(found, "480 `no_agent`").is_empty());

    let page =
        "\n## Rules\n| `x` |\n\n## Codes\n\n| Code |\n|---|\n| `a` | 400 |\n\n## Next\n| `y` |\n";
    assert_eq!(codes_listed(page), BTreeSet::from(["a".to_owned()]));
}
