//! The API keys of orgs. The key itself is a signed token that is nowhere stored: it is good as long as its row is here.

use serde_json::json;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{self, from_row, maybe, micros, moment, to_json, written};
use super::error::{Error, Kind, Wrong};
use super::page::{Page, Position, fetch_page};
use super::pool::{execute, fetch_all, fetch_optional};
use super::{Change, EventType, NewEvent, Store, events, new_id};

/// A key's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrgKey {
    /// `sub` of the token.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Moment,
    /// When it was used last, half a minute late at most.
    pub last_used_at: Option<Moment>,
}
from_row!(OrgKey {
    id,
    org_id,
    name,
    scopes: column::json,
    created_at: moment,
    last_used_at: maybe(moment),
});

/// The API keys of orgs.
#[derive(Copy, Clone, Debug)]
pub struct OrgKeys<'s>(&'s Store);

impl Store {
    /// The API keys of orgs.
    pub fn org_keys(&self) -> OrgKeys<'_> {
        OrgKeys(self)
    }
}

impl OrgKeys<'_> {
    /// Makes a key's row; the token is signed by who asked.
    ///
    /// # Errors
    /// [`Wrong::Absent`] if there is no such org.
    pub async fn create(
        self,
        org: Uuid,
        name: &str,
        scopes: &[&str],
        now: Moment,
    ) -> Result<OrgKey, Error> {
        let mut writing = self.0.pool().write().await?;
        let row: Option<OrgKey> = fetch_optional!(
            writing,
            "INSERT INTO org_keys (id, org_id, name, scopes, created_at)
             SELECT $1, id, $3, $4, $5 FROM orgs WHERE id = $2 RETURNING *",
            new_id(now),
            org,
            name,
            to_json(scopes),
            micros(now),
        )?;
        let key = row.ok_or(Wrong::Absent(Kind::Org))?;
        self.0
            .commit(writing, &[Change::OrgKey { org, key: key.id }], now)
            .await?;
        Ok(key)
    }

    /// The key of this id: `None` if it was revoked.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn by_id(self, org: Uuid, key: Uuid) -> Result<Option<OrgKey>, Error> {
        let mut reading = self.0.pool().peek().await?;
        fetch_optional!(
            reading,
            "SELECT * FROM org_keys WHERE org_id = $1 AND id = $2",
            org,
            key
        )
    }

    /// The org's keys, newest first.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn list(self, org: Uuid) -> Result<Vec<OrgKey>, Error> {
        let mut reading = self.0.pool().peek().await?;
        fetch_all!(
            reading,
            "SELECT * FROM org_keys WHERE org_id = $1 ORDER BY created_at DESC, id DESC",
            org
        )
    }

    /// A page of the org's keys, newest first, after `after`.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn page(
        self,
        org: Uuid,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Page<OrgKey>, Error> {
        let mut reading = self.0.pool().peek_snapshot().await?;
        let page = fetch_page!(reading, OrgKey: "*", "org_keys", org, after, limit);
        Ok(page)
    }

    /// Notes when keys were used last.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn note_uses(self, uses: &[(Uuid, Moment)]) -> Result<(), Error> {
        note_uses(
            self.0,
            "UPDATE org_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)",
            uses,
        )
        .await
    }

    /// Revokes a key: its row is deleted.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn revoke(self, org: Uuid, key: Uuid, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "DELETE FROM org_keys WHERE org_id = $1 AND id = $2 RETURNING *";
        let row: Option<OrgKey> = fetch_optional!(writing, sql, org, key)?;
        let revoked = row.ok_or(Wrong::Absent(Kind::OrgKey))?;
        let data = json!({
            "api_key_id": key,
            "name": revoked.name,
            "revoked_at": written(now),
        });
        let event = NewEvent::of(org, EventType::KeyRevoked, key, &data, now);
        events::append(&mut writing, &[event]).await?;
        self.0
            .commit(writing, &[Change::OrgKey { org, key }], now)
            .await?;
        self.0.recorded();
        Ok(())
    }
}

/// Runs `sql` for each key, in one transaction and in one order, so that nodes that write at once don't block each other for good.
pub(super) async fn note_uses(
    store: &Store,
    sql: &'static str,
    uses: &[(Uuid, Moment)],
) -> Result<(), Error> {
    if uses.is_empty() {
        return Ok(());
    }
    let mut uses = uses.to_vec();
    uses.sort_unstable();
    let mut writing = store.pool().write().await?;
    for (key, at) in uses {
        execute!(writing, sql, key, micros(at))?;
    }
    writing.commit().await
}
