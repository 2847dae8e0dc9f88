//! Timeouts of HTTP connections, the same for every listener.

use std::time::Duration;

/// Timeouts for slow clients.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Timeouts {
    /// Timeout of a request's head, and of a TLS handshake.
    pub(super) head: Duration,
    /// Timeout of a request's whole body.
    pub(super) body: Duration,
    /// Timeout without progress of any request, and of a client that doesn't read.
    pub(super) idle: Duration,
}

/// Timeouts of every listener. The last is above 30 s, which a hold may wait for the peer's answer.
pub(super) const TIMEOUTS: Timeouts = Timeouts {
    head: Duration::from_secs(15),
    body: Duration::from_secs(30),
    idle: Duration::from_secs(60),
};

/// Time that a connection in the reserve has to send a request's head.
const RESERVE_HEAD: Duration = Duration::from_secs(2);
/// Time that such a connection may be idle.
const RESERVE_IDLE: Duration = Duration::from_secs(5);

impl Timeouts {
    /// Timeouts of a reserve connection: health checks send their request at once.
    pub(super) fn in_reserve(self) -> Self {
        Self {
            head: self.head.min(RESERVE_HEAD),
            idle: self.idle.min(RESERVE_IDLE),
            ..self
        }
    }
}
