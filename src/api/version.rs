//! Versions of objects: `ETag` of an answer, and `If-Match` of a change (RFC 9110 §8.8.3, §13.1.1). The tag is `updated_at` in quotes.

use std::convert::Infallible;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::error::ApiError;

/// Maximum length of a line of `If-Match`, in octets: nine tags of ours fit. A header with a longer line counts as no list of tags.
const LONGEST: usize = 255;

/// Object whose view has the time of its last change.
pub(super) trait HasVersion {
    /// Time of the last change, as written.
    fn version(&self) -> &str;
}

/// Answer with an object and its version.
#[derive(Debug)]
pub(super) struct Tagged<T>(pub(super) T);

impl<T: HasVersion + Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        // A time has no character that a header can't hold.
        let tag = HeaderValue::try_from(format!("\"{}\"", self.0.version())).ok();
        let mut response = Json(self.0).into_response();
        if let Some(tag) = tag {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

/// Versions that a change was made for; `None` if it is for any.
type Versions = Option<Vec<String>>;

/// `If-Match` of a request. As with a body, extracting it refuses nothing: the credential is judged before the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IfMatch(Option<Versions>);

impl<S: Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(read(&parts.headers)))
    }
}

impl IfMatch {
    /// The versions, as the store compares them.
    ///
    /// # Errors
    /// 400 for a header that is no list of tags.
    pub(super) fn versions(self) -> Result<Versions, ApiError> {
        self.0.ok_or_else(|| {
            ApiError::bad("If-Match: expected the ETag of an answer, such as \"2026-01-31T12:00:00.000Z\", or *")
        })
    }
}

/// Reads the header; `None` for one that is no list of tags. A weak tag equals none (RFC 9110 §8.8.3.2).
fn read(headers: &HeaderMap) -> Option<Versions> {
    let mut versions = None;
    for line in headers.get_all(IF_MATCH) {
        let line = line.to_str().ok().filter(|line| line.len() <= LONGEST)?;
        if line.trim() == "*" {
            // `*` is true for any object that exists (RFC 9110 §13.1.1). For one that doesn't, the handler answers 404.
            continue;
        }

        let versions = versions.get_or_insert_with(Vec::new);
        for tag in line.split(',') {
            let tag = tag.trim();
            let (is_weak, tag) = match tag.strip_prefix("W/") {
                Some(tag) => (true, tag),
                None => (false, tag),
            };
            let inside = tag.strip_prefix('"')?.strip_suffix('"')?;
            if inside.contains('"') {
                return None;
            }
            // Weak tags alone leave an empty list, which no version matches: 412.
            if !is_weak {
                versions.push(inside.to_owned());
            }
        }
    }

    Some(versions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read() {
        let of = |versions: &[&str]| {
            let versions = versions.iter().map(|version| (*version).to_owned());
            Some(Some(versions.collect()))
        };

        for (name, lines, read_as) in [
            ("none", &[][..], Some(None)),
            ("any", &["*"], Some(None)),
            ("one", &["\"a\""], of(&["a"])),
            ("two", &["\"a\", \"b\""], of(&["a", "b"])),
            ("two lines", &["\"a\"", "\"b\""], of(&["a", "b"])),
            ("a weak one", &["W/\"a\""], of(&[])),
            ("no quotes", &["a"], None),
            ("a quote too many", &["\"a\"\""], None),
            ("nothing", &[""], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(IF_MATCH, HeaderValue::from_static(line));
            }
            assert_eq!(read(&headers), read_as, "{name}");
        }
    }
}
