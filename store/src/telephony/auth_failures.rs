//! Failed digest log-ins under the user names of an org, shown to its people as the reason why their PBX is refused.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{count, from_row, moment, parsed};
use crate::driver::error::Error;
use crate::driver::ids::id_at;
use crate::driver::page::{Narrow, Page, Position};
use crate::driver::tx::Tx;

/// Most failures of an org that are kept, the newest.
const KEPT: i64 = 1_000;

/// A failed log-in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthFailure {
    /// Its id.
    pub id: Uuid,
    /// The trunk of the user name.
    pub trunk_id: Uuid,
    /// The user name.
    pub username: String,
    /// Source address.
    pub source: IpAddr,
    /// Part of the credentials that was wrong.
    pub part: String,
    /// Time of the failure.
    pub at: Moment,
    /// Call-ID of the request.
    pub sip_call_id: Option<String>,
    /// The dialled number; `None` for a registration.
    pub dialled: Option<String>,
}
from_row!(AuthFailure {
    id,
    trunk_id,
    username,
    source: parsed,
    part,
    at: moment,
    sip_call_id,
    dialled
});

/// A failed log-in to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewAuthFailure {
    /// The org.
    pub org: Uuid,
    /// The trunk of the user name.
    pub trunk: Uuid,
    /// The user name.
    pub username: Box<str>,
    /// Source address.
    pub source: IpAddr,
    /// Part of the credentials that was wrong: `password`, `uri`, …
    pub part: &'static str,
    /// Time of the failure.
    pub at: Moment,
    /// Call-ID of the request.
    pub sip_call_id: Box<str>,
    /// The dialled number; `None` for a registration.
    pub dialled: Option<Box<str>>,
}

/// Records a batch; each org keeps its newest thousand.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn record(tx: &mut Tx, failures: &[NewAuthFailure]) -> Result<(), Error> {
    for failure in failures {
        tx.run(
            "INSERT INTO auth_failures (id, org_id, trunk_id, username, source, part, at, sip_call_id, dialled)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &[
                &id_at(failure.at),
                &failure.org,
                &failure.trunk,
                &&*failure.username,
                // An IPv4 address that came over an IPv6 socket is the same address: filters compare texts.
                &failure.source.to_canonical().to_string(),
                &failure.part,
                &failure.at,
                &&*failure.sip_call_id,
                &failure.dialled.as_deref(),
            ],
        )?;
    }

    for org in failures
        .iter()
        .map(|failure| failure.org)
        .collect::<BTreeSet<_>>()
    {
        tx.run(
            "DELETE FROM auth_failures WHERE org_id = $1 AND (at, id) <
                 (SELECT at, id FROM auth_failures WHERE org_id = $1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET $2)",
            &[&org, &(KEPT - 1)],
        )?;
    }

    Ok(())
}

/// Address from which log-ins of an org failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailingSource {
    /// The address.
    pub source: String,
    /// Failed log-ins.
    pub failures: u32,
    /// User names that were tried.
    pub usernames: u32,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub org_name: String,
    /// Time of the last one.
    pub last_at: Moment,
}
from_row!(FailingSource {
    source,
    failures: count,
    usernames: count,
    org_id,
    org_name,
    last_at: moment,
});

/// Returns the addresses from which log-ins have failed since then, for each org, the most frequent first. For the operator, who sees all
/// orgs.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn sources(tx: &mut Tx, since: Moment, limit: u32) -> Result<Vec<FailingSource>, Error> {
    tx.all(
        "SELECT source, COUNT(*) AS failures, COUNT(DISTINCT username) AS usernames, orgs.id AS org_id, orgs.name AS org_name,
             MAX(at) AS last_at
         FROM auth_failures JOIN orgs ON orgs.id = auth_failures.org_id WHERE at >= $1
         GROUP BY source, orgs.id, orgs.name ORDER BY COUNT(*) DESC, MAX(at) DESC, source LIMIT $2",
        &[&since, &i64::from(limit)],
    )
}

/// Returns a page of the org's failed log-ins, newest first, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(
    tx: &mut Tx,
    org: Uuid,
    [username, source]: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<AuthFailure>, Error> {
    tx.snapshot()?;
    let after = after.unwrap_or(Position::START);
    let items: Vec<AuthFailure> = tx.all(
        "SELECT * FROM auth_failures WHERE org_id = $1 AND (at, id) < ($2, $3)
             AND (CAST($5 AS TEXT) IS NULL OR username = $5) AND (CAST($6 AS TEXT) IS NULL OR source = $6)
         ORDER BY at DESC, id DESC LIMIT $4",
        &[&org, &after.at_micros(), &after.id, &(i64::from(limit) + 1), &username, &source],
    )?;

    let (total,): (i64,) = tx.exactly_one(
        "SELECT COUNT(*) FROM auth_failures
         WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR username = $2) AND (CAST($3 AS TEXT) IS NULL OR source = $3)",
        &[&org, &username, &source],
    )?;

    Ok(Page::of(items, limit, total, |failure| Position {
        at: failure.at,
        id: failure.id,
    }))
}
