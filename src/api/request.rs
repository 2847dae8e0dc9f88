//! Outermost layer of every request: an id, a log span, metrics, and an answer that never shows internals.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tracing::Instrument;
use uuid::Uuid;

use super::Api;
use super::audited_request;
use super::caller::ORG;
use super::connection::{Encrypted, HealthOnly, UnclearHost};
use super::error::{ApiError, Cause, Refusal, code_of, with_body};
use super::quota::Tally;
use super::version::IfNoneMatch;
use crate::telemetry::metrics;

/// Has browsers open this host by TLS alone for a year (RFC 6797 §6.1). Not its subdomains, which may be other people's.
const ALWAYS_TLS: HeaderValue = HeaderValue::from_static("max-age=31536000");

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Runs a request through that layer.
pub(super) async fn wrap(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let began = api.monotonic();
    let id = request_id(request.headers().get(REQUEST_ID));
    let method = method_name(request.method());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        // Paths without a route share one label, so that a scanner can't add series to the metrics.
        .map_or("none", MatchedPath::as_str)
        .to_owned();

    let span =
        tracing::info_span!("request", request.id = %id, http.method = method, http.route = route);
    let path = request.uri().path().to_owned();
    let is_encrypted = request.extensions().get::<Encrypted>().is_some();
    let has_credential = [header::AUTHORIZATION, header::COOKIE]
        .iter()
        .any(|name| request.headers().contains_key(name));

    let known = IfNoneMatch::of(request.headers());
    set_host(&mut request);
    // Filled by the extractors, read below: refusals, 429 among them, have the header fields of the limits too.
    let tally = Tally::default();
    request.extensions_mut().insert(tally.clone());

    // Refused before any extractor runs, so that no credential is looked up while the node is full.
    let response = if is_beyond_reserve(&request, &path) {
        no_room()
    } else if request.extensions().get::<UnclearHost>().is_some() {
        ApiError::bad("Host: expected exactly one, with the host that the request is for")
            .into_response()
    } else if let Some(name) = given_twice(request.headers()) {
        // Which of them counts is read differently by proxies and servers (RFC 9110 §5.3: a sender must not repeat it).
        ApiError::bad(format!("{name}: is given more than once")).into_response()
    } else {
        let (parts, body) = request.into_parts();
        let acting = audited_request::acting(&api, &parts, &route, &id);
        let work = next.run(Request::from_parts(parts, body));
        audited_request::run_audited(&api, acting, work.instrument(span.clone())).await
    };

    let mut response = answered(response, &path, &id, &span);
    let is_read = matches!(method, "GET" | "HEAD") && response.status() == StatusCode::OK;
    if let Some(tag) = known.matching_tag(response.headers()).filter(|_| is_read) {
        response = unchanged(response);
        response.headers_mut().insert(header::ETAG, tag);
    }
    tally.write(response.headers_mut());
    let took: Duration = api.monotonic().since(began);
    metrics::http_request(method, &route, response.status().as_u16(), took);
    span.in_scope(|| {
        tracing::debug!(
            http.status = response.status().as_u16(),
            took_us = took.as_micros() as u64,
            "request answered"
        )
    });

    let value = HeaderValue::from_str(&id).expect("an id holds visible ASCII alone");
    response.headers_mut().insert(REQUEST_ID, value);
    guard(response.headers_mut(), has_credential);
    if is_encrypted {
        let name = header::STRICT_TRANSPORT_SECURITY;
        response.headers_mut().insert(name, ALWAYS_TLS);
    }
    response
}

/// Returns the name of a header that says who asks for whom, if it comes twice.
fn given_twice(headers: &HeaderMap) -> Option<&'static str> {
    let names = [
        (header::AUTHORIZATION, "Authorization"),
        (ORG, "Trunkline-Org"),
    ];
    let mut names = names.into_iter();
    let twice = names.find(|(name, _)| headers.get_all(name).iter().nth(1).is_some());
    twice.map(|(_, name)| name)
}

/// Sets headers that keep browsers from guessing content types, and caches from storing answers to requests with a
/// credential.
fn guard(headers: &mut HeaderMap, has_credential: bool) {
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );

    if has_credential {
        let entry = headers.entry(header::CACHE_CONTROL);
        entry.or_insert(HeaderValue::from_static("no-store"));
    }
}

/// Gives a request of HTTP/2, which names its host in `:authority`, the `Host` that handlers read (RFC 9113 §8.3.1).
fn set_host(request: &mut Request) {
    let authority = request.uri().authority();
    let host = authority.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().entry(header::HOST).or_insert(host);
    }
}

/// Returns true if the request came on a reserve connection and is no health check.
fn is_beyond_reserve(request: &Request, path: &str) -> bool {
    let is_reserve = request.extensions().get::<HealthOnly>().is_some();
    is_reserve && !matches!(path, "/healthz" | "/readyz")
}

/// Answers that the client has this version already (RFC 9110 §15.4.5): the same header without what describes the body.
fn unchanged(response: Response) -> Response {
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::NOT_MODIFIED;
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        parts.headers.remove(name);
    }
    Response::from_parts(parts, Body::empty())
}

fn no_room() -> Response {
    /// Seconds until a connection may have ended.
    const RETRY_AFTER_S: u64 = 1;
    let refused = ApiError::Unavailable {
        message: "Too many connections are open, in all or from this address".to_owned(),
        wait_s: RETRY_AFTER_S,
    };
    let mut response = refused.into_response();
    // Frees the place in the reserve for a health check. HTTP/2 has no such header (RFC 9113 §8.2.2), and hyper drops
    // it.
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// Adds the body of a refusal. The cause of a 500 is logged once; the body has the request's id instead.
fn answered(response: Response, path: &str, id: &str, span: &tracing::Span) -> Response {
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        let cause = response.extensions().get::<Cause>();
        let cause = cause.map_or("a handler failed", |cause| &*cause.0);
        span.in_scope(|| tracing::error!(cause, "request failed"));
        let message = format!("Something broke on our side; quote the request id {id}");
        let refusal = Refusal::new(&message, code_of(response.status()));
        return with_body(response, path, &refusal);
    }

    match response.extensions().get::<Refusal>().cloned() {
        Some(refusal) => with_body(response, path, &refusal),
        None => response,
    }
}

/// Returns the client's request id if it is valid (1 to 128 of `A-Z a-z 0-9 . _ -`), else a new one.
fn request_id(given: Option<&HeaderValue>) -> String {
    let sane = |id: &&str| {
        (1..=128).contains(&id.len())
            && id
                .bytes()
                .all(|octet| octet.is_ascii_alphanumeric() || b"._-".contains(&octet))
    };
    given
        .and_then(|value| value.to_str().ok())
        .filter(sane)
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// Name of a method for metrics, from a bounded set, so that unauthenticated clients can't add series.
fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "OTHER",
    }
}
