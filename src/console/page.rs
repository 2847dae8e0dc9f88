//! Answers that are pages, and the pages for errors.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::Markup;

use super::backend::BackendRefusal;
use super::document::notice;
use super::invisible::marked;
use crate::api::error::Cause;
use crate::api::{Api, ApiError};

/// A page.
#[derive(Debug)]
pub(super) struct Html(pub(super) Markup);

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        axum::response::Html(marked(self.0.into_string())).into_response()
    }
}

/// Page with one message. Its response carries the value itself as an extension, so that [`with_prefix`] can render it again.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    title: &'static str,
    text: String,
}

impl Notice {
    pub(super) fn new(title: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { title, text }
    }
}

impl IntoResponse for Notice {
    fn into_response(self) -> Response {
        let mut response = Html(notice(self.title, "", &self.text)).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Renders notices for the console's path prefix: what makes them, such as an error of any kind, doesn't know it.
pub(super) async fn with_prefix(State(api): State<Api>, request: Request, next: Next) -> Response {
    rendered_below(base_of(&api), next.run(request).await)
}

fn rendered_below(base: &str, mut response: Response) -> Response {
    if base.is_empty() {
        return response;
    }
    if let Some(Notice { title, text }) = response.extensions_mut().remove() {
        *response.body_mut() = Body::from(marked(notice(title, base, &text).into_string()));
    }
    response
}

/// Page shown in place of the requested one, with a message for people.
#[derive(Debug)]
pub(super) struct ErrorPage(StatusCode, Notice, Option<Cause>);

impl ErrorPage {
    pub(super) fn new(status: StatusCode, title: &'static str, text: impl Into<String>) -> Self {
        Self(status, Notice::new(title, text), None)
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
                Notice::new(
                    "Something broke on our side",
                    "Nothing is lost. Try again in a moment.",
                ),
                Some(Cause(cause.to_string().into())),
            ),
            other => Self::new(other.status(), "That did not work", other.to_string()),
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
            status => Self::new(status, "That did not work", refused.message),
        }
    }
}

impl IntoResponse for ErrorPage {
    fn into_response(self) -> Response {
        let Self(status, notice, cause) = self;
        // Logged here, since `request` logs the cause of a 500 alone.
        if let Some(Cause(cause)) = cause {
            tracing::error!(%cause, "page not shown");
        }
        (status, notice).into_response()
    }
}

/// Path prefix of the console, without a trailing slash: empty, or what a proxy adds, as the dashboard's URL has it.
pub(super) fn base_of(api: &Api) -> &str {
    let url = api.dashboard_url();
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.find('/').map_or("", |at| &rest[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_error_behind_a_path_prefix_is_styled() {
        for (base, style) in [
            ("", "href=\"/dashboard/assets/"),
            ("/voice", "href=\"/voice/dashboard/assets/"),
        ] {
            let response = rendered_below(base, ErrorPage::not_found().into_response());
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{base}");
            let page = axum::body::to_bytes(response.into_body(), 64 * 1024).await;
            let page = String::from_utf8(page.unwrap().into()).unwrap();
            assert!(page.contains(style), "{page}");
            assert!(page.contains("There is no such page"), "{page}");
        }
    }
}
