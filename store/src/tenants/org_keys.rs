//! API keys of orgs. The key itself is a signed token that is stored nowhere: it is valid until it expires or its row is deleted.

use serde_json::json;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::key_uses::note_uses_by;
use super::org_limits::leave_room_for;
use crate::driver::change::Change;
use crate::driver::column;
use crate::driver::column::{count, from_row, maybe, moment, to_json, written};
use crate::driver::edit::lock_org;
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::event::{EventType, NewEvent};
use crate::driver::ids::new_id;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;

/// A key's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrgKey {
    /// `sub` of the token.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// Scopes of the key.
    pub scopes: Vec<String>,
    /// SHA-256 of the issued token.
    pub token_hash: Vec<u8>,
    /// Id of the signing key that signed the token.
    pub kid: String,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last use, at most half a minute late.
    pub last_used_at: Option<Moment>,
    /// Expiry; `None`: valid until revoked.
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

/// A new key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrgKey {
    /// Its name.
    pub name: String,
    /// Scopes of the key.
    pub scopes: Vec<String>,
    /// Expiry; `None`: valid until revoked.
    pub expires_at: Option<Moment>,
}

impl NewOrgKey {
    /// Returns a key that is valid until revoked.
    pub fn lasting(name: &str, scopes: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            expires_at: None,
        }
    }
}

/// The token issued for a key, as its row stores it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// SHA-256 of the token.
    pub token_hash: [u8; 32],
    /// Id of the signing key.
    pub kid: String,
}

/// Issuer of a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum IssuedBy {
    /// The org or its partner, within the org's limit.
    Tenant,
    /// The operator, without a limit.
    Operator,
}

/// Number of an org's API keys that one signing key has signed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedKeys {
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// Number of keys.
    pub keys: u32,
}
from_row!(SignedKeys {
    org_id,
    name,
    keys: count
});

/// Most keys of an org that have ended and are still listed.
const ENDED_KEYS: i64 = 100;

const LIST: List = List {
    columns: "*",
    table: "org_keys",
    by: ["name", "''"],
};

/// Creates a key's row; `issue` signs the token for the key of this id. Of the org's keys that have ended, deletes all but the last
/// hundred.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::AtLimit`](crate::Conflict::AtLimit).
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    new: &NewOrgKey,
    issue: impl FnOnce(Uuid) -> Issued,
    by: IssuedBy,
    now: Moment,
) -> Result<OrgKey, Error> {
    lock_org(tx, org)?;

    if by == IssuedBy::Tenant {
        leave_room_for(tx, org, OrgLimit::ApiKeys, now)?;
    }

    // Keys that have ended don't count towards the limit, so they need a bound of their own.
    tx.run(
        "DELETE FROM org_keys WHERE org_id = $1 AND expires_at <= $2 AND id NOT IN (
             SELECT id FROM org_keys WHERE org_id = $1 AND expires_at <= $2 ORDER BY expires_at DESC, id DESC LIMIT $3)",
        &[&org, &now, &ENDED_KEYS],
    )?;

    let id = new_id(now);
    let issued = issue(id);
    let row: Option<OrgKey> = tx.one(
        "INSERT INTO org_keys (id, org_id, name, scopes, token_hash, kid, created_at, expires_at)
         SELECT $1, id, $3, $4, $5, $6, $7, $8 FROM orgs WHERE id = $2 RETURNING *",
        &[
            &id,
            &org,
            &new.name,
            &to_json(&new.scopes),
            &issued.token_hash,
            &issued.kid,
            &now,
            &new.expires_at,
        ],
    )?;

    let key = row.ok_or(Wrong::Absent(Kind::Org))?;
    tx.changed(Change::OrgKey { org, key: key.id }, now);

    Ok(key)
}

/// Returns the key of this id; `None` if it was revoked.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn by_id(tx: &mut Tx, org: Uuid, key: Uuid) -> Result<Option<OrgKey>, Error> {
    tx.one(
        "SELECT * FROM org_keys WHERE org_id = $1 AND id = $2",
        &[&org, &key],
    )
}

/// Returns the org's keys, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(tx: &mut Tx, org: Uuid) -> Result<Vec<OrgKey>, Error> {
    tx.all(
        "SELECT * FROM org_keys WHERE org_id = $1 ORDER BY created_at DESC, id DESC",
        &[&org],
    )
}

/// Returns a page of the org's keys, newest first, filtered by name, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<OrgKey>, Error> {
    LIST.page(tx, org, narrow, after, limit, |row: &OrgKey| Position {
        at: row.created_at,
        id: row.id,
    })
}

/// Returns the number of each org's keys that the signing key of this id has signed.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn signed_with(tx: &mut Tx, kid: &str) -> Result<Vec<SignedKeys>, Error> {
    tx.all(
        "SELECT org_id, orgs.name AS name, COUNT(*) AS keys FROM org_keys JOIN orgs ON orgs.id = org_id
         WHERE kid = $1 GROUP BY org_id, orgs.name ORDER BY orgs.name, org_id",
        &[&kid],
    )
}

/// Revokes every key that the signing key of this id has signed, of all orgs; returns their number.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn revoke_signed_with(tx: &mut Tx, kid: &str, now: Moment) -> Result<usize, Error> {
    let sql = "DELETE FROM org_keys WHERE kid = $1 RETURNING *";
    let revoked: Vec<OrgKey> = tx.all(sql, &[&kid])?;
    tx.record(revoked.iter().map(|key| revocation(key, now)));
    let change = |key: &OrgKey| Change::OrgKey {
        org: key.org_id,
        key: key.id,
    };
    for change in revoked.iter().map(change) {
        tx.changed(change, now);
    }

    Ok(revoked.len())
}

/// Stores the times of the keys' last uses.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn note_uses(tx: &mut Tx, uses: &[(Uuid, Moment)]) -> Result<(), Error> {
    note_uses_by(
        tx,
        "UPDATE org_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)",
        uses,
    )
}

/// Revokes a key: its row is deleted.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn revoke(tx: &mut Tx, org: Uuid, key: Uuid, now: Moment) -> Result<(), Error> {
    let sql = "DELETE FROM org_keys WHERE org_id = $1 AND id = $2 RETURNING *";
    let row: Option<OrgKey> = tx.one(sql, &[&org, &key])?;
    let revoked = row.ok_or(Wrong::Absent(Kind::OrgKey))?;
    tx.record([revocation(&revoked, now)]);
    tx.changed(Change::OrgKey { org, key }, now);
    Ok(())
}

fn revocation(key: &OrgKey, now: Moment) -> NewEvent {
    let data = json!({
        "api_key_id": key.id,
        "name": key.name,
        "revoked_at": written(now),
    });
    NewEvent::of(key.org_id, EventType::KeyRevoked, key.id, &data, now)
}
