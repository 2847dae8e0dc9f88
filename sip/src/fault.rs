//! Reason why a flow has failed, as its transport reports it (RFC 3261 §18.4).

use std::sync::Arc;

/// Reason why a flow can carry nothing more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The connection was closed, or broke.
    Closed,
    /// The peer refused the connection.
    Refused,
    /// The network reports that the peer can't be reached.
    Unreachable(Unreachable),
    /// The connection was not opened in time.
    NotOpened,
    /// The TLS handshake failed, for this reason.
    NotSecured(Arc<str>),
    /// No further connection may be opened.
    TooMany,
}

/// Unreachable target, by the codes of ICMP and of ICMPv6 (RFC 792, RFC 4443 §3.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No socket is bound to the port.
    Port,
    /// The host is unreachable.
    Host,
    /// The network is unreachable.
    Network,
    /// A firewall forbids it.
    Prohibited,
    /// Any other code, such as a missing protocol or a failed source route.
    Other,
}
