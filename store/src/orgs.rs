//! Orgs: the tenants. An org is a partner's, or the operator's own.

use schemars::JsonSchema;
use serde::Serialize;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{count, from_row, maybe, moment};
use super::error::{Error, Kind, Refused, Wrong};
use super::integrations::{self, NewBooking};
use super::keyring::to_hex;
use super::page::Narrow;
use super::retention::{self, RetentionChange};
use super::tx::Tx;
use super::{Change, edit, new_id, set};

/// An org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Org {
    /// The org.
    pub id: Uuid,
    /// Whose customer it is; `None`: the operator's own.
    pub partner_id: Option<Uuid>,
    /// The partner's own id for it.
    pub external_id: Option<String>,
    /// Display name.
    pub name: String,
    /// What the chat widget is embedded with.
    pub widget_token: String,
    /// The customer's web site.
    pub website: Option<String>,
    /// Default language code.
    pub language: String,
    /// System prompt.
    pub ai_instructions: Option<String>,
    /// Calls at once; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// Since when its partner has suspended it.
    pub suspended_by_partner_at: Option<Moment>,
    /// Since when the operator has suspended it.
    pub suspended_by_operator_at: Option<Moment>,
    /// Since when its partner is inactive.
    pub partner_inactive_at: Option<Moment>,
    /// When it was made.
    pub created_at: Moment,
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
    max_concurrent_calls: maybe(count),
    suspended_by_partner_at: maybe(moment),
    suspended_by_operator_at: maybe(moment),
    partner_inactive_at: maybe(moment),
    created_at: moment,
});

/// Why an org is suspended: it begins no calls, its keys are refused, and calls that are up go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
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
    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Partner => "partner",
            Self::Operator => "operator",
            Self::InactivePartner => "inactive_partner",
        }
    }
}

/// Whoever suspends an org, and can take that back alone.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Suspender {
    /// The org's partner.
    Partner,
    /// The operator.
    Operator,
}

impl Org {
    /// Everything that the org is suspended by; empty if it isn't.
    pub fn suspended_by(&self) -> Vec<SuspendedBy> {
        let all = [
            (self.suspended_by_partner_at, SuspendedBy::Partner),
            (self.suspended_by_operator_at, SuspendedBy::Operator),
            (self.partner_inactive_at, SuspendedBy::InactivePartner),
        ];
        let since = |(at, by): (Option<Moment>, _)| at.map(|_| by);
        all.into_iter().filter_map(since).collect()
    }

    /// Whether anything suspends it.
    pub fn is_suspended(&self) -> bool {
        !self.suspended_by().is_empty()
    }
}

/// What an org is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrg {
    /// Display name.
    pub name: String,
    /// The partner's own id for it.
    pub external_id: Option<String>,
    /// The customer's web site.
    pub website: Option<String>,
    /// Default language code.
    pub language: String,
    /// System prompt.
    pub ai_instructions: Option<String>,
    /// Accounts with the booking platform, no two of one name.
    pub bookings: Vec<NewBooking>,
}

impl NewOrg {
    /// An org of this name, in English, with nothing else said.
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

/// A change of an org. Of each field: `None` leaves it; of one that may be empty, `Some(None)` clears it.
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
    /// All accounts with the booking platform, no two of one name.
    pub bookings: Option<Vec<NewBooking>>,
    /// Days after which data is deleted.
    pub retention: RetentionChange,
}

/// Makes an org, with its roles `admin` (everything) and `member` (sees everything, changes nothing). Credentials of
/// integrations are sealed.
///
/// # Errors
/// [`Refused::ExternalIdTaken`].
pub fn create(tx: &mut Tx, partner: Option<Uuid>, new: &NewOrg, now: Moment) -> Result<Org, Error> {
    let row: Option<Org> = tx.one(
        "INSERT INTO orgs (id, partner_id, external_id, name, widget_token, website, language, ai_instructions, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING *",
        &[
            &new_id(now),
            &partner,
            &new.external_id,
            &new.name,
            &to_hex(&rand::random::<[u8; 16]>()),
            &new.website,
            &new.language,
            &new.ai_instructions,
            &now,
        ],
    )?;
    let Some(org) = row else {
        return Err(Refused::ExternalIdTaken(new.external_id.clone().unwrap_or_default()).into());
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

/// Changes an org. The accounts that the change names replace those that were there: one of the same name keeps its id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn update(tx: &mut Tx, org: Uuid, change: &OrgChange, now: Moment) -> Result<Org, Error> {
    edit(tx, org)?;
    let mut changed = by_id(tx, org)?;
    set(&mut changed.name, change.name.clone());
    set(&mut changed.website, change.website.clone());
    set(&mut changed.language, change.language.clone());
    set(&mut changed.ai_instructions, change.ai_instructions.clone());
    tx.run(
        "UPDATE orgs SET name = $2, website = $3, language = $4, ai_instructions = $5 WHERE id = $1",
        &[
            &org,
            &changed.name,
            &changed.website,
            &changed.language,
            &changed.ai_instructions,
        ],
    )?;

    retention::change(tx, org, change.retention)?;
    if let Some(bookings) = &change.bookings {
        integrations::replace(tx, org, bookings, now)?;
    }
    tx.changed(Change::Org(org), now);
    tx.changed(Change::Session(org), now);
    Ok(changed)
}

/// Suspends an org, or ends the suspension by the same one; it may stay suspended by another. Again changes nothing.
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
    edit(tx, org)?;

    let sql = match (by, since) {
        (Suspender::Partner, Some(_)) => {
            "UPDATE orgs SET suspended_by_partner_at = COALESCE(suspended_by_partner_at, $2) WHERE id = $1 RETURNING *"
        }
        (Suspender::Partner, None) => {
            "UPDATE orgs SET suspended_by_partner_at = $2 WHERE id = $1 RETURNING *"
        }
        (Suspender::Operator, Some(_)) => {
            "UPDATE orgs SET suspended_by_operator_at = COALESCE(suspended_by_operator_at, $2) WHERE id = $1 RETURNING *"
        }
        (Suspender::Operator, None) => {
            "UPDATE orgs SET suspended_by_operator_at = $2 WHERE id = $1 RETURNING *"
        }
    };

    let changed: Org = tx.only(sql, &[&org, &since])?;
    tx.changed(Change::Org(org), now);

    Ok(changed)
}

/// The org of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid) -> Result<Org, Error> {
    let sql = "SELECT * FROM orgs WHERE id = $1 AND deleted_at IS NULL";
    let row: Option<Org> = tx.one(sql, &[&org])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Org))?)
}

/// Every org that isn't deleted, newest first.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn list(tx: &mut Tx) -> Result<Vec<Org>, Error> {
    tx.all(
        "SELECT * FROM orgs WHERE deleted_at IS NULL ORDER BY created_at DESC, id DESC",
        &[],
    )
}

/// The orgs of a partner, newest first, narrowed by external id and name, and how many there are in all.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
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

    let (total,): (i64,) = tx.only(
        "SELECT COUNT(*) FROM orgs WHERE partner_id = $1 AND deleted_at IS NULL AND (CAST($2 AS TEXT) IS NULL OR external_id = $2) AND (CAST($3 AS TEXT) IS NULL OR name = $3)",
        &[&partner, &external_id, &name],
    )?;
    Ok((orgs, total.unsigned_abs()))
}

/// The partner's org of this external id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_external_id(tx: &mut Tx, partner: Uuid, external_id: &str) -> Result<Org, Error> {
    let sql =
        "SELECT * FROM orgs WHERE partner_id = $1 AND external_id = $2 AND deleted_at IS NULL";
    let row: Option<Org> = tx.one(sql, &[&partner, &external_id])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Org))?)
}

/// Limits the org's calls at once.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn limit_calls(tx: &mut Tx, org: Uuid, max: Option<u32>, now: Moment) -> Result<(), Error> {
    let sql = "UPDATE orgs SET max_concurrent_calls = $2 WHERE id = $1 AND deleted_at IS NULL";
    if tx.run(sql, &[&org, &max])? == 0 {
        return Err(Wrong::Absent(Kind::Org).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}
