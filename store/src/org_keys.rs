//! The API keys of orgs. The key itself is a signed token that is nowhere stored: it is good as long as its row is here.

use serde_json::json;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{self, count, from_row, maybe, micros, moment, to_json, written};
use super::error::{Error, Kind, Wrong};
use super::org_limits::{OrgLimit, leave_room_for};
use super::page::{List, Narrow, Page, Position};
use super::pool::{execute, fetch_all, fetch_optional};
use super::{Change, EventType, NewEvent, Store, new_id};

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
    /// SHA-256 of the token that was issued; `None` for a key from before it was kept that hasn't been used since.
    pub token_hash: Option<Vec<u8>>,
    /// The id of the signing key that signed it.
    pub kid: Option<String>,
    /// When it was made.
    pub created_at: Moment,
    /// When it was used last, half a minute late at most.
    pub last_used_at: Option<Moment>,
    /// When it ends by itself; `None`: it is good until it is revoked.
    pub expires_at: Option<Moment>,
}
from_row!(OrgKey {
    id,
    org_id,
    name,
    scopes: column::json,
    token_hash,
    kid,
    created_at: moment,
    last_used_at: maybe(moment),
    expires_at: maybe(moment),
});

/// A key to be made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NewOrgKey<'k> {
    /// Its name.
    pub name: &'k str,
    /// What it may do.
    pub scopes: &'k [&'k str],
    /// When it ends by itself; `None`: it is good until it is revoked.
    pub expires_at: Option<Moment>,
}

impl<'k> NewOrgKey<'k> {
    /// A key that is good until it is revoked.
    pub const fn lasting(name: &'k str, scopes: &'k [&'k str]) -> Self {
        Self {
            name,
            scopes,
            expires_at: None,
        }
    }
}

/// The token that is issued for a key, as its row keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// SHA-256 of the token.
    pub token_hash: [u8; 32],
    /// The id of the signing key.
    pub kid: String,
}

/// Who makes a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum IssuedBy {
    /// The org or its partner, within the org's limit.
    Tenant,
    /// The operator, who is held to no limit.
    Operator,
}

/// How many API keys of an org were signed with one signing key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedKeys {
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// How many.
    pub keys: u32,
}
from_row!(SignedKeys {
    org_id,
    name,
    keys: count
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

const LIST: List = List {
    columns: "*",
    table: "org_keys",
    by: ["name", "''"],
};

impl OrgKeys<'_> {
    /// Makes a key's row; `issue` signs the token for the key of this id.
    ///
    /// # Errors
    /// [`Wrong::Absent`] if there is no such org, [`Refused::AtLimit`](super::Refused::AtLimit).
    pub async fn create(
        self,
        org: Uuid,
        new: NewOrgKey<'_>,
        issue: impl FnOnce(Uuid) -> Issued,
        by: IssuedBy,
        now: Moment,
    ) -> Result<OrgKey, Error> {
        let mut writing = self.0.edit(org).await?;
        if by == IssuedBy::Tenant {
            writing
                .run(move |tx| leave_room_for(tx, org, OrgLimit::ApiKeys, now))
                .await?;
        }
        let id = new_id(now);
        let issued = issue(id);
        let row: Option<OrgKey> = fetch_optional!(
            writing,
            "INSERT INTO org_keys (id, org_id, name, scopes, token_hash, kid, created_at, expires_at)
             SELECT $1, id, $3, $4, $5, $6, $7, $8 FROM orgs WHERE id = $2 RETURNING *",
            id,
            org,
            new.name,
            to_json(new.scopes),
            issued.token_hash.to_vec(),
            issued.kid,
            micros(now),
            new.expires_at.map(micros),
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

    /// A page of the org's keys, newest first, narrowed by name, after `after`.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn page(
        self,
        org: Uuid,
        narrow: &Narrow,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Page<OrgKey>, Error> {
        let mut reading = self.0.pool().peek_snapshot().await?;
        let page = reading
            .source()
            .step({
                let narrow = narrow.clone();
                move |tx| {
                    LIST.page(tx, org, &narrow, (after, limit), |row: &OrgKey| Position {
                        at: row.created_at,
                        id: row.id,
                    })
                }
            })
            .await?;
        Ok(page)
    }

    /// Keeps the token of a key from before tokens were kept: the first one that comes. Gives the hash that the row has then; `None` for a
    /// key that is revoked meanwhile.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn note_token(
        self,
        org: Uuid,
        key: Uuid,
        issued: &Issued,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut writing = self.0.pool().write().await?;
        execute!(
            writing,
            "UPDATE org_keys SET token_hash = $3, kid = $4 WHERE org_id = $1 AND id = $2 AND token_hash IS NULL",
            org,
            key,
            issued.token_hash.to_vec(),
            &issued.kid,
        )?;
        let sql = "SELECT token_hash FROM org_keys WHERE org_id = $1 AND id = $2";
        let kept: Option<(Vec<u8>,)> = fetch_optional!(writing, sql, org, key)?;
        writing.commit_aside().await?;
        Ok(kept.map(|(hash,)| hash))
    }

    /// How many keys each org has that were signed with the signing key of this id; with `None`, whose token isn't known.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn signed_with(self, kid: Option<&str>) -> Result<Vec<SignedKeys>, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql = match kid {
            Some(_) => {
                "SELECT org_id, orgs.name AS name, COUNT(*) AS keys FROM org_keys JOIN orgs ON orgs.id = org_id
                 WHERE kid = $1 GROUP BY org_id, orgs.name ORDER BY orgs.name, org_id"
            }
            None => {
                "SELECT org_id, orgs.name AS name, COUNT(*) AS keys FROM org_keys JOIN orgs ON orgs.id = org_id
                 WHERE token_hash IS NULL AND $1 = '' GROUP BY org_id, orgs.name ORDER BY orgs.name, org_id"
            }
        };
        fetch_all!(reading, sql, kid.unwrap_or_default())
    }

    /// Revokes every key that was signed with the signing key of this id, whatever its org; says how many.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn revoke_signed_with(self, kid: &str, now: Moment) -> Result<usize, Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "DELETE FROM org_keys WHERE kid = $1 RETURNING *";
        let revoked: Vec<OrgKey> = fetch_all!(writing, sql, kid)?;
        let told: Vec<_> = revoked.iter().map(|key| revocation(key, now)).collect();
        writing.record(told).await?;
        let change = |key: &OrgKey| Change::OrgKey {
            org: key.org_id,
            key: key.id,
        };
        let changes: Vec<_> = revoked.iter().map(change).collect();
        self.0.commit(writing, &changes, now).await?;
        self.0.recorded();
        Ok(revoked.len())
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
        writing.record(vec![revocation(&revoked, now)]).await?;
        self.0
            .commit(writing, &[Change::OrgKey { org, key }], now)
            .await?;
        self.0.recorded();
        Ok(())
    }
}

fn revocation(key: &OrgKey, now: Moment) -> NewEvent {
    let data = json!({
        "api_key_id": key.id,
        "name": key.name,
        "revoked_at": written(now),
    });
    NewEvent::of(key.org_id, EventType::KeyRevoked, key.id, &data, now)
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
    writing.commit_aside().await
}
