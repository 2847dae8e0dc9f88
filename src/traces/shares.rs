//! Shares of the quotas of disk and memory: while one is full, an org with more than its share loses its own oldest messages, and so do the orgs of a partner with more
//! than its share together. All others keep theirs until the quota is used up by themselves, or they are old.

use std::collections::{HashMap, HashSet};

use trunkline_bounds::{IdTable, PartnerShare};
use uuid::Uuid;

/// Part of the quota that is an org's share.
const ORGS_PART: u64 = 4;
/// Part of a file or block that has to be of orgs above their share, in per cent: less isn't worth the work of writing the rest anew.
pub(super) const THINNED_PERCENT: u64 = 10;

/// Partners of orgs.
pub(super) type Partners = HashMap<Uuid, PartnerShare>;

/// Octets of messages, by their orgs.
#[derive(Clone, Debug, Default)]
pub(super) struct OrgOctets(IdTable<Uuid, u64>);

impl OrgOctets {
    pub(super) fn add(&mut self, org: Uuid, octets: usize) {
        *self.0.entry(org).or_default() += octets as u64;
    }

    pub(super) fn add_all(&mut self, more: &Self) {
        for (org, octets) in &more.0 {
            *self.0.entry(*org).or_default() += octets;
        }
    }

    /// Removes these orgs.
    pub(super) fn remove(&mut self, orgs: &HashSet<Uuid>) {
        self.0.retain(|org, _| !orgs.contains(org));
    }

    /// Returns whether nobody is known to have messages: those of a file from before the start.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the part of all octets that is of these orgs, in per cent.
    pub(super) fn percent_of(&self, orgs: &HashSet<Uuid>) -> u64 {
        let all: u64 = self.0.values().sum();
        let of = self.0.iter().filter(|(org, _)| orgs.contains(org));
        let theirs: u64 = of.map(|(_, octets)| octets).sum();
        (theirs * 100).checked_div(all).unwrap_or(0)
    }
}

/// Counts a file or block from which the messages of orgs above their share were dropped.
pub(super) fn count_thinned() {
    metrics::counter!("trunkline_share_refusals_total", "resource" => "traces").increment(1);
}

/// Returns the orgs that have more than their share of a quota, by the sizes of files or blocks and the messages in them.
pub(super) fn above_their_share<'o>(
    files: impl Iterator<Item = (u64, &'o OrgOctets)>,
    quota: u64,
    partners: &Partners,
) -> HashSet<Uuid> {
    // Messages are compressed together: each has its part of the file.
    let mut held: HashMap<Uuid, u64> = HashMap::new();
    for (size, orgs) in files {
        let all: u64 = orgs.0.values().sum();
        for (org, octets) in &orgs.0 {
            let part = u128::from(size) * u128::from(*octets) / u128::from(all.max(1));
            *held.entry(*org).or_default() += u64::try_from(part).unwrap_or(u64::MAX);
        }
    }

    let mut of_partners: HashMap<Uuid, u64> = HashMap::new();
    for (org, octets) in &held {
        if let Some(partner) = partners.get(org) {
            *of_partners.entry(partner.id).or_default() += octets;
        }
    }
    let is_above = |org: &Uuid, octets: u64| {
        let partner = partners.get(org);
        let of_partner = partner.is_some_and(|partner| {
            of_partners[&partner.id] > quota / 100 * u64::from(partner.percent)
        });
        octets > quota / ORGS_PART || of_partner
    };
    let above = held.iter().filter(|(org, octets)| is_above(org, **octets));
    above.map(|(org, _)| *org).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orgs_and_partners_above_their_share_are_known() {
        let id = Uuid::from_u128;
        let partner = PartnerShare {
            id: id(100),
            percent: 50,
        };
        let partners = Partners::from([1, 2, 3].map(|org| (id(org), partner)));
        let file = |orgs: &[(u128, usize)]| {
            let mut octets = OrgOctets::default();
            orgs.iter()
                .for_each(|(org, held)| octets.add(id(*org), *held));
            octets
        };
        let above = |files: &[(u64, OrgOctets)]| {
            let files = files.iter().map(|(size, orgs)| (*size, orgs));
            let mut above: Vec<Uuid> = above_their_share(files, 1_000, &partners)
                .into_iter()
                .collect();
            above.sort();
            above
        };

        // Half of a file of 400 is 200, below a quarter of the quota.
        assert_eq!(
            above(&[(400, file(&[(4, 70), (5, 70)]))]),
            Vec::<Uuid>::new()
        );
        assert_eq!(above(&[(400, file(&[(4, 70), (5, 30)]))]), [id(4)]);
        // Three orgs of a partner with 200 each.
        let three = file(&[(1, 10), (2, 10), (3, 10), (4, 10)]);
        assert_eq!(above(&[(800, three)]), [id(1), id(2), id(3)]);
        assert_eq!(above(&[(900, OrgOctets::default())]), Vec::<Uuid>::new());
    }
}
