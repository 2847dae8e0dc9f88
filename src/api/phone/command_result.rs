//! Result of a command to a call. The node that carried it out makes it; the node that the client asked passes it on.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::api::ApiError;

/// Answer to the client: status and JSON.
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
