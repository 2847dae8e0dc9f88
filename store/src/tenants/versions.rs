//! Versions of objects: the time of the last change, as [`written`]. An edit may name the version that it was made for. Of two edits made for
//! the same version, the second is refused.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{from_row, moment, written};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::tx::Tx;

/// Kinds of objects that have a version.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Versioned {
    /// The org itself.
    Org,
    /// Phone agent.
    Agent(Uuid),
    /// The org's inbound trunk.
    InboundTrunk,
    /// Outbound trunk.
    OutboundTrunk(Uuid),
    /// Transfer destination.
    Destination(Uuid),
    /// Webhook.
    Webhook(Uuid),
    /// Contact.
    Contact(Uuid),
}

struct Changed {
    at: Moment,
}
from_row!(Changed { at: moment });

/// Locks the org until the commit, and checks that the object still has one of the `expected` versions; `None` accepts any version. Returns
/// the time of the change to come: the present one, or the next one that gives another version.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::Outdated`].
pub fn must_be(
    tx: &mut Tx,
    org: Uuid,
    object: Versioned,
    expected: Option<&[String]>,
    now: Moment,
) -> Result<Moment, Error> {
    lock_org(tx, org)?;

    let found: Option<Changed> = match object.id() {
        Some(id) => tx.one(object.sql(), &[&org, &id])?,
        None => tx.one(object.sql(), &[&org])?,
    };

    let Changed { at } = found.ok_or(Wrong::Absent(object.kind()))?;
    next(at, expected, now)
}

/// Gives an org another version after a change of its limits, which are rows of their own.
pub(crate) fn touch_org(tx: &mut Tx, org: Uuid, now: Moment) -> Result<(), Error> {
    let sql = "UPDATE orgs SET updated_at = $2 WHERE id = $1";
    tx.run(sql, &[&org, &now])?;
    Ok(())
}

/// Gives an agent another version after a change of its numbers or destinations, which are rows of their own.
pub(crate) fn touch_agent(tx: &mut Tx, org: Uuid, agent: Uuid, now: Moment) -> Result<(), Error> {
    let sql = "UPDATE agents SET updated_at = $3 WHERE org_id = $1 AND id = $2";
    tx.run(sql, &[&org, &agent, &now])?;
    Ok(())
}

/// Does for a partner what [`must_be`] does for an object of an org: locks its row, checks its version, and returns the time of the change.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::Outdated`].
pub fn partner_must_be(
    tx: &mut Tx,
    partner: Uuid,
    expected: Option<&[String]>,
    now: Moment,
) -> Result<Moment, Error> {
    let sql = tx.by_dialect(
        "SELECT updated_at AS at FROM partners WHERE id = $1",
        "SELECT updated_at AS at FROM partners WHERE id = $1 FOR NO KEY UPDATE",
    );
    let found: Option<Changed> = tx.one(sql, &[&partner])?;
    let Changed { at } = found.ok_or(Wrong::Absent(Kind::Partner))?;
    next(at, expected, now)
}

/// Returns the time of a change of an object that was last changed at `at`.
pub(crate) fn next(at: Moment, expected: Option<&[String]>, now: Moment) -> Result<Moment, Error> {
    let version = written(at);
    if expected.is_some_and(|expected| !expected.contains(&version)) {
        return Err(Conflict::Outdated { version }.into());
    }

    // Versions are written with milliseconds: a second change within the same one would leave the version as it is.
    Ok(now.max(at + Duration::from_millis(1)))
}

impl Versioned {
    /// The object's id; there is one org, with one inbound trunk.
    const fn id(self) -> Option<Uuid> {
        match self {
            Self::Org | Self::InboundTrunk => None,
            Self::Agent(id)
            | Self::OutboundTrunk(id)
            | Self::Destination(id)
            | Self::Webhook(id)
            | Self::Contact(id) => Some(id),
        }
    }

    const fn sql(self) -> &'static str {
        match self {
            Self::Org => "SELECT updated_at AS at FROM orgs WHERE id = $1",
            Self::Agent(_) => "SELECT updated_at AS at FROM agents WHERE org_id = $1 AND id = $2",
            Self::InboundTrunk => "SELECT updated_at AS at FROM inbound_trunks WHERE org_id = $1",
            Self::OutboundTrunk(_) => {
                "SELECT updated_at AS at FROM outbound_trunks WHERE org_id = $1 AND id = $2"
            }
            Self::Destination(_) => {
                "SELECT updated_at AS at FROM destinations WHERE org_id = $1 AND id = $2"
            }
            Self::Webhook(_) => {
                "SELECT updated_at AS at FROM webhooks WHERE org_id = $1 AND id = $2"
            }
            Self::Contact(_) => {
                "SELECT updated_at AS at FROM contacts WHERE org_id = $1 AND id = $2"
            }
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Org => Kind::Org,
            Self::Agent(_) => Kind::Agent,
            Self::InboundTrunk => Kind::InboundTrunk,
            Self::OutboundTrunk(_) => Kind::OutboundTrunk,
            Self::Destination(_) => Kind::Destination,
            Self::Webhook(_) => Kind::Webhook,
            Self::Contact(_) => Kind::Contact,
        }
    }
}
