//! Fault that reading a flow finds, named by its place in the flow.

use std::fmt;

/// Fault of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowFault {
    /// JSON pointer of the value, from the flow on (RFC 6901).
    pub pointer: String,
    /// Sentence that names the fault.
    pub message: String,
}

impl FlowFault {
    pub(super) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for FlowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.message)
    }
}
