//! Fault that reading a flow finds, named by its place in the flow.

use std::fmt;

/// Fault of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFault {
    /// Path of the value within the flow, such as `.steps.menu.prompt`; empty for the flow itself.
    pub path: String,
    /// Sentence that names the fault.
    pub message: String,
}

impl FlowFault {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for FlowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}
