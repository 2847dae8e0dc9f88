//! Partners: resellers that make orgs. Their keys are opaque and kept as SHA-256; the operator makes them.

use ipnet::IpNet;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{count, from_row, json, maybe, moment, to_json};
use super::error::{Error, Kind, Wrong};
use super::org_keys::note_uses_by;
use super::tx::Tx;
use super::{Change, new_id};

/// A partner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partner {
    /// The partner.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Whether its keys work.
    pub active: bool,
    /// Default system prompt of its orgs.
    pub ai_instructions: Option<String>,
    /// Where its requests may come from: `None` anywhere, an empty list nowhere.
    pub allowed_networks: Option<Vec<IpNet>>,
    /// Requests a minute; `None`: as configured.
    pub requests_per_minute: Option<u32>,
    /// Login links a minute; `None`: as configured.
    pub login_links_per_minute: Option<u32>,
    /// Whether it may say which numbers are its orgs' own.
    pub verifies_numbers: bool,
    /// When it was made.
    pub created_at: Moment,
}
from_row!(Partner {
    id,
    name,
    active,
    ai_instructions,
    allowed_networks: maybe(json),
    requests_per_minute: maybe(count),
    login_links_per_minute: maybe(count),
    verifies_numbers,
    created_at: moment,
});

/// What a partner is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewPartner {
    /// Its name.
    pub name: String,
    /// Default system prompt of its orgs.
    pub ai_instructions: Option<String>,
    /// Where its requests may come from: `None` anywhere, an empty list nowhere.
    pub allowed_networks: Option<Vec<IpNet>>,
    /// Requests a minute; `None`: as configured.
    pub requests_per_minute: Option<u32>,
    /// Login links a minute; `None`: as configured.
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
    /// When it was made.
    pub created_at: Moment,
    /// When it was used last, half a minute late at most.
    pub last_used_at: Option<Moment>,
}
from_row!(PartnerKey {
    id,
    partner_id,
    name,
    created_at: moment,
    last_used_at: maybe(moment),
});

/// Makes an active partner.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn create(tx: &mut Tx, new: &NewPartner, now: Moment) -> Result<Partner, Error> {
    let partner: Partner = tx.only(
        "INSERT INTO partners (id, name, active, ai_instructions, allowed_networks, requests_per_minute,
             login_links_per_minute, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *",
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

/// The partner of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, partner: Uuid) -> Result<Partner, Error> {
    let row = tx.one("SELECT * FROM partners WHERE id = $1", &[&partner])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Partner))?)
}

/// Every partner, newest first.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn list(tx: &mut Tx) -> Result<Vec<Partner>, Error> {
    tx.all(
        "SELECT * FROM partners ORDER BY created_at DESC, id DESC",
        &[],
    )
}

/// Makes its keys work or not. While they don't, its orgs are suspended.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn set_active(tx: &mut Tx, partner: Uuid, active: bool, now: Moment) -> Result<(), Error> {
    if tx.run(
        "UPDATE partners SET active = $2 WHERE id = $1",
        &[&partner, &active],
    )? == 0
    {
        return Err(Wrong::Absent(Kind::Partner).into());
    }

    let sql = match active {
        true => "UPDATE orgs SET partner_inactive_at = $2 WHERE partner_id = $1",
        false => {
            "UPDATE orgs SET partner_inactive_at = $2 WHERE partner_id = $1 AND partner_inactive_at IS NULL"
        }
    };

    let since = (!active).then_some(now);
    tx.run(sql, &[&partner, &since])?;
    tx.changed(Change::Partner(partner), now);
    tx.changed(Change::PartnerState(partner), now);

    Ok(())
}

/// Lets the partner verify numbers of its orgs, or not.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn let_verify(
    tx: &mut Tx,
    partner: Uuid,
    verifies: bool,
    now: Moment,
) -> Result<Partner, Error> {
    let sql = "UPDATE partners SET verifies_numbers = $2 WHERE id = $1 RETURNING *";
    let row: Option<Partner> = tx.one(sql, &[&partner, &verifies])?;
    let changed = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(changed)
}

/// Says where its requests may come from: anywhere without a list, and nowhere with an empty one.
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
        "UPDATE partners SET allowed_networks = $2 WHERE id = $1 RETURNING *",
        &[&partner, &networks.map(|networks| to_json(&networks))],
    )?;
    let allowed = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(allowed)
}

/// Says how many requests and login links the partner's keys may make in a minute together; `None` leaves one as it is, `Some(None)`
/// has it as configured.
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
             login_links_per_minute = CASE WHEN $4 THEN $5 ELSE login_links_per_minute END
         WHERE id = $1 RETURNING *",
        &[
            &partner,
            &requests.is_some(),
            &requests.flatten(),
            &login_links.is_some(),
            &login_links.flatten(),
        ],
    )?;
    let limited = row.ok_or(Wrong::Absent(Kind::Partner))?;
    tx.changed(Change::Partner(partner), now);
    Ok(limited)
}

/// Keeps a key by its SHA-256.
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

/// The partner whose key has this SHA-256, active or not. Finding a hash by an index tells nothing of the key: what the
/// time of the search could show is a prefix of the hash.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn by_key(tx: &mut Tx, hash: [u8; 32]) -> Result<Option<(PartnerKey, Partner)>, Error> {
    tx.snapshot()?;
    let sql = "SELECT id, partner_id, name, created_at, last_used_at FROM partner_keys WHERE key_hash = $1";
    let key: Option<PartnerKey> = tx.one(sql, &[&hash])?;
    let Some(key) = key else { return Ok(None) };
    let partner = tx.one("SELECT * FROM partners WHERE id = $1", &[&key.partner_id])?;
    Ok(partner.map(|partner| (key, partner)))
}

/// A partner's keys, newest first.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn keys(tx: &mut Tx, partner: Uuid) -> Result<Vec<PartnerKey>, Error> {
    tx.all(
        "SELECT id, partner_id, name, created_at, last_used_at FROM partner_keys WHERE partner_id = $1
         ORDER BY created_at DESC, id DESC",
        &[&partner],
    )
}

/// Notes when keys were used last.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
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
