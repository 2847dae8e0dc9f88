//! Requests by scripts of other websites (CORS): the widget reads these operations from the page that it is embedded in.
//!
//! Any origin is allowed, since credentials are bearer tokens, which a page must already have, and never cookies.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::MethodRouter;

use crate::api::Api;
use crate::api::error::{Refusal, code_of, refusal};
use crate::api::routes::UNKNOWN_METHOD;

/// Header fields of every answer, and of the answer to a preflight.
const ANSWERS: [(HeaderName, HeaderValue); 2] = [
    (
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        HeaderValue::from_static("*"),
    ),
    // Without this a script reads neither.
    (
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static("RateLimit, RateLimit-Policy, Retry-After, X-Request-Id"),
    ),
];
const PREFLIGHT: [(HeaderName, HeaderValue); 3] = [
    (
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET"),
    ),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("Authorization"),
    ),
    (
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("7200"),
    ),
];

/// Lets scripts of every website make the requests of this path, which are `GET` alone.
pub(super) fn open(methods: MethodRouter<Api>) -> MethodRouter<Api> {
    methods.options(preflight).layer(from_fn(allow))
}

/// Refusals have the header fields too, so that the script learns why.
async fn allow(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().extend(ANSWERS);
    response
}

/// Answers a preflight request. Any other `OPTIONS` is refused, as on all other paths.
async fn preflight(headers: HeaderMap) -> Response {
    let is_preflight = headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if is_preflight {
        let mut response = StatusCode::NO_CONTENT.into_response();
        response.headers_mut().extend(PREFLIGHT);
        return response;
    }

    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut response = refusal(status, Refusal::new(UNKNOWN_METHOD, code_of(status)));
    let allowed = HeaderValue::from_static("GET,HEAD");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}
