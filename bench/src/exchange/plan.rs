//! What the calls of a run are like, and whose they are.

use std::net::SocketAddrV4;

/// How long one phase of a call lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Microseconds; 0 goes on at once.
    For(u64),
    /// Until [`Exchange::answer`](super::Exchange::answer) or [`Exchange::hang_up`](super::Exchange::hang_up).
    Held,
}

/// What the calls of a run are like.
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
    /// When an INVITE without a final response counts as failed and is cancelled, in microseconds.
    pub patience: u64,
    /// How many different callers ring.
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

/// Who is who.
#[derive(Clone, Debug)]
pub struct Parties {
    /// Where the caller sends.
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
