//! Sessions of the operator's pages. A link that was made over the control socket opens one, once.
//!
//! Links and sessions are in the memory of this process alone: no database, backup or other node has them, and they end with the process.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use trunkline_sip::moment::Moment;
use trunkline_store::TokenHash;
use uuid::Uuid;

use super::credentials::presented;

/// Time within which a link must be opened.
pub(super) const LINK_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Lifetime of a session.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(4 * 3600);

/// Limit on links, and on sessions; beyond it, the oldest is removed.
const MOST: usize = 16;

/// Session of the operator's pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct OperatorSession {
    /// Id for the audit log. It is no credential.
    pub(crate) id: Uuid,
    /// User on this machine who made the link.
    pub(crate) uid: u32,
    pub(crate) hash: TokenHash,
    /// End, by the monotonic clock.
    pub(super) expires_at: Moment,
}

/// Link that nobody has opened yet.
#[derive(Copy, Clone, Debug)]
struct Link {
    uid: u32,
    expires_at: Moment,
}

/// Links and sessions of this process.
#[derive(Debug, Default)]
pub(crate) struct OperatorSessions(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    links: HashMap<TokenHash, Link>,
    sessions: HashMap<TokenHash, OperatorSession>,
}

impl OperatorSessions {
    /// Makes a link for the user, and returns its token.
    pub(super) fn link(&self, uid: u32, now: Moment) -> String {
        let token = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        self.keep(presented(&token), uid, now);
        token
    }

    fn keep(&self, hash: TokenHash, uid: u32, now: Moment) {
        let expires_at = now + LINK_LIFETIME;
        let mut open = self.open();
        open.links.retain(|_, link| now < link.expires_at);
        make_room(&mut open.links, |link| link.expires_at);
        open.links.insert(hash, Link { uid, expires_at });
    }

    /// Consumes a link, and opens a session; `hash` is that of the session's token. Returns false if the link was used, has expired or never
    /// existed.
    #[must_use]
    pub(crate) fn open_by(&self, link: TokenHash, hash: TokenHash, now: Moment) -> bool {
        let mut open = self.open();
        // Look-up and removal under one lock: of two requests with the same link, one opens a session.
        let consumed = open.links.remove(&link);
        let Some(link) = consumed.filter(|link| now < link.expires_at) else {
            return false;
        };

        open.sessions.retain(|_, session| now < session.expires_at);
        make_room(&mut open.sessions, |session| session.expires_at);
        let session = OperatorSession {
            id: Uuid::new_v4(),
            uid: link.uid,
            hash,
            expires_at: now + SESSION_LIFETIME,
        };
        open.sessions.insert(hash, session);
        true
    }

    /// Returns the session of this token's hash, unless it has ended.
    pub(crate) fn of(&self, hash: TokenHash, now: Moment) -> Option<OperatorSession> {
        let session = self.open().sessions.get(&hash).copied();
        session.filter(|session| now < session.expires_at)
    }

    /// Ends a session.
    pub(crate) fn end(&self, hash: TokenHash) {
        self.open().sessions.remove(&hash);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Each change of a map is one call, so a panic can't leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the entry that ends first, if there is no room for another.
fn make_room<K: Copy + Eq + Hash, V>(entries: &mut HashMap<K, V>, ends: impl Fn(&V) -> Moment) {
    if entries.len() < MOST {
        return;
    }
    let first = entries.iter().min_by_key(|(_, entry)| ends(entry));
    if let Some(first) = first.map(|(key, _)| *key) {
        entries.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(1_000);

    #[test]
    fn a_link_opens_one_session_in_time() {
        let sessions = OperatorSessions::default();
        sessions.keep([1; 32], 7, NOW);
        assert!(!sessions.open_by([2; 32], [9; 32], NOW), "unknown");
        assert!(sessions.open_by([1; 32], [9; 32], NOW));
        assert!(!sessions.open_by([1; 32], [8; 32], NOW), "used");

        let last = NOW + SESSION_LIFETIME - Duration::from_secs(1);
        assert_eq!(
            sessions.of([9; 32], last).map(|session| session.uid),
            Some(7)
        );
        assert_eq!(sessions.of([9; 32], NOW + SESSION_LIFETIME), None);
        sessions.end([9; 32]);
        assert_eq!(sessions.of([9; 32], NOW), None);

        sessions.keep([1; 32], 7, NOW);
        assert!(
            !sessions.open_by([1; 32], [9; 32], NOW + LINK_LIFETIME),
            "late"
        );
    }

    #[test]
    fn links_and_sessions_are_bounded() {
        let sessions = OperatorSessions::default();
        for turn in 0..40_u8 {
            let now = NOW + Duration::from_secs(turn.into());
            sessions.keep([turn; 32], 0, now);
            assert!(sessions.open().links.len() <= MOST);
        }

        let late = NOW + Duration::from_secs(40);
        assert!(
            !sessions.open_by([0; 32], [9; 32], late),
            "the oldest gave way"
        );

        for turn in 24..40_u8 {
            assert!(
                sessions.open_by([turn; 32], [100 + turn; 32], late),
                "{turn}"
            );
        }

        assert_eq!(sessions.open().sessions.len(), MOST);
    }
}
