//! Why a call went where it went, in data and in sentences: one set of words for the API, the command line and the dashboard.
//!
//! `call` puts together what is known of one call, `log_in` says what was wrong with credentials, `replay` routes recorded calls again
//! by another directory, `change` is such a directory's difference, `pbx` looks at how a phone system speaks SIP, `paste` knows the
//! settings that would fix it, `report` is what a call to the doctor finds,
//! `captured` reads a call out of a capture, and `suggested_commands` names commands that turn a near miss into a hit.

pub mod attempts;
pub mod call;
pub mod captured;
pub mod change;
pub mod finding;
pub mod log_in;
pub mod paste;
pub mod pbx;
pub mod replay;
pub mod report;
pub mod suggested_commands;

use schemars::JsonSchema;
use serde::Serialize;
use trunkline_routing::Decision;

/// A decision, and the same in sentences.
#[derive(Debug, Serialize, JsonSchema)]
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
