//! Realms for which an outbound trunk's credentials are meant (RFC 3261 §22.1): learnt from the carrier's own challenges, a few at most, or
//! named by the org. Any other server on the path to a callee has a realm of its own, and gets no digest.

use serde::{Deserialize, Serialize};

/// Maximum number of realms of one trunk: a carrier's edge, its proxies and its registrar.
pub const MAX_REALMS: usize = 4;
/// Longest realm that is accepted, in octets. The challenge of a longer one isn't answered.
pub const LONGEST_REALM: usize = 255;

/// A realm that has challenged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownRealm {
    /// Text of the realm, without escapes.
    pub realm: Box<str>,
    /// The realm has offered `qop` before. A later challenge without `qop` is then taken for a downgrade and not answered.
    pub offers_qop: bool,
}

/// Realms of one trunk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthRealms {
    /// The realm that the org has named; no other counts then.
    fixed: Option<Box<str>>,
    known: Vec<KnownRealm>,
    /// No challenge without `qop` is answered, not even that of a realm that has never offered it.
    requires_qop: bool,
}

/// Reason why a challenge isn't answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ChallengeFault {
    /// The realm isn't one of the trunk's.
    OtherRealm,
    /// The challenge lacks `qop`, which this realm has to offer.
    NoQop,
}

impl AuthRealms {
    /// Creates the set of realms. With `fixed`, no other realm counts.
    pub fn new(fixed: Option<&str>, known: &[KnownRealm], requires_qop: bool) -> Self {
        Self {
            fixed: fixed.map(Into::into),
            known: known.to_vec(),
            requires_qop,
        }
    }

    /// Returns the realms' names, as the API shows them.
    pub fn names(&self) -> Vec<String> {
        match &self.fixed {
            Some(fixed) => vec![fixed.to_string()],
            None => self
                .known
                .iter()
                .map(|known| known.realm.to_string())
                .collect(),
        }
    }

    /// Returns the realms that have challenged so far.
    pub fn known(&self) -> &[KnownRealm] {
        &self.known
    }

    /// Judges whether a challenge may be answered. With `may_learn` the realm may be a new one. Returns what [`Self::learn`] has to remember
    /// of the challenge; `None` if that is known already, or without `may_learn`.
    ///
    /// # Errors
    /// The challenge may not be answered.
    pub fn judge(
        &self,
        realm: &str,
        offers_qop: bool,
        may_learn: bool,
    ) -> Result<Option<KnownRealm>, ChallengeFault> {
        let known = self.known.iter().find(|known| *known.realm == *realm);
        let is_ours = match &self.fixed {
            Some(fixed) => **fixed == *realm,
            // Beyond the bound a new realm is refused, and displaces none that is known.
            None => known.is_some() || (may_learn && self.known.len() < MAX_REALMS),
        };
        if !is_ours || realm.len() > LONGEST_REALM {
            return Err(ChallengeFault::OtherRealm);
        }

        let offered_qop = known.is_some_and(|known| known.offers_qop);
        if !offers_qop && (self.requires_qop || offered_qop) {
            return Err(ChallengeFault::NoQop);
        }

        let is_news = may_learn && (known.is_none() || (offers_qop && !offered_qop));
        Ok(is_news.then(|| KnownRealm {
            realm: realm.into(),
            offers_qop,
        }))
    }

    /// Remembers a challenge; returns false if nothing changes.
    pub fn learn(&mut self, seen: &KnownRealm) -> bool {
        // Judged again: another call may have learnt realms since.
        let Ok(Some(news)) = self.judge(&seen.realm, seen.offers_qop, true) else {
            return false;
        };
        match self
            .known
            .iter_mut()
            .find(|known| known.realm == news.realm)
        {
            Some(known) => *known = news,
            None => self.known.push(news),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEARNS: bool = true;
    const QOP: bool = true;

    fn seen(realm: &str, offers_qop: bool) -> KnownRealm {
        KnownRealm {
            realm: realm.into(),
            offers_qop,
        }
    }

    #[test]
    fn four_realms_are_learnt_and_no_fifth() {
        let mut realms = AuthRealms::default();
        for realm in ["a", "b", "a", "c", "d"] {
            let is_new = !realms.names().contains(&realm.to_owned());
            assert_eq!(
                realms.judge(realm, QOP, !LEARNS).is_ok(),
                !is_new,
                "{realm}"
            );
            assert_eq!(realms.learn(&seen(realm, QOP)), is_new, "{realm}");
        }

        assert_eq!(
            realms.judge("e", QOP, LEARNS),
            Err(ChallengeFault::OtherRealm)
        );
        assert!(!realms.learn(&seen("e", QOP)));
        assert_eq!(realms.judge("d", QOP, !LEARNS), Ok(None));
        assert_eq!(realms.names(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_fixed_realm_is_the_only_one() {
        let mut realms = AuthRealms::new(Some("a"), &[], false);
        assert_eq!(realms.judge("a", false, !LEARNS), Ok(None));
        assert_eq!(
            realms.judge("b", QOP, LEARNS),
            Err(ChallengeFault::OtherRealm)
        );
        assert!(realms.learn(&seen("a", QOP)) && !realms.learn(&seen("b", QOP)));
        assert_eq!(realms.judge("a", false, LEARNS), Err(ChallengeFault::NoQop));
        assert_eq!(realms.names(), ["a"]);
    }

    #[test]
    fn a_realm_that_has_offered_qop_goes_on_offering_it() {
        let mut realms = AuthRealms::default();
        assert!(realms.learn(&seen("a", false)) && !realms.learn(&seen("a", false)));
        assert_eq!(realms.judge("a", false, !LEARNS), Ok(None));
        assert!(realms.learn(&seen("a", QOP)));
        assert_eq!(realms.judge("a", false, LEARNS), Err(ChallengeFault::NoQop));
        assert!(!realms.learn(&seen("a", false)));
        let strict = AuthRealms::new(None, &[], true);
        assert_eq!(strict.judge("a", false, LEARNS), Err(ChallengeFault::NoQop));
        assert_eq!(strict.judge("a", QOP, LEARNS), Ok(Some(seen("a", QOP))));
    }

    #[test]
    fn a_realm_beyond_the_maximum_length_is_refused() {
        let long = "x".repeat(LONGEST_REALM + 1);
        let realms = AuthRealms::default();
        assert_eq!(
            realms.judge(&long, QOP, LEARNS),
            Err(ChallengeFault::OtherRealm)
        );
    }
}
