//! `/openapi.json` and `/docs`: the OpenAPI document, assembled from all areas.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::openapi::{OpenApiBuilder, Rendered, page};
use super::query::Query;
use super::{Api, ApiError};
use crate::config::Config;

/// Makes the whole document for a deployment with this configuration.
pub fn document(config: &Config) -> Value {
    let mut builder = OpenApiBuilder::new();
    describe(&mut builder, config);
    builder.finish(config)
}

fn describe(builder: &mut OpenApiBuilder, config: &Config) {
    super::phone::openapi(builder, config);
    super::widget::openapi(builder);
    super::handoff_analytics::openapi(builder);
    super::api_keys::openapi(builder);
    super::partner::openapi(builder, config);
    super::webhooks::openapi(builder, config);
    super::health::openapi(builder);
    super::jwks::openapi(builder);
    openapi(builder);
}

/// Makes the document with the operator's operations beside the others, for the command line.
pub(crate) fn operators_document(config: &Config) -> Value {
    let mut builder = OpenApiBuilder::new();
    describe(&mut builder, config);
    super::control::describe(&mut builder);
    builder.finish(config)
}

fn openapi(builder: &mut OpenApiBuilder) {
    builder.add(
        "get",
        "/openapi.json",
        "showOpenApi",
        "This document",
        |op| {
            op.tag("Service")
                .public()
                .gives_text(200, "application/json")
        },
    );

    builder.add(
        "get",
        "/docs",
        "showDocs",
        "This document as a page",
        |op| op.tag("Service").public().gives_text(200, "text/html"),
    );
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
