//! `POST /operator/console-links`: a link that lets the operator into the pages of the installation, once.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::body::Body;
use crate::api::caller::Operator;
use crate::api::{Api, ApiError};

/// Link to the operator's pages.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConsoleLink")]
pub(super) struct ConsoleLinkView {
    /// Address to open within five minutes.
    url: String,
}

/// `POST /operator/console-links`: 201. Only the daemon that made the link knows it.
pub(super) async fn create(
    State(api): State<Api>,
    operator: Operator,
    body: Body,
) -> Result<(StatusCode, Json<ConsoleLinkView>), ApiError> {
    body.empty()?;
    let url = api.operators_link(operator.uid());
    Ok((StatusCode::CREATED, Json(ConsoleLinkView { url })))
}
