//! Errors of commands, with their exit codes.

/// Error of a command, as a sentence for standard error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Nothing was begun: exit code 2.
    #[error("{0}")]
    Startup(String),
    /// The command failed: exit code 1.
    #[error("{0}")]
    Command(String),
}

impl Failure {
    pub(super) const fn code(&self) -> u8 {
        match self {
            Self::Startup(_) => 2,
            Self::Command(_) => 1,
        }
    }
}

impl From<trunkline_store::Error> for Failure {
    fn from(error: trunkline_store::Error) -> Self {
        Self::Command(error.to_string())
    }
}
