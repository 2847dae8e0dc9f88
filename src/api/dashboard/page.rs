//! Answers that are pages, and the pages for errors.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::Markup;

use super::backend::BackendRefusal;
use super::document::notice;
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
pub(in crate::api) struct ErrorPage(StatusCode, Markup, Option<Cause>);

impl ErrorPage {
    pub(super) fn new(status: StatusCode, title: &str, text: &str) -> Self {
        Self(status, notice(title, text), None)
    }

    /// Makes the page for a missing or expired session.
    pub(super) fn logged_out() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "You are logged out",
            "Ask for a new login link where you got the last one, and open it in this browser. On this machine, trunkline console prints one.",
        )
    }

    /// Makes the page for a form that another site may have sent.
    pub(super) fn foreign_form() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "Nothing was changed",
            "The form did not come from this session's own page. Go back to the console and try again.",
        )
    }

    pub(in crate::api) fn not_found() -> Self {
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
        reason = "all the others are shown alike"
    )]
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Unauthorized(_) => Self::logged_out(),
            ApiError::NotFound(_) => Self::not_found(),
            ApiError::TooMany { .. } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "That was too much at once",
                "The people of your organization have loaded too many pages in the last minute. Try again in a moment.",
            ),
            // Not 500: `request` puts the JSON of the API in place of the body of every 500.
            ApiError::Broke(cause) => Self(
                StatusCode::SERVICE_UNAVAILABLE,
                notice(
                    "Something broke on our side",
                    "Nothing is lost. Try again in a moment.",
                ),
                Some(Cause(cause.to_string().into())),
            ),
            other => Self::new(other.status(), "That did not work", &other.to_string()),
        }
    }
}

impl From<trunkline_store::Error> for ErrorPage {
    fn from(error: trunkline_store::Error) -> Self {
        ApiError::from(error).into()
    }
}

impl From<BackendRefusal> for ErrorPage {
    fn from(refused: BackendRefusal) -> Self {
        match refused.status {
            StatusCode::UNAUTHORIZED => Self::logged_out(),
            StatusCode::NOT_FOUND => Self::not_found(),
            StatusCode::FORBIDDEN => Self::new(
                refused.status,
                "You may look, but not change anything",
                "This page is for administrators of your organization.",
            ),
            // 503 also for a 500, whose body `request` would replace by JSON.
            status if status.is_server_error() => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "Something broke on our side",
                "Nothing is lost. Try again in a moment.",
            ),
            status => Self::new(status, "That did not work", &refused.message),
        }
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        let Self(status, markup, cause) = self;
        // Logged here, since `request` logs the cause of a 500 alone.
        if let Some(Cause(cause)) = cause {
            tracing::error!(%cause, "page not shown");
        }
        (status, Html(markup)).into_response()
    }
}

/// Path prefix of the console, without a trailing slash: empty, or what a proxy adds, as the dashboard's URL has it.
pub(super) fn base_of(api: &Api) -> &str {
    let url = api.dashboard_url();
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}
