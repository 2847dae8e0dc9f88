//! Peers that trust this node by its address (`sip.reserved_peers`): a tenant may not name them, neither by host name nor by address.
//!
//! The resolver outside this crate supplies the addresses of names ([`ReservedPeers::learn`]). All clones share them, so that a shard needs
//! no look-up of its own.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::peer_pattern::PeerPattern;

/// Reserved peers as the operator lists them, with the addresses of their names.
#[derive(Clone, Debug, Default)]
pub struct ReservedPeers {
    listed: Arc<[PeerPattern]>,
    /// Sorted, in their canonical form.
    addresses: Arc<ArcSwap<Vec<IpAddr>>>,
}

impl ReservedPeers {
    /// Creates the list; no address of a name is known yet.
    pub fn new(listed: Vec<PeerPattern>) -> Self {
        Self {
            listed: listed.into(),
            addresses: Arc::default(),
        }
    }

    /// Returns the peers that are listed by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().filter_map(|listed| match listed {
            PeerPattern::Host(host) => Some(&**host),
            PeerPattern::Network(_) => None,
        })
    }

    /// Returns whether a peer is listed under this name.
    pub fn lists_name(&self, name: &str) -> bool {
        self.listed.iter().any(|listed| listed.is_named(name))
    }

    /// Returns whether a peer has this address: listed as such, or as an address of a listed name.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.listed.iter().any(|listed| listed.contains(ip))
            || self.addresses.load().binary_search(&ip).is_ok()
    }

    /// Replaces the addresses of all names. Calls set up from now on are judged by them.
    pub fn learn(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut addresses: Vec<IpAddr> = addresses
            .into_iter()
            .map(|address| address.to_canonical())
            .collect();
        addresses.sort();
        addresses.dedup();
        self.addresses.store(Arc::new(addresses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_known_by_its_names_and_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let listed = ["carrier.example", "203.0.113.0/24"].map(|listed| listed.parse().unwrap());
        let reserved = ReservedPeers::new(listed.into());
        let shared = reserved.clone();

        for (address, before, learnt, replaced) in [
            ("203.0.113.9", true, true, true),
            ("198.51.100.7", false, true, false),
            ("::ffff:198.51.100.7", false, true, false),
            ("2001:db8::7", false, true, true),
            ("192.0.2.1", false, false, false),
        ] {
            let address = ip(address);
            reserved.learn([]);
            assert_eq!(shared.contains(address), before, "{address}");
            reserved.learn([ip("2001:db8::7"), ip("::ffff:198.51.100.7")]);
            assert_eq!(shared.contains(address), learnt, "{address}");
            reserved.learn([ip("2001:db8::7")]);
            assert_eq!(shared.contains(address), replaced, "{address}");
        }
        assert!(reserved.lists_name("Carrier.Example."));
        assert!(!reserved.lists_name("other.example"));
        assert_eq!(reserved.names().collect::<Vec<_>>(), ["carrier.example"]);
    }
}
