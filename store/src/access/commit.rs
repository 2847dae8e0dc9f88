//! The end of a transaction: writes the gathered rows as its last statements, and commits.
//!
//! On PostgreSQL changes and events are numbered under advisory locks that are held until the commit, so that numbers become visible in
//! their order. Lock order of all transactions: events, ends of calls, the change feed, the audit log.

use crate::calls::events;
use crate::driver::column::to_json;
use crate::driver::error::Error;
use crate::driver::event::NewEvent;
use crate::driver::tx::Tx;
use crate::driver::{acting, feed};
use crate::jobs::deliveries;
use crate::telephony::numbering;

/// Outcome of a commit, for the writer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Committed {
    /// Number of the last row in the change feed.
    pub(crate) seq: Option<i64>,
    /// The writer waits until the change is in force in this process.
    pub(crate) is_waited_for: bool,
    /// The transaction has recorded events.
    pub(crate) has_events: bool,
    /// The transaction has written rows, which are on the disk.
    pub(crate) has_written: bool,
}

/// Writes the gathered rows, and commits; rolls back if the caller has gone.
pub(crate) fn commit(tx: &mut Tx) -> Result<Committed, Error> {
    let gathered = tx.take_gathered();

    record_events(tx, &gathered.events)?;
    numbering::number_ends(tx, &gathered.ends)?;
    let seq = match gathered.changed_at {
        Some(at) => Some(feed::append(tx, &gathered.changes, at)?),
        None => None,
    };
    if !gathered.is_internal {
        enter_in_audit_log(tx)?;
    }

    let has_written = tx.end()?;
    Ok(Committed {
        has_written,
        seq,
        is_waited_for: gathered.is_waited_for,
        has_events: gathered.wakes || !gathered.events.is_empty(),
    })
}

/// Adds events, and their deliveries to webhooks. Events that were recorded before stay as they are.
fn record_events(tx: &mut Tx, recorded: &[NewEvent]) -> Result<(), Error> {
    if recorded.is_empty() {
        return Ok(());
    }
    // Taken here and not at the start: all other writers of events wait from now until the commit.
    events::lock(tx)?;
    let mut new = Vec::with_capacity(recorded.len());
    for some in tx.portions(recorded) {
        new.extend(events::insert(tx, some)?);
    }
    deliveries::queue_for_webhooks(tx, &new)?;
    events::announce(tx)
}

/// Writes the audit entry of the change, if the scope has an actor. It comes last: the row that numbers entries stays locked until the
/// commit, and all other writers wait for it.
fn enter_in_audit_log(tx: &mut Tx) -> Result<(), Error> {
    // Work that no request or command caused has no scope, and a request without a valid credential no actor.
    let Some(known) = acting::take() else {
        return Ok(());
    };

    let Some(actor) = &known.actor else {
        return Ok(());
    };

    let audited_action = &known.audited_action;
    let seq = numbering::next_numbers(tx, "audit", 1)?;
    let address = audited_action.address.map(|address| address.to_string());

    tx.run(
        "INSERT INTO audit_log (seq, at, org_id, partner_id, actor, actor_id, actor_name, address, action, resource, resource_id,
             fields, request_id)
         VALUES ($1, $2, $3, COALESCE($4, (SELECT partner_id FROM orgs WHERE id = $3)), $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        &[
            &seq,
            &audited_action.at,
            &known.org,
            &known.partner,
            &actor.kind.as_str(),
            &actor.id,
            &actor.name,
            &address,
            &audited_action.action,
            &audited_action.resource,
            &audited_action.resource_id,
            &to_json(&known.fields),
            &audited_action.request_id,
        ],
    )?;

    Ok(())
}
