//! Explanation of calls, in data and in sentences: one set of words for the API, the command line and the dashboard.
//!
//! `call` combines what is known of one call, `attempts` describes its targets, `log_in` explains failed credentials,
//! `replay` routes recorded calls again by another directory, `change` describes that directory, `pbx` examines how a PBX
//! speaks SIP, `pbx_settings` has settings for PBXs, `report` is the result of a call to the doctor, `captured` reads a
//! call in a capture, `suggested_commands` lists commands that fix a near miss, and `ladder` is what passed, as data and in
//! text.

pub mod attempts;
pub mod call;
pub mod captured;
pub mod certificates;
pub mod change;
pub mod finding;
pub mod ladder;
pub mod log_in;
pub mod pbx;
pub mod pbx_settings;
pub mod replay;
pub mod report;
pub mod suggested_commands;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::Decision;

/// A decision, and the same in sentences.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RoutingDecision")]
pub struct DecisionView {
    /// The decision with its trail.
    #[serde(flatten)]
    pub decision: Decision,
    /// The trail, the outcome and near misses, a sentence each.
    pub explanation: Vec<String>,
}

impl From<Decision> for DecisionView {
    fn from(decision: Decision) -> Self {
        Self {
            explanation: decision.sentences(),
            decision,
        }
    }
}
