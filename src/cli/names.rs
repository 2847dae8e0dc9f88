//! Ids from what a person types: an id, a name, or a part of an id that only one item has.

use serde_json::Value;
use uuid::Uuid;

use super::Failure;
use super::credential::Holder;
use super::session::{Session, encoded};
use crate::api;

/// Shortest part of an id.
const MIN_PART: usize = 4;
/// Most items that are searched, the newest first. An older one has to be named by its whole id, or by a name that the API itself searches for.
const MAX_ITEMS: usize = 1_000;
/// Maximum number of items on a page.
const MAX_PAGE: usize = 100;

/// Properties that name an item, beside its id.
const NAMES: [&str; 4] = ["name", "url", "phone_number", "email"];

/// List of the API in which an item is looked up.
#[derive(Clone, Debug)]
pub(super) struct List {
    pub(super) path: String,
    pub(super) paging: Paging,
    /// Noun for one item.
    pub(super) noun: &'static str,
}

/// Division of a list into pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Paging {
    Cursor,
    Offset,
    /// One page has all.
    Whole,
}

impl List {
    /// List in pages with cursors.
    pub(super) fn new(path: impl Into<String>, noun: &'static str) -> Self {
        Self {
            path: path.into(),
            paging: Paging::Cursor,
            noun,
        }
    }

    /// Every org that the session reaches.
    pub(super) fn orgs() -> Self {
        Self::new("/operator/orgs", "org")
    }
}

/// Returns the id of the item that `given` names in the list.
///
/// # Errors
/// No item, or more than one, has this name.
pub(super) async fn find(session: &Session, list: &List, given: &str) -> Result<String, Failure> {
    // Not looked up: the operation itself answers 404 where no item has this id.
    if api::id_of(given).is_ok() {
        return Ok(given.to_owned());
    }
    // Without its hyphens an id is neither an id of the API nor a name that anyone gives.
    if given.len() == 32 && given.parse::<Uuid>().is_ok() {
        let fault = api::id_of(given).err().unwrap_or_default();
        return Err(Failure::Startup(fault));
    }

    // The API finds some names by itself, in a list of any length.
    let filter = match (list.noun, given.starts_with('+')) {
        ("org", _) if list.paging != Paging::Whole => Some("name"),
        ("number", true) => Some("phone_number"),
        ("contact", false) if given.contains('@') => Some("email"),
        _ => None,
    };
    let narrowed = match filter {
        Some(filter) => read(session, list, &[(filter, given)], MAX_ITEMS).await?,
        None => Vec::new(),
    };
    // A name that reads like a part of an id is compared with the ids as well.
    let mut items = narrowed;
    if items.is_empty() || is_part(given) {
        items.extend(newest(session, list, MAX_ITEMS).await?);
    }

    let found = meant(&items, given);

    match found.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => {
            let noun = list.noun;
            Err(Failure::Command(format!(
                "there is no {noun} {given:?}: trunkline {noun} list shows all"
            )))
        }
        several => Err(Failure::Command(format!(
            "{given:?} names {} of them: give the id of one: {}",
            several.len(),
            several.join(", ")
        ))),
    }
}

/// Returns the id of the newest item.
///
/// # Errors
/// There is none.
pub(super) async fn last(session: &Session, list: &List) -> Result<String, Failure> {
    let items = newest(session, list, 1).await?;
    let newest = items.first().and_then(id);
    newest
        .map(str::to_owned)
        .ok_or_else(|| Failure::Command("--last: there is none yet".to_owned()))
}

fn id(item: &Value) -> Option<&str> {
    item["id"].as_str().or_else(|| item["api_key_id"].as_str())
}

/// Ids of the items that the text may mean, by name or by a part of the id. A text that is one item's name and a part of another's id means both, so
/// that naming an item after another's id can't hijack commands.
fn meant<'i>(items: &'i [Value], given: &str) -> Vec<&'i str> {
    let named = items
        .iter()
        .filter(|item| is_named(item, given))
        .filter_map(id);
    let mut found: Vec<&str> = named.collect();
    for of_id in with_part(items, given) {
        if !found.contains(&of_id) {
            found.push(of_id);
        }
    }

    // The same item may come from two lists.
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns whether a text is an item's name. The API compares e-mails without regard to case.
fn is_named(item: &Value, given: &str) -> bool {
    let mut names = NAMES.iter().filter_map(|name| item[*name].as_str());
    let email = item["email"].as_str();
    names.any(|name| name == given)
        || email.is_some_and(|email| email.to_lowercase() == given.to_lowercase())
}

/// Returns whether a text may be a part of an id.
pub(super) fn is_part(text: &str) -> bool {
    text.len() >= MIN_PART
        && text
            .bytes()
            .all(|octet| octet.is_ascii_hexdigit() || octet == b'-')
}

/// Returns whether a text is this id, or its beginning or end.
pub(super) fn is_short_for(given: &str, id: &str) -> bool {
    let given = given.to_ascii_lowercase();
    given.len() >= MIN_PART && (id.starts_with(&given) || id.ends_with(&given))
}

/// Ids that begin or end with the text. Ids of the same minute begin alike, so lists show the end.
fn with_part<'i>(items: &'i [Value], given: &str) -> Vec<&'i str> {
    let ids = items.iter().filter_map(id);
    ids.filter(|id| is_short_for(given, id))
        .filter(|id| id.parse::<Uuid>().is_ok())
        .collect()
}

async fn newest(session: &Session, list: &List, most: usize) -> Result<Vec<Value>, Failure> {
    read(session, list, &[], most).await
}

/// Reads a list with these filters up to `most` items.
///
/// # Errors
/// The API can't be reached, or refuses.
pub(super) async fn read(
    session: &Session,
    list: &List,
    filters: &[(&str, &str)],
    most: usize,
) -> Result<Vec<Value>, Failure> {
    let mut items: Vec<Value> = Vec::new();
    let paging = match session.holder() {
        // The list of orgs is the one that a partner reads otherwise.
        Some(Holder::Partner) if list.noun == "org" && list.paging == Paging::Cursor => {
            Paging::Offset
        }
        _ => list.paging,
    };
    let mut cursor: Option<String> = None;
    loop {
        let limit = most.saturating_sub(items.len()).min(MAX_PAGE).to_string();
        let offset = items.len().to_string();
        let mut query = filters.to_vec();
        match paging {
            Paging::Cursor => query.push(("limit", &limit)),
            Paging::Offset => query.extend([("limit", limit.as_str()), ("offset", &offset)]),
            Paging::Whole => {}
        }
        if let Some(cursor) = &cursor {
            query.push(("cursor", cursor));
        }

        let path = format!("{}?{}", list.path, encoded(&query)?);
        let mut page = session.json(&path).await?;
        let before = items.len();
        // The partner API calls its orgs `data`.
        for key in ["items", "data"] {
            if let Value::Array(more) = page[key].take() {
                items.extend(more);
            }
        }

        cursor = page["next"].as_str().map(str::to_owned);
        let total = page["total"].as_u64().unwrap_or(0);
        let has_more = match paging {
            Paging::Cursor => cursor.is_some(),
            // A page without items ends the walk even below `total`: items may have been deleted meanwhile.
            Paging::Offset => items.len() > before && (items.len() as u64) < total,
            Paging::Whole => false,
        };
        if !has_more || items.len() >= most {
            // A list that comes whole knows no limit.
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
    fn a_name_that_is_a_part_of_anothers_id_means_both() {
        let [first, second] = [
            "0198c0de-0000-7000-8000-00000000000a",
            "0198c0de-0000-7000-8000-00000000100b",
        ];
        let items = [
            json!({"id": first, "name": "Acme"}),
            json!({"id": second, "name": "00000000000a"}),
            json!({"id": second, "name": "00000000000a"}),
        ];
        assert_eq!(meant(&items, "00000000000a"), [first, second]);
        assert_eq!(meant(&items, "Acme"), [first]);
        assert_eq!(meant(&items, "100b"), [second]);
    }

    #[test]
    fn an_email_is_found_in_any_case() {
        let items = [json!({"id": "1", "email": "Ada@Example.org", "name": "Ada"})];
        assert_eq!(meant(&items, "ada@example.ORG"), ["1"]);
        assert_eq!(meant(&items, "ada"), [""; 0]);
    }

    #[test]
    fn a_part_of_an_id_is_its_beginning_or_end() {
        let [first, second] = [
            "0198c0de-0000-7000-8000-00000000000a",
            "0198c0de-0000-7000-8000-00000000100b",
        ];
        let items = [json!({"id": first}), json!({"api_key_id": second})];
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
