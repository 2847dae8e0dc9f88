//! Phone numbers of orgs: verified in one org only, and each assigned to at most one agent.

use std::collections::{HashMap, HashSet};

use serde_json::json;
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::agents::must_exist;
use crate::driver::change::Change;
use crate::driver::column::{from_row, maybe, moment, number, written};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::event::{EventType, NewEvent};
use crate::driver::ids::new_id;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;
use crate::tenants::org_limits::leave_room_for;
use crate::tenants::versions::touch_agent;

/// A phone number of an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// Its id.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The number.
    pub number: E164,
    /// Time of verification; `None`: not verified.
    pub verified_at: Option<Moment>,
    /// The agent that answers it.
    pub agent_id: Option<Uuid>,
    /// Time of creation.
    pub created_at: Moment,
}
from_row!(Number {
    id,
    org_id,
    number: number,
    verified_at: maybe(moment),
    agent_id,
    created_at: moment
});

const LIST: List = List {
    columns: "*",
    table: "numbers",
    by: [
        "CASE WHEN verified_at IS NULL THEN 'false' ELSE 'true' END",
        "number",
    ],
};

/// Adds a number, verified or not.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::NumberExists`], [`Conflict::NumberVerifiedElsewhere`], [`Conflict::AtLimit`].
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    number: E164,
    verified: bool,
    now: Moment,
) -> Result<Number, Error> {
    lock_org(tx, org)?;
    let held: Option<Number> = tx.one(BY_NUMBER, &[&org, &number])?;
    if held.is_some() {
        return Err(Conflict::NumberExists(number).into());
    }

    leave_room_for(tx, org, OrgLimit::Numbers, now)?;
    if verified {
        end_claims(tx, number)?;
    }
    let row = tx.one(
        "INSERT INTO numbers (id, org_id, number, verified_at, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING RETURNING *",
        &[&new_id(now), &org, &number, &verified.then_some(now), &now],
    )?;
    let row: Number = row.ok_or(Conflict::NumberVerifiedElsewhere(number))?;
    if verified {
        note_verified(tx, &row, now);
    }

    tx.changed(Change::Org(org), now);
    Ok(row)
}

/// Returns the number of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Number, Error> {
    let row = tx.one(BY_ID, &[&org, &id])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Number))?)
}

/// Returns the org's row for this number.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_number(tx: &mut Tx, org: Uuid, number: &E164) -> Result<Number, Error> {
    let row = tx.one(BY_NUMBER, &[&org, &number])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Number))?)
}

/// Returns the org in which the number is verified.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn verified_in(tx: &mut Tx, number: &E164) -> Result<Option<Uuid>, Error> {
    let sql = "SELECT org_id FROM numbers WHERE number = $1 AND verified_at IS NOT NULL";
    let found: Option<(Uuid,)> = tx.one(sql, &[&number])?;
    Ok(found.map(|(org,)| org))
}

/// Returns the org's numbers, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(tx: &mut Tx, org: Uuid) -> Result<Vec<Number>, Error> {
    tx.all(
        "SELECT * FROM numbers WHERE org_id = $1 ORDER BY created_at DESC, id DESC",
        &[&org],
    )
}

/// Returns a page of the org's numbers, newest first, filtered by verification and number, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Number>, Error> {
    LIST.page(tx, org, narrow, after, limit, |row: &Number| Position {
        at: row.created_at,
        id: row.id,
    })
}

/// Returns the numbers that an agent answers, oldest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_agent(tx: &mut Tx, org: Uuid, agent: Uuid) -> Result<Vec<Number>, Error> {
    let sql = "SELECT * FROM numbers WHERE org_id = $1 AND agent_id = $2 ORDER BY created_at, id";
    tx.all(sql, &[&org, &agent])
}

/// Marks a number as verified; repeating it changes nothing.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::NumberVerifiedElsewhere`].
pub fn verify(tx: &mut Tx, org: Uuid, id: Uuid, now: Moment) -> Result<Number, Error> {
    lock_org(tx, org)?;
    let number = by_id(tx, org, id)?;
    if number.verified_at.is_some() {
        tx.mark_internal();
        return Ok(number);
    }
    let number = mark_verified(tx, number, now)?;
    tx.changed(Change::Org(org), now);
    Ok(number)
}

/// Revokes the verification, which ends the number's assignment.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn unverify(tx: &mut Tx, org: Uuid, id: Uuid, now: Moment) -> Result<Number, Error> {
    lock_org(tx, org)?;
    let sql = "UPDATE numbers SET verified_at = NULL, agent_id = NULL WHERE org_id = $1 AND id = $2 RETURNING *";
    let row: Option<Number> = tx.one(sql, &[&org, &id])?;
    let number = row.ok_or(Wrong::Absent(Kind::Number))?;
    tx.changed(Change::Org(org), now);
    Ok(number)
}

/// Removes a number from the org.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, id: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM numbers WHERE org_id = $1 AND id = $2";
    if tx.run(sql, &[&org, &id])? == 0 {
        return Err(Wrong::Absent(Kind::Number).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Assigns exactly these numbers to an agent.
///
/// # Errors
/// [`Wrong::Absent`] for the agent, [`Wrong::Entries`] of [`Wrong::Unknown`] or [`Wrong::NotVerified`] for the numbers,
/// [`Conflict::NumberHeld`].
pub fn assign(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    ids: &[Uuid],
    now: Moment,
) -> Result<Vec<Number>, Error> {
    lock_org(tx, org)?;
    must_exist(tx, org, agent)?;
    let numbers = assignable(tx, org, ids)?;
    must_be_free(tx, org, agent, &numbers)?;

    // Few of many numbers change at once: only those are written.
    let wanted: HashSet<Uuid> = ids.iter().copied().collect();
    let mut changed = 0;
    for held in of_agent(tx, org, agent)? {
        if !wanted.contains(&held.id) {
            let sql = "UPDATE numbers SET agent_id = NULL WHERE org_id = $1 AND id = $2";
            changed += tx.run(sql, &[&org, &held.id])?;
        }
    }

    for number in numbers {
        if number.agent_id != Some(agent) {
            let sql = "UPDATE numbers SET agent_id = $3 WHERE org_id = $1 AND id = $2";
            changed += tx.run(sql, &[&org, &number.id, &agent])?;
        }
    }

    if changed > 0 {
        touch_agent(tx, org, agent, now)?;
    }
    let numbers = of_agent(tx, org, agent)?;
    tx.changed(Change::Org(org), now);
    Ok(numbers)
}

/// Assigns one number to an agent, beside those that it has.
///
/// # Errors
/// [`Wrong::Absent`] for the agent, [`Wrong::Unknown`] or [`Wrong::NotVerified`] for the number, [`Conflict::NumberHeld`].
pub fn assign_one(tx: &mut Tx, org: Uuid, agent: Uuid, id: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    must_exist(tx, org, agent)?;
    let number: Option<Number> = tx.one(BY_ID, &[&org, &id])?;
    let kind = Kind::Number;
    let number = number.ok_or(Wrong::Unknown { kind, id })?;
    if number.verified_at.is_none() {
        return Err(Wrong::NotVerified(number.number).into());
    }

    must_be_free(tx, org, agent, std::slice::from_ref(&number))?;
    if number.agent_id != Some(agent) {
        let sql = "UPDATE numbers SET agent_id = $3 WHERE org_id = $1 AND id = $2";
        tx.run(sql, &[&org, &id, &agent])?;
        touch_agent(tx, org, agent, now)?;
        tx.changed(Change::Org(org), now);
    }
    Ok(())
}

/// Takes one number from an agent, which keeps its others.
///
/// # Errors
/// [`Wrong::Absent`] if the agent has no such number.
pub fn unassign_one(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    id: Uuid,
    now: Moment,
) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "UPDATE numbers SET agent_id = NULL WHERE org_id = $1 AND id = $2 AND agent_id = $3";
    if tx.run(sql, &[&org, &id, &agent])? == 0 {
        return Err(Wrong::Absent(Kind::Number).into());
    }
    touch_agent(tx, org, agent, now)?;
    tx.changed(Change::Org(org), now);
    Ok(())
}

const BY_ID: &str = "SELECT * FROM numbers WHERE org_id = $1 AND id = $2";
const BY_NUMBER: &str = "SELECT * FROM numbers WHERE org_id = $1 AND number = $2";

/// Ends the claims of deleted orgs to a number that another org verifies: their proof would be out of date once they are restored. Called
/// before the number is marked as verified, so that it can't deadlock with a restore.
fn end_claims(tx: &mut Tx, number: E164) -> Result<(), Error> {
    let sql = "UPDATE numbers SET freed_verified_at = NULL, agent_id = NULL
        WHERE number = $1 AND freed_verified_at IS NOT NULL AND org_id IN (SELECT id FROM orgs WHERE purge_at > 0)";
    tx.run(sql, &[&number])?;
    Ok(())
}

/// Marks a number as verified, and records the event.
pub(crate) fn mark_verified(tx: &mut Tx, mut number: Number, now: Moment) -> Result<Number, Error> {
    end_claims(tx, number.number)?;
    let sql = "UPDATE numbers SET verified_at = $3 WHERE org_id = $1 AND id = $2";
    match tx.run(sql, &[&number.org_id, &number.id, &now]) {
        // The unique index decides: another org may be verifying the number at the same time, under its own lock.
        Err(fault) if fault.is_taken() => {
            return Err(Conflict::NumberVerifiedElsewhere(number.number).into());
        }
        done => done?,
    };
    number.verified_at = Some(now);
    note_verified(tx, &number, now);
    Ok(number)
}

/// Records the event of a verified number.
fn note_verified(tx: &mut Tx, number: &Number, now: Moment) {
    let data = json!({
        "phone_number_id": number.id,
        "phone_number": number.number.as_str(),
        "verified_at": written(now),
    });
    let (org, id) = (number.org_id, number.id);
    let event = NewEvent::of(org, EventType::NumberVerified, id, &data, now);
    tx.record([event]);
}

/// Returns the numbers of these ids, if each is a verified one of the org.
fn assignable(tx: &mut Tx, org: Uuid, ids: &[Uuid]) -> Result<Vec<Number>, Error> {
    // All numbers of the org in one query: the list may name many of them.
    let sql = "SELECT * FROM numbers WHERE org_id = $1";
    let of_org: Vec<Number> = tx.all(sql, &[&org])?;
    let of_org = of_org.into_iter().map(|number| (number.id, number));
    let of_org: HashMap<Uuid, Number> = of_org.collect();

    let (mut numbers, mut faults) = (Vec::with_capacity(ids.len()), Vec::new());
    for (place, id) in ids.iter().enumerate() {
        let number = of_org.get(id).cloned();
        let kind = Kind::Number;
        match number {
            None => faults.push((place, Wrong::Unknown { kind, id: *id })),
            Some(number) if number.verified_at.is_none() => {
                faults.push((place, Wrong::NotVerified(number.number)));
            }
            Some(number) => numbers.push(number),
        }
    }

    if faults.is_empty() {
        Ok(numbers)
    } else {
        Err(Wrong::Entries(faults).into())
    }
}

/// Refuses numbers that another agent holds.
fn must_be_free(tx: &mut Tx, org: Uuid, agent: Uuid, numbers: &[Number]) -> Result<(), Error> {
    for number in numbers {
        let Some(holder) = number.agent_id.filter(|holder| *holder != agent) else {
            continue;
        };

        let sql = "SELECT name FROM agents WHERE org_id = $1 AND id = $2";
        let row: Option<(String,)> = tx.one(sql, &[&org, &holder])?;
        let (agent_name,) = row.ok_or(Wrong::Absent(Kind::Agent))?;
        return Err(Conflict::NumberHeld {
            number: number.number,
            agent: holder,
            agent_name,
        }
        .into());
    }
    Ok(())
}
