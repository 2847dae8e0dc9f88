//! The plan of a run's calls, and their parties.

use std::net::SocketAddrV4;

/// The length of one phase of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Microseconds; 0 goes on at once.
    For(u64),
    /// Until [`Exchange::answer`](super::Exchange::answer) or [`Exchange::hang_up`](super::Exchange::hang_up).
    Held,
}

/// The shape of a run's calls.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Between 180 and 200.
    pub ring: Span,
    /// Between ACK and BYE.
    pub talk: Span,
    /// One nonce for many calls instead of a 401 for each.
    pub reuse_nonce: bool,
    /// The callee expects the daemon's context headers.
    pub context: bool,
    /// Time after which an INVITE without a final response counts as failed and is cancelled, in microseconds.
    pub patience: u64,
    /// Number of different callers.
    pub callers: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            ring: Span::For(0),
            talk: Span::For(0),
            reuse_nonce: false,
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
