//! Cache of credentials, and the time each was last used.
//!
//! A look-up is cached for a minute. The change feed ends that earlier: at once for a key revoked on this node, within
//! a second for one revoked on another. So most requests cost neither a signature check nor a query. The signing keys
//! follow the feed too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Change, Error, Partner, PartnerKey, Session, Store, TokenHash, org_keys, partners,
};
use uuid::Uuid;

use super::error::ApiError;

/// Age up to which a cached look-up is used without asking the database.
const CACHED_FOR: Duration = Duration::from_secs(60);
/// Time that a look-up is kept beyond that age, for use while the database is away.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3_600);

/// SHA-256 of a credential as the client sent it.
pub(super) type Presented = [u8; 32];

/// Caches of all kinds of credentials.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    pub(super) orgs: CredentialCache<KnownOrg>,
    pub(super) partners: CredentialCache<KnownPartner>,
    pub(crate) sessions: CredentialCache<DashboardSession>,
    pub(super) uses: Uses,
    /// Microseconds at which the signing keys were last read because a token named an unknown one.
    pub(super) keys_read: AtomicU64,
}

/// Rights of whoever makes a request in an org: those of an API key, of a session of the dashboard, or the operator's.
#[derive(Debug)]
pub(super) struct CallerKey {
    pub(super) id: Uuid,
    pub(super) org_id: Uuid,
    pub(super) name: String,
    pub(super) scopes: Vec<String>,
    /// Expiry; `None`: valid until revoked.
    pub(super) expires_at: Option<Moment>,
}

/// Key of an org that exists.
#[derive(Debug)]
pub(super) struct KnownOrg {
    pub(super) key: CallerKey,
    /// True if the org is suspended.
    pub(super) suspended: bool,
    /// Requests per minute for all keys of the org together.
    pub(super) requests_per_minute: u32,
    /// Streams per minute that all keys of the org may open together.
    pub(super) streams_per_minute: u32,
}

/// Session of the dashboard, as a request carries it.
#[derive(Debug)]
pub(crate) struct DashboardSession {
    pub(crate) record: Session,
    pub(crate) hash: TokenHash,
    /// Requests per minute for all keys of the org together. Requests of sessions count as `Policy::Console` instead.
    pub(super) requests_per_minute: u32,
    /// Streams per minute that all keys of the org may open together.
    pub(super) streams_per_minute: u32,
}

/// Key of a partner, active or not, that exists.
#[derive(Debug)]
pub(super) struct KnownPartner {
    pub(super) key: PartnerKey,
    pub(super) partner: Partner,
}

/// Cache of look-ups. It holds only what was found, so it has at most one entry per key, and an unauthenticated client
/// can't grow it.
#[derive(Debug)]
pub(crate) struct CredentialCache<K> {
    known: DashMap<Presented, (Arc<K>, Moment)>,
    /// Number of invalidations: a look-up during which one came isn't cached.
    forgotten: AtomicU64,
}

/// Time each key was last used, until it is stored.
#[derive(Debug, Default)]
pub(super) struct Uses {
    orgs: DashMap<Uuid, Moment>,
    partners: DashMap<Uuid, Moment>,
}

/// Hashes a credential for look-up.
pub(crate) fn presented(credential: &str) -> Presented {
    Sha256::digest(credential).into()
}

impl Credentials {
    /// Drops cached entries that a change concerns.
    pub(super) fn forget(&self, change: Change) {
        match change {
            Change::OrgKey { key, .. } => self.orgs.forget(|known| known.key.id == key),
            Change::Org(org) => {
                self.orgs.forget(|known| known.key.org_id == org);
                self.sessions.forget(|session| session.record.org_id == org);
            }
            Change::Partner(partner) => self.partners.forget(|known| known.partner.id == partner),
            // The cache doesn't know which orgs a partner's keys are for.
            Change::PartnerState(_) => {
                self.orgs.forget(|_| true);
                self.sessions.forget(|_| true);
            }
            Change::Session(org) => self.sessions.forget(|session| session.record.org_id == org),
            // A token of a retired signing key may be cached.
            Change::SigningKeys => self.orgs.forget(|_| true),
            Change::Contacts(_) => {}
        }
    }

    pub(super) fn forget_all(&self) {
        self.orgs.forget(|_| true);
        self.partners.forget(|_| true);
        self.sessions.forget(|_| true);
    }
}

impl<K> Default for CredentialCache<K> {
    fn default() -> Self {
        Self {
            known: DashMap::new(),
            forgotten: AtomicU64::new(0),
        }
    }
}

impl<K> CredentialCache<K> {
    /// Returns the cached entry of the credential, or else the result of `look_up`.
    pub(super) async fn or_look_up(
        &self,
        presented: Presented,
        now: Moment,
        look_up: impl AsyncFnOnce() -> Result<Option<K>, ApiError>,
    ) -> Result<Option<Arc<K>>, ApiError> {
        if let Some(known) = self.get(&presented, now) {
            return Ok(Some(known));
        }

        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let found = match look_up().await {
            Ok(found) => found,
            // While the database is away nobody can revoke anything, so a known credential stays valid. If only this node has lost the
            // database, it learns of revocations once it reaches the database again.
            Err(error @ ApiError::Unavailable { .. }) => {
                return self.known_before(&presented).map(Some).ok_or(error);
            }
            Err(error) => return Err(error),
        };

        let Some(found) = found else {
            // Otherwise `known_before` would accept the revoked credential once the database is away.
            self.known.remove(&presented);
            return Ok(None);
        };
        let found = Arc::new(found);
        self.known
            .insert(presented, (Arc::clone(&found), now + CACHED_FOR));

        // The look-up may have read a state from before a change that was reported while it ran.
        if self.forgotten.load(Ordering::SeqCst) != forgotten {
            self.known.remove(&presented);
        }

        Ok(Some(found))
    }

    fn get(&self, presented: &Presented, now: Moment) -> Option<Arc<K>> {
        let entry = self.known.get(presented)?;
        let (known, until) = entry.value();
        (now < *until).then(|| Arc::clone(known))
    }

    fn known_before(&self, presented: &Presented) -> Option<Arc<K>> {
        let entry = self.known.get(presented)?;
        Some(Arc::clone(&entry.value().0))
    }

    pub(crate) fn forget(&self, which: impl Fn(&K) -> bool) {
        // Counted first: a look-up that stores its result after `retain` has passed sees the count, and removes it
        // again.
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.known.retain(|_, (known, _)| !which(known));
    }

    pub(super) fn drop_old(&self, now: Moment) {
        self.known.retain(|_, (_, until)| now < *until + KEPT_FOR);
    }
}

impl Uses {
    pub(super) fn note_org_key(&self, key: Uuid, now: Moment) {
        self.orgs.insert(key, now);
    }

    pub(super) fn note_partner_key(&self, key: Uuid, now: Moment) {
        self.partners.insert(key, now);
    }

    /// Stores the times of use; what can't be stored now is kept for the next time.
    pub(super) async fn write(&self, store: &Store) -> Result<(), Error> {
        let (orgs, partners) = (listed(&self.orgs), listed(&self.partners));
        if orgs.is_empty() && partners.is_empty() {
            return Ok(());
        }

        let noted = store.write(move |tx| {
            org_keys::note_uses(tx, &orgs)?;
            partners::note_key_uses(tx, &partners)?;
            Ok((orgs, partners))
        });
        let (orgs, partners) = noted.await?;
        remove(&self.orgs, &orgs);
        remove(&self.partners, &partners);
        Ok(())
    }
}

fn listed(uses: &DashMap<Uuid, Moment>) -> Vec<(Uuid, Moment)> {
    uses.iter()
        .map(|entry| (*entry.key(), *entry.value()))
        .collect()
}

/// Removes stored entries; a key used again since then stays.
fn remove(uses: &DashMap<Uuid, Moment>, written: &[(Uuid, Moment)]) {
    for (key, at) in written {
        uses.remove_if(key, |_, last| last == at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Presented = [7; 32];

    fn at(secs: u64) -> Moment {
        Moment::from_secs(1_000 + secs)
    }

    async fn ask(believed: &CredentialCache<u32>, secs: u64, stored: Option<u32>) -> Option<u32> {
        let found = believed
            .or_look_up(KEY, at(secs), async || Ok(stored))
            .await;
        found.unwrap().map(|found| *found)
    }

    #[tokio::test]
    async fn a_look_up_is_believed_for_a_minute() {
        let believed = CredentialCache::default();
        for (name, secs, stored, expected) in [
            ("absent", 0, None, None),
            ("absence isn't believed", 0, Some(1), Some(1)),
            ("believed", 59, Some(2), Some(1)),
            ("looked up again", 60, Some(2), Some(2)),
        ] {
            assert_eq!(ask(&believed, secs, stored).await, expected, "{name}");
        }
        let last = 120 + KEPT_FOR.as_secs();
        believed.drop_old(at(last - 1));
        assert_eq!(believed.known.len(), 1);
        believed.drop_old(at(last));
        assert_eq!(believed.known.len(), 0);
    }

    #[tokio::test]
    async fn who_was_known_stays_known_while_the_database_is_away() {
        let believed = CredentialCache::default();
        let away = async |secs| {
            let look_up = async || {
                Err(ApiError::Unavailable {
                    message: String::new(),
                    wait_s: 1,
                })
            };
            believed
                .or_look_up(KEY, at(secs), look_up)
                .await
                .ok()
                .flatten()
        };
        assert_eq!(away(0).await, None, "nobody knows it");
        ask(&believed, 0, Some(1)).await;

        assert_eq!(away(3_000).await.as_deref(), Some(&1));
        assert_eq!(ask(&believed, 3_001, None).await, None, "it was revoked");
        assert_eq!(away(3_002).await, None);
    }

    #[tokio::test]
    async fn what_is_forgotten_is_looked_up_again() {
        let believed = CredentialCache::default();
        ask(&believed, 0, Some(1)).await;
        believed.forget(|known| *known == 9);
        assert_eq!(ask(&believed, 0, None).await, Some(1));
        believed.forget(|known| *known == 1);
        assert_eq!(ask(&believed, 0, None).await, None);
    }

    #[tokio::test]
    async fn a_look_up_that_a_change_overtakes_is_not_believed() {
        let believed = CredentialCache::default();
        let overtaken = believed
            .or_look_up(KEY, at(0), async || {
                believed.forget(|_| true);
                Ok(Some(1))
            })
            .await;
        assert_eq!(overtaken.unwrap().as_deref(), Some(&1));
        assert_eq!(ask(&believed, 0, None).await, None);
    }
}
