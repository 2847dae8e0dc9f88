//! Lists in pages: newest first, ordered by time and id. A cursor carries its list, its position and its filters.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, Position, Store, Tx};
use uuid::Uuid;

use super::error::ApiError;
use super::query::Query;

/// Maximum length of a cursor that is parsed. A text filter of 2,048 characters of four octets, the longest one, has 10,923 in base64.
pub(super) const MAX_CURSOR: usize = 12 << 10;
/// Items of a page when `limit` is absent.
const DEFAULT_LIMIT: u32 = 50;
/// Message for a cursor that can't be read.
pub(super) const NO_CURSOR: &str = "is no cursor of this list";

/// A page of a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// The cursor of the next page; `null` on the last one.
    pub(crate) next: Option<String>,
    /// Number of matches, all pages together.
    pub(crate) total: u64,
    /// `true`: there are more matches than `total`, which lists of calls, contacts and deliveries count up to 10,000. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(!default)]
    pub(crate) total_is_bounded: bool,
}

/// Usual size of an item in octets, to reserve the buffer at once.
const USUAL_ITEM: usize = 512;

impl<T: Serialize> IntoResponse for Page<T> {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity((self.items.len() + 1) * USUAL_ITEM);
        match serde_json::to_writer(&mut body, &self) {
            Ok(()) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
            Err(fault) => ApiError::Broke(fault.into()).into_response(),
        }
    }
}

/// Requested page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Paging<F = ()> {
    /// Name of the list.
    pub(super) list: &'static str,
    /// Filters: as given, or as the cursor has them.
    pub(super) filters: F,
    /// Position at which the page before ended.
    pub(crate) after: Option<Position>,
    /// Items on a page, 1 to 100.
    pub(crate) limit: u32,
}

/// Position at which a page ends; the next page starts below it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Cursor<F> {
    list: String,
    at: Moment,
    id: Uuid,
    filters: F,
}

impl<F: Clone + Default + PartialEq + Serialize + DeserializeOwned> Paging<F> {
    /// Reads `limit` and `cursor` of the list of this name. A cursor may come with the filters that it was made for, or
    /// without any.
    pub(crate) fn read(query: &mut Query, list: &'static str, given: F) -> Self {
        let limit = read_limit(query);
        let cursor = query.read("cursor", |text| Cursor::<F>::decode(list, text));
        let Some(cursor) = cursor else {
            return Self {
                list,
                filters: given,
                after: None,
                limit,
            };
        };

        if given != F::default() && given != cursor.filters {
            query.refuse("cursor: was made under other filters; give the same ones, or none");
        }

        Self {
            list,
            filters: cursor.filters,
            after: Some(Position {
                at: cursor.at,
                id: cursor.id,
            }),
            limit,
        }
    }

    /// Cursor of the page that starts below `place`.
    pub(crate) fn next(&self, place: Position) -> String {
        let cursor = Cursor {
            list: self.list.to_owned(),
            at: place.at,
            id: place.id,
            filters: self.filters.clone(),
        };
        cursor.encode()
    }

    /// Reads a page of an org's list with `find`, and converts the items with `view`.
    pub(super) async fn find<T, V>(
        self,
        store: &Store,
        org: Uuid,
        find: impl FnOnce(
            &mut Tx,
            Uuid,
            &F,
            Option<Position>,
            u32,
        ) -> Result<trunkline_store::Page<T>, Error>
        + Send
        + 'static,
        view: impl Fn(T) -> V,
    ) -> Result<Page<V>, ApiError>
    where
        F: Send + 'static,
        T: Send + 'static,
    {
        let (filters, after, limit) = (self.filters.clone(), self.after, self.limit);
        let found = store.read_of(org, move |tx| find(tx, org, &filters, after, limit));
        Ok(self.page(found.await?, view))
    }

    /// Converts a page of the store into a page of the API.
    pub(super) fn page<T, V>(
        &self,
        stored: trunkline_store::Page<T>,
        view: impl Fn(T) -> V,
    ) -> Page<V> {
        Page {
            items: stored.items.into_iter().map(view).collect(),
            next: stored.next.map(|place| self.next(place)),
            total: stored.total,
            total_is_bounded: stored.total_is_bounded,
        }
    }
}

impl<F: Serialize + DeserializeOwned> Cursor<F> {
    /// Encodes the cursor for a client.
    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("filters are plain values"))
    }

    /// Decodes a cursor of this list.
    fn decode(list: &str, text: &str) -> Result<Self, String> {
        // Unsigned: a forged cursor only moves within a list, and the credential decides whose list that is.
        let octets = (text.len() <= MAX_CURSOR)
            .then(|| URL_SAFE_NO_PAD.decode(text).ok())
            .flatten();
        octets
            .and_then(|octets| serde_json::from_slice::<Self>(&octets).ok())
            .filter(|cursor| cursor.list == list)
            .ok_or_else(|| NO_CURSOR.to_owned())
    }
}

/// Reads the parameter `limit`.
pub(super) fn read_limit(query: &mut Query) -> u32 {
    query.read("limit", limit).unwrap_or(DEFAULT_LIMIT)
}

pub(super) fn limit(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|limit| (1..=100).contains(limit))
        .ok_or_else(|| "expected a number from 1 to 100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::query;

    fn cursor() -> Cursor<Vec<String>> {
        Cursor {
            list: "shoes".to_owned(),
            at: Moment::from_secs(7),
            id: Uuid::from_u128(9),
            filters: vec!["x".to_owned()],
        }
    }

    #[test]
    fn a_cursor_is_read_as_it_was_made() {
        assert_eq!(Cursor::decode("shoes", &cursor().encode()), Ok(cursor()));
    }

    #[test]
    fn a_cursor_with_the_longest_filter_is_read() {
        for char in ["x", "\"", "\u{10ffff}"] {
            let long = Cursor {
                filters: vec![char.repeat(query::LONGEST)],
                ..cursor()
            };
            assert_eq!(Cursor::decode("shoes", &long.encode()), Ok(long), "{char}");
        }
    }

    #[test]
    fn what_is_no_cursor_of_the_list_is_refused() {
        for text in ["", "x", "!!", "e30", &"A".repeat(5000)] {
            assert!(
                Cursor::<Vec<String>>::decode("shoes", text).is_err(),
                "{text}"
            );
        }
        assert!(Cursor::<Vec<String>>::decode("hats", &cursor().encode()).is_err());
    }
}
