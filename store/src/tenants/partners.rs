//! Partners: resellers that create orgs. Their keys are opaque and stored as SHA-256; the operator issues them.

use ipnet::IpNet;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::key_uses::note_uses_by;
use crate::driver::change::Change;
use crate::driver::column::{count, from_row, json, maybe, moment, to_json};
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::tx::Tx;

/// A partner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partner {
    /// The partner.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The partner's keys work.
    pub active: bool,
    /// Default system prompt of its orgs.
    pub ai_instructions: Option<String>,
    /// Networks from which its requests may come; `None`: any, an empty list: none.
    pub allowed_networks: Option<Vec<IpNet>>,
    /// Most requests per minute; `None`: as configured.
    pub requests_per_minute: Option<u32>,
    /// Most login links per minute; `None`: as configured.
    pub login_links_per_minute: Option<u32>,
    /// Share of each node, in per cent, that its orgs have together; `None`: half.
    pub node_share_percent: Option<u32>,
    /// The partner may verify numbers of its orgs.
    pub verifies_numbers: bool,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change, which is the version.
    pub updated_at: Moment,
}
from_row!(Partner {
    id,
    name,
    active,
    ai_instructions,
    allowed_networks: maybe(json),
    requests_per_minute: maybe(count),
    login_links_per_minute: maybe(count),
    node_share_percent: maybe(count),
    verifies_numbers,
    created_at: moment,
    updated_at: moment,
});

/// A new partner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewPartner {
    /// Its name.
    pub name: String,
    /// Default system prompt of its orgs.
    pub ai_instructions: Option<String>,
    /// Networks from which its requests may come; `None`: any, an empty list: none.
    pub allowed_networks: Option<Vec<IpNet>>,
    /// Most requests per minute; `None`: as configured.
    pub requests_per_minute: Option<u32>,
    /// Most login links per minute; `None`: as configured.
    pub login_links_per_minute: Option<u32>,
}

/// A partner's key, without the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartnerKey {
    /// Its id.
    pub id: Uuid,
    /// The partner.
    pub partner_id: Uuid,
    /// Its name.
    pub name: String,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last use, at most half a minute late.
    pub last_used_at: Option<Moment>,
}
from_row!(PartnerKey {
    id,
    partner_id,
    name,
    created_at: moment,
    last_used_at: maybe(moment),
});

/// Creates an active partner.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn create(tx: &mut Tx, new: &NewPartner, now: Moment) -> Result<Partner, Error> {
    let partner: Partner = tx.exactly_one(
        "INSERT INTO partners (id, name, active, ai_instructions, allowed_networks, requests_per_minute,
             login_links_per_minute, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) RETURNING *",
        &[
            &new_id(now),
            &new.name,
            &true,
            &new.ai_instructions,
            &new.allowed_networks.as_ref().map(to_json),
            &new.requests_per_minute,
            &new.login_links_per_minute,
            &now,
        ],
    )?;

    tx.changed(Change::Partner(partner.id), now);
    Ok(partner)
}

/// Returns the partner of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, partner: Uuid) -> Result<Partner, Error> {
    let row = tx.one("SELECT * FROM partners WHERE id = $1", &[&partner])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Partner))?)
}

/// Returns every partner, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(tx: &mut Tx) -> Result<Vec<Partner>, Error> {
    tx.all(
        "SELECT * FROM partners ORDER BY created_at DESC, id DESC",
        &[],
    )
}

/// Activates or deactivates a partner. The keys of an inactive one don't work, and its orgs are suspended.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn set_active(tx: &mut Tx, partner: Uuid, active: bool, now: Moment) -> Result<(), Error> {
    // The partner's row is changed first. A transaction that creates an org holds this row, so that org exists by then, and is suspended
    // below too.
    if tx.run(
        "UPDATE partners SET active = $2, updated_at = $3 WHERE id = $1",
        &[&partner, &active, &now],
    )? == 0
    {
        return Err(Wrong::Absent(Kind::Partner).into());
    }

    // An org that is suspended for this reason already keeps the time of its suspension.
    let sql = match active {
        true => "UPDATE orgs SET partner_inactive_at = $2, updated_at = $3 WHERE partner_id = $1",
        false => {
            "UPDATE orgs SET partner_inactive_at = $2, updated_at = $3 WHERE partner_id = $1 AND partner_inactive_at IS NULL"
        }
    };

    let since = (!active).then_some(now);
    tx.run(sql, &[&partner, &since, &now])?;
    tx.changed(Change::Partner(partner), now);
    tx.changed(Change::PartnerState(partner), now);

    Ok(())
}

/// Checks that no partner but `except` has this name. The operator finds partners by name.
///
/// # Errors
/// [`Conflict::PartnerNameTaken`].
pub fn must_be_only(tx: &mut Tx, name: &str, except: Option<Uuid>) -> Result<(), Error> {
    let is_other = |partner: &Partner| partner.name == name && Some(partner.id) != except;
    match list(tx)?.iter().any(is_other) {
        true => Err(Conflict::PartnerNameTaken(name.to_owned()).into()),
        false => Ok(()),
    }
}

/// Renames a partner.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::PartnerNameTaken`].
pub fn rename(tx: &mut Tx, partner: Uuid, name: &str, now: Moment) -> Result<(), Error> {
    must_be_only(tx, name, Some(partner))?;
    let sql = "UPDATE partners SET name = $2, updated_at = $3 WHERE id = $1";
    if tx.run(sql, &[&partner, &name, &now])? == 0 {
        return Err(Wrong::Absent(Kind::Partner).into());
    }
    tx.changed(Change::Partner(partner), now);
    Ok(())
}

/// Sets whether the partner may verify numbers of its orgs.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn let_verify(
    tx: &mut Tx,
    partner: Uuid,
    verifies: bool,
    now: Moment,
) -> Result<Partner, Error> {
    let sql =
        "UPDATE partners SET verifies_numbers = $2, updated_at = $3 WHERE id = $1 RETURNING *";
    let row: Option<Partner> = tx.one(sql, &[&partner, &verifies, &now])?;
    let changed = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(changed)
}

/// Sets the networks from which the partner's requests may come; `None`: any, an empty list: none.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn allow(
    tx: &mut Tx,
    partner: Uuid,
    networks: Option<&[IpNet]>,
    now: Moment,
) -> Result<Partner, Error> {
    let row: Option<Partner> = tx.one(
        "UPDATE partners SET allowed_networks = $2, updated_at = $3 WHERE id = $1 RETURNING *",
        &[&partner, &networks.map(|networks| to_json(&networks)), &now],
    )?;
    let allowed = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(allowed)
}

/// Sets the most requests and login links per minute of all the partner's keys together; `None` leaves a value as it is, `Some(None)`
/// restores the configured one.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn limit(
    tx: &mut Tx,
    partner: Uuid,
    requests: Option<Option<u32>>,
    login_links: Option<Option<u32>>,
    now: Moment,
) -> Result<Partner, Error> {
    let row: Option<Partner> = tx.one(
        "UPDATE partners SET requests_per_minute = CASE WHEN $2 THEN $3 ELSE requests_per_minute END,
             login_links_per_minute = CASE WHEN $4 THEN $5 ELSE login_links_per_minute END,
             updated_at = $6
         WHERE id = $1 RETURNING *",
        &[
            &partner,
            &requests.is_some(),
            &requests.flatten(),
            &login_links.is_some(),
            &login_links.flatten(),
            &now,
        ],
    )?;

    let limited = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(limited)
}

/// Most orgs of a partner for which the operator has said nothing.
pub const ORGS: u32 = 1_000;
/// Name of that limit beside those of its orgs.
const ORGS_NAME: &str = "orgs";

/// Returns the most orgs that a partner may have.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn most_orgs(tx: &mut Tx, partner: Uuid) -> Result<u32, Error> {
    let sql = "SELECT most FROM partner_org_limits WHERE partner_id = $1 AND name = $2";
    let set: Option<(i64,)> = tx.one(sql, &[&partner, &ORGS_NAME])?;
    Ok(set.map_or(ORGS, |(most,)| u32::try_from(most).unwrap_or(u32::MAX)))
}

/// Sets the most orgs that a partner may have; `None`: the default. Those that it has already stay.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn limit_orgs(tx: &mut Tx, partner: Uuid, most: Option<u32>) -> Result<(), Error> {
    let sql = "DELETE FROM partner_org_limits WHERE partner_id = $1 AND name = $2";
    tx.run(sql, &[&partner, &ORGS_NAME])?;
    if let Some(most) = most {
        let sql = "INSERT INTO partner_org_limits (partner_id, name, most) VALUES ($1, $2, $3)";
        tx.run(sql, &[&partner, &ORGS_NAME, &most])?;
    }
    Ok(())
}

/// Locks a partner until the end of the transaction, if it exists. Before any of its orgs, as its deactivation does.
pub(crate) fn lock(tx: &mut Tx, partner: Uuid) -> Result<(), Error> {
    // An embedded database has one writer.
    if tx.is_shared() {
        let sql = "SELECT id FROM partners WHERE id = $1 FOR NO KEY UPDATE";
        let _: Option<(Uuid,)> = tx.one(sql, &[&partner])?;
    }
    Ok(())
}

/// Refuses one more org if the partner has as many as it may have. The partner is locked by then, so that no two transactions count at once.
pub(crate) fn leave_room_for_org(tx: &mut Tx, partner: Uuid) -> Result<(), Error> {
    let most = most_orgs(tx, partner)?;
    let sql = "SELECT COUNT(*) FROM orgs WHERE partner_id = $1 AND deleted_at IS NULL";
    let (held,): (i64,) = tx.exactly_one(sql, &[&partner])?;
    match held >= i64::from(most) {
        true => Err(Conflict::TooManyOrgs { most }.into()),
        false => Ok(()),
    }
}

/// Sets the share of each node, in per cent, that the partner's orgs have together; `None`: half.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn set_node_share(
    tx: &mut Tx,
    partner: Uuid,
    percent: Option<u32>,
    now: Moment,
) -> Result<(), Error> {
    let sql = "UPDATE partners SET node_share_percent = $2, updated_at = $3 WHERE id = $1";
    if tx.run(sql, &[&partner, &percent, &now])? == 0 {
        return Err(Wrong::Absent(Kind::Partner).into());
    }
    tx.changed(Change::Partner(partner), now);
    // The directory has the share with each org of the partner.
    tx.changed(Change::PartnerState(partner), now);
    Ok(())
}

/// Stores a key by its SHA-256.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such partner.
pub fn add_key(
    tx: &mut Tx,
    partner: Uuid,
    name: &str,
    hash: [u8; 32],
    now: Moment,
) -> Result<PartnerKey, Error> {
    let row: Option<PartnerKey> = tx.one(
        "INSERT INTO partner_keys (id, partner_id, name, key_hash, created_at)
         SELECT $1, id, $3, $4, $5 FROM partners WHERE id = $2 RETURNING *",
        &[&new_id(now), &partner, &name, &hash, &now],
    )?;
    let key = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(key)
}

/// Returns the key with this SHA-256 and its partner, active or not. A search by hash through an index reveals nothing of the key: its
/// timing shows a prefix of the hash at most.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn by_key(tx: &mut Tx, hash: [u8; 32]) -> Result<Option<(PartnerKey, Partner)>, Error> {
    tx.snapshot()?;
    let sql = "SELECT id, partner_id, name, created_at, last_used_at FROM partner_keys WHERE key_hash = $1";
    let key: Option<PartnerKey> = tx.one(sql, &[&hash])?;
    let Some(key) = key else { return Ok(None) };
    let partner = tx.one("SELECT * FROM partners WHERE id = $1", &[&key.partner_id])?;
    Ok(partner.map(|partner| (key, partner)))
}

/// Returns a partner's keys, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn keys(tx: &mut Tx, partner: Uuid) -> Result<Vec<PartnerKey>, Error> {
    tx.all(
        "SELECT id, partner_id, name, created_at, last_used_at FROM partner_keys WHERE partner_id = $1
         ORDER BY created_at DESC, id DESC",
        &[&partner],
    )
}

/// Stores the times of the keys' last uses.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn note_key_uses(tx: &mut Tx, uses: &[(Uuid, Moment)]) -> Result<(), Error> {
    note_uses_by(
        tx,
        "UPDATE partner_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)",
        uses,
    )
}

/// Revokes a key: its row is deleted.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn revoke_key(tx: &mut Tx, partner: Uuid, key: Uuid, now: Moment) -> Result<(), Error> {
    if tx.run(
        "DELETE FROM partner_keys WHERE partner_id = $1 AND id = $2",
        &[&partner, &key],
    )? == 0
    {
        return Err(Wrong::Absent(Kind::PartnerKey).into());
    }
    tx.changed(Change::Partner(partner), now);
    Ok(())
}
