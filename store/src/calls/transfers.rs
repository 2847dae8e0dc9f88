//! Transfers of calls: projected from the journal's facts, with the handoffs that result from them, and read with their calls.

use std::collections::HashMap;

use serde_json::json;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use trunkline_model::handoff::{Reason, Sentiment};
use trunkline_model::record::Fact;
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{State as TransferState, Transfer, TransferMethod, Trunk};

use super::handoffs::{self, NewHandoff};
use crate::driver::change::Change;
use crate::driver::column;
use crate::driver::column::{from_row, maybe, moment, named, small, to_json, written};
use crate::driver::error::Error;
use crate::driver::event::{EventType, NewEvent};
use crate::driver::tx::Tx;
use crate::journal::Origin;
use crate::telephony::destinations::target;

/// A stored transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallTransfer {
    /// The transfer.
    pub id: Uuid,
    /// The call.
    pub call_id: Uuid,
    /// The destination; `None` for the agent's number for human escalation.
    pub destination_id: Option<Uuid>,
    /// Name by which the agent refers to the destination.
    pub name: String,
    /// Number or URI.
    pub target: TransferTarget,
    /// Method.
    pub way: TransferMethod,
    /// Present state.
    pub state: TransferState,
    /// SIP status with which the transfer failed.
    pub sip_code: Option<u16>,
    /// For a completed transfer: the destination is known to have answered.
    pub answer_confirmed: Option<bool>,
    /// The PBX may have lost the caller when the transfer failed.
    pub caller_may_be_gone: bool,
    /// Reasons that the agent reported.
    pub reasons: Vec<Reason>,
    /// Summary of the call.
    pub summary: String,
    /// Reason in the agent's own words.
    pub explanation: Option<String>,
    /// Sentiment of the caller.
    pub sentiment: Option<Sentiment>,
    /// Time of the request.
    pub requested_at: Moment,
    /// Time at which the PBX accepted the REFER.
    pub accepted_at: Option<Moment>,
    /// Time at which the destination rang.
    pub ringing_at: Option<Moment>,
    /// Time at which the outcome was known.
    pub ended_at: Option<Moment>,
}
from_row!(CallTransfer {
    id,
    call_id,
    destination_id,
    name,
    target: target,
    way: named,
    state: named,
    sip_code: maybe(small),
    answer_confirmed,
    caller_may_be_gone,
    reasons: column::json,
    summary,
    explanation,
    sentiment: maybe(named),
    requested_at: moment,
    accepted_at: maybe(moment),
    ringing_at: maybe(moment),
    ended_at: maybe(moment),
});

impl From<&Transfer> for CallTransfer {
    fn from(transfer: &Transfer) -> Self {
        Self {
            id: transfer.id,
            call_id: transfer.call,
            destination_id: transfer.destination,
            name: transfer.name.to_string(),
            target: transfer.target.clone(),
            way: transfer.way,
            state: transfer.state,
            sip_code: transfer.sip_code,
            answer_confirmed: transfer.answer_confirmed,
            caller_may_be_gone: transfer.caller_may_be_gone,
            reasons: transfer.report.reasons.clone(),
            summary: transfer.report.summary.to_string(),
            explanation: transfer.report.explanation.as_deref().map(str::to_owned),
            sentiment: transfer.report.sentiment,
            requested_at: transfer.requested_at,
            accepted_at: transfer.accepted_at,
            ringing_at: transfer.ringing_at,
            ended_at: transfer.ended_at,
        }
    }
}

impl CallTransfer {
    /// Returns the octets of its texts.
    pub(crate) fn octets(&self) -> usize {
        self.summary.len() + self.explanation.as_ref().map_or(0, String::len)
    }
}

/// The last transfer of one call.
const LAST_OF_CALL: &str = "SELECT *, type || ' ' || value AS target FROM transfers
    WHERE org_id = $1 AND call_id = $2 ORDER BY requested_at DESC, id DESC LIMIT 1";

/// The last transfers of several calls, whose ids are one text: for PostgreSQL.
const LAST_OF_EACH: &str =
    "SELECT last.* FROM unnest(CAST(string_to_array($2, ',') AS UUID[])) AS wanted (wanted_call)
    CROSS JOIN LATERAL (
        SELECT *, type || ' ' || value AS target FROM transfers
        WHERE org_id = $1 AND call_id = wanted_call ORDER BY requested_at DESC, id DESC LIMIT 1
    ) AS last";

/// Returns the last transfer of each of these calls, by call.
pub(crate) fn last_transfers(
    tx: &mut Tx,
    org: Uuid,
    calls: &[Uuid],
) -> Result<HashMap<Uuid, CallTransfer>, Error> {
    let rows: Vec<CallTransfer> = if tx.is_shared() {
        // In one round trip.
        let calls: Vec<String> = calls.iter().map(Uuid::to_string).collect();
        tx.all(LAST_OF_EACH, &[&org, &calls.join(",")])?
    } else {
        let mut rows = Vec::new();
        for call in calls {
            rows.extend(tx.one::<CallTransfer>(LAST_OF_CALL, &[&org, call])?);
        }
        rows
    };

    Ok(rows.into_iter().map(|row| (row.call_id, row)).collect())
}

/// Returns true if a transfer is stored.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn exists(tx: &mut Tx, org: Uuid, transfer: Uuid) -> Result<bool, Error> {
    let sql = "SELECT id FROM transfers WHERE org_id = $1 AND id = $2";
    let row: Option<(Uuid,)> = tx.one(sql, &[&org, &transfer])?;
    Ok(row.is_some())
}

/// Writes the transfers among these facts and the resulting handoffs, each once however often the fact comes. Returns the changes of
/// trunks. The rows of their calls are written before, and so locked: no other node closes one of them as lost until the commit.
pub(crate) fn project(
    tx: &mut Tx,
    facts: &[Fact],
    events: &mut Vec<NewEvent>,
) -> Result<Vec<(Change, Moment)>, Error> {
    let mut newest: HashMap<Uuid, &Transfer> = HashMap::new();
    for fact in facts {
        if let Fact::Transfer(transfer) = fact {
            events.push(updated(transfer));
            // Each state has its event, but only the newest one is written to the row.
            newest.insert(transfer.id, transfer);
        }
    }

    let mut newest: Vec<&Transfer> = newest.into_values().collect();
    newest.sort_unstable_by_key(|transfer| (transfer.requested_at, transfer.id));

    let mut learned = Vec::new();
    for transfer in newest {
        upsert(tx, transfer)?;
        events.extend(close_late(tx, transfer)?);
        if transfer.handed_over {
            events.extend(hand_off(tx, transfer)?);
        }
        if let Some(trunk) = transfer.kept_by {
            learned.extend(keeps_caller(tx, transfer, trunk)?);
        }
    }

    Ok(learned)
}

/// Returns the event of a transfer's state.
fn updated(transfer: &Transfer) -> NewEvent {
    let shown = CallTransfer::from(transfer);
    event(
        transfer.org,
        transfer.session,
        &shown,
        i64::from(transfer.step),
    )
}

/// Returns the event of the state that a transfer of this session has after a step. Fields are those of the API.
fn event(org: Uuid, session: Uuid, shown: &CallTransfer, step: i64) -> NewEvent {
    let data = json!({
        "transfer_id": shown.id,
        "call_id": shown.call_id,
        "session_id": session,
        "destination_id": shown.destination_id,
        "destination": shown.name,
        "type": shown.target.kind(),
        "value": shown.target.value(),
        "way": shown.way,
        "status": shown.state,
        "sip_code": shown.sip_code,
        "answer_confirmed": shown.answer_confirmed,
        "caller_may_be_gone": shown.caller_may_be_gone,
        "requested_at": written(shown.requested_at),
        "accepted_at": shown.accepted_at.map(written),
        "ringing_at": shown.ringing_at.map(written),
        "ended_at": shown.ended_at.map(written),
    });

    let at = [shown.ended_at, shown.ringing_at, shown.accepted_at];
    let at = at
        .into_iter()
        .flatten()
        .next()
        .unwrap_or(shown.requested_at);

    // Two states may have the same time: their events differ by the step.
    let step = u128::try_from(step).unwrap_or_default();
    let subject = Uuid::from_u128(shown.id.as_u128() ^ step);
    NewEvent::of(org, EventType::TransferUpdated, subject, &data, at)
}

/// Closes transfers of calls of `node` that were closed as lost in its runs before `boot`, at the ends of the calls: their outcome is unknown. The
/// calls are closed first, and [`project`] locks them first: a transfer that their node projects meanwhile is closed here or by [`close_late`].
pub(crate) fn close_lost(tx: &mut Tx, node: u8, boot: i64) -> Result<(), Error> {
    tx.run(
        "UPDATE transfers SET lost_from = state, state = 'unknown',
             ended_at = (SELECT CASE WHEN requested_at > calls.ended_at THEN requested_at ELSE calls.ended_at END
                 FROM calls WHERE calls.id = call_id)
         WHERE state IN ('requested', 'accepted', 'ringing')
         AND call_id IN (SELECT id FROM calls WHERE node = $1 AND boot < $2 AND lost_told = FALSE)",
        &[&node, &boot],
    )?;
    Ok(())
}

/// Closes a transfer that isn't over by its newest fact while its call has been closed as lost. Returns the event, unless it is recorded with
/// the end of the call.
fn close_late(tx: &mut Tx, transfer: &Transfer) -> Result<Option<NewEvent>, Error> {
    // Its true end is known, so that none is assumed.
    if transfer.ended_at.is_some() {
        return Ok(None);
    }

    let sql =
        "SELECT lost_told, ended_at FROM calls WHERE org_id = $1 AND id = $2 AND status = 'lost'";
    let lost: Option<(Option<bool>, i64)> = tx.one(sql, &[&transfer.org, &transfer.call])?;
    let Some((is_told, at)) = lost else {
        return Ok(None);
    };

    let sql = "UPDATE transfers SET lost_from = state, state = 'unknown',
                   ended_at = CASE WHEN requested_at > $3 THEN requested_at ELSE $3 END
               WHERE org_id = $1 AND id = $2 AND state IN ('requested', 'accepted', 'ringing')";
    let closed = tx.run(sql, &[&transfer.org, &transfer.id, &at])?;
    match closed == 1 && is_told == Some(true) {
        true => event_of_lost(tx, transfer.org, transfer.id),
        false => Ok(None),
    }
}

/// Returns the events of the transfers that ended with the calls of `node` whose ends as lost aren't recorded yet.
pub(crate) fn events_of_lost(tx: &mut Tx, node: u8, boot: i64) -> Result<Vec<NewEvent>, Error> {
    let sql = "SELECT org_id, id FROM transfers WHERE lost_from IS NOT NULL
               AND call_id IN (SELECT id FROM calls WHERE node = $1 AND boot < $2 AND lost_told = FALSE)";
    let lost: Vec<(Uuid, Uuid)> = tx.all(sql, &[&node, &boot])?;
    let mut events = Vec::with_capacity(lost.len());
    for (org, transfer) in lost {
        events.extend(event_of_lost(tx, org, transfer)?);
    }
    Ok(events)
}

fn event_of_lost(tx: &mut Tx, org: Uuid, transfer: Uuid) -> Result<Option<NewEvent>, Error> {
    /// Behind every step of a transfer, so that each state which is closed has an event of its own.
    const CLOSED: i64 = 1 << 40;

    let sql = "SELECT session_id, step FROM transfers WHERE org_id = $1 AND id = $2";
    let known: Option<(Uuid, i64)> = tx.one(sql, &[&org, &transfer])?;
    let sql =
        "SELECT *, type || ' ' || value AS target FROM transfers WHERE org_id = $1 AND id = $2";
    let shown: Option<CallTransfer> = tx.one(sql, &[&org, &transfer])?;

    Ok(known
        .zip(shown)
        .map(|((session, step), shown)| event(org, session, &shown, CLOSED + step)))
}

/// Reopens the transfers of a run that other nodes had taken for dead. `lost::reopen` has locked the run's calls before, and reopens them
/// afterwards.
pub(crate) fn reopen(tx: &mut Tx, run: Origin) -> Result<(), Error> {
    tx.run(
        "UPDATE transfers SET state = lost_from, lost_from = NULL, ended_at = NULL WHERE lost_from IS NOT NULL
         AND call_id IN (SELECT id FROM calls WHERE node = $1 AND boot = $2 AND lost_told = FALSE)",
        &[&run.node, &run.boot],
    )?;
    Ok(())
}

fn upsert(tx: &mut Tx, transfer: &Transfer) -> Result<(), Error> {
    // The same fact again undoes an assumed end (`lost_from`): `close_late` assumes it anew if the call is still lost.
    tx.run(
        "INSERT INTO transfers (id, org_id, call_id, session_id, destination_id, name, type, value, way, state, sip_code,
             reasons, summary, explanation, sentiment, requested_at, accepted_at, ringing_at, ended_at, step,
             answer_confirmed, caller_may_be_gone, counted_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
         ON CONFLICT (id) DO UPDATE SET way = excluded.way, state = excluded.state, sip_code = excluded.sip_code,
             accepted_at = excluded.accepted_at, ringing_at = excluded.ringing_at, ended_at = excluded.ended_at,
             step = excluded.step, answer_confirmed = excluded.answer_confirmed,
             caller_may_be_gone = excluded.caller_may_be_gone, counted_at = excluded.counted_at, lost_from = NULL
         WHERE excluded.step >= transfers.step",
        &[
            &transfer.id,
            &transfer.org,
            &transfer.call,
            &transfer.session,
            &transfer.destination,
            &&*transfer.name,
            &transfer.target.kind(),
            &transfer.target.value(),
            &transfer.way.as_str(),
            &transfer.state.as_str(),
            &transfer.sip_code,
            &to_json(&transfer.report.reasons),
            &&*transfer.report.summary,
            &transfer.report.explanation.as_deref(),
            &transfer.report.sentiment.map(Sentiment::as_str),
            &transfer.requested_at,
            &transfer.accepted_at,
            &transfer.ringing_at,
            &transfer.ended_at,
            &i64::from(transfer.step),
            &transfer.answer_confirmed,
            &transfer.caller_may_be_gone,
            &transfer.counted_at,
        ],
    )?;

    Ok(())
}

/// Notes that the PBX of this trunk keeps the call when an accepted REFER fails.
fn keeps_caller(
    tx: &mut Tx,
    transfer: &Transfer,
    trunk: Trunk,
) -> Result<Option<(Change, Moment)>, Error> {
    let since = transfer.ended_at.unwrap_or(transfer.requested_at);

    // Learnt once: later transfers change no row, and nothing is announced.
    let changed = match trunk {
        Trunk::Inbound(id) => {
            let sql = "UPDATE inbound_trunks SET refer_kept_caller_at = $3
                       WHERE org_id = $1 AND id = $2 AND refer_kept_caller_at IS NULL";
            tx.run(sql, &[&transfer.org, &id, &since])?
        }
        Trunk::Outbound(id) => {
            let sql = "UPDATE outbound_trunks SET refer_kept_caller_at = $3
                       WHERE org_id = $1 AND id = $2 AND refer_kept_caller_at IS NULL";
            tx.run(sql, &[&transfer.org, &id, &since])?
        }
    };
    Ok((changed > 0).then_some((Change::Org(transfer.org), since)))
}

fn hand_off(tx: &mut Tx, transfer: &Transfer) -> Result<Option<NewEvent>, Error> {
    let sql = "SELECT contacts.id FROM calls JOIN contacts ON contacts.id = calls.contact_id
        WHERE calls.org_id = $1 AND calls.id = $2";
    let contact: Option<(Uuid,)> = tx.one(sql, &[&transfer.org, &transfer.call])?;

    let new = NewHandoff {
        session_id: transfer.session.to_string(),
        contact_id: None,
        summary: transfer.report.summary.to_string(),
        explanation: transfer.report.explanation.as_deref().map(str::to_owned),
        reasons: transfer.report.reasons.clone(),
        sentiment: transfer.report.sentiment,
    };

    let at = transfer.ended_at.unwrap_or(transfer.requested_at);
    let origin = handoffs::HandoffOrigin {
        id: transfer.id,
        call: Some(transfer.call),
        contact: contact.map(|(contact,)| contact),
        confirmed: transfer.answer_confirmed == Some(true),
    };

    handoffs::record_once(tx, transfer.org, origin, new, at)
}
