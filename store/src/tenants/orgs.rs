//! Orgs: the tenants. An org belongs to a partner, or to the operator.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::integrations::{self, NewBooking};
use super::partners;
use super::retention::{self, RetentionChange};
use crate::driver::change::Change;
use crate::driver::column::{from_row, maybe, moment};
use crate::driver::edit::{lock_org, set};
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::keyring::to_hex;
use crate::driver::page::{Narrow, Page, Position};
use crate::driver::tx::Tx;

/// An org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Org {
    /// The org.
    pub id: Uuid,
    /// The partner; `None`: the operator's own org.
    pub partner_id: Option<Uuid>,
    /// External id: the partner's own.
    pub external_id: Option<String>,
    /// Display name.
    pub name: String,
    /// Token with which the chat widget is embedded.
    pub widget_token: String,
    /// The customer's web site.
    pub website: Option<String>,
    /// Default language code.
    pub language: String,
    /// System prompt.
    pub ai_instructions: Option<String>,
    /// Time at which the partner suspended the org.
    pub suspended_by_partner_at: Option<Moment>,
    /// Time at which the operator suspended the org.
    pub suspended_by_operator_at: Option<Moment>,
    /// Time at which the partner became inactive.
    pub partner_inactive_at: Option<Moment>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change, which is the version.
    pub updated_at: Moment,
}
from_row!(Org {
    id,
    partner_id,
    external_id,
    name,
    widget_token,
    website,
    language,
    ai_instructions,
    suspended_by_partner_at: maybe(moment),
    suspended_by_operator_at: maybe(moment),
    partner_inactive_at: maybe(moment),
    created_at: moment,
    updated_at: moment,
});

/// Reason why an org is suspended: it begins no calls, its keys are refused, and calls that are up continue.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "OrgSuspendedBy")]
pub enum SuspendedBy {
    /// Its partner suspended it.
    Partner,
    /// The operator suspended it.
    Operator,
    /// Its partner is inactive.
    InactivePartner,
}

impl SuspendedBy {
    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Partner => "partner",
            Self::Operator => "operator",
            Self::InactivePartner => "inactive_partner",
        }
    }
}

/// Party that suspends an org, and alone can lift that suspension.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Suspender {
    /// The org's partner.
    Partner,
    /// The operator.
    Operator,
}

impl Org {
    /// Returns the reasons for which the org is suspended; empty if it isn't.
    pub fn suspended_by(&self) -> Vec<SuspendedBy> {
        let all = [
            (self.suspended_by_partner_at, SuspendedBy::Partner),
            (self.suspended_by_operator_at, SuspendedBy::Operator),
            (self.partner_inactive_at, SuspendedBy::InactivePartner),
        ];
        let since = |(at, by): (Option<Moment>, _)| at.map(|_| by);
        all.into_iter().filter_map(since).collect()
    }

    /// Returns whether the org is suspended.
    pub fn is_suspended(&self) -> bool {
        !self.suspended_by().is_empty()
    }
}

/// A new org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrg {
    /// Display name.
    pub name: String,
    /// External id: the partner's own.
    pub external_id: Option<String>,
    /// The customer's web site.
    pub website: Option<String>,
    /// Default language code.
    pub language: String,
    /// System prompt.
    pub ai_instructions: Option<String>,
    /// Accounts with the booking platform, with distinct names.
    pub bookings: Vec<NewBooking>,
}

impl NewOrg {
    /// Returns an org of this name, in English, all else empty.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            external_id: None,
            website: None,
            language: "en".to_owned(),
            ai_instructions: None,
            bookings: Vec::new(),
        }
    }
}

/// A change of an org; `None` leaves a field as it is, and `Some(None)` clears one that may be empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(
    missing_docs,
    reason = "the fields are those of Org, where they are described"
)]
pub struct OrgChange {
    pub name: Option<String>,
    pub website: Option<Option<String>>,
    pub language: Option<String>,
    pub ai_instructions: Option<Option<String>>,
    /// All accounts with the booking platform, with distinct names.
    pub bookings: Option<Vec<NewBooking>>,
    /// Retention in days.
    pub retention: RetentionChange,
}

/// Creates an org, with its roles `admin` (reads and changes everything) and `member` (reads everything). Seals the credentials of
/// integrations.
///
/// # Errors
/// [`Conflict::ExternalIdTaken`]; [`Conflict::TooManyOrgs`]; [`Conflict::PartnerInactive`], also if the partner was deactivated while its request ran.
pub fn create(tx: &mut Tx, partner: Option<Uuid>, new: &NewOrg, now: Moment) -> Result<Org, Error> {
    if let Some(partner) = partner {
        must_be_active(tx, partner)?;
        partners::leave_room_for_org(tx, partner)?;
    }

    // The unique index decides, not a query before: of two requests with the same external id at once, one gets the
    // conflict.
    let row: Option<Org> = tx.one(
        "INSERT INTO orgs (id, partner_id, external_id, name, widget_token, website, language, ai_instructions, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9) ON CONFLICT DO NOTHING RETURNING *",
        &[
            &new_id(now),
            &partner,
            &new.external_id,
            &new.name,
            &new_widget_token(),
            &new.website,
            &new.language,
            &new.ai_instructions,
            &now,
        ],
    )?;
    let Some(org) = row else {
        return Err(Conflict::ExternalIdTaken(new.external_id.clone().unwrap_or_default()).into());
    };

    for (name, access) in [("admin", "write"), ("member", "read")] {
        let sql =
            "INSERT INTO roles (id, org_id, name, access, created_at) VALUES ($1, $2, $3, $4, $5)";
        tx.run(sql, &[&new_id(now), &org.id, &name, &access, &now])?;
    }

    for booking in &new.bookings {
        integrations::connect(tx, org.id, booking, now)?;
    }

    tx.changed(Change::Org(org.id), now);
    Ok(org)
}

/// Checks that the partner is active, and locks it: a deactivation waits for the end of the transaction, whose orgs it then suspends as well, and
/// another org of the partner is counted after it.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::PartnerInactive`].
fn must_be_active(tx: &mut Tx, partner: Uuid) -> Result<(), Error> {
    let sql = match tx.is_shared() {
        true => "SELECT active FROM partners WHERE id = $1 FOR NO KEY UPDATE",
        false => "SELECT active FROM partners WHERE id = $1",
    };
    let row: Option<(bool,)> = tx.one(sql, &[&partner])?;
    match row.ok_or(Wrong::Absent(Kind::Partner))? {
        (true,) => Ok(()),
        (false,) => Err(Conflict::PartnerInactive.into()),
    }
}

/// Changes an org. The accounts in the change replace the existing ones; an account with a known name keeps its id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn update(tx: &mut Tx, org: Uuid, change: &OrgChange, now: Moment) -> Result<Org, Error> {
    lock_org(tx, org)?;
    let mut changed = by_id(tx, org)?;
    if *change == OrgChange::default() {
        tx.mark_internal();
        return Ok(changed);
    }
    set(&mut changed.name, change.name.clone());
    set(&mut changed.website, change.website.clone());
    set(&mut changed.language, change.language.clone());
    set(&mut changed.ai_instructions, change.ai_instructions.clone());
    changed.updated_at = now;
    tx.run(
        "UPDATE orgs SET name = $2, website = $3, language = $4, ai_instructions = $5, updated_at = $6 WHERE id = $1",
        &[
            &org,
            &changed.name,
            &changed.website,
            &changed.language,
            &changed.ai_instructions,
            &now,
        ],
    )?;

    retention::change(tx, org, change.retention)?;
    if let Some(bookings) = &change.bookings {
        integrations::replace(tx, org, bookings, now)?;
    }
    tx.changed(Change::Org(org), now);
    // A session shows the name of its org.
    tx.changed(Change::Session(org), now);
    Ok(changed)
}

/// Suspends an org, or lifts the suspension by the same party; another party's stays. Repeating it changes nothing.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn suspend(
    tx: &mut Tx,
    org: Uuid,
    by: Suspender,
    since: Option<Moment>,
    now: Moment,
) -> Result<Org, Error> {
    lock_org(tx, org)?;

    let sql = match (by, since) {
        (Suspender::Partner, Some(_)) => {
            "UPDATE orgs SET suspended_by_partner_at = COALESCE(suspended_by_partner_at, $2), updated_at = $3 WHERE id = $1 RETURNING *"
        }
        (Suspender::Partner, None) => {
            "UPDATE orgs SET suspended_by_partner_at = $2, updated_at = $3 WHERE id = $1 RETURNING *"
        }
        (Suspender::Operator, Some(_)) => {
            "UPDATE orgs SET suspended_by_operator_at = COALESCE(suspended_by_operator_at, $2), updated_at = $3 WHERE id = $1 RETURNING *"
        }
        (Suspender::Operator, None) => {
            "UPDATE orgs SET suspended_by_operator_at = $2, updated_at = $3 WHERE id = $1 RETURNING *"
        }
    };

    let changed: Org = tx.exactly_one(sql, &[&org, &since, &now])?;
    tx.changed(Change::Org(org), now);

    Ok(changed)
}

fn new_widget_token() -> String {
    to_hex(&rand::random::<[u8; 16]>())
}

/// Gives the org another embed token. The old one is good for a day more, so that the pages of the website can be changed meanwhile.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn rotate_widget_token(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Org, Error> {
    /// Time for which the old token is good.
    const OLD_LASTS: Duration = Duration::from_secs(24 * 3600);

    lock_org(tx, org)?;
    let changed: Org = tx.exactly_one(
        "UPDATE orgs SET old_widget_token = widget_token, old_widget_token_ends_at = $2, widget_token = $3, updated_at = $4
         WHERE id = $1 RETURNING *",
        &[&org, &(now + OLD_LASTS), &new_widget_token(), &now],
    )?;
    tx.changed(Change::Org(org), now);
    Ok(changed)
}

/// Returns the org with this embed token, or with this one before its last rotation.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn by_widget_token(tx: &mut Tx, token: &str, now: Moment) -> Result<Option<Org>, Error> {
    let sql = "SELECT * FROM orgs WHERE widget_token = $1 AND deleted_at IS NULL";
    if let Some(org) = tx.one(sql, &[&token])? {
        return Ok(Some(org));
    }
    let sql = "SELECT * FROM orgs WHERE old_widget_token = $1 AND old_widget_token_ends_at > $2 AND deleted_at IS NULL";
    tx.one(sql, &[&token, &now])
}

/// Returns the org of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid) -> Result<Org, Error> {
    let sql = "SELECT * FROM orgs WHERE id = $1 AND deleted_at IS NULL";
    let row: Option<Org> = tx.one(sql, &[&org])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Org))?)
}

/// Returns a page of all orgs, newest first. The filter is a whole name, and a text that is a part of the name or external id in any case,
/// or is the id.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    [name, search]: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Org>, Error> {
    tx.snapshot()?;
    let after = after.unwrap_or(Position::START);
    let position = |org: &Org| Position {
        at: org.created_at,
        id: org.id,
    };
    if let Some(search) = search {
        let (ids, total) = search_all(tx, name.as_deref(), search, after, limit)?;
        let items: Result<Vec<_>, _> = ids.into_iter().map(|id| by_id(tx, id)).collect();
        return Ok(Page::of(items?, limit, total, position));
    }

    let items = tx.all(
        "SELECT * FROM orgs WHERE deleted_at IS NULL AND (created_at, id) < ($1, $2) AND (CAST($3 AS TEXT) IS NULL OR name = $3)
         ORDER BY created_at DESC, id DESC LIMIT $4",
        &[&after.at_micros(), &after.id, &name, &(i64::from(limit) + 1)],
    )?;
    let (total,) = tx.exactly_one(
        "SELECT COUNT(*) FROM orgs WHERE deleted_at IS NULL AND (CAST($1 AS TEXT) IS NULL OR name = $1)",
        &[&name],
    )?;
    Ok(Page::of(items, limit, total, position))
}

/// Orgs that one query of a search reads.
const SEARCHED_AT_ONCE: i64 = 1_000;

/// Part of an org that a search reads.
struct SearchedOrg {
    id: Uuid,
    name: String,
    external_id: Option<String>,
    created_at: Moment,
}
from_row!(SearchedOrg {
    id,
    name,
    external_id,
    created_at: moment
});

impl SearchedOrg {
    /// Returns whether the org has this text, which is in lower case.
    fn has(&self, text: &str) -> bool {
        let is_in = |field: &str| field.to_lowercase().contains(text);
        is_in(&self.name)
            || self.external_id.as_deref().is_some_and(is_in)
            || self.id.to_string() == text
    }
}

/// Returns the first orgs with this text after a position, one more than `limit`, and the number of all. SQLite compares only ASCII in any case, so
/// the rows are compared here, a bounded number at once.
fn search_all(
    tx: &mut Tx,
    name: Option<&str>,
    search: &str,
    after: Position,
    limit: u32,
) -> Result<(Vec<Uuid>, i64), Error> {
    let search = search.trim().to_lowercase();
    let (mut found, mut total) = (Vec::new(), 0);
    let mut read_to = Position::START;

    loop {
        let some: Vec<SearchedOrg> = tx.all(
            "SELECT id, name, external_id, created_at FROM orgs
             WHERE deleted_at IS NULL AND (created_at, id) < ($1, $2) AND (CAST($3 AS TEXT) IS NULL OR name = $3)
             ORDER BY created_at DESC, id DESC LIMIT $4",
            &[&read_to.at_micros(), &read_to.id, &name, &SEARCHED_AT_ONCE],
        )?;
        let Some(last) = some.last() else {
            return Ok((found, total));
        };
        read_to = Position {
            at: last.created_at,
            id: last.id,
        };

        // Read to the last org even if the page is full, since the total counts all matches.
        for org in some.iter().filter(|org| org.has(&search)) {
            total += 1;
            let is_after = (org.created_at, org.id) < (after.at, after.id);
            if is_after && found.len() <= limit as usize {
                found.push(org.id);
            }
        }
    }
}

/// Checks that no org but `except` has this name. Partners' customers may share one; the operator finds orgs by name.
///
/// # Errors
/// [`Conflict::OrgNameTaken`].
pub fn must_be_only(tx: &mut Tx, name: &str, except: Option<Uuid>) -> Result<(), Error> {
    let sql = "SELECT id FROM orgs WHERE name = $1 AND deleted_at IS NULL";
    let named: Vec<(Uuid,)> = tx.all(sql, &[&name])?;
    match named.iter().all(|(id,)| Some(*id) == except) {
        true => Ok(()),
        false => Err(Conflict::OrgNameTaken(name.to_owned()).into()),
    }
}

/// Returns the orgs of a partner, newest first, filtered by external id and name, and their total number.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_partner(
    tx: &mut Tx,
    partner: Uuid,
    [external_id, name]: &Narrow,
    limit: u32,
    offset: u64,
) -> Result<(Vec<Org>, u64), Error> {
    tx.snapshot()?;

    let orgs = tx.all(
        "SELECT * FROM orgs WHERE partner_id = $1 AND deleted_at IS NULL AND (CAST($2 AS TEXT) IS NULL OR external_id = $2) AND (CAST($3 AS TEXT) IS NULL OR name = $3)
         ORDER BY created_at DESC, id DESC LIMIT $4 OFFSET $5",
        &[
            &partner,
            &external_id,
            &name,
            &limit,
            &i64::try_from(offset).unwrap_or(i64::MAX),
        ],
    )?;

    let (total,): (i64,) = tx.exactly_one(
        "SELECT COUNT(*) FROM orgs WHERE partner_id = $1 AND deleted_at IS NULL AND (CAST($2 AS TEXT) IS NULL OR external_id = $2) AND (CAST($3 AS TEXT) IS NULL OR name = $3)",
        &[&partner, &external_id, &name],
    )?;
    Ok((orgs, total.unsigned_abs()))
}

/// Returns the partner's org of this external id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_external_id(tx: &mut Tx, partner: Uuid, external_id: &str) -> Result<Org, Error> {
    let sql =
        "SELECT * FROM orgs WHERE partner_id = $1 AND external_id = $2 AND deleted_at IS NULL";
    let row: Option<Org> = tx.one(sql, &[&partner, &external_id])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Org))?)
}
