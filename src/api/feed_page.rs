//! Cursors of lists whose lines are numbered in the order of their creation. A reader continues after the last line that it has.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::page::{MAX_CURSOR, NO_CURSOR, limit};
use super::query::Query;

/// Part of a list that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FeedPaging<F> {
    list: &'static str,
    /// Filters: as given, or as the cursor has them.
    pub(super) filters: F,
    /// Number of the last line seen; 0 at the beginning.
    pub(super) after: i64,
    /// Maximum number of lines; `None`: all.
    pub(super) limit: Option<u32>,
}

/// Position of a line, as a client carries it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cursor<F> {
    list: String,
    after: i64,
    filters: F,
}

impl<F: Clone + Default + PartialEq + Serialize + DeserializeOwned> FeedPaging<F> {
    /// Reads `limit` and `cursor` of the list of this name. A cursor may come with the filters that it was made for, or
    /// without any.
    pub(super) fn read(query: &mut Query, list: &'static str, given: F) -> Self {
        let limit = query.read("limit", limit);
        let cursor = query.read("cursor", |text| decode::<F>(list, text));
        let Some(cursor) = cursor else {
            return Self {
                list,
                filters: given,
                after: 0,
                limit,
            };
        };

        if given != F::default() && given != cursor.filters {
            query.refuse("cursor: was made under other filters; give the same ones, or none");
        }

        Self {
            list,
            filters: cursor.filters,
            after: cursor.after,
            limit,
        }
    }

    /// Cursor of a line.
    pub(super) fn cursor(&self, seq: i64) -> String {
        let cursor = Cursor {
            list: self.list.to_owned(),
            after: seq,
            filters: self.filters.clone(),
        };
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&cursor).expect("filters are plain values"))
    }
}

/// Logs that the rest of a list can't be read. Its status was sent with the first lines, so that all the client sees is a stream that breaks off.
pub(super) fn log_broken_off(list: &'static str, error: &trunkline_store::Error) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(
        error,
        list,
        "reading further lines failed: the stream breaks off"
    );
}

fn decode<F: DeserializeOwned>(list: &str, text: &str) -> Result<Cursor<F>, String> {
    // Unsigned, as those of `page`: the credential decides whose list is read.
    let octets = (text.len() <= MAX_CURSOR)
        .then(|| URL_SAFE_NO_PAD.decode(text).ok())
        .flatten();
    octets
        .and_then(|octets| serde_json::from_slice::<Cursor<F>>(&octets).ok())
        // Each list has numbers of its own: those of another would skip lines.
        .filter(|cursor| cursor.list == list && cursor.after >= 0)
        .ok_or_else(|| NO_CURSOR.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_list_alone() {
        let onward = FeedPaging {
            list: "shoes",
            filters: vec!["x".to_owned()],
            after: 0,
            limit: None,
        };
        let text = onward.cursor(7);
        let cursor = decode::<Vec<String>>("shoes", &text).unwrap();
        assert_eq!((cursor.after, cursor.filters), (7, onward.filters));
        assert!(decode::<Vec<String>>("hats", &text).is_err());
        for text in ["", "x", "!!", "e30", &"A".repeat(5000)] {
            assert!(decode::<Vec<String>>("shoes", text).is_err(), "{text}");
        }
    }
}
