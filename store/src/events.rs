//! Events, in the order of their commits: what has happened to an org's calls, trunks, handoffs and keys.
//!
//! What changes something [records](Tx::record) its events in the same transaction, which writes them as its last statements: on PostgreSQL they
//! are numbered under an advisory lock that is held until the commit, so that whoever has read up to a number has missed none below it. With
//! each event the deliveries that it owes to webhooks are queued.

use std::collections::{HashMap, HashSet};

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::call_events::{CallRow, Form, call_columns};
use super::column::{from_row, micros, moment};
use super::error::Error;
use super::event::{Event, NewEvent, Tells};
use super::rows::Insert;
use super::tx::Tx;

/// Serialises the numbering on PostgreSQL. Taken before that of the change feed, never after it.
const LOCK: i64 = 0x7472_756e_6b00_0005;
/// Notifications of other nodes.
pub(crate) const CHANNEL: &str = "trunkline_events";
/// Rows that one statement of a pruning looks at.
pub(super) const PRUNED_AT_ONCE: i64 = 1000;

/// An event's row.
struct Recorded {
    seq: i64,
    id: Uuid,
    kind: String,
    /// The form of the JSON where a call tells it.
    body: String,
    /// The call whose row tells the rest.
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

/// Reads rows; `$which` goes on after the table.
macro_rules! recorded {
    ($which:literal) => {
        concat!(
            "SELECT seq, id, type AS kind, body, call_id, contact_id, created_at FROM events WHERE ",
            $which
        )
    };
}

impl Recorded {
    /// `None`, if the call that tells it isn't there.
    fn told(self, call: Option<&CallRow>) -> Option<Event> {
        let mut event = Event {
            seq: self.seq,
            id: self.id,
            kind: self.kind,
            body: self.body,
        };
        if self.call_id.is_some() {
            event.body = call?.told(&event, self.contact_id, self.created_at);
        }
        Some(event)
    }
}

/// The JSON of the event of this id, if it is kept.
pub(super) fn body(tx: &mut Tx, id: Uuid) -> Result<Option<String>, Error> {
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
    Ok(event.told(call.as_ref()).map(|event| event.body))
}

/// Takes the lock under which events are numbered, until the commit.
pub(super) fn lock(tx: &mut Tx) -> Result<(), Error> {
    if tx.is_shared() {
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }
    Ok(())
}

/// Tells other nodes, with the commit, that there are new events.
pub(super) fn announce(tx: &mut Tx) -> Result<(), Error> {
    if tx.is_shared() {
        tx.run("SELECT pg_notify($1, '')", &[&CHANNEL])?;
    }
    Ok(())
}

const RECORD: Insert = Insert {
    into: "events (id, org_id, type, body, call_id, contact_id, created_at)",
    ending: " ON CONFLICT (id) DO NOTHING",
};

/// Adds events; gives those that are new.
pub(super) fn insert<'e>(tx: &mut Tx, events: &'e [NewEvent]) -> Result<Vec<&'e NewEvent>, Error> {
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            let (body, call, contact) = match &event.tells {
                Tells::Whole(body) => (body.as_str(), None, None),
                Tells::Call { call, contact } => (Form::NEWEST.as_str(), Some(*call), *contact),
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

    // The last of all: nobody else numbers events before this is committed.
    let sql = "SELECT id FROM events ORDER BY seq DESC LIMIT $1";
    let new: Vec<(Uuid,)> = tx.all(sql, &[&inserted.cast_signed()])?;
    let new: HashSet<Uuid> = new.into_iter().map(|(id,)| id).collect();
    let is_new = |event: &&NewEvent| new.contains(&event.id);

    Ok(events.iter().filter(is_new).collect())
}

/// The number of the last event of all orgs: what comes after it is new.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn position(tx: &mut Tx) -> Result<i64, Error> {
    let (seq,) = tx.only("SELECT COALESCE(MAX(seq), 0) FROM events", &[])?;
    Ok(seq)
}

/// The number of the org's event of this id; `None` if there is none, or none any more.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn seq(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Option<i64>, Error> {
    let sql = "SELECT seq FROM events WHERE org_id = $1 AND id = $2";
    let row: Option<(i64,)> = tx.one(sql, &[&org, &id])?;
    Ok(row.map(|(seq,)| seq))
}

/// The org's events after `seq`, oldest first.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn since(tx: &mut Tx, org: Uuid, seq: i64, limit: u32) -> Result<Vec<Event>, Error> {
    let sql = recorded!("org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3");
    let rows: Vec<Recorded> = tx.all(sql, &[&org, &seq, &limit])?;
    let mut calls = HashMap::new();

    if let (true, Some(last)) = (rows.iter().any(|row| row.call_id.is_some()), rows.last()) {
        let sql = concat!(
            "SELECT ",
            call_columns!(),
            " FROM calls WHERE id IN (SELECT call_id FROM events WHERE org_id = $1 AND seq > $2 AND seq <= $3)"
        );
        let rows: Vec<CallRow> = tx.all(sql, &[&org, &seq, &last.seq])?;
        calls.extend(rows.into_iter().map(|row| (row.id, row)));
    }

    // What was forgotten meanwhile isn't told.
    let told = rows.into_iter().filter_map(|row| {
        let call = row.call_id.and_then(|call| calls.get(&call));
        row.told(call)
    });
    Ok(told.collect())
}

/// Which orgs have events after `seq`, and the number up to which that is known.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn news(tx: &mut Tx, seq: i64) -> Result<(i64, Vec<Uuid>), Error> {
    let sql = "SELECT org_id, MAX(seq) FROM events WHERE seq > $1 GROUP BY org_id";
    let rows: Vec<(Uuid, i64)> = tx.all(sql, &[&seq])?;
    let last = rows.iter().map(|(_, last)| *last).max();
    let orgs = rows.into_iter().map(|(org, _)| org).collect();
    Ok((last.unwrap_or(seq), orgs))
}

/// Orgs that have more than `most` events, and by how many.
pub(super) fn surplus(tx: &mut Tx, most: u32) -> Result<Vec<(Uuid, i64)>, Error> {
    let sql = "SELECT org_id, COUNT(*) - $1 FROM events GROUP BY org_id HAVING COUNT(*) > $1";
    tx.all(sql, &[&most])
}

pub(super) fn prune_old(tx: &mut Tx, before: Moment) -> Result<u64, Error> {
    let sql = "DELETE FROM events WHERE seq IN (SELECT seq FROM (
            SELECT seq, created_at FROM events ORDER BY seq LIMIT $2
        ) AS oldest WHERE created_at < $1)";
    tx.run(sql, &[&before, &PRUNED_AT_ONCE])
}

pub(super) fn prune_oldest(tx: &mut Tx, org: Uuid, some: i64) -> Result<u64, Error> {
    let sql = "DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE org_id = $1 ORDER BY seq LIMIT $2)";
    tx.run(sql, &[&org, &some])
}
