//! Deleted orgs: absent to all readers, restorable for a time, and purged after it.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::orgs::Org;
use super::partners;
use crate::access::store::Store;
use crate::driver::change::Change;
use crate::driver::clock;
use crate::driver::column::{from_row, maybe, micros, moment};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::tx::Tx;

/// Time in which a deleted org can be restored.
const RESTORABLE: Duration = Duration::from_secs(30 * 24 * 3600);
/// Time in which facts of a purged org's calls may still arrive.
const LATE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Time at which a deleted org is purged.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Purge {
    /// After the time for restoring it; calls that are up continue.
    Later,
    /// At once; calls that are up are ended.
    Now,
}

/// A deleted org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeletedOrg {
    /// The org.
    pub id: Uuid,
    /// The partner; `None`: the operator's own org.
    pub partner_id: Option<Uuid>,
    /// Its display name.
    pub name: String,
    /// External id before the deletion.
    pub deleted_external_id: Option<String>,
    /// Time of the deletion.
    pub deleted_at: Option<Moment>,
    /// Time of the purge; until then the org can be restored.
    pub purge_at: Option<Moment>,
}
from_row!(DeletedOrg {
    id,
    partner_id,
    name,
    deleted_external_id,
    deleted_at: maybe(moment),
    purge_at: maybe(moment),
});

/// Deletes data that ends with the org and isn't restored with it.
const ENDED: [&str; 6] = [
    "DELETE FROM idempotency_keys WHERE org_id = $1",
    "DELETE FROM org_keys WHERE org_id = $1",
    // Links first: a log-in that consumes one meanwhile is waited for, and its session is deleted as well.
    "DELETE FROM login_links WHERE org_id = $1",
    "DELETE FROM dashboard_sessions WHERE org_id = $1",
    // The rows stay for their day, since they count calls that the operator has paid for.
    "UPDATE number_codes SET code_mac = NULL WHERE org_id = $1",
    "DELETE FROM dedications WHERE org_id = $1",
];

/// Ends registrations, leaving their rows for other nodes to see.
const UNREGISTER: &str = "UPDATE registrations SET expires_at = $2, saved_at = $3
    WHERE trunk_id IN (SELECT id FROM inbound_trunks WHERE org_id = $1)";

const FREE_NUMBERS: &str = "UPDATE numbers SET freed_verified_at = verified_at, verified_at = NULL
    WHERE org_id = $1 AND verified_at IS NOT NULL";

/// Takes back the numbers that no other org has verified since. A verification clears `freed_verified_at`, but not of an org whose deletion
/// was committed while it ran, hence the last condition.
const TAKE_NUMBERS_BACK: &str =
    "UPDATE numbers SET verified_at = freed_verified_at, freed_verified_at = NULL
    WHERE org_id = $1 AND freed_verified_at IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM numbers AS taken WHERE taken.number = numbers.number AND taken.verified_at IS NOT NULL)";

/// Unassigns the numbers that weren't taken back.
const GIVE_UP_NUMBERS: &str = "UPDATE numbers SET freed_verified_at = NULL, agent_id = NULL
    WHERE org_id = $1 AND freed_verified_at IS NOT NULL";

/// Deletes an org, which is absent from then on. Its external id and numbers are free at once; its keys, sessions, login links,
/// registrations and dedicated networks end.
///
/// # Errors
/// [`Wrong::Absent`], also if it is deleted already.
pub fn delete(tx: &mut Tx, org: Uuid, purge: Purge, now: Moment) -> Result<(), Error> {
    // The database's clock, since the clocks of nodes differ.
    let saved = clock::now(tx)?.unwrap_or(now);
    lock_org(tx, org)?;

    for sql in ENDED {
        tx.run(sql, &[&org])?;
    }

    tx.run(UNREGISTER, &[&org, &micros(now).saturating_sub(1), &saved])?;
    tx.run(FREE_NUMBERS, &[&org])?;
    let purge_at = match purge {
        Purge::Later => now + RESTORABLE,
        Purge::Now => now,
    };
    tx.run(
        "UPDATE orgs SET deleted_at = $2, purge_at = $3, deleted_external_id = external_id, external_id = NULL WHERE id = $1",
        &[&org, &now, &purge_at],
    )?;
    tx.changed(Change::Org(org), now);
    tx.changed(Change::Session(org), now);

    Ok(())
}

/// Restores a deleted org, with those of its numbers that no other org has verified since. Keys, sessions, links and dedicated networks
/// don't come back. An org that isn't deleted stays as it is.
///
/// # Errors
/// [`Wrong::Absent`], also once the time for restoring is over; [`Conflict::ExternalIdTaken`].
pub async fn restore(store: &Store, org: Uuid, now: Moment) -> Result<Org, Error> {
    match store.write(move |tx| try_restore(tx, org, now)).await {
        // Another transaction has just taken a number or the external id: the second try sees that.
        Err(fault) if fault.is_taken() => store.write(move |tx| try_restore(tx, org, now)).await,
        done => done,
    }
}

fn try_restore(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Org, Error> {
    let sql = "SELECT partner_id FROM orgs WHERE id = $1";
    let row: Option<(Option<Uuid>,)> = tx.one(sql, &[&org])?;
    if let Some((Some(partner),)) = row {
        partners::lock(tx, partner)?;
    }
    let deleted = lock(tx, org)?;
    let deleted = deleted.ok_or(Wrong::Absent(Kind::Org))?;
    if deleted.deleted_at.is_none() {
        // Nothing changes, so the audit log gets no entry.
        tx.mark_internal();
        return tx.exactly_one("SELECT * FROM orgs WHERE id = $1", &[&org]);
    }

    // The purge may have begun: some of the rows may be gone.
    if deleted.purge_at.is_none_or(|at| at <= now) {
        return Err(Wrong::Absent(Kind::Org).into());
    }

    if let Some(partner) = deleted.partner_id {
        partners::leave_room_for_org(tx, partner)?;
    }
    if let (Some(partner), Some(external_id)) = (deleted.partner_id, &deleted.deleted_external_id) {
        let sql = "SELECT 1 FROM orgs WHERE partner_id = $1 AND external_id = $2";
        let taken: Option<(i64,)> = tx.one(sql, &[&partner, &external_id])?;
        if taken.is_some() {
            return Err(Conflict::ExternalIdTaken(external_id.clone()).into());
        }
    }

    let restored: Option<Org> = tx.one(
        "UPDATE orgs SET external_id = deleted_external_id, deleted_external_id = NULL, deleted_at = NULL, purge_at = NULL
         WHERE id = $1 RETURNING *",
        &[&org],
    )?;
    for sql in [TAKE_NUMBERS_BACK, GIVE_UP_NUMBERS] {
        tx.run(sql, &[&org])?;
    }
    let restored = restored.ok_or(Wrong::Absent(Kind::Org))?;
    tx.changed(Change::Org(org), now);
    tx.changed(Change::Session(org), now);

    Ok(restored)
}

/// Returns the deleted orgs that can be restored, of one partner or of all, the last deleted first; at most 1,000.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn deleted(tx: &mut Tx, partner: Option<Uuid>, now: Moment) -> Result<Vec<DeletedOrg>, Error> {
    let Some(partner) = partner else {
        let sql =
            "SELECT * FROM orgs WHERE purge_at > $1 ORDER BY deleted_at DESC, id DESC LIMIT 1000";
        return tx.all(sql, &[&now]);
    };
    let sql = "SELECT * FROM orgs WHERE purge_at > $1 AND partner_id = $2 ORDER BY deleted_at DESC, id DESC LIMIT 1000";
    tx.all(sql, &[&now, &partner])
}

/// Returns the partner of an org that exists or can be restored.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn partner_of_restorable(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Option<Uuid>, Error> {
    let sql = "SELECT partner_id FROM orgs WHERE id = $1 AND (purge_at IS NULL OR purge_at > $2)";
    let row: Option<(Option<Uuid>,)> = tx.one(sql, &[&org, &now])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Org))?.0)
}

/// Returns the orgs that are due to be purged.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn to_purge(tx: &mut Tx, now: Moment) -> Result<Vec<Uuid>, Error> {
    let sql = "SELECT id FROM orgs WHERE purge_at <= $1 ORDER BY purge_at, id LIMIT 100";
    let rows: Vec<(Uuid,)> = tx.all(sql, &[&now])?;
    Ok(rows.into_iter().map(|(org,)| org).collect())
}

/// Returns recently purged orgs, for which facts of calls may still arrive.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn purged(tx: &mut Tx, now: Moment) -> Result<Vec<Uuid>, Error> {
    let sql = "SELECT org_id FROM purged_orgs WHERE purged_at > $1";
    let rows: Vec<(Uuid,)> = tx.all(sql, &[&(now - LATE)])?;
    Ok(rows.into_iter().map(|(org,)| org).collect())
}

/// Deletes the row of an org of which nothing else is left. Returns false while the row of a call is left, as it is while the call is up.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn finish_purge(tx: &mut Tx, org: Uuid, now: Moment) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM calls WHERE org_id = $1 LIMIT 1";
    let is_left: Option<(i64,)> = tx.one(sql, &[&org])?;
    if is_left.is_some() {
        return Ok(false);
    }

    let sql = "DELETE FROM orgs WHERE id = $1 AND purge_at <= $2";
    if tx.run(sql, &[&org, &now])? == 1 {
        let sql = "INSERT INTO purged_orgs (org_id, purged_at) VALUES ($1, $2) ON CONFLICT (org_id) DO NOTHING";
        tx.run(sql, &[&org, &now])?;
    }

    let sql = "DELETE FROM purged_orgs WHERE purged_at <= $1";
    tx.run(sql, &[&(now - LATE)])?;
    Ok(true)
}

/// Returns and locks the row of an org, deleted or not: transactions that change it run one after the other.
fn lock(tx: &mut Tx, org: Uuid) -> Result<Option<DeletedOrg>, Error> {
    let sql = tx.by_dialect(
        "SELECT * FROM orgs WHERE id = $1",
        "SELECT * FROM orgs WHERE id = $1 FOR NO KEY UPDATE",
    );
    tx.one(sql, &[&org])
}
