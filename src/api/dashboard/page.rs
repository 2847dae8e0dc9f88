//! Frame of every page, and the pages shown in place of one.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::Markup;

use super::view;
use crate::api::error::Cause;
use crate::api::{Api, ApiError};

/// A page.
#[derive(Debug)]
pub(super) struct Html(pub(super) Markup);

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        axum::response::Html(self.0.into_string()).into_response()
    }
}

/// Page shown in place of the requested one, with a message for people.
#[derive(Debug)]
pub(super) struct ErrorPage(StatusCode, Markup, Option<Cause>);

impl ErrorPage {
    pub(super) fn new(status: StatusCode, title: &str, text: &str) -> Self {
        Self(status, view::notice(title, text), None)
    }

    /// Makes the page for a missing or expired session.
    pub(super) fn logged_out() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "You are logged out",
            "Ask for a new login link where you got the last one, and open it in this browser. On this machine, trunkline console prints one.",
        )
    }

    pub(super) fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "There is no such page",
            "It may belong to an organization that this session isn't for.",
        )
    }
}

impl From<ApiError> for ErrorPage {
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

impl From<trunkline_store::Error> for ErrorPage {
    fn from(error: trunkline_store::Error) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        let Self(status, markup, cause) = self;
        if let Some(Cause(cause)) = cause {
            tracing::error!(%cause, "page not shown");
        }
        (status, Html(markup)).into_response()
    }
}

/// Path below which the dashboard lies, without a trailing slash; a proxy may add a prefix.
pub(super) fn base(State(api): &State<Api>) -> &str {
    let url = api.dashboard_url();
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}
