//! Dashboard: HTML pages without scripts. A partner's link logs a person in; `dashboard_session` has the session.

mod call;
mod login;
mod org;
mod page;
mod view;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::routes::Routes;

pub(super) fn router() -> Routes {
    Routes::new()
        .route(
            "/partner-login",
            get(login::consume).head(login::look).post(login::confirm),
        )
        .route("/", get(login::root))
        .route("/dashboard", get(login::home))
        .route("/dashboard/logout", post(login::log_out))
        .route("/dashboard/style.css", get(style))
        .route("/dashboard/{org_id}", get(org::show))
        .route("/dashboard/{org_id}/calls/{call_id}", get(call::show))
        .route("/dashboard/{org_id}/keys", post(org::create_key))
        .route(
            "/dashboard/{org_id}/keys/{api_key_id}/revoke",
            post(org::revoke_key),
        )
        .wrapped(|methods| methods.layer(from_fn(guarded)))
}

/// Headers of every page: nothing is loaded from other sites, framed, cached or sent to other sites as a referrer.
const GUARDS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Without it, browsers send forms without `Origin`.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in GUARDS {
        let entry = response.headers_mut().entry(name);
        entry.or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn style() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/css; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=300"),
    ];
    (headers, include_str!("style.css"))
}
