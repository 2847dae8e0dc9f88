//! Networks mapped to the orgs whose calls come from them, looked up by source address.
//!
//! Pure. A look-up costs one hash per prefix length in use, regardless of the number of networks.

use std::net::IpAddr;

use ipnet::IpNet;
use smallvec::SmallVec;
use uuid::Uuid;

use super::persistent::PersistentMap;
use crate::peer_pattern::canonical;

/// Map from networks to orgs. A clone shares the networks with its origin.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    networks: PersistentMap<IpNet, SmallVec<[Uuid; 1]>>,
    v4_lengths: Lengths,
    v6_lengths: Lengths,
}

/// Prefix lengths in use, longest first, each with its number of networks.
type Lengths = SmallVec<[(u8, usize); 8]>;

impl Sources {
    /// Adds a network of `org`; adding it again changes nothing.
    pub fn insert(&mut self, network: IpNet, org: Uuid) {
        let network = canonical(network);
        let mut orgs = self.networks.get(&network).cloned().unwrap_or_default();
        if orgs.contains(&org) {
            return;
        }

        orgs.push(org);
        if self.networks.insert(network, orgs).is_some() {
            return;
        }

        let length = network.prefix_len();
        let lengths = self.lengths(network);
        match lengths.binary_search_by(|(held, _)| length.cmp(held)) {
            Ok(place) => lengths[place].1 += 1,
            Err(place) => lengths.insert(place, (length, 1)),
        }
    }

    /// Removes a network of `org`, if present.
    pub fn remove(&mut self, network: IpNet, org: Uuid) {
        let network = canonical(network);
        let Some(mut orgs) = self.networks.get(&network).cloned() else {
            return;
        };

        orgs.retain(|known| *known != org);
        if !orgs.is_empty() {
            self.networks.insert(network, orgs);
            return;
        }

        self.networks.remove(&network);

        let length = network.prefix_len();
        let lengths = self.lengths(network);
        if let Ok(place) = lengths.binary_search_by(|(held, _)| length.cmp(held)) {
            lengths[place].1 -= 1;
            if lengths[place].1 == 0 {
                lengths.remove(place);
            }
        }
    }

    /// Returns the narrowest network that holds `address`.
    pub fn narrowest(&self, address: IpAddr) -> Option<IpNet> {
        let address = address.to_canonical();
        let lengths = match address {
            IpAddr::V4(_) => &self.v4_lengths,
            IpAddr::V6(_) => &self.v6_lengths,
        };
        lengths.iter().find_map(|(length, _)| {
            let network = IpNet::new(address, *length).ok()?.trunc();
            self.networks.get(&network).map(|_| network)
        })
    }

    /// Returns the orgs whose networks hold `address`, narrowest network first; one org may come twice.
    pub fn matches(&self, address: IpAddr) -> impl Iterator<Item = Uuid> {
        let address = address.to_canonical();
        let lengths = match address {
            IpAddr::V4(_) => &self.v4_lengths,
            IpAddr::V6(_) => &self.v6_lengths,
        };
        lengths
            .iter()
            .filter_map(move |(length, _)| {
                self.networks
                    .get(&IpNet::new(address, *length).ok()?.trunc())
            })
            .flatten()
            .copied()
    }

    fn lengths(&mut self, network: IpNet) -> &mut Lengths {
        match network {
            IpNet::V4(_) => &mut self.v4_lengths,
            IpNet::V6(_) => &mut self.v6_lengths,
        }
    }
}

impl FromIterator<(IpNet, Uuid)> for Sources {
    fn from_iter<T: IntoIterator<Item = (IpNet, Uuid)>>(networks: T) -> Self {
        let mut sources = Self::default();
        for (network, org) in networks {
            sources.insert(network, org);
        }
        sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_is_found_no_more() {
        let [one, two] = [1, 2].map(Uuid::from_u128);
        let network = |text: &str| text.parse::<IpNet>().expect("a network");
        let address = "192.0.2.7".parse().expect("an address");
        let networks = [
            ("192.0.2.0/24", one),
            ("192.0.2.0/24", two),
            ("192.0.2.0/24", two),
            ("192.0.2.7/32", one),
            ("198.51.100.0/24", one),
        ];
        let mut sources: Sources = networks
            .map(|(text, org)| (network(text), org))
            .into_iter()
            .collect();

        let found = |sources: &Sources| sources.matches(address).collect::<Vec<_>>();
        assert_eq!(found(&sources), [one, one, two]);
        for (removed, org, left) in [
            ("192.0.2.7/32", two, vec![one, one, two]),
            ("192.0.2.7/32", one, vec![one, two]),
            ("192.0.2.0/24", one, vec![two]),
            ("192.0.2.0/24", two, vec![]),
        ] {
            sources.remove(network(removed), org);
            assert_eq!(found(&sources), left, "{removed}");
        }
        assert_eq!(sources.v4_lengths.as_slice(), [(24, 1)]);
        assert!(sources.v6_lengths.is_empty());
    }
}
