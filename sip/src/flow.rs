//! Flows: the path by which a message came, and by which its answer leaves (RFC 3261 §18.2.2, RFC 3581, RFC 5626).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The transport of a flow or of a URI.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// RFC 3261 §18: unreliable, one message a datagram.
    Udp,
    /// Reliable stream.
    Tcp,
    /// TLS over TCP.
    Tls,
}

impl Transport {
    /// Returns true if the transport retransmits by itself, so that transaction timers A, E and G stay off.
    pub const fn is_reliable(self) -> bool {
        match self {
            Self::Udp => false,
            Self::Tcp | Self::Tls => true,
        }
    }

    /// Returns true if no third party can read or change the traffic between the two ends.
    pub const fn is_secure(self) -> bool {
        match self {
            Self::Udp | Self::Tcp => false,
            Self::Tls => true,
        }
    }

    /// Returns true if a message may come by `other` when this transport was agreed on: never by a less secure one.
    pub const fn admits(self, other: Self) -> bool {
        other.is_secure() || !self.is_secure()
    }

    /// The name in a Via header.
    pub const fn via_name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// The value of a URI's `transport` parameter.
    pub const fn uri_name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri_name())
    }
}

/// The source that an address counts as for rate limits: an IPv4 address itself; in IPv6 the /64, which usually belongs to one
/// host.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

/// The network that an address counts as where nothing is proven, since it may be forged: in IPv4 the /24, in IPv6 the /64.
pub fn network(address: IpAddr) -> IpAddr {
    match source(address) {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        network @ IpAddr::V6(_) => network,
    }
}

/// Returns true for an address that is reachable only in its own network.
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            // 100.64.0.0/10, which carriers use behind their own NAT (RFC 6598).
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// One path to one peer: our socket, the local address that the packet came to, the peer, and for a
/// stream the connection. Plain data; the shell maps it to descriptors.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// The transport.
    pub transport: Transport,
    /// Index of the listener (its position in the configuration).
    pub listener: u16,
    /// The connection's number, unique while the process lives; 0 on UDP, and 0 on a stream means "reuse a
    /// connection to `peer` or open one". Or the number of a name: "one to `peer` that has proved that name", see [`crate::verified`].
    pub connection: u32,
    /// Our address as the peer sees the packet's destination (IP_PKTINFO on UDP).
    pub local: SocketAddr,
    /// The peer's address and port.
    pub peer: SocketAddr,
}

impl Flow {
    /// Returns true if both flows have the same peer IP, whatever the port.
    pub fn is_with(&self, other: &Self) -> bool {
        // A dual-stack socket reports an IPv4 peer as a mapped IPv6 address.
        let (ip, other) = (self.peer.ip(), other.peer.ip());
        ip == other || ip.to_canonical() == other.to_canonical()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_and_a_network_what_may_be_forged() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (address, of_source, of_network) in [
            ("192.0.2.77", "192.0.2.77", "192.0.2.0"),
            ("::ffff:192.0.2.77", "192.0.2.77", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", "2001:db8:1:2::"),
        ] {
            assert_eq!(source(ip(address)), ip(of_source), "{address}");
            assert_eq!(network(ip(address)), ip(of_network), "{address}");
        }
    }

    #[test]
    fn a_less_secure_transport_stands_in_for_no_other() {
        use Transport::{Tcp, Tls, Udp};
        for (agreed, other, admitted) in [
            (Udp, Udp, true),
            (Udp, Tcp, true),
            (Tcp, Udp, true),
            (Udp, Tls, true),
            (Tls, Tls, true),
            (Tls, Tcp, false),
            (Tls, Udp, false),
        ] {
            assert_eq!(agreed.admits(other), admitted, "{agreed} {other}");
        }
    }

    #[test]
    fn private_hosts_are_told_from_public_ones() {
        for (address, private) in [
            ("10.1.2.3", true),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("192.0.2.1", false),
            ("::ffff:192.168.0.1", true),
            ("fd00::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(
                is_private(address.parse().expect("address")),
                private,
                "{address}"
            );
        }
    }
}
