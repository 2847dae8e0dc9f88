//! Calls as they are explained: their decision, what their INVITE said, and the failed log-ins of the same Call-ID.

use trunkline_model::asked::Asked;
use trunkline_routing::{Decision, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::auth_failures::AuthFailure;
use super::column::{from_row, json, maybe, moment, number};
use super::error::{Error, Kind, Wrong};
use super::tx::Tx;

/// Failed log-ins that are shown of one Call-ID.
const SHOWN: i64 = 20;

/// Why a call went where it went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explained {
    /// The routing decision; `None` if the call was refused before routing, or is one of our own.
    pub decision: Option<Decision>,
    /// What its INVITE said.
    pub asked: Option<Asked>,
}
from_row!(Explained {
    decision: maybe(json),
    asked: maybe(json)
});

/// An inbound call as it is routed again.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// The call.
    pub id: Uuid,
    /// The caller's number as sent.
    pub from_number: String,
    /// The dialled number as sent.
    pub to_number: String,
    /// The dialled number as E.164.
    pub to_e164: Option<E164>,
    /// When the INVITE came.
    pub started_at: Moment,
    /// When it was over.
    pub ended_at: Option<Moment>,
    /// A stable reason, for a call that wasn't answered.
    pub reason: Option<String>,
    /// The routing decision.
    pub decision: Option<Decision>,
    /// What its INVITE said; `None` for calls from before that was kept.
    pub asked: Option<Asked>,
}
from_row!(Recorded {
    id,
    from_number,
    to_number,
    to_e164: maybe(number),
    started_at: moment,
    ended_at: maybe(moment),
    reason,
    decision: maybe(json),
    asked: maybe(json),
});

/// What explains the call.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_call(tx: &mut Tx, org: Uuid, call: Uuid) -> Result<Explained, Error> {
    let sql = "SELECT decision, asked FROM calls WHERE org_id = $1 AND id = $2 AND started_at IS NOT NULL";
    let row: Option<Explained> = tx.one(sql, &[&org, &call])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Call))?)
}

/// The org's inbound calls that began between two moments, newest first, `most` at most; with `reason` those alone that ended
/// for it.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn recorded(
    tx: &mut Tx,
    org: Uuid,
    (from, until): (Moment, Moment),
    reason: Option<&str>,
    most: u32,
) -> Result<Vec<Recorded>, Error> {
    tx.all(
        "SELECT id, from_number, to_number, to_e164, started_at, ended_at, reason, decision, asked FROM calls
         WHERE org_id = $1 AND direction = 'inbound' AND started_at BETWEEN $2 AND $3 AND ($4 IS NULL OR reason = $4)
         ORDER BY started_at DESC, id DESC LIMIT $5",
        &[&org, &from, &until, &reason, &most],
    )
}

/// The org's call of this Call-ID that began between two moments.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn of_call_id(
    tx: &mut Tx,
    org: Uuid,
    call_id: &str,
    (from, until): (Moment, Moment),
) -> Result<Option<Recorded>, Error> {
    tx.one(
        "SELECT id, from_number, to_number, to_e164, started_at, ended_at, reason, decision, asked FROM calls
         WHERE org_id = $1 AND caller_call_id = $2 AND started_at BETWEEN $3 AND $4 ORDER BY started_at LIMIT 1",
        &[&org, &call_id, &from, &until],
    )
}

/// The failed log-ins of a Call-ID, oldest first.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn log_ins_failed(tx: &mut Tx, org: Uuid, call_id: &str) -> Result<Vec<AuthFailure>, Error> {
    tx.all(
        "SELECT * FROM auth_failures WHERE org_id = $1 AND sip_call_id = $2 ORDER BY at, id LIMIT $3",
        &[&org, &call_id, &SHOWN],
    )
}
