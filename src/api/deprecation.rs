//! Names of the API that were replaced and still work. The answer to a request that uses one says so in its header (RFC 9745, RFC 8594), which
//! docs/api.md promises for at most a year.

use axum::http::HeaderName;

/// Header of an answer to a request that uses an old name.
pub(super) type Notice = [(HeaderName, &'static str); 2];

/// Replacement of the filter `number` of calls by `phone_number`, the name of every other filter by number.
pub(super) const CALLS_BY_NUMBER: Notice = [
    // 30 November 2026.
    (HeaderName::from_static("deprecation"), "@1795996800"),
    (
        HeaderName::from_static("sunset"),
        "Tue, 30 Nov 2027 00:00:00 GMT",
    ),
];
