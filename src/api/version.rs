//! Versions of objects: `ETag` of an answer, `If-Match` of a change and `If-None-Match` of a read (RFC 9110 §8.8.3, §13.1).
//!
//! A tag is the object's `updated_at`, a plus sign and a checksum of the answer, since an answer may show what isn't a change of the object, such as
//! the state of a registration. `If-Match` compares the time alone. An answer in gzip is another representation, whose tag [`gzip`] makes
//! (RFC 9110 §8.8.3.3).

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, Tx, Versioned, versions};
use uuid::Uuid;

use super::Api;
use super::error::ApiError;
use super::gzip;
use super::time::written;

/// Maximum length of a line of `If-Match`, in octets: nine tags of ours fit. A header with a longer line counts as no list of tags.
const LONGEST: usize = 255;

/// Object whose view has the time of its last change.
pub(super) trait HasVersion {
    /// Time of the last change, as written.
    fn version(&self) -> &str;
}

/// Answer with an object and its version.
#[derive(Debug)]
pub(super) struct Tagged<T> {
    view: T,
    version: String,
}

impl<T: HasVersion> Tagged<T> {
    pub(super) fn new(view: T) -> Self {
        let version = view.version().to_owned();
        Self { view, version }
    }
}

impl<T> Tagged<T> {
    /// Makes the answer for a view that doesn't show the time of the object's last change.
    pub(super) fn at(view: T, changed_at: Moment) -> Self {
        let version = written(changed_at);
        Self { view, version }
    }
}

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let body = match serde_json::to_vec(&self.view) {
            Ok(body) => body,
            Err(fault) => return ApiError::Broke(fault.into()).into_response(),
        };
        let tag = format!(
            "\"{}{CHECKSUM}{:08x}\"",
            self.version,
            crc32fast::hash(&body)
        );
        // A time has no character that a header can't hold.
        let tag = HeaderValue::try_from(tag).ok();
        let mut response = ([(CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(tag) = tag {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}

/// Separates the version in a tag from the checksum of the answer.
const CHECKSUM: char = '+';

impl Api {
    /// Changes an object of an org in one transaction, if it still has one of the versions `expected`. `change` gets the time of the change, which is
    /// later than that of the version replaced, even within a millisecond.
    ///
    /// # Errors
    /// [`Wrong::Absent`](trunkline_store::Wrong::Absent), [`Conflict::Outdated`](trunkline_store::Conflict::Outdated), and those of `change`.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        org: Uuid,
        object: Versioned,
        expected: Versions,
        change: impl FnOnce(&mut Tx, Moment) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let work = move |tx: &mut Tx, now| {
            let now = versions::must_be(tx, org, object, expected.as_deref(), now)?;
            change(tx, now)
        };
        self.write(work).await
    }
}

/// Versions that a change was made for; `None` if it is for any.
pub(super) type Versions = Option<Vec<String>>;

/// Tags of the answers that a client has already (RFC 9110 §13.1.2).
pub(super) struct IfNoneMatch(Vec<HeaderValue>);

impl IfNoneMatch {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get_all(IF_NONE_MATCH).iter().cloned().collect())
    }

    /// Returns the tag of the answer with these headers as the client knows it: of the plain answer, or of the packed one. A weak tag counts as a
    /// strong one here.
    pub(super) fn matching_tag(&self, answer: &HeaderMap) -> Option<HeaderValue> {
        let tag = answer.get(ETAG)?;
        let packed = gzip::packed_tag(tag);
        let tags = [Some(tag), packed.as_ref()].map(|tag| tag.and_then(|tag| tag.to_str().ok()));

        let lines = self.0.iter().filter_map(|line| line.to_str().ok());
        let mut known = lines.flat_map(|line| line.split(',')).map(str::trim);
        known.find_map(|known| {
            let known = known.trim_start_matches("W/");
            match (known == "*", tags.contains(&Some(known))) {
                (true, _) => Some(tag.clone()),
                (false, true) => HeaderValue::from_str(known).ok(),
                (false, false) => None,
            }
        })
    }
}

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
                let plain = gzip::plain_tag(inside);
                let version = plain
                    .split_once(CHECKSUM)
                    .map_or(plain, |(version, _)| version);
                versions.push(version.to_owned());
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
            (
                "with the checksum of an answer",
                &["\"a+0123abcd\""],
                of(&["a"]),
            ),
            ("of an answer in gzip", &["\"a+0123abcd-gzip\""], of(&["a"])),
            ("of gzip, without a checksum", &["\"a-gzip\""], of(&["a"])),
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
