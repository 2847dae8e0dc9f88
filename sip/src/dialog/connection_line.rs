//! Connection line of an SDP (RFC 8866 §5.7): where media go.

use std::net::IpAddr;

/// A connection line: its address, or its number if it has none that can be read.
#[derive(Copy, Clone, Default)]
pub(super) struct Connection {
    pub(super) ip: Option<IpAddr>,
    pub(super) unread: Option<usize>,
}

impl Connection {
    /// Reads the value of line number `line`.
    pub(super) fn read(value: &[u8], line: usize) -> Self {
        let ip = address(value);
        Self {
            ip,
            unread: ip.is_none().then_some(line),
        }
    }
}

/// Reads the value of a connection line, such as `IN IP4 192.0.2.1`, perhaps with the `/127` of a multicast group. `None` for a host name,
/// which isn't looked up.
fn address(value: &[u8]) -> Option<IpAddr> {
    let address = value
        .strip_prefix(b"IN IP4 ")
        .or_else(|| value.strip_prefix(b"IN IP6 "))?;
    let address = address.split(|octet| *octet == b'/').next()?;
    std::str::from_utf8(address).ok()?.trim().parse().ok()
}
