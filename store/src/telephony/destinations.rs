//! Transfer destinations. An agent may transfer callers to those that are assigned to it.

use trunkline_model::settings::{TransferTarget, Via};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::agents::must_exist;
use crate::driver::change::Change;
use crate::driver::column::{Unreadable, from_row, moment, named};
use crate::driver::edit::{lock_org, set};
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;
use crate::tenants::org_limits::leave_room_for;
use crate::tenants::versions::touch_agent;

/// A transfer destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The destination.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Name by which the agent refers to it; unique in the org, ignoring case.
    pub name: String,
    /// Number or URI.
    pub target: TransferTarget,
    /// Trunk over which Trunkline calls the destination in a bridged transfer.
    pub via: Via,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// A new destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDestination {
    /// Name by which the agent refers to the destination.
    pub name: String,
    /// Number or URI.
    pub target: TransferTarget,
    /// Trunk over which Trunkline calls the destination in a bridged transfer.
    pub via: Via,
}

/// A change of a destination; `None` leaves a field as it is. The fields are those of [`Destination`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DestinationChange {
    pub name: Option<String>,
    pub target: Option<TransferTarget>,
    pub via: Option<Via>,
}

const LIST: List = List {
    columns: "*, type || ' ' || value AS target",
    table: "destinations",
    by: ["type", "name"],
};

/// Creates a destination.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::NameTaken`], [`Conflict::AtLimit`].
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    new: &NewDestination,
    now: Moment,
) -> Result<Destination, Error> {
    lock_org(tx, org)?;
    let made = insert(tx, org, new, now)?;
    tx.changed(Change::Org(org), now);
    Ok(made)
}

/// Returns the destination of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Destination, Error> {
    let sql =
        "SELECT *, type || ' ' || value AS target FROM destinations WHERE org_id = $1 AND id = $2";
    let row = tx.one(sql, &[&org, &id])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Destination))?)
}

/// Returns a page of the org's destinations, newest first, filtered by type and name, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Destination>, Error> {
    LIST.page(tx, org, narrow, after, limit, |row: &Destination| {
        Position {
            at: row.created_at,
            id: row.id,
        }
    })
}

/// Changes a destination; returns it as changed.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::NameTaken`].
pub fn update(
    tx: &mut Tx,
    org: Uuid,
    id: Uuid,
    change: &DestinationChange,
    now: Moment,
) -> Result<Destination, Error> {
    lock_org(tx, org)?;
    let before = by_id(tx, org, id)?;
    let mut destination = before.clone();
    set(&mut destination.name, change.name.clone());
    set(&mut destination.target, change.target.clone());
    set(&mut destination.via, change.via);
    if destination == before {
        tx.mark_internal();
        return Ok(before);
    }
    destination.updated_at = now;
    must_be_free(tx, org, &destination.name, id)?;

    tx.run(
        "UPDATE destinations SET name = $3, name_folded = $4, type = $5, value = $6, updated_at = $7, via = $8
         WHERE org_id = $1 AND id = $2",
        &[
            &org,
            &id,
            &destination.name,
            &folded(&destination.name),
            &destination.target.kind(),
            &destination.target.value(),
            &now,
            &destination.via.as_str(),
        ],
    )?;

    tx.changed(Change::Org(org), now);
    Ok(destination)
}

/// Deletes a destination. Its assignments to agents go with it, by a foreign key.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, id: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM destinations WHERE org_id = $1 AND id = $2";
    if tx.run(sql, &[&org, &id])? == 0 {
        return Err(Wrong::Absent(Kind::Destination).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Returns a page of an agent's destinations, newest first, filtered by type and name, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page_of_agent(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Destination>, Error> {
    tx.snapshot()?;
    let most = i64::from(limit) + 1;
    let items = of_agent(tx, org, agent, narrow, after, most)?;

    let sql = "SELECT COUNT(*) FROM agent_destinations
         JOIN destinations ON destinations.org_id = agent_destinations.org_id
             AND destinations.id = agent_destinations.destination_id
         WHERE agent_destinations.org_id = $1 AND agent_destinations.agent_id = $2
             AND (CAST($3 AS TEXT) IS NULL OR type = $3) AND (CAST($4 AS TEXT) IS NULL OR name = $4)";
    let [kind, name] = narrow;
    let (total,): (i64,) = tx.exactly_one(sql, &[&org, &agent, &kind, &name])?;

    Ok(Page::of(items, limit, total, |item| Position {
        at: item.created_at,
        id: item.id,
    }))
}

/// Assigns a destination to an agent; assigning it again changes nothing.
///
/// # Errors
/// [`Wrong::Absent`] for the agent, [`Wrong::Unknown`] for the destination.
pub fn assign(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    id: Uuid,
    now: Moment,
) -> Result<Destination, Error> {
    lock_org(tx, org)?;
    must_exist(tx, org, agent)?;
    let kind = Kind::Destination;
    let found = by_id(tx, org, id);
    let destination = found.map_err(|error| match error {
        // The id is a value in the request's body, not the resource that its path names.
        Error::Wrong(Wrong::Absent(_)) => Wrong::Unknown { kind, id }.into(),
        Error::Wrong(_) | Error::Conflict(_) | Error::Broke(_) => error,
    })?;

    attach(tx, org, agent, id, now)?;
    tx.changed(Change::Org(org), now);
    Ok(destination)
}

/// Creates a destination and assigns it to an agent, or does neither.
///
/// # Errors
/// [`Wrong::Absent`] for the agent, [`Conflict::NameTaken`], [`Conflict::AtLimit`].
pub fn create_for(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    new: &NewDestination,
    now: Moment,
) -> Result<Destination, Error> {
    lock_org(tx, org)?;
    must_exist(tx, org, agent)?;
    let made = insert(tx, org, new, now)?;
    attach(tx, org, agent, made.id, now)?;
    tx.changed(Change::Org(org), now);
    Ok(made)
}

/// Returns whether a destination is assigned to an agent.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn is_assigned(tx: &mut Tx, org: Uuid, agent: Uuid, id: Uuid) -> Result<bool, Error> {
    let sql = "SELECT destination_id FROM agent_destinations
               WHERE org_id = $1 AND agent_id = $2 AND destination_id = $3";
    let row: Option<(Uuid,)> = tx.one(sql, &[&org, &agent, &id])?;
    Ok(row.is_some())
}

/// Unassigns a destination from an agent.
///
/// # Errors
/// [`Wrong::Absent`] for one that the agent doesn't have.
pub fn unassign(tx: &mut Tx, org: Uuid, agent: Uuid, id: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM agent_destinations WHERE org_id = $1 AND agent_id = $2 AND destination_id = $3";
    if tx.run(sql, &[&org, &agent, &id])? == 0 {
        return Err(Wrong::Absent(Kind::Destination).into());
    }
    touch_agent(tx, org, agent, now)?;
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Returns an agent's destinations, newest first, filtered by type and name.
pub(crate) fn of_agent(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    [kind, name]: &Narrow,
    after: Option<Position>,
    limit: i64,
) -> Result<Vec<Destination>, Error> {
    let after = after.unwrap_or(Position::START);
    tx.all(
        "SELECT destinations.*, type || ' ' || value AS target FROM agent_destinations
         JOIN destinations ON destinations.org_id = agent_destinations.org_id
             AND destinations.id = agent_destinations.destination_id
         WHERE agent_destinations.org_id = $1 AND agent_destinations.agent_id = $2
             AND (destinations.created_at, destinations.id) < ($3, $4)
             AND (CAST($6 AS TEXT) IS NULL OR type = $6) AND (CAST($7 AS TEXT) IS NULL OR name = $7)
         ORDER BY destinations.created_at DESC, destinations.id DESC LIMIT $5",
        &[
            &org,
            &agent,
            &after.at_micros(),
            &after.id,
            &limit,
            &kind,
            &name,
        ],
    )
}

fn insert(tx: &mut Tx, org: Uuid, new: &NewDestination, now: Moment) -> Result<Destination, Error> {
    let made = Destination {
        id: new_id(now),
        org_id: org,
        name: new.name.clone(),
        target: new.target.clone(),
        via: new.via,
        created_at: now,
        updated_at: now,
    };

    must_be_free(tx, org, &made.name, made.id)?;
    leave_room_for(tx, org, OrgLimit::Destinations, now)?;

    tx.run(
        "INSERT INTO destinations (id, org_id, name, name_folded, type, value, created_at, updated_at, via)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        &[
            &made.id,
            &org,
            &made.name,
            &folded(&made.name),
            &made.target.kind(),
            &made.target.value(),
            &now,
            &now,
            &made.via.as_str(),
        ],
    )?;

    Ok(made)
}

/// Refuses a name that another destination of the org has. The org is locked, so the name stays free until the commit.
fn must_be_free(tx: &mut Tx, org: Uuid, name: &str, id: Uuid) -> Result<(), Error> {
    let sql = "SELECT id FROM destinations WHERE org_id = $1 AND name_folded = $2 AND id <> $3";
    let row: Option<(Uuid,)> = tx.one(sql, &[&org, &folded(name), &id])?;
    match row {
        None => Ok(()),
        Some(_) => Err(Conflict::NameTaken(name.to_owned()).into()),
    }
}

fn attach(tx: &mut Tx, org: Uuid, agent: Uuid, id: Uuid, now: Moment) -> Result<(), Error> {
    let sql = "INSERT INTO agent_destinations (org_id, agent_id, destination_id, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT DO NOTHING";
    match tx.run(sql, &[&org, &agent, &id, &now])? {
        0 => Ok(()),
        _ => touch_agent(tx, org, agent, now),
    }
}

from_row!(Destination {
    id,
    org_id,
    name,
    target: target,
    via: named,
    created_at: moment,
    updated_at: moment,
});

/// Reads a target from its type and value, separated by a blank.
pub(crate) fn target(text: &str) -> Result<TransferTarget, Unreadable> {
    match text.split_once(' ') {
        Some(("phone", number)) => Ok(TransferTarget::Phone(E164::parse(number)?)),
        Some(("sip", uri)) => Ok(TransferTarget::Sip(uri.into())),
        Some(_) | None => Err(format!("{text:?} is no destination").into()),
    }
}

fn folded(name: &str) -> String {
    name.to_lowercase()
}
