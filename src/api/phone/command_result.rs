//! The outcome of a command: the answer of the node that carried it out, which the client gets from the node that it asked.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::api::ApiError;

/// Answer to the client: a status and JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CommandResult {
    pub(super) status: StatusCode,
    pub(super) body: String,
}

impl CommandResult {
    pub(super) fn new(status: StatusCode, view: &impl Serialize) -> Result<Self, ApiError> {
        let body = serde_json::to_string(view).map_err(|fault| ApiError::Broke(Box::new(fault)))?;
        Ok(Self { status, body })
    }

    pub(super) fn body(&self) -> &str {
        &self.body
    }
}

impl IntoResponse for CommandResult {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        (self.status, [(header::CONTENT_TYPE, json)], self.body).into_response()
    }
}
