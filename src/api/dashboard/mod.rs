//! The dashboard: pages for people, without a line of script. They are logged in by a partner's link; see `visit` for their session.

mod call;
mod login;
mod org;
mod view;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use maud::Markup;

use super::error::Cause;
use super::routes::Routes;
use super::{Api, ApiError};

pub(super) fn router() -> Routes {
    Routes::new()
        .route(
            "/partner-login",
            get(login::consume).head(login::look).post(login::confirm),
        )
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

/// What every page is sent with: nothing is loaded from elsewhere, framed, kept, or told to other sites.
const GUARDS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // Forms would otherwise be sent without their origin.
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

/// A page.
#[derive(Debug)]
struct Html(Markup);

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        axum::response::Html(self.0.into_string()).into_response()
    }
}

/// What is shown instead of a page, in words for people.
#[derive(Debug)]
struct Instead(StatusCode, Markup, Option<Cause>);

impl Instead {
    fn new(status: StatusCode, title: &str, text: &str) -> Self {
        Self(status, view::notice(title, text), None)
    }

    /// The session is over, or there is none.
    fn logged_out() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "You are logged out",
            "Ask for a new login link where you got the last one, and open it in this browser.",
        )
    }

    fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "There is no such page",
            "It may belong to an organization that this session isn't for.",
        )
    }
}

impl From<ApiError> for Instead {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all the others are told alike"
    )]
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Unauthorized(_) => Self::logged_out(),
            ApiError::NotFound(_) => Self::not_found(),
            ApiError::Broke(cause) => Self(
                StatusCode::SERVICE_UNAVAILABLE,
                view::notice(
                    "Something broke on our side",
                    "Nothing is lost. Try again in a moment.",
                ),
                Some(Cause(cause.to_string().into())),
            ),
            other => Self::new(
                StatusCode::BAD_REQUEST,
                "That did not work",
                &other.to_string(),
            ),
        }
    }
}

impl From<trunkline_store::Error> for Instead {
    fn from(error: trunkline_store::Error) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for Instead {
    fn into_response(self) -> Response {
        let Self(status, markup, cause) = self;
        if let Some(Cause(cause)) = cause {
            tracing::error!(%cause, "page not shown");
        }
        (status, Html(markup)).into_response()
    }
}

/// The path below which the dashboard lies, without a slash at the end: a proxy may add one.
fn base(State(api): &State<Api>) -> &str {
    let url = api.dashboard_url();
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}
