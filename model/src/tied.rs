//! Peers that the operator has tied to an org: the org may name them even though they are reserved or private.

use std::net::IpAddr;
use std::sync::Arc;

use crate::address::NamedBy;
use crate::peer_pattern::PeerPattern;

/// Tied peers of one org. A host name matches as it is written, an address by the network that holds it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TiedPeers(Arc<[PeerPattern]>);

impl TiedPeers {
    /// Creates the list.
    pub fn new(tied: Vec<PeerPattern>) -> Self {
        Self(tied.into())
    }

    /// Returns whether a host as an org writes it, an IPv6 address with or without brackets, is tied.
    pub fn lists(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse() {
            Ok(address) => self.contains(address),
            Err(_) => self.0.iter().any(|tied| tied.is_named(host)),
        }
    }

    /// Returns whether an address that an org writes is tied.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|tied| tied.contains(address))
    }

    /// Returns the rights with which a `host` that the org writes is judged.
    pub fn namer_of(&self, host: &str) -> NamedBy {
        match self.lists(host) {
            true => NamedBy::Tied,
            false => NamedBy::Tenant,
        }
    }
}

/// Party that sets the hosts of a runtime.
#[derive(Clone, Debug)]
pub enum Namer {
    /// The operator: no host is judged.
    Operator,
    /// An org, which may name these peers although they are reserved or private.
    Org(TiedPeers),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_tied_as_it_is_written() {
        let tied = ["carrier.example", "10.0.0.0/24", "2001:db8::7"];
        let tied = TiedPeers::new(tied.map(|tied| tied.parse().unwrap()).into());
        for (host, expected) in [
            ("Carrier.Example.", NamedBy::Tied),
            ("sip.carrier.example", NamedBy::Tenant),
            ("10.0.0.7", NamedBy::Tied),
            ("10.0.1.7", NamedBy::Tenant),
            ("[2001:db8::7]", NamedBy::Tied),
            ("2001:db8::8", NamedBy::Tenant),
        ] {
            assert_eq!(tied.namer_of(host), expected, "{host}");
            assert_eq!(
                TiedPeers::default().namer_of(host),
                NamedBy::Tenant,
                "{host}"
            );
        }
    }
}
