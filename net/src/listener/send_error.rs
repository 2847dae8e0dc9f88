//! Reasons why a connection accepts no message.

/// Reason why a message was not accepted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The connection has closed, or is closed now because its peer reads too slowly.
    #[error("the connection is closed")]
    Closed,
    /// A connection would have to be opened, but there are too many.
    #[error("too many connections are open")]
    TooMany,
}
