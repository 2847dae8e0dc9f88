//! Erasures of contacts: requested once, carried out by every node, and documented by a receipt.
//!
//! The request deletes the contact, and in the same transaction stores, sealed, the search terms. Each node then erases its own data
//! (journal, traces) and the database's rows, and reports it. The erasure is complete once every live node has reported. The search terms
//! are deleted once absent nodes have reported too. Data from after the request isn't touched.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::subject::Subject;
use crate::access::store::Store;
use crate::calls::contact_counts;
use crate::calls::contacts;
use crate::calls::contacts::Contact;
use crate::calls::identify::phone_key;
use crate::calls::of_contact;
use crate::driver::change::Change;
use crate::driver::column::{from_row, json, maybe, moment, to_json};
use crate::driver::edit::lock_org;
use crate::driver::error::{Broke, Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::tx::Tx;

/// Time for which absent nodes are waited for before the search terms are deleted.
const AWAY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Numbers of erased rows and messages, by kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Erased {
    /// The contact itself, and contacts that had nothing but its number or address.
    pub contacts: u64,
    /// Other contacts that lost the same number or address.
    pub other_contacts: u64,
    /// Calls that no longer name a person.
    pub calls: u64,
    /// Attempts at targets of such calls.
    pub call_attempts: u64,
    /// Transfers without their summaries.
    pub transfers: u64,
    /// Handoffs without their summaries.
    pub handoffs: u64,
    /// Events that no longer name a person.
    pub events: u64,
    /// Answers stored for an `Idempotency-Key`.
    pub kept_answers: u64,
    /// Commands between nodes.
    pub node_commands: u64,
    /// Failed log-ins.
    pub failed_log_ins: u64,
    /// Messages in traces. A message that was being erased when its node was killed may be missing from the count.
    pub trace_messages: u64,
    /// Unreadable lines of the journal that had been set aside.
    pub journal_lines: u64,
}

impl Erased {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        self.contacts += other.contacts;
        self.other_contacts += other.other_contacts;
        self.calls += other.calls;
        self.call_attempts += other.call_attempts;
        self.transfers += other.transfers;
        self.handoffs += other.handoffs;
        self.events += other.events;
        self.kept_answers += other.kept_answers;
        self.node_commands += other.node_commands;
        self.failed_log_ins += other.failed_log_ins;
        self.trace_messages += other.trace_messages;
        self.journal_lines += other.journal_lines;
    }
}

/// Parts of the org's configuration with the same number, which an erasure leaves alone.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeptConfiguration {
    /// Numbers of the org. A verified one isn't searched for.
    pub numbers: u64,
    /// Agents with the number as number for human escalation.
    pub agents: u64,
    /// Transfer destinations.
    pub destinations: u64,
    /// Outbound trunks with the number as caller number.
    pub outbound_trunks: u64,
}

/// A node that has erased its own data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ErasureNode {
    /// The node.
    pub node: i64,
    /// Time at which it had done so.
    pub done_at: Moment,
}
from_row!(ErasureNode {
    node,
    done_at: moment
});

/// An erasure: its progress and, once complete, the receipt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// The erasure.
    pub id: Uuid,
    /// The contact that was erased.
    pub contact_id: Uuid,
    /// Numbers erased so far.
    pub erased: Erased,
    /// Configuration left as it is.
    pub kept: KeptConfiguration,
    /// Time of the request.
    pub requested_at: Moment,
    /// Time at which every live node had done its part.
    pub completed_at: Option<Moment>,
    /// Nodes that have done their part.
    pub nodes: Vec<ErasureNode>,
    /// Nodes that have not done their part, in the order of their numbers; once the erasure is complete these are absent nodes.
    pub waits_for: Vec<i64>,
}

struct Row {
    id: Uuid,
    contact_id: Uuid,
    erased: Erased,
    kept: KeptConfiguration,
    requested_at: Moment,
    completed_at: Option<Moment>,
    is_open: bool,
}
from_row!(Row {
    id,
    contact_id,
    erased: json,
    kept: json,
    requested_at: moment,
    completed_at: maybe(moment),
    is_open,
});

/// An erasure in which this node still has to do its part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenErasure {
    /// The erasure.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The contact.
    pub contact_id: Uuid,
    /// The person.
    pub subject: Subject,
    /// Time of the request: nothing later is touched.
    pub requested_at: Moment,
}

struct OpenRow {
    id: Uuid,
    org_id: Uuid,
    contact_id: Uuid,
    subject: Vec<u8>,
    requested_at: Moment,
}
from_row!(OpenRow {
    id,
    org_id,
    contact_id,
    subject,
    requested_at: moment
});

/// Call whose messages are searched for in traces.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErasedLegs {
    /// The call.
    #[serde(default)]
    pub call: Uuid,
    /// Earliest time of its messages.
    pub from: Moment,
    /// Latest time of its messages.
    pub until: Moment,
}

struct LegsRow {
    call_id: Uuid,
    legs: Vec<u8>,
}
from_row!(LegsRow { call_id, legs });

/// Returns the context under which a subject is sealed.
pub(crate) fn context(erasure: Uuid) -> Vec<u8> {
    [b"erasure\0".as_slice(), erasure.as_bytes()].concat()
}

/// Returns the context under which the legs of a call are sealed.
pub(crate) fn legs_context(call: Uuid) -> Vec<u8> {
    [b"erased legs\0".as_slice(), call.as_bytes()].concat()
}

/// Nodes whose lease is valid, or expired no longer than `$1` ago, by the database's clock. `serves` is true if the lease is valid.
const NODES: &str = "SELECT CAST(node AS BIGINT), lease_expires_at >= now_at AS serves FROM nodes,
    (SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS now_at) AS clock
    WHERE lease_expires_at >= now_at - $1 ORDER BY node";

const BY_ID: &str = "SELECT id, contact_id, erased, kept, requested_at, completed_at, subject IS NOT NULL AS is_open
    FROM erasures WHERE org_id = $1 AND id = $2";
const BY_CONTACT: &str = "SELECT id, contact_id, erased, kept, requested_at, completed_at, subject IS NOT NULL AS is_open
    FROM erasures WHERE org_id = $1 AND contact_id = $2";

/// Calls of the contact, or with its number, that are up on any node.
const UP: &str =
    "SELECT 1 FROM calls WHERE org_id = $1 AND ended_at IS NULL AND started_at IS NOT NULL
    AND (contact_id = $2 OR from_e164 = $3 OR to_e164 = $3) LIMIT 1";

/// Requests the erasure of a contact, which is deleted at once; returns the earlier erasure if there is one.
///
/// # Errors
/// [`Wrong::Absent`]; [`Conflict::ContactOnCall`] while a call of the contact is up.
pub fn request(tx: &mut Tx, org: Uuid, contact: Uuid, now: Moment) -> Result<Erasure, Error> {
    lock_org(tx, org)?;
    let before: Option<Row> = tx.one(BY_CONTACT, &[&org, &contact])?;
    // A contact has one erasure: a repeated request gets it, with its receipt.
    if let Some(before) = before {
        tx.mark_internal();
        return with_nodes(tx, before);
    }

    contacts::lock(tx, std::iter::once(org))?;
    let sql = "SELECT * FROM contacts WHERE org_id = $1 AND id = $2";
    let row: Option<Contact> = tx.one(sql, &[&org, &contact])?;
    let row = row.ok_or(Wrong::Absent(Kind::Contact))?;
    let number = of_contact::number(tx, org, &row)?;
    let number = number.map(|number| number.to_string());

    let up: Option<(i64,)> = tx.one(UP, &[&org, &contact, &number])?;
    if up.is_some() {
        return Err(Conflict::ContactOnCall.into());
    }

    // A verified number of the org itself isn't searched for: it is in the org's calls with other people too.
    let given = row.phone.as_deref().map(phone_key);
    let is_of_org = number.is_none() && given.is_some_and(|given| E164::parse(&given).is_ok());
    let phone = row.phone.as_deref().filter(|_| !is_of_org);
    let subject = Subject::new(phone, row.email.as_deref());

    let id = new_id(now);
    let sealed = tx
        .keyring()
        .seal(&context(id), to_json(&subject).as_bytes());
    let erased = Erased {
        contacts: 1,
        ..Erased::default()
    };

    tx.run(
        "INSERT INTO erasures (id, org_id, contact_id, subject, erased, kept, requested_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[
            &id,
            &org,
            &contact,
            &sealed,
            &to_json(&erased),
            &to_json(&KeptConfiguration {
            numbers: u64::from(is_of_org),
            ..KeptConfiguration::default()
        }),
            &now,
        ],
    )?;

    contact_counts::delete(tx, org, contact)?;
    tx.changed(Change::Contacts(org), now);
    by_id(tx, org, id)
}

/// Returns the erasure of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, erasure: Uuid) -> Result<Erasure, Error> {
    let row: Option<Row> = tx.one(BY_ID, &[&org, &erasure])?;
    with_nodes(tx, row.ok_or(Wrong::Absent(Kind::Erasure))?)
}

/// Returns the erasure of a contact.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_contact(tx: &mut Tx, org: Uuid, contact: Uuid) -> Result<Erasure, Error> {
    let row: Option<Row> = tx.one(BY_CONTACT, &[&org, &contact])?;
    with_nodes(tx, row.ok_or(Wrong::Absent(Kind::Erasure))?)
}

fn with_nodes(tx: &mut Tx, row: Row) -> Result<Erasure, Error> {
    let known = nodes(tx)?;
    let sql =
        "SELECT node, done_at FROM erasure_nodes WHERE erasure_id = $1 ORDER BY done_at, node";
    let nodes: Vec<ErasureNode> = tx.all(sql, &[&row.id])?;
    let has_done = |node: i64| nodes.iter().any(|done| done.node == node);
    let left = known.iter().map(|(node, _)| *node);
    let waits_for = left.filter(|node| row.is_open && !has_done(*node));

    Ok(Erasure {
        id: row.id,
        contact_id: row.contact_id,
        erased: row.erased,
        kept: row.kept,
        requested_at: row.requested_at,
        completed_at: row.completed_at,
        waits_for: waits_for.collect(),
        nodes,
    })
}

/// Returns the nodes that take part, each with whether it serves now. An embedded database has only the node that uses it.
fn nodes(tx: &mut Tx) -> Result<Vec<(i64, bool)>, Error> {
    if !tx.is_shared() {
        let sql = "SELECT node, TRUE FROM nodes ORDER BY lease_expires_at DESC LIMIT 1";
        return tx.all(sql, &[]);
    }
    let away = i64::try_from(AWAY.as_micros()).unwrap_or(i64::MAX);
    tx.all(NODES, &[&away])
}

/// Returns the erasures in which this node has to do its part: one of each partner (an org without one counts as its own), then the second of each,
/// and so on; those of a partner in the same way by its orgs. So nobody's erasures wait for all of another's.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn waiting(tx: &mut Tx, node: u8, limit: u32) -> Result<Vec<WaitingErasure>, Error> {
    let sql = "SELECT id, org_id, partner_id FROM (
             SELECT waiting.id AS id, org_id, partner_id, requested_at,
                 ROW_NUMBER() OVER (PARTITION BY COALESCE(partner_id, org_id) ORDER BY place, requested_at, waiting.id) AS turn
             FROM (
                 SELECT id, org_id, requested_at, ROW_NUMBER() OVER (PARTITION BY org_id ORDER BY requested_at, id) AS place
                 FROM erasures WHERE subject IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM erasure_nodes WHERE erasure_id = erasures.id AND node = $1)
             ) AS waiting LEFT JOIN orgs ON orgs.id = waiting.org_id
         ) AS in_turn ORDER BY turn, requested_at, id LIMIT $2";
    tx.all(sql, &[&node, &limit])
}

/// An erasure in which a node has to do its part.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WaitingErasure {
    /// The erasure.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its partner.
    pub partner_id: Option<Uuid>,
}
from_row!(WaitingErasure {
    id,
    org_id,
    partner_id
});

/// Returns an erasure with its search terms; `None` once no node needs them any more.
///
/// # Errors
/// [`Broke`]: the database fails, or the search terms can't be unsealed.
pub fn open(tx: &mut Tx, erasure: Uuid) -> Result<Option<OpenErasure>, Error> {
    let sql = "SELECT id, org_id, contact_id, subject, requested_at FROM erasures WHERE id = $1 AND subject IS NOT NULL";
    let Some(row): Option<OpenRow> = tx.one(sql, &[&erasure])? else {
        return Ok(None);
    };

    let plain = tx.keyring().open(&context(row.id), &row.subject)?;
    let subject = serde_json::from_slice(&plain).map_err(|_| Broke::Seal)?;
    Ok(Some(OpenErasure {
        id: row.id,
        org_id: row.org_id,
        contact_id: row.contact_id,
        subject,
        requested_at: row.requested_at,
    }))
}

/// Returns the search terms of the calls that were found.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn legs(tx: &mut Tx, erasure: Uuid) -> Result<Vec<ErasedLegs>, Error> {
    let sql = "SELECT call_id, legs FROM erasure_calls WHERE erasure_id = $1 ORDER BY call_id";
    let rows: Vec<LegsRow> = tx.all(sql, &[&erasure])?;
    let keyring = tx.keyring();
    let legs = rows.into_iter().map(|row| {
        let plain = keyring.open(&legs_context(row.call_id), &row.legs)?;
        let mut legs: ErasedLegs = serde_json::from_slice(&plain).map_err(|_| Broke::Seal)?;
        // The first builds stored it as the row's key alone.
        if legs.call.is_nil() {
            legs.call = row.call_id;
        }
        Ok(legs)
    });
    legs.collect()
}

/// Reports that a node has done its part. The last live node completes the erasure, and the last node of all deletes the search terms.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn done(tx: &mut Tx, erasure: Uuid, node: u8, now: Moment) -> Result<(), Error> {
    let nodes = nodes(tx)?;
    lock(tx, erasure)?;
    tx.run(
        // After an error a node may do its part again: the first report counts.
        "INSERT INTO erasure_nodes (erasure_id, node, done_at) VALUES ($1, $2, $3) ON CONFLICT (erasure_id, node) DO NOTHING",
        &[&erasure, &node, &now],
    )?;
    complete(tx, erasure, &nodes, now)
}

/// Completes erasures whose remaining nodes have gone for good or are absent.
///
/// # Errors
/// [`Broke`]: the database fails.
pub async fn settle(store: &Store, now: Moment) -> Result<(), Error> {
    let sql = "SELECT id FROM erasures WHERE subject IS NOT NULL AND id > $1
         AND EXISTS (SELECT 1 FROM erasure_nodes WHERE erasure_id = erasures.id) ORDER BY id LIMIT 100";
    let mut last = Uuid::nil();
    loop {
        let page: Vec<(Uuid,)> = store.read(move |tx| tx.all(sql, &[&last])).await?;
        let Some((end,)) = page.last().copied() else {
            return Ok(());
        };

        last = end;
        for (erasure,) in page {
            let settled = store.write(move |tx| {
                let nodes = nodes(tx)?;
                lock(tx, erasure)?;
                complete(tx, erasure, &nodes, now)
            });
            settled.await?;
        }
    }
}

/// Completes an erasure if all nodes have done their part, in the caller's transaction.
fn complete(tx: &mut Tx, erasure: Uuid, nodes: &[(i64, bool)], now: Moment) -> Result<(), Error> {
    let sql = "SELECT node, done_at FROM erasure_nodes WHERE erasure_id = $1";
    let done: Vec<ErasureNode> = tx.all(sql, &[&erasure])?;
    // Without any report nothing has been erased yet. If no node is known, the loop below would find that all have done their part.
    if done.is_empty() {
        return Ok(());
    }

    let has_done = |node: i64| done.iter().any(|done| done.node == node);
    let (mut by_all_that_live, mut by_all) = (true, true);
    for (node, serves) in nodes {
        by_all_that_live &= !serves || has_done(*node);
        by_all &= has_done(*node);
    }

    if by_all_that_live {
        let sql = "UPDATE erasures SET completed_at = $2 WHERE id = $1 AND completed_at IS NULL";
        tx.run(sql, &[&erasure, &now])?;
    }

    // Until then an absent node may come back, and needs the terms to search its own traces.
    if by_all {
        let sql = "UPDATE erasures SET subject = NULL WHERE id = $1";
        tx.run(sql, &[&erasure])?;
        let sql = "DELETE FROM erasure_calls WHERE erasure_id = $1";
        tx.run(sql, &[&erasure])?;
    }

    Ok(())
}

struct Counted {
    erased: Erased,
}
from_row!(Counted { erased: json });

/// Returns the counts so far, and locks the erasure until the commit.
fn lock(tx: &mut Tx, erasure: Uuid) -> Result<Erased, Error> {
    let sql = tx.by_dialect(
        "SELECT erased FROM erasures WHERE id = $1",
        "SELECT erased FROM erasures WHERE id = $1 FOR UPDATE",
    );
    let row: Counted = tx.exactly_one(sql, &[&erasure])?;
    Ok(row.erased)
}

/// Adds to the counts in the caller's transaction.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn count(tx: &mut Tx, erasure: Uuid, more: &Erased) -> Result<(), Error> {
    // The counts are one JSON text: without the lock, of two nodes that add at once one would overwrite the other's.
    let mut erased = lock(tx, erasure)?;
    erased.add(more);
    let sql = "UPDATE erasures SET erased = $2 WHERE id = $1";
    tx.run(sql, &[&erasure, &to_json(&erased)])?;
    Ok(())
}
