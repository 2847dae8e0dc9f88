//! Why a flow has failed, as its transport says (RFC 3261 §18.4).

use std::sync::Arc;

/// Why nothing more goes by a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The connection was closed, or broke.
    Closed,
    /// The peer refused the connection.
    Refused,
    /// The network says that the peer can't be reached.
    Unreachable(Unreachable),
    /// The connection was not opened in time.
    NotOpened,
    /// TLS was not agreed on, for this reason.
    NotSecured(Arc<str>),
    /// No further connection may be opened.
    TooMany,
}

/// Unreachable target, by the codes of ICMP and of ICMPv6 (RFC 792, RFC 4443 §3.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// Nobody listens at the port.
    Port,
    /// The host.
    Host,
    /// The network.
    Network,
    /// A firewall forbids it.
    Prohibited,
    /// Anything else, as a protocol or a source route.
    Other,
}
