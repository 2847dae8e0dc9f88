//! Peers as the operator's configuration lists them: hosts, addresses and networks.

use std::net::IpAddr;

use ipnet::IpNet;

/// A peer as the operator's configuration lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerPattern {
    /// An address or a network.
    Network(IpNet),
    /// A host name, in lower case.
    Host(Box<str>),
}

impl PeerPattern {
    /// Returns whether a peer written as `host` and found at `address` matches the pattern.
    pub fn matches(&self, host: &str, address: IpAddr) -> bool {
        self.contains(address) || self.is_named(host)
    }

    /// Returns whether the pattern is a network that holds the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match self {
            Self::Network(network) => network.contains(&address.to_canonical()),
            Self::Host(_) => false,
        }
    }

    /// Returns whether the pattern is this host name, ignoring case and a trailing dot.
    pub fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Network(_) => false,
            Self::Host(own) => own.eq_ignore_ascii_case(name.trim_end_matches('.')),
        }
    }
}

/// Writes the form that [`FromStr`](std::str::FromStr) reads; a network of one address as the address.
impl std::fmt::Display for PeerPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().fmt(f)
            }
            Self::Network(network) => network.fmt(f),
            Self::Host(name) => name.fmt(f),
        }
    }
}

impl std::str::FromStr for PeerPattern {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        Ok(match text.parse::<IpNet>().ok().or_else(address) {
            Some(network) => Self::Network(canonical(network)),
            None => Self::Host(text.trim_end_matches('.').to_ascii_lowercase().into()),
        })
    }
}

/// Returns the network with its host bits cleared; a network inside `::ffff:0:0/96` becomes the IPv4 network that it maps.
pub fn canonical(network: IpNet) -> IpNet {
    let network = network.trunc();
    match (network.network().to_canonical(), network) {
        (address @ IpAddr::V4(_), IpNet::V6(mapped)) if mapped.prefix_len() >= 96 => {
            IpNet::new(address, mapped.prefix_len() - 96).unwrap_or(network)
        }
        (IpAddr::V4(_) | IpAddr::V6(_), IpNet::V4(_) | IpNet::V6(_)) => network,
    }
}
