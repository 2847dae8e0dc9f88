//! Lists that the operator reads whole.

use schemars::JsonSchema;
use serde::Serialize;

/// Whole list, without pages.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub(super) struct Listed<T> {
    pub(super) items: Vec<T>,
}
