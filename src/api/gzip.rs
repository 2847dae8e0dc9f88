//! Answers in gzip, for clients that take it (RFC 9110 §8.4.1.3).
//!
//! Three kinds of answers stay as they are. Pages of the console hold a secret, the form token, beside what another site may have chosen, and the length
//! of such an answer in gzip tells of the secret (BREACH). Short answers gain nothing. Event streams would be held back.

use std::io::Write as _;

use axum::body::Bytes;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{And, Predicate as _, SizeAbove};

use super::accept;

/// Octets from which an answer is packed: less fits into a packet or two.
const LEAST: u64 = 1_024;

/// Content types whose answers are packed.
const PACKED: [&str; 6] = [
    "application/json",
    "application/x-ndjson",
    "text/csv",
    "text/plain",
    "text/css",
    "text/javascript",
];

/// Judges an answer by its header.
type Judge = fn(StatusCode, Version, &HeaderMap, &Extensions) -> bool;

/// Layer that packs answers on their way out. The fastest level: it takes most of the gain at a third of the time.
pub(crate) fn layer() -> CompressionLayer<And<SizeAbove, Judge>> {
    let judge: Judge = |_, _, headers, _| {
        let kind = headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        PACKED.contains(&kind.split(';').next().unwrap_or_default())
    };
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(LEAST).and(judge))
}

/// Gives a packed answer a tag of its own: a strong tag names octets (RFC 9110 §8.8.3).
pub(crate) async fn tag(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let coding = headers.get(header::CONTENT_ENCODING);
    if coding.is_some_and(|coding| coding == "gzip")
        && let Some(tag) = headers.get(header::ETAG).and_then(packed_tag)
    {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// Ends the tag of a packed answer, within the quotes.
const OF_PACKED: &str = "-gzip";

/// Returns the tag that an answer with this one has once it is packed; `None` for one that isn't ours.
pub(super) fn packed_tag(tag: &HeaderValue) -> Option<HeaderValue> {
    let inside = tag.to_str().ok()?.strip_suffix('"')?;
    HeaderValue::try_from(format!("{inside}{OF_PACKED}\"")).ok()
}

/// Returns a tag, without its quotes, as the plain answer has it.
pub(super) fn plain_tag(inside: &str) -> &str {
    inside.strip_suffix(OF_PACKED).unwrap_or(inside)
}

/// Returns true if the client takes gzip.
pub(super) fn is_taken(headers: &HeaderMap) -> bool {
    let weight = |coding| accept::weight_of(headers, header::ACCEPT_ENCODING, coding);
    weight("gzip")
        .or(weight("*"))
        .is_some_and(|weight| weight > 0)
}

/// Packs octets that are kept and sent many times, and so may take longer.
pub(super) fn packed(octets: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(octets).and_then(|()| encoder.finish());
    written.expect("memory takes everything").into()
}
