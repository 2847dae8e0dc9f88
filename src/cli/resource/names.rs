//! Ids from what a person types: an id, a name, or a part of an id that only one item has.

use serde_json::Value;
use uuid::Uuid;

use crate::api;
use crate::cli::Failure;
use crate::cli::session::{Session, encoded};

/// Shortest part of an id.
const MIN_PART: usize = 4;
/// Items that are looked through, the newest first.
const MAX_ITEMS: usize = 1_000;
/// Items of a page.
const PAGE: &str = "100";

/// Properties that name an item, beside its id.
const NAMES: [&str; 2] = ["name", "url"];

/// Returns the id of the item that `given` names in the list at `path`.
///
/// # Errors
/// No item, or more than one, is named so.
pub(in crate::cli) async fn find(
    session: &Session,
    path: &str,
    given: &str,
) -> Result<String, Failure> {
    if api::id_of(given).is_ok() {
        return Ok(given.to_owned());
    }
    let items = newest(session, path, MAX_ITEMS).await?;
    let named = items
        .iter()
        .filter(|item| NAMES.iter().any(|name| item[*name].as_str() == Some(given)));
    let named: Vec<&str> = named.filter_map(|item| item["id"].as_str()).collect();
    let found = match named.is_empty() {
        true => with_part(&items, given),
        false => named,
    };

    match found.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(Failure::Command(format!(
            "nothing is called {given:?}, and no id has this part: list shows what there is"
        ))),
        several => Err(Failure::Command(format!(
            "{given:?} names {} of them: name one by its id: {}",
            several.len(),
            several.join(", ")
        ))),
    }
}

/// Returns the id of the newest item.
///
/// # Errors
/// There is none.
pub(super) async fn last(session: &Session, path: &str) -> Result<String, Failure> {
    let items = newest(session, path, 1).await?;
    let newest = items.first().and_then(|item| item["id"].as_str());
    newest
        .map(str::to_owned)
        .ok_or_else(|| Failure::Command("--last: there is none yet".to_owned()))
}

/// Ids that begin or end with the text. Those of one minute begin alike, so the end is the part that lists show.
fn with_part<'i>(items: &'i [Value], given: &str) -> Vec<&'i str> {
    let given = given.to_ascii_lowercase();
    let ids = items.iter().filter_map(|item| item["id"].as_str());
    ids.filter(|id| given.len() >= MIN_PART && (id.starts_with(&given) || id.ends_with(&given)))
        .filter(|id| id.parse::<Uuid>().is_ok())
        .collect()
}

/// Reads a list up to `most` items.
pub(in crate::cli) async fn newest(
    session: &Session,
    path: &str,
    most: usize,
) -> Result<Vec<Value>, Failure> {
    read(session, path, &[], most).await
}

/// Reads a list with these filters up to `most` items.
pub(super) async fn read(
    session: &Session,
    path: &str,
    filters: &[(&str, &str)],
    most: usize,
) -> Result<Vec<Value>, Failure> {
    let mut items: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let limit = most.saturating_sub(items.len()).min(100).to_string();
        let mut query = filters.to_vec();
        query.push(("limit", if most > 100 { PAGE } else { &limit }));
        if let Some(cursor) = &cursor {
            query.push(("cursor", cursor));
        }
        let mut page = session
            .json(&format!("{path}?{}", encoded(&query)?))
            .await?;
        if let Value::Array(more) = page["items"].take() {
            items.extend(more);
        }
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() || items.len() >= most {
            items.truncate(most);
            return Ok(items);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_of_an_id_is_its_beginning_or_end() {
        let [first, second] = [
            "0198c0de-0000-7000-8000-00000000000a",
            "0198c0de-0000-7000-8000-00000000100b",
        ];
        let items = [json!({"id": first}), json!({"id": second})];
        for (given, found) in [
            ("00000000000A", vec![first]),
            ("100b", vec![second]),
            ("0198", vec![first, second]),
            ("00b", vec![]),
            ("zzzz", vec![]),
        ] {
            assert_eq!(with_part(&items, given), found, "{given}");
        }
    }
}
