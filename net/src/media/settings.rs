//! Configuration of the media.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// What the media is configured with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The UDP ports to be used, even ones first (RFC 3550 §11). Each call takes one.
    pub ports: RangeInclusive<u16>,
    /// Addresses that sockets will be bound to: one port is tried at each, so that a start fails rather than the first call.
    pub ips: Vec<IpAddr>,
    /// All addresses of this machine, by which a port of ours is recognised.
    pub own: Vec<IpAddr>,
    /// Bound addresses of SIP and HTTP, which are never a peer.
    pub listeners: Vec<SocketAddr>,
    /// How long a call that should be heard may be silent before that is reported.
    pub silence: Duration,
    /// Threads that serve the sockets, at least 1.
    pub workers: usize,
}
