//! Limits of orgs. Three parties set them: the configuration (defaults), the operator (for one org, or for all orgs of a partner) and the
//! org's partner, within the operator's bound.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::orgs;
use super::versions::touch_org;
use crate::driver::change::Change;
use crate::driver::column::{count, from_row, maybe, micros};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::org_limit::{DefaultLimits, OrgLimit, StoredLimit};
use crate::driver::tx::Tx;

/// Stored limits of one org.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoredLimits(Vec<(OrgLimit, StoredLimit)>);

impl StoredLimits {
    pub(crate) fn add(&mut self, limit: OrgLimit, stored: StoredLimit) {
        self.0.push((limit, stored));
    }

    /// Returns one limit.
    pub fn of(&self, limit: OrgLimit) -> StoredLimit {
        let Self(stored) = self;
        let found = stored.iter().find(|(known, _)| *known == limit);
        found.map(|(_, stored)| *stored).unwrap_or_default()
    }

    /// Returns the limit in force.
    pub fn in_force(&self, limit: OrgLimit, defaults: DefaultLimits) -> u32 {
        self.of(limit).in_force(limit.default_of(defaults))
    }
}

/// Returns the query that counts an org's rows, with the time in `$2` for keys; `None` for rates, which aren't stored.
const fn counting(limit: OrgLimit) -> Option<&'static str> {
    match limit {
        OrgLimit::OutboundTrunks => Some("SELECT COUNT(*) FROM outbound_trunks WHERE org_id = $1"),
        OrgLimit::Agents => Some("SELECT COUNT(*) FROM agents WHERE org_id = $1"),
        OrgLimit::Destinations => Some("SELECT COUNT(*) FROM destinations WHERE org_id = $1"),
        OrgLimit::ApiKeys => Some(
            "SELECT COUNT(*) FROM org_keys WHERE org_id = $1 AND (expires_at IS NULL OR expires_at > $2)",
        ),
        OrgLimit::Registrations => {
            Some("SELECT COUNT(*) FROM outbound_trunks WHERE org_id = $1 AND register")
        }
        OrgLimit::Webhooks => {
            Some("SELECT COUNT(*) FROM webhooks WHERE org_id = $1 AND agent_id IS NULL")
        }
        OrgLimit::Contacts => {
            Some("SELECT COALESCE((SELECT contacts FROM contact_counts WHERE org_id = $1), 0)")
        }
        OrgLimit::Numbers => Some("SELECT COUNT(*) FROM numbers WHERE org_id = $1"),
        // The difference of two positions is exact: retention deletes the oldest rows only, erasures delete none, and those deleted one by
        // one are in handoff_gaps.
        OrgLimit::Handoffs => Some(
            "SELECT COALESCE((SELECT position FROM handoffs WHERE org_id = $1 ORDER BY created_at DESC LIMIT 1)
                 - (SELECT position FROM handoffs WHERE org_id = $1 ORDER BY created_at LIMIT 1) + 1
                 - (SELECT COUNT(*) FROM handoff_gaps WHERE org_id = $1 AND list = ''
                    AND created_at > (SELECT created_at FROM handoffs WHERE org_id = $1 ORDER BY created_at LIMIT 1)), 0)",
        ),
        OrgLimit::Calls | OrgLimit::Requests | OrgLimit::Streams => None,
    }
}

/// A stored limit of an org.
pub(crate) struct Row {
    pub(crate) org_id: Uuid,
    name: String,
    by_operator: Option<u32>,
    by_partner: Option<u32>,
    partner_most: Option<u32>,
}
from_row!(Row {
    org_id,
    name,
    by_operator: maybe(count),
    by_partner: maybe(count),
    partner_most: maybe(count),
});

impl Row {
    /// Returns the limit; `None` for a name of a newer version.
    pub(crate) fn read(&self) -> Option<(OrgLimit, StoredLimit)> {
        let mut known = OrgLimit::ALL.into_iter();
        let limit = known.find(|limit| limit.as_str() == self.name)?;
        let stored = StoredLimit {
            by_operator: self.by_operator,
            by_partner: self.by_partner,
            partner_most: self.partner_most,
        };
        Some((limit, stored))
    }
}

/// Statement for the stored limits of one org, or of all orgs. Its second part adds the partner's bounds on limits that the org has no row
/// for.
macro_rules! rows {
    ($filter:literal) => {
        concat!(
            "SELECT orgs.id AS org_id, org_limits.name AS name, by_operator, by_partner, most AS partner_most
             FROM orgs JOIN org_limits ON org_limits.org_id = orgs.id
                 LEFT JOIN partner_org_limits ON partner_org_limits.partner_id = orgs.partner_id
                     AND partner_org_limits.name = org_limits.name ",
            $filter,
            " UNION ALL
             SELECT orgs.id, partner_org_limits.name, NULL, NULL, most
             FROM orgs JOIN partner_org_limits ON partner_org_limits.partner_id = orgs.partner_id ",
            $filter,
            " AND NOT EXISTS (SELECT 1 FROM org_limits WHERE org_limits.org_id = orgs.id
                 AND org_limits.name = partner_org_limits.name)"
        )
    };
}

/// Reads the stored limits of one org.
pub(crate) fn stored(tx: &mut Tx, org: Uuid) -> Result<StoredLimits, Error> {
    let rows: Vec<Row> = tx.all(rows!("WHERE orgs.id = $1"), &[&org])?;
    Ok(StoredLimits(rows.iter().filter_map(Row::read).collect()))
}

/// Reads the stored limits of all orgs.
pub(crate) fn of_all(tx: &mut Tx) -> Result<Vec<Row>, Error> {
    tx.all(rows!("WHERE 1 = 1"), &[])
}

/// Returns the org's number of rows, if they are counted. An expired key doesn't count, revoked or not.
fn held(tx: &mut Tx, org: Uuid, limit: OrgLimit, now: Moment) -> Result<Option<i64>, Error> {
    let (held,): (i64,) = match (limit, counting(limit)) {
        (_, None) => return Ok(None),
        (OrgLimit::ApiKeys, Some(sql)) => tx.exactly_one(sql, &[&org, &micros(now)])?,
        (_, Some(sql)) => tx.exactly_one(sql, &[&org])?,
    };
    Ok(Some(held))
}

/// Refuses one more row if the org has reached the limit. The org is locked by then, so that no two transactions count at once.
pub(crate) fn leave_room(
    tx: &mut Tx,
    org: Uuid,
    limit: OrgLimit,
    default: u32,
    now: Moment,
) -> Result<(), Error> {
    let Some(held) = held(tx, org, limit, now)? else {
        return Ok(());
    };
    let most = stored(tx, org)?.of(limit).in_force(default);
    if held >= i64::from(most) {
        return Err(Conflict::AtLimit { limit, most }.into());
    }
    Ok(())
}

/// For limits whose default isn't configurable.
const NONE: DefaultLimits = DefaultLimits {
    registrations: 0,
    requests_per_minute: 0,
    streaming_requests_per_minute: 0,
};

/// Refuses one more row, for limits whose default isn't configurable.
pub(crate) fn leave_room_for(
    tx: &mut Tx,
    org: Uuid,
    limit: OrgLimit,
    now: Moment,
) -> Result<(), Error> {
    leave_room(tx, org, limit, limit.default_of(NONE), now)
}

/// Returns the number of rows that the org may have beside those that it has, for limits whose default isn't configurable.
pub(crate) fn room_for(
    tx: &mut Tx,
    org: Uuid,
    limit: OrgLimit,
    now: Moment,
) -> Result<usize, Error> {
    let held = held(tx, org, limit, now)?.unwrap_or_default();
    let most = stored(tx, org)?.in_force(limit, NONE);
    // Negative once the limit was set below what the org has.
    Ok(usize::try_from(i64::from(most) - held).unwrap_or_default())
}

/// Party that sets a limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LimitedBy {
    /// The operator.
    Operator,
    /// The org's partner.
    Partner,
}

/// New values of limits; `None` restores the default.
pub type LimitChanges = [(OrgLimit, Option<u32>)];

/// Returns the org's stored limits.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_org(tx: &mut Tx, org: Uuid) -> Result<StoredLimits, Error> {
    orgs::by_id(tx, org)?;
    stored(tx, org)
}

/// Returns the org's number of rows for each limit that is counted.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn counts(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Vec<(OrgLimit, u64)>, Error> {
    tx.snapshot()?;
    let mut counts = Vec::new();
    for limit in OrgLimit::ALL {
        if let Some(held) = held(tx, org, limit, now)? {
            counts.push((limit, held.unsigned_abs()));
        }
    }
    Ok(counts)
}

/// Sets limits of the org. The bound of the partner is checked in the transaction that writes.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::AboveAllowed`]; nothing is changed then.
pub fn limit(
    tx: &mut Tx,
    org: Uuid,
    changes: &LimitChanges,
    by: LimitedBy,
    defaults: DefaultLimits,
    now: Moment,
) -> Result<StoredLimits, Error> {
    lock_org(tx, org)?;
    let before = stored(tx, org)?;

    for (limit, most) in changes {
        let own = before.of(*limit);
        let allowed = own.greatest(limit.default_of(defaults));
        if by == LimitedBy::Partner && most.is_some_and(|most| most > allowed) {
            let limit = *limit;
            return Err(Conflict::AboveAllowed { limit, allowed }.into());
        }

        let (operator, partner) = match by {
            LimitedBy::Operator => (*most, own.by_partner),
            LimitedBy::Partner => (own.by_operator, *most),
        };

        let sql = "DELETE FROM org_limits WHERE org_id = $1 AND name = $2";
        tx.run(sql, &[&org, &limit.as_str()])?;
        if operator.or(partner).is_some() {
            tx.run(
                "INSERT INTO org_limits (org_id, name, by_operator, by_partner) VALUES ($1, $2, $3, $4)",
                &[&org, &limit.as_str(), &operator, &partner],
            )?;
        }
    }

    touch_org(tx, org, now)?;
    let after = stored(tx, org)?;
    tx.changed(Change::Org(org), now);
    Ok(after)
}

/// Returns the operator's bounds on the limits that the partner may set for its orgs.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_partner(tx: &mut Tx, partner: Uuid) -> Result<Vec<(OrgLimit, u32)>, Error> {
    let sql = "SELECT name, most FROM partner_org_limits WHERE partner_id = $1";
    let rows: Vec<(String, i64)> = tx.all(sql, &[&partner])?;
    let of = |limit: OrgLimit| {
        let row = rows.iter().find(|(name, _)| name == limit.as_str())?;
        Some((limit, u32::try_from(row.1).ok()?))
    };
    Ok(OrgLimit::ALL.into_iter().filter_map(of).collect())
}

/// Sets the bounds on the limits that the partner may set for its orgs; `None`: the default.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn limit_partner(
    tx: &mut Tx,
    partner: Uuid,
    changes: &LimitChanges,
    now: Moment,
) -> Result<(), Error> {
    let sql = "SELECT id FROM partners WHERE id = $1";
    let known: Option<(Uuid,)> = tx.one(sql, &[&partner])?;
    known.ok_or(Wrong::Absent(Kind::Partner))?;

    for (limit, most) in changes {
        let sql = "DELETE FROM partner_org_limits WHERE partner_id = $1 AND name = $2";
        tx.run(sql, &[&partner, &limit.as_str()])?;
        if let Some(most) = most {
            let sql = "INSERT INTO partner_org_limits (partner_id, name, most) VALUES ($1, $2, $3)";
            tx.run(sql, &[&partner, &limit.as_str(), most])?;
        }
    }

    tx.changed(Change::Partner(partner), now);
    tx.changed(Change::PartnerState(partner), now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_reached_is_named_in_singular_or_plural() {
        for (limit, most, said) in [
            (OrgLimit::Agents, 0, "the org may have no agents"),
            (
                OrgLimit::Agents,
                1,
                "the org may have 1 agent, and has it already",
            ),
            (
                OrgLimit::Registrations,
                1,
                "the org may have 1 trunk that registers with its carrier, and has it already",
            ),
            (
                OrgLimit::ApiKeys,
                2,
                "the org may have 2 API keys, and has them already",
            ),
        ] {
            assert_eq!(limit.reached(most), said);
        }
    }
}
