//! Result of a command to a call. The node that carried it out makes it; the node that the client asked passes it on.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};
use trunkline_calls::ANONYMOUS_USER;

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

    /// Replaces the number of a caller who asked not to be named in a call, for the call's runtime.
    pub(super) fn for_runtime(self) -> Self {
        // Always JSON: `new` made it, here or on the node that has the call.
        let Ok(mut call) = serde_json::from_str::<Value>(&self.body) else {
            return self;
        };
        if call["caller_withheld"] != true {
            return self;
        }

        call["from_number"] = json!(ANONYMOUS_USER);
        call["from_e164"] = Value::Null;
        Self {
            body: call.to_string(),
            ..self
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_learns_no_withheld_number() {
        let shown = |withheld: bool| {
            let call = json!({"from_number": "100", "from_e164": "+441632960001", "caller_withheld": withheld});
            let result = CommandResult::new(StatusCode::OK, &call).unwrap();
            let body = result.for_runtime().body;
            let call: Value = serde_json::from_str(&body).unwrap();
            (call["from_number"].clone(), call["from_e164"].clone())
        };

        assert_eq!(shown(false), (json!("100"), json!("+441632960001")));
        assert_eq!(shown(true), (json!("anonymous"), Value::Null));
    }
}
