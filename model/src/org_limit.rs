//! One limit of an org: the values that the operator and the org's partner have set, and the limit that follows from them.

/// One limit of an org as it is stored.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredLimit {
    /// The operator's value for this org.
    pub by_operator: Option<u32>,
    /// The partner's value for this org.
    pub by_partner: Option<u32>,
    /// Greatest value that the operator lets the partner give to any of its orgs.
    pub partner_most: Option<u32>,
}

impl StoredLimit {
    /// Returns the limit in force; `default` applies where neither operator nor partner has set one.
    pub fn in_force(self, default: u32) -> u32 {
        let own = self.by_operator.unwrap_or(default);
        let within = self.greatest(default);
        self.by_partner.unwrap_or(own).min(within)
    }

    /// Returns the greatest value that the partner may set. The operator's value for this org takes precedence over its bound for all the
    /// partner's orgs.
    pub fn greatest(self, default: u32) -> u32 {
        self.by_operator.or(self.partner_most).unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_stays_within_what_the_operator_allows() {
        for (name, by_operator, by_partner, partner_most, in_force, greatest) in [
            ("nobody says anything", None, None, None, 10, 10),
            ("the operator", Some(30), None, None, 30, 30),
            ("the partner lowers it", None, Some(4), None, 4, 10),
            (
                "the operator has said more",
                Some(30),
                Some(20),
                None,
                20,
                30,
            ),
            ("the operator says less later", Some(3), Some(8), None, 3, 3),
            ("the partner may give more", None, None, Some(50), 10, 50),
            ("and does", None, Some(40), Some(50), 40, 50),
            ("its orgs may have less", None, None, Some(5), 5, 5),
            ("less than it gave", None, Some(8), Some(5), 5, 5),
            ("this org may have more", Some(30), None, Some(5), 30, 30),
        ] {
            let stored = StoredLimit {
                by_operator,
                by_partner,
                partner_most,
            };
            let found = (stored.in_force(10), stored.greatest(10));
            assert_eq!(found, (in_force, greatest), "{name}");
        }
    }
}
