//! The plan of a run's calls, and their parties.

use std::net::SocketAddrV4;

/// Length of one phase of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Microseconds; with 0 the next phase begins at once.
    For(u64),
    /// Until [`Exchange::answer`](super::Exchange::answer) or [`Exchange::hang_up`](super::Exchange::hang_up).
    Held,
}

/// Properties of a run's calls.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Time between 180 and 200.
    pub ring: Span,
    /// Time between ACK and BYE.
    pub talk: Span,
    /// True if the callee expects the daemon's context headers.
    pub context: bool,
    /// Time after which an INVITE without a final response counts as failed and is cancelled, in microseconds. Held calls ring beyond it.
    pub patience: u64,
    /// Number of different callers.
    pub callers: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            ring: Span::For(0),
            talk: Span::For(0),
            context: true,
            patience: 70_000_000,
            callers: 1_000,
        }
    }
}

/// Addresses and credentials of both ends.
#[derive(Clone, Debug)]
pub struct Parties {
    /// The daemon's address, to which the caller sends.
    pub server: SocketAddrV4,
    /// The caller's own address.
    pub caller: SocketAddrV4,
    /// The callee's own address.
    pub callee: SocketAddrV4,
    /// The trunk's digest user.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The number to dial.
    pub number: String,
}
