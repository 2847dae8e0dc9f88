//! `/openapi.json` and `/docs`: the document put together from the areas.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::Value;

use super::openapi::{Book, page};
use super::query::Query;
use super::{Api, ApiError};
use crate::config::Config;

/// The whole document, for a deployment of this configuration.
pub fn document(config: &Config) -> Value {
    let mut book = Book::new();
    super::phone::openapi(&mut book, config);
    super::widget::openapi(&mut book);
    super::handoff_analytics::openapi(&mut book);
    super::api_keys::openapi(&mut book);
    super::partner::openapi(&mut book, config);
    super::webhooks::openapi(&mut book, config);
    super::health::openapi(&mut book);
    super::jwks::openapi(&mut book);
    openapi(&mut book);
    book.finish(config)
}

fn openapi(book: &mut Book) {
    book.add(
        "get",
        "/openapi.json",
        "showOpenApi",
        "This document",
        |op| {
            op.tag("Service")
                .nobody()
                .gives_text(200, "application/json")
        },
    );
    book.add(
        "get",
        "/docs",
        "showDocs",
        "This document as a page",
        |op| op.tag("Service").nobody().gives_text(200, "text/html"),
    );
}

/// `GET /openapi.json`
pub(super) async fn show(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    query.finish()?;
    let made = || Bytes::from(document(api.config()).to_string());
    let json = api.shelf().json.get_or_init(made).clone();
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}

/// What the page may load: nothing but its own style.
const ONLY_ITSELF: (HeaderName, &str) = (
    header::CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// `GET /docs`
pub(super) async fn docs(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    query.finish()?;
    let made = || page(&document(api.config()));
    let page = api.shelf().page.get_or_init(made).clone();
    Ok(([ONLY_ITSELF], Html(page)).into_response())
}
