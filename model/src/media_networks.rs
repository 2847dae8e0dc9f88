//! Networks in which an org's phone systems and carriers have their media, by the operator's word: audio goes there before any has come from there.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks of media. Clones share them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MediaNetworks(Option<Arc<[IpNet]>>);

impl MediaNetworks {
    /// The networks.
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self((!networks.is_empty()).then(|| networks.into()))
    }

    /// Returns whether one of them holds the address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let networks = self.0.as_deref().unwrap_or_default();
        networks.iter().any(|network| network.contains(&ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_looked_for_in_all_networks() {
        let networks = ["192.0.2.0/24", "2001:db8::/32"].map(|network| network.parse().unwrap());
        let networks = MediaNetworks::new(networks.into());
        for (ip, expected) in [
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("2001:db8::7", true),
            ("192.0.3.7", false),
        ] {
            assert_eq!(networks.contains(ip.parse().unwrap()), expected, "{ip}");
        }
        assert!(!MediaNetworks::default().contains("192.0.2.7".parse().unwrap()));
    }
}
