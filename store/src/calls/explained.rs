//! Data that explains a call: its decision, the facts of its INVITE, and the failed log-ins of the same Call-ID.

use trunkline_model::invite_facts::InviteFacts;
use trunkline_routing::{Decision, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{from_row, json, maybe, moment, number};
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::tx::Tx;
use crate::telephony::auth_failures::AuthFailure;

/// Most failed log-ins that are shown of one Call-ID.
const SHOWN: i64 = 20;

/// Reasons for the routing of a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explained {
    /// The routing decision; `None` if the call was refused before routing, or is outbound.
    pub decision: Option<Decision>,
    /// Facts of its INVITE.
    pub asked: Option<InviteFacts>,
}
from_row!(Explained {
    decision: maybe(json),
    asked: maybe(json)
});

/// An inbound call, as input for routing it again.
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
    /// Arrival of the INVITE.
    pub started_at: Moment,
    /// End of the call.
    pub ended_at: Option<Moment>,
    /// Stable reason, for a call that wasn't answered.
    pub reason: Option<String>,
    /// The routing decision.
    pub decision: Option<Decision>,
    /// Facts of its INVITE, until retention has emptied them.
    pub asked: Option<InviteFacts>,
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

/// Returns the data that explains the call. A row whose start isn't projected yet counts as absent.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_call(tx: &mut Tx, org: Uuid, call: Uuid) -> Result<Explained, Error> {
    let sql = "SELECT decision, asked FROM calls WHERE org_id = $1 AND id = $2 AND started_at IS NOT NULL";
    let row: Option<Explained> = tx.one(sql, &[&org, &call])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Call))?)
}

/// Returns the org's inbound calls that began between two moments, newest first, at most `most`; with `reason` only those that ended for
/// it.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn recorded(
    tx: &mut Tx,
    org: Uuid,
    from: Moment,
    until: Moment,
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

/// Returns the org's call of this Call-ID that began between two moments.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_call_id(
    tx: &mut Tx,
    org: Uuid,
    call_id: &str,
    from: Moment,
    until: Moment,
) -> Result<Option<Recorded>, Error> {
    tx.one(
        "SELECT id, from_number, to_number, to_e164, started_at, ended_at, reason, decision, asked FROM calls
         WHERE org_id = $1 AND caller_call_id = $2 AND started_at BETWEEN $3 AND $4 ORDER BY started_at LIMIT 1",
        &[&org, &call_id, &from, &until],
    )
}

/// Returns the failed log-ins of a Call-ID, oldest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn log_ins_failed(tx: &mut Tx, org: Uuid, call_id: &str) -> Result<Vec<AuthFailure>, Error> {
    tx.all(
        "SELECT * FROM auth_failures WHERE org_id = $1 AND sip_call_id = $2 ORDER BY at, id LIMIT $3",
        &[&org, &call_id, &SHOWN],
    )
}
