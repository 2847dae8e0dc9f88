//! Events of an org's calls, trunks, handoffs and keys, in the order of their commits.
//!
//! A transaction records (`Tx::record`) its events, which its last statements write. On PostgreSQL they are numbered under an advisory lock
//! that is held until the commit, so that a reader who has read up to a number has missed none below it. Deliveries to webhooks are queued
//! with each event.

use std::collections::{HashMap, HashSet};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::call_events::{CallRow, FORM, call_columns};
use crate::driver::column::{from_row, micros, moment};
use crate::driver::error::Error;
use crate::driver::event::{Event, EventBody, NewEvent};
use crate::driver::rows::Insert;
use crate::driver::tx::Tx;

/// Lock that serialises the numbering on PostgreSQL. Lock order: before that of the change feed.
const LOCK: i64 = 0x7472_756e_6b00_0005;
/// Channel of notifications to other nodes.
pub(crate) const CHANNEL: &str = "trunkline_events";
/// Rows that one statement of a pruning examines.
pub(crate) const PRUNED_AT_ONCE: i64 = 1000;

/// An event's row.
struct Recorded {
    seq: i64,
    id: Uuid,
    kind: String,
    /// The JSON, or its form if the JSON is built from a call's row.
    body: String,
    /// The call from whose row the JSON is built.
    call_id: Option<Uuid>,
    contact_id: Option<Uuid>,
    created_at: Moment,
}
from_row!(Recorded {
    seq,
    id,
    kind,
    body,
    call_id,
    contact_id,
    created_at: moment,
});

/// Statement that reads rows; `$which` is its condition, with the order and the limit.
macro_rules! recorded {
    ($which:literal) => {
        concat!(
            "SELECT seq, id, type AS kind, body, call_id, contact_id, created_at FROM events WHERE ",
            $which
        )
    };
}

impl Recorded {
    /// Returns the event; `None` if its call no longer exists.
    fn into_event(self, call: Option<&CallRow>) -> Option<Event> {
        let mut event = Event {
            seq: self.seq,
            id: self.id,
            kind: self.kind,
            body: self.body,
        };
        if self.call_id.is_some() {
            event.body = call?.event_json(&event, self.contact_id, self.created_at);
        }
        Some(event)
    }
}

/// Returns the JSON of the event of this id, if it is stored.
pub(crate) fn body(tx: &mut Tx, id: Uuid) -> Result<Option<String>, Error> {
    let event: Option<Recorded> = tx.one(recorded!("id = $1"), &[&id])?;
    let Some(event) = event else {
        return Ok(None);
    };
    let call: Option<CallRow> = match event.call_id {
        Some(call) => {
            let sql = concat!("SELECT ", call_columns!(), " FROM calls WHERE id = $1");
            tx.one(sql, &[&call])?
        }
        None => None,
    };
    Ok(event.into_event(call.as_ref()).map(|event| event.body))
}

/// Takes the lock for numbering events, until the commit.
pub(crate) fn lock(tx: &mut Tx) -> Result<(), Error> {
    if tx.is_shared() {
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }
    Ok(())
}

/// Notifies other nodes of new events, at the commit.
pub(crate) fn announce(tx: &mut Tx) -> Result<(), Error> {
    if tx.is_shared() {
        tx.run("SELECT pg_notify($1, '')", &[&CHANNEL])?;
    }
    Ok(())
}

const RECORD: Insert = Insert {
    into: "events (id, org_id, type, body, call_id, contact_id, created_at)",
    ending: " ON CONFLICT (id) DO NOTHING",
};

/// Adds events; returns the new ones.
pub(crate) fn insert<'e>(tx: &mut Tx, events: &'e [NewEvent]) -> Result<Vec<&'e NewEvent>, Error> {
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            // The JSON of a call's event is built when it is read: its row holds the name of the form in place of a
            // body.
            let (body, call, contact) = match &event.body {
                EventBody::Whole(body) => (body.as_str(), None, None),
                EventBody::Call { call, contact } => (FORM, Some(*call), *contact),
            };

            [
                event.id.into(),
                event.org.into(),
                event.kind.as_str().into(),
                body.into(),
                call.into(),
                contact.into(),
                micros(event.at).into(),
            ]
        })
        .collect();

    let inserted = tx.insert(RECORD, &rows)?;
    if inserted == events.len() as u64 {
        return Ok(events.iter().collect());
    }

    // Some events were recorded before. The newest rows are those just inserted, since no other transaction numbers events before this one
    // commits.
    let sql = "SELECT id FROM events ORDER BY seq DESC LIMIT $1";
    let new: Vec<(Uuid,)> = tx.all(sql, &[&inserted.cast_signed()])?;
    let new: HashSet<Uuid> = new.into_iter().map(|(id,)| id).collect();
    let is_new = |event: &&NewEvent| new.contains(&event.id);

    Ok(events.iter().filter(is_new).collect())
}

/// Returns the number of the last event of all orgs: events after it are new.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn position(tx: &mut Tx) -> Result<i64, Error> {
    let (seq,) = tx.exactly_one("SELECT COALESCE(MAX(seq), 0) FROM events", &[])?;
    Ok(seq)
}

/// Returns the id of the org's newest event; `None` if it has none.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn newest(tx: &mut Tx, org: Uuid) -> Result<Option<Uuid>, Error> {
    let sql = "SELECT id FROM events WHERE org_id = $1 ORDER BY seq DESC LIMIT 1";
    let row: Option<(Uuid,)> = tx.one(sql, &[&org])?;
    Ok(row.map(|(id,)| id))
}

/// Returns the number of the org's event of this id; `None` if it doesn't exist or has been pruned.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn seq(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Option<i64>, Error> {
    let sql = "SELECT seq FROM events WHERE org_id = $1 AND id = $2";
    let row: Option<(i64,)> = tx.one(sql, &[&org, &id])?;
    Ok(row.map(|(seq,)| seq))
}

/// Returns the org's events after `seq`, oldest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn since(tx: &mut Tx, org: Uuid, seq: i64, limit: u32) -> Result<Vec<Event>, Error> {
    let sql = recorded!("org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3");
    let rows: Vec<Recorded> = tx.all(sql, &[&org, &seq, &limit])?;
    let mut calls = HashMap::new();

    // By the range of the page: one query reads the calls of all its events.
    if let (true, Some(last)) = (rows.iter().any(|row| row.call_id.is_some()), rows.last()) {
        let sql = concat!(
            "SELECT ",
            call_columns!(),
            " FROM calls WHERE id IN (SELECT call_id FROM events WHERE org_id = $1 AND seq > $2 AND seq <= $3)"
        );
        let rows: Vec<CallRow> = tx.all(sql, &[&org, &seq, &last.seq])?;
        calls.extend(rows.into_iter().map(|row| (row.id, row)));
    }

    // An event whose call was deleted between the two reads is left out.
    let events = rows.into_iter().filter_map(|row| {
        let call = row.call_id.and_then(|call| calls.get(&call));
        row.into_event(call)
    });
    Ok(events.collect())
}

/// Returns the orgs that have events after `seq`, and the number up to which this holds.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn news(tx: &mut Tx, seq: i64) -> Result<(i64, Vec<Uuid>), Error> {
    let sql = "SELECT org_id, MAX(seq) FROM events WHERE seq > $1 GROUP BY org_id";
    let rows: Vec<(Uuid, i64)> = tx.all(sql, &[&seq])?;
    let last = rows.iter().map(|(_, last)| *last).max();
    let orgs = rows.into_iter().map(|(org, _)| org).collect();
    Ok((last.unwrap_or(seq), orgs))
}

/// Returns the orgs that have more than `most` events, each with its surplus.
pub(crate) fn surplus(tx: &mut Tx, most: u32) -> Result<Vec<(Uuid, i64)>, Error> {
    let sql = "SELECT org_id, COUNT(*) - $1 FROM events GROUP BY org_id HAVING COUNT(*) > $1";
    tx.all(sql, &[&most])
}

/// Deletes those of the [`PRUNED_AT_ONCE`] oldest events that happened before `before`. Returns their number.
pub(crate) fn prune_old(tx: &mut Tx, before: Moment) -> Result<u64, Error> {
    let sql = "DELETE FROM events WHERE seq IN (SELECT seq FROM (
            SELECT seq, created_at FROM events ORDER BY seq LIMIT $2
        ) AS oldest WHERE created_at < $1)";
    tx.run(sql, &[&before, &PRUNED_AT_ONCE])
}

/// Deletes the `some` oldest events of the org. Returns their number.
pub(crate) fn prune_oldest(tx: &mut Tx, org: Uuid, some: i64) -> Result<u64, Error> {
    let sql = "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE org_id = $1 ORDER BY seq LIMIT $2)";
    tx.run(sql, &[&org, &some])
}
