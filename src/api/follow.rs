//! Background tasks of the API: they follow changes of credentials, store uses of keys, and wake event streams.

use std::sync::atomic::Ordering;
use std::time::Duration;

use trunkline_store::{Change, Store, TokenKind, audit, events as store_events, feed, org_keys};
use uuid::Uuid;

use super::error::ApiError;
use super::{Api, token};
use crate::jobs;

/// Minimum interval between two reads of the signing keys caused by tokens.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which events and audit entries past their retention are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Follows the change feed while the API serves: drops changed credentials from the cache, and reads the signing keys
/// when there is another.
pub(super) async fn credentials(api: Api) {
    let follower = api.store().follower();
    let mut signal = api.store().follow_changes().await;
    let (mut seq, mut keys) = (None, SigningKeys::Unread);

    loop {
        match seq {
            // Credentials cached before the position in the feed was known may be stale.
            None => {
                seq = api.read(feed::position).await.ok();
                api.forget_all_credentials();
            }

            Some(at) => {
                // A read that fails is repeated after the next signal, which comes by polling too.
                if let Ok(changes) = api.read_inline(move |tx| feed::since(tx, at)).await {
                    if changes.missed {
                        api.forget_all_credentials();
                    }
                    if changes.missed || changes.changes.contains(&Change::SigningKeys) {
                        keys = SigningKeys::Unread;
                    }
                    for change in changes.changes {
                        api.forget_credentials(change);
                    }
                    seq = Some(changes.seq);
                    if changes.more {
                        continue;
                    }
                }
            }
        }

        // A write of this process is answered once every follower has applied its changes.
        if let Some(seq) = seq {
            follower.applied(seq);
        }

        // At every turn, so that a read that failed is repeated until it succeeds.
        keys.catch_up(api.store()).await;
        signal.wait().await;
    }
}

/// State of the signing keys in memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum SigningKeys {
    /// As stored.
    Read,
    /// There may be a newer key; it is read in this turn.
    Unread,
    /// As [`Self::Unread`], after a read that failed and was logged. The next turn reads again.
    Unreadable,
}

impl SigningKeys {
    async fn catch_up(&mut self, store: &Store) {
        if *self == Self::Read {
            return;
        }

        match store.follow_signing_keys().await {
            Ok(others) => {
                *self = Self::Read;
                if others {
                    let keyring = store.keyring();
                    let api_keys = keyring.signing_key_of(TokenKind::ApiKey);
                    let widget = keyring.signing_key_of(TokenKind::Widget);
                    let (kid, widget_kid) = (api_keys.id(), widget.id());
                    tracing::info!(
                        kid,
                        widget_kid,
                        "the signing keys changed; signing API keys and widget tokens with these"
                    );
                }
            }
            Err(error) => {
                if *self == Self::Unread {
                    tracing::warn!(%error, "reading the signing keys failed: tokens are signed with the known key");
                }
                *self = Self::Unreadable;
            }
        }
    }
}

/// Stores uses of keys, and drops expired look-ups, stored answers and records of verifications, while the API serves.
pub(super) async fn uses(api: Api) {
    let mut turns = jobs::KEY_USES.ticks();
    loop {
        turns.tick().await;
        api.write_uses().await;
        api.forget_answers().await;
    }
}

/// Wakes streams that wait for events, and deletes events and audit entries past their retention, while the API serves.
pub(super) async fn events(api: Api) {
    let mut signal = api.store().follow_events().await;
    let mut seq = None;
    let mut pruned = None;
    loop {
        seq = news(&api, seq).await;

        let now = api.now();
        if pruned.is_none_or(|at| now.since(at) >= PRUNE_INTERVAL) {
            // Before the work: what fails is tried again after the interval, not at every event.
            pruned = Some(now);
            let kept = &api.config().events;
            let pruned = api
                .store()
                .prune_events(kept.retention, kept.max_per_org, now);
            if let Err(error) = pruned.await {
                tracing::warn!(%error, "deleting old events failed; retrying later");
            }

            let kept = api.config().audit.retention;
            if let Err(error) = audit::prune(api.store(), kept, now).await {
                tracing::warn!(%error, "deleting old audit entries failed; retrying later");
            }
        }

        signal.wait().await;
    }
}

/// Wakes the streams of the orgs that have events after `seq`. Returns the number of the last event seen, if a stream is open.
async fn news(api: &Api, seq: Option<i64>) -> Option<i64> {
    let (store, streams) = (api.store(), api.streams());
    if streams.is_empty() {
        // Nothing has to be woken, and a stream that opens now reads for itself what there is.
        return None;
    }
    let Some(at) = seq else {
        let position = store.read(store_events::position).await.ok();
        // Streams may have been opened before the position was known.
        streams.wake_all();
        return position;
    };

    let Ok((last, orgs)) = store.read(move |tx| store_events::news(tx, at)).await else {
        // The same events are read at the next signal, which comes by polling too.
        return seq;
    };
    orgs.into_iter().for_each(|org| streams.wake(org));
    Some(last)
}

impl Api {
    /// Drops the cached credentials that a change concerns, and wakes the event streams that they may have opened: each
    /// checks its credential again, so that a stream ends with its key and not at its next check.
    pub(crate) fn forget_credentials(&self, change: Change) {
        self.credentials().forget(change);

        // After the cache: a stream that is woken before would find its credential still there, and go on.
        match change {
            Change::OrgKey { org, .. } | Change::Org(org) => self.streams().wake(org),
            Change::Partner(_) | Change::PartnerState(_) | Change::SigningKeys => {
                self.streams().wake_all();
            }
            // Sessions open no streams of events, and contacts have no credential.
            Change::Session(_) | Change::Contacts(_) => {}
        }
    }

    /// Does what [`Self::forget_credentials`] does, for all credentials.
    fn forget_all_credentials(&self) {
        self.credentials().forget_all();
        self.streams().wake_all();
    }

    /// Revokes a key of the org: for good, and on this node at once.
    ///
    /// # Errors
    /// 404 if there is none.
    pub(super) async fn revoke_key(&self, org: Uuid, key: Uuid) -> Result<(), ApiError> {
        let now = self.now();
        self.store()
            .write(move |tx| org_keys::revoke(tx, org, key, now))
            .await?;
        // The feed brings this change too. If its follower lags, the key must not stay valid in the cache meanwhile.
        self.forget_credentials(Change::OrgKey { org, key });
        Ok(())
    }

    /// Reads the signing keys again if the token names an unknown one, which may be newer than the change feed has
    /// shown. Forged tokens cause at most ten reads a second.
    pub(super) async fn follow_key_of(&self, token: &str) {
        if !token::is_of_another_key(self.store().keyring(), token) {
            return;
        }

        let read = &self.credentials().keys_read;
        let now = self.monotonic().as_micros();
        let before = read.load(Ordering::Relaxed);
        let is_due = u128::from(now.saturating_sub(before)) >= MIN_READ_INTERVAL.as_micros();
        if !is_due {
            return;
        }

        // Of many requests at once, one reads.
        let ours = read.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed);
        if ours.is_ok() {
            // The task that follows the feed logs the failure.
            let _ = self.store().follow_signing_keys().await;
        }
    }

    /// Drops expired look-ups, and stores the times at which keys were used. While the API serves, this happens twice a minute.
    pub async fn write_uses(&self) {
        let (credentials, now) = (self.credentials(), self.monotonic());
        credentials.orgs.drop_old(now);
        credentials.partners.drop_old(now);
        credentials.sessions.drop_old(now);
        if let Err(error) = credentials.uses.write(self.store()).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "storing uses of keys failed; retrying later");
        }
    }
}
