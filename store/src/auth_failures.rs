//! Log-ins that failed under a user name of an org, so that its people see why their PBX isn't let in.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, micros, moment, parsed};
use super::error::Error;
use super::page::{Narrow, Page, Position};
use super::pool::{execute, fetch_all, fetch_one};
use super::{Store, id_at};

/// An org keeps so many, the newest.
const KEPT: i64 = 1_000;

/// A failed log-in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthFailure {
    /// Its id.
    pub id: Uuid,
    /// The trunk whose user name it was.
    pub trunk_id: Uuid,
    /// The user name.
    pub username: String,
    /// Where it came from.
    pub source: IpAddr,
    /// What of the answer was wrong.
    pub part: String,
    /// When.
    pub at: Moment,
    /// Call-ID of the request.
    pub sip_call_id: Option<String>,
    /// The number that it asked for; `None` for a registration.
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
    /// The trunk whose user name it was.
    pub trunk: Uuid,
    /// The user name.
    pub username: Box<str>,
    /// Where it came from.
    pub source: IpAddr,
    /// What of the answer was wrong: `password`, `uri`, …
    pub part: &'static str,
    /// When.
    pub at: Moment,
    /// Call-ID of the request.
    pub sip_call_id: Box<str>,
    /// The number that it asked for.
    pub dialled: Option<Box<str>>,
}

/// The failed log-ins.
#[derive(Copy, Clone, Debug)]
pub struct AuthFailures<'s>(&'s Store);

impl Store {
    /// The failed log-ins.
    pub fn auth_failures(&self) -> AuthFailures<'_> {
        AuthFailures(self)
    }
}

impl AuthFailures<'_> {
    /// Records a batch; each org keeps its newest thousand.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn record(self, failures: &[NewAuthFailure]) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        for failure in failures {
            execute!(
                writing,
                "INSERT INTO auth_failures (id, org_id, trunk_id, username, source, part, at, sip_call_id, dialled)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                id_at(failure.at),
                failure.org,
                failure.trunk,
                &*failure.username,
                failure.source.to_canonical().to_string(),
                failure.part,
                micros(failure.at),
                &*failure.sip_call_id,
                failure.dialled.as_deref(),
            )?;
        }
        for org in failures
            .iter()
            .map(|failure| failure.org)
            .collect::<BTreeSet<_>>()
        {
            execute!(
                writing,
                "DELETE FROM auth_failures WHERE org_id = $1 AND (at, id) <
                     (SELECT at, id FROM auth_failures WHERE org_id = $1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET $2)",
                org,
                KEPT - 1,
            )?;
        }
        writing.commit().await
    }

    /// A page of the org's failed log-ins, newest first, after `after`.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn list(
        self,
        org: Uuid,
        [username, source]: &Narrow,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Page<AuthFailure>, Error> {
        let mut reading = self.0.pool().peek_snapshot().await?;
        let after = after.unwrap_or(Position::START);
        let items: Vec<AuthFailure> = fetch_all!(
            reading,
            "SELECT * FROM auth_failures WHERE org_id = $1 AND (at, id) < ($2, $3)
                 AND (CAST($5 AS TEXT) IS NULL OR username = $5) AND (CAST($6 AS TEXT) IS NULL OR source = $6)
             ORDER BY at DESC, id DESC LIMIT $4",
            org,
            after.at_micros(),
            after.id,
            i64::from(limit) + 1,
            username,
            source,
        )?;
        let (total,): (i64,) = fetch_one!(
            reading,
            "SELECT COUNT(*) FROM auth_failures
             WHERE org_id = $1 AND (CAST($2 AS TEXT) IS NULL OR username = $2) AND (CAST($3 AS TEXT) IS NULL OR source = $3)",
            org,
            username,
            source,
        )?;
        Ok(Page::of(items, limit, total, |failure| Position {
            at: failure.at,
            id: failure.id,
        }))
    }
}
