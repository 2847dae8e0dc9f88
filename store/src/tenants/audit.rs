//! The audit log: an entry for each change, written in the transaction of the change.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::access::store::Store;
use crate::driver::acting::Acting;
use crate::driver::column::{from_row, json, micros, moment};
use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Entries that one statement of [`prune`] examines.
const PRUNED_AT_ONCE: i64 = 1000;

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    /// Sequence number: later entries have higher ones.
    pub seq: i64,
    /// Time of the request.
    pub at: Moment,
    /// The org that was changed.
    pub org_id: Option<Uuid>,
    /// The org's partner, or the partner that was changed or made the change.
    pub partner_id: Option<Uuid>,
    /// Kind of the credential.
    pub actor: String,
    /// The key or the session.
    pub actor_id: Option<Uuid>,
    /// Name of the key, address of the person, words of the command.
    pub actor_name: String,
    /// Source address of the request.
    pub address: Option<String>,
    /// Method and route, or the words of the command.
    pub action: String,
    /// Kind of the changed resource.
    pub resource: String,
    /// The changed resource.
    pub resource_id: Option<Uuid>,
    /// Names of the fields that were set.
    pub fields: Vec<String>,
    /// Id of the request, as the log has it.
    pub request_id: Option<String>,
    /// Present name of the org.
    pub org_name: Option<String>,
    /// Present name of the resource, if it exists and has one.
    pub resource_name: Option<String>,
}
from_row!(AuditEntry {
    seq,
    at: moment,
    org_id,
    partner_id,
    actor,
    actor_id,
    actor_name,
    address,
    action,
    resource,
    resource_id,
    fields: json,
    request_id,
    org_name,
    resource_name,
});

/// Filter for entries; `None` matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditFilter {
    /// Changes to this org.
    pub org: Option<Uuid>,
    /// Changes by this kind of credential.
    pub actor: Option<String>,
    /// Changes by this key or session.
    pub actor_id: Option<Uuid>,
    /// Changes to this kind of resource.
    pub resource: Option<String>,
    /// Changes to this resource.
    pub resource_id: Option<Uuid>,
    /// Requested at this time or later.
    pub from: Option<Moment>,
    /// Requested at this time or before.
    pub to: Option<Moment>,
}

/// Owner of entries.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AuditScope {
    /// An org.
    Org(Uuid),
    /// A partner and its orgs.
    Partner(Uuid),
    /// The whole installation.
    All,
}

/// Statement for the entries of an owner that match a filter. The owner is `$1`, the filter `$2` to `$8`.
macro_rules! entries {
    ({ $select:expr }, $owner:literal, $rest:literal) => {
        concat!(
            "SELECT ",
            $select,
            " FROM audit_log WHERE ",
            $owner,
            " AND ($2 IS NULL OR org_id = $2) AND ($3 IS NULL OR actor = $3) AND ($4 IS NULL OR actor_id = $4)
             AND ($5 IS NULL OR resource = $5) AND ($6 IS NULL OR resource_id = $6) AND at BETWEEN $7 AND $8",
            $rest
        )
    };
}

/// Columns of an entry, with the names that its org and its resource have now: an org learns those of its own objects alone.
macro_rules! columns {
    () => {
        "*, (SELECT name FROM orgs WHERE orgs.id = audit_log.org_id) AS org_name,
         CASE resource
             WHEN 'agent' THEN (SELECT name FROM agents WHERE agents.org_id = audit_log.org_id AND agents.id = resource_id)
             WHEN 'api_key' THEN (SELECT name FROM org_keys WHERE org_keys.org_id = audit_log.org_id AND org_keys.id = resource_id)
             WHEN 'destination' THEN (SELECT name FROM destinations WHERE destinations.org_id = audit_log.org_id AND destinations.id = resource_id)
             WHEN 'number' THEN (SELECT number FROM numbers WHERE numbers.org_id = audit_log.org_id AND numbers.id = resource_id)
             WHEN 'outbound_trunk' THEN (SELECT name FROM outbound_trunks
                 WHERE outbound_trunks.org_id = audit_log.org_id AND outbound_trunks.id = resource_id)
             WHEN 'prompt' THEN (SELECT name FROM prompts WHERE prompts.org_id = audit_log.org_id AND prompts.id = resource_id)
             WHEN 'org' THEN (SELECT name FROM orgs WHERE orgs.id = audit_log.org_id AND orgs.id = resource_id)
         END AS resource_name"
    };
}

/// Picks the statement for the kind of owner.
macro_rules! of_each {
    ($of:expr, entries, $rest:literal) => {
        match $of {
            AuditScope::Org(_) => entries!({ columns!() }, "org_id = $1", $rest),
            AuditScope::Partner(_) => entries!({ columns!() }, "partner_id = $1", $rest),
            AuditScope::All => entries!({ columns!() }, "($1 IS NULL OR org_id = $1)", $rest),
        }
    };
    ($of:expr, $select:literal, $rest:literal) => {
        match $of {
            AuditScope::Org(_) => entries!({ $select }, "org_id = $1", $rest),
            AuditScope::Partner(_) => entries!({ $select }, "partner_id = $1", $rest),
            AuditScope::All => entries!({ $select }, "($1 IS NULL OR org_id = $1)", $rest),
        }
    };
}

impl AuditScope {
    /// Returns the id of the org or the partner, in whose turns its entries are read; `None` for the whole installation.
    pub const fn id(self) -> Option<Uuid> {
        match self {
            Self::Org(id) | Self::Partner(id) => Some(id),
            Self::All => None,
        }
    }
}

/// Returns the entries after `seq`, oldest first. An entry that is written later has a higher number, also on another node.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn after(
    tx: &mut Tx,
    of: AuditScope,
    filter: &AuditFilter,
    seq: i64,
    most: u32,
) -> Result<Vec<AuditEntry>, Error> {
    let sql = of_each!(of, entries, " AND seq > $9 ORDER BY seq LIMIT $10");
    read(tx, sql, of, filter, seq, most)
}

/// Returns the entries before `seq`, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn before(
    tx: &mut Tx,
    of: AuditScope,
    filter: &AuditFilter,
    seq: i64,
    most: u32,
) -> Result<Vec<AuditEntry>, Error> {
    let sql = of_each!(of, entries, " AND seq < $9 ORDER BY seq DESC LIMIT $10");
    read(tx, sql, of, filter, seq, most)
}

fn read(
    tx: &mut Tx,
    sql: &'static str,
    of: AuditScope,
    filter: &AuditFilter,
    seq: i64,
    most: u32,
) -> Result<Vec<AuditEntry>, Error> {
    tx.all(
        sql,
        &[
            &of.id(),
            &filter.org,
            &filter.actor.as_deref(),
            &filter.actor_id,
            &filter.resource.as_deref(),
            &filter.resource_id,
            &filter.from.map_or(0, micros),
            &filter.to.map_or(i64::MAX, micros),
            &seq,
            &most,
        ],
    )
}

/// Returns the number of matching entries.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn count(tx: &mut Tx, of: AuditScope, filter: &AuditFilter) -> Result<u64, Error> {
    let (count,): (i64,) = tx.exactly_one(
        of_each!(of, "COUNT(*)", ""),
        &[
            &of.id(),
            &filter.org,
            &filter.actor.as_deref(),
            &filter.actor_id,
            &filter.resource.as_deref(),
            &filter.resource_id,
            &filter.from.map_or(0, micros),
            &filter.to.map_or(i64::MAX, micros),
        ],
    )?;
    Ok(count.unsigned_abs())
}

/// Writes the entry of a change that writes no row: a call was placed, ended or transferred.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub async fn record(store: &Store, acting: Acting) -> Result<(), Error> {
    acting.scope(store.write(|_| Ok(()))).await
}

/// Deletes entries older than `kept`; returns their number.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub async fn prune(store: &Store, kept: Duration, now: Moment) -> Result<u64, Error> {
    let sql = "DELETE FROM audit_log WHERE at < $1 AND seq IN (SELECT seq FROM audit_log ORDER BY seq LIMIT $2)";
    let mut pruned = 0;

    loop {
        let some = store.write(move |tx| {
            tx.mark_internal();
            tx.run(sql, &[&(now - kept), &PRUNED_AT_ONCE])
        });
        let some = some.await?;
        pruned += some;
        if some == 0 {
            return Ok(pruned);
        }
    }
}
