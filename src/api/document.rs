//! `/openapi.json` and `/docs`: the OpenAPI document, assembled from all areas.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::openapi::{Rendered, page};
use super::operations::{Audience, Operations};
use super::query::Query;
use super::{Api, ApiError};
use crate::config::Config;

/// Makes the whole document for a deployment with this configuration.
pub fn document(config: &Config) -> Value {
    let mut api = Operations::described(config);
    super::operations(&mut api);
    api.into_document()
}

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Service", Audience::Public);
    of.get(
        "/openapi.json",
        show,
        "showOpenApi",
        "This document",
        |op| op.gives_text(200, "application/json"),
    );

    of.get("/docs", docs, "showDocs", "This document as a page", |op| {
        op.gives_text(200, "text/html")
    });
}

/// `GET /openapi.json`
pub(super) async fn show(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    query.finish()?;
    let made = || Rendered::new(document(api.config()).to_string());
    let json = api.rendered_docs().json.get_or_init(made);
    Ok(json.answer(&headers, "application/json"))
}

/// Content security policy of the page: it may load nothing but its own style.
const ONLY_ITSELF: (HeaderName, &str) = (
    header::CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// `GET /docs`
pub(super) async fn docs(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    query.finish()?;
    let made = || Rendered::new(page(&document(api.config())));
    let page = api.rendered_docs().page.get_or_init(made);
    let page = page.answer(&headers, "text/html; charset=utf-8");
    Ok(([ONLY_ITSELF], page).into_response())
}
