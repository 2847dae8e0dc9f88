//! Answer to a request that has nothing else to show.

/// The answer to what leaves nothing to show.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Success {
    success: bool,
}

impl Success {
    pub(crate) const DONE: Self = Self { success: true };
}
