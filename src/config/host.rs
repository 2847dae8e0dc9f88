//! Host to be dialled by others, with or without a port.

use super::local;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use trunkline_sip::flow::is_private;

/// Last labels of names that only a private network resolves (RFC 6761, RFC 6762, RFC 8375, and what routers hand out).
const PRIVATE_ZONES: [&str; 6] = ["local", "localhost", "lan", "internal", "home", "arpa"];

/// `host` or `host:port`, where the host is a name, an IPv4 address or an IPv6 address (bracketed when printed).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    host: Box<str>,
    /// The port, if one was given.
    pub port: Option<u16>,
}

impl HostPort {
    /// Host of `ip`, without a port.
    pub fn of_ip(ip: IpAddr) -> Self {
        Self {
            host: bracketed(ip),
            port: None,
        }
    }

    /// Host; an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Address of the host, if it is one and no name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .ok()
    }

    /// Returns whether the host is a public address, or a name that isn't reserved for a private network.
    pub fn is_public(&self) -> bool {
        match self.ip() {
            Some(ip) => !is_private(ip),
            None => {
                let name = self.host.trim_end_matches('.').to_ascii_lowercase();
                name.rsplit_once('.')
                    .is_some_and(|(_, last)| !PRIVATE_ZONES.contains(&last))
            }
        }
    }

    /// Host and port in the form of a Via or a URI.
    pub fn with_port(&self, port: u16) -> String {
        format!("{}:{port}", self.host)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// Error for a text that is no host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is not a host or host:port")]
pub struct NotAHost;

impl FromStr for HostPort {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        // First, since an IPv6 address has colons: its end would be taken for a port.
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::of_ip(ip));
        }

        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self {
                host: bracketed(address.ip()),
                port: Some(address.port()),
            });
        }

        if let Some(inner) = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            return inner
                .parse::<Ipv6Addr>()
                .map(|ip| Self::of_ip(ip.into()))
                .map_err(|_| NotAHost);
        }

        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| NotAHost)?)),
            None => (text, None),
        };

        if is_name(host) {
            Ok(Self {
                host: host.into(),
                port,
            })
        } else {
            Err(NotAHost)
        }
    }
}

/// Returns true for a host name of RFC 1123. A text that looks like an IPv4 address but isn't one (`1.2.3.400`) is
/// refused.
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|octet| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };

    let last = host
        .trim_end_matches('.')
        .rsplit('.')
        .next()
        .unwrap_or_default();

    host.len() <= 253
        && host.trim_end_matches('.').split('.').all(label)
        && !last.bytes().all(|octet| octet.is_ascii_digit())
}

fn bracketed(ip: IpAddr) -> Box<str> {
    match ip {
        IpAddr::V4(ip) => ip.to_string().into(),
        IpAddr::V6(ip) => format!("[{ip}]").into(),
    }
}

/// Returns the address that this machine sends from by its default route. Without such a route it is the first address that other machines may
/// reach, or else loopback. Connecting a UDP socket queries the routing table and sends nothing.
pub(super) fn own_address(v6: bool) -> IpAddr {
    // Addresses for documentation (RFC 5737, RFC 3849): no network of this machine has them, so the default route
    // decides.
    let (far, loopback): (IpAddr, IpAddr) = if v6 {
        let far = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        (far.into(), Ipv6Addr::LOCALHOST.into())
    } else {
        let far = Ipv4Addr::new(192, 0, 2, 1);
        (far.into(), Ipv4Addr::LOCALHOST.into())
    };

    source_towards(far)
        .or_else(|| local::first_reachable(&local::addresses(), v6))
        .unwrap_or(loopback)
}

/// Returns the address that packets to a peer leave from; `None` without a route to it.
pub(crate) fn source_towards(peer: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((peer, 5060))?;
        socket.local_addr()
    };
    source().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_private_networks_are_not_public() {
        for (host, is_public) in [
            ("sip.example.com", true),
            ("SIP.Example.COM.:5070", true),
            ("203.0.113.5", true),
            ("[2001:db8::1]:5060", true),
            ("10.0.0.5", false),
            ("127.0.0.1:5060", false),
            ("[fd00::1]", false),
            ("localhost", false),
            ("pbx", false),
            ("pbx.lan", false),
            ("voice.Internal", false),
        ] {
            let read = host.parse::<HostPort>().expect("a host");
            assert_eq!(read.is_public(), is_public, "{host}");
        }
    }

    #[test]
    fn hosts_are_read_and_printed() {
        for (text, printed) in [
            ("sip.example.com", Some("sip.example.com")),
            ("sip.example.com:5070", Some("sip.example.com:5070")),
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7:5062", Some("192.0.2.7:5062")),
            ("2001:db8::1", Some("[2001:db8::1]")),
            ("[2001:db8::1]", Some("[2001:db8::1]")),
            ("[2001:db8::1]:5060", Some("[2001:db8::1]:5060")),
            ("", None),
            ("a b", None),
            ("host:", None),
            ("host:70000", None),
            ("-bad.example", None),
            ("1.2.3.400", None),
            ("sip:host", None),
        ] {
            assert_eq!(
                text.parse::<HostPort>()
                    .ok()
                    .map(|host| host.to_string())
                    .as_deref(),
                printed,
                "{text}"
            );
        }
    }

    #[test]
    fn a_port_is_added_behind_brackets() {
        let host: HostPort = "2001:db8::1".parse().unwrap();
        assert_eq!(host.with_port(5060), "[2001:db8::1]:5060");
        assert_eq!(host.ip(), Some("2001:db8::1".parse().unwrap()));
    }
}
