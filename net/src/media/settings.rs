//! Settings of media that Trunkline terminates.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use trunkline_bounds::Descriptors;

/// Settings of media that Trunkline terminates.
#[derive(Clone, Debug)]
pub struct MediaSettings {
    /// UDP ports, even ones first (RFC 3550 §11). Each call takes one.
    pub ports: RangeInclusive<u16>,
    /// Addresses that sockets are bound to. One port is tried at each, so that a wrong address fails at startup, not at the first call.
    pub ips: Vec<IpAddr>,
    /// All addresses of this machine, by which its own ports are recognised.
    pub own: Vec<IpAddr>,
    /// Bound addresses of SIP and HTTP, which are never a peer.
    pub listeners: Vec<SocketAddr>,
    /// Threads that serve the sockets, at least 1.
    pub workers: usize,
    /// Descriptors, of which each socket takes one.
    pub descriptors: Arc<Descriptors>,
}
