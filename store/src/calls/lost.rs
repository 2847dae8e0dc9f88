//! Calls whose node has died or doesn't respond: closed as `lost`, and reopened if the node was only stalled.
//!
//! A stalled node looks like a dead one, while its calls continue. So their rows are closed as soon as its lease has expired, but the
//! events of their ends are recorded later: when the node's next run begins, or after a grace period. A true end that arrives before that
//! is the one recorded, and no call has two ends.

use trunkline_model::record::{HangupBy, Status};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::call_events::{CallRow, call_columns};
use super::call_lists::{self, outcome_of};
use super::{call_ends, transfers};
use crate::driver::error::Error;
use crate::driver::tx::Tx;
use crate::journal::Origin;

/// Time at which a call ended that died with its run: that of the run's last sign of life ([`nodes::note_alive`](crate::tenants::nodes::note_alive)), on the
/// call's own wall clock, so that a clock that was set meanwhile is nobody's to pay; `$4` where that isn't known.
macro_rules! last_alive {
    () => {
        "COALESCE((SELECT alive_at FROM nodes WHERE nodes.node = calls.node AND nodes.alive_boot = calls.boot) + clock_offset, $4)"
    };
}

/// Closes as lost the calls that `node` left open in its runs before `boot`, and returns their number. They end at the last sign of life of
/// their run; where none is known, at `at`, the last time at which the node counted as alive; or at the time of a later known fact. Records no
/// event: see [`record_ends`].
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn close(tx: &mut Tx, node: u8, boot: i64, at: Moment) -> Result<u64, Error> {
    let sql = concat!(
        "UPDATE calls SET status = $3, hangup_by = $5, reason = $6, lost_told = FALSE, list = (list & -16) | ",
        outcome_of!("'lost'"),
        ",
             ended_at = CASE WHEN COALESCE(answered_at, ringing_at, started_at) > ",
        last_alive!(),
        " THEN COALESCE(answered_at, ringing_at, started_at) ELSE ",
        last_alive!(),
        " END
         WHERE node = $1 AND boot < $2 AND ended_at IS NULL"
    );
    let closed = tx.run(
        sql,
        &[
            &node,
            &boot,
            &Status::Lost.as_str(),
            &at,
            &HangupBy::Platform.as_str(),
            &"node_lost",
        ],
    )?;
    call_lists::add_lost(tx, node, boot)?;
    transfers::close_lost(tx, node, boot)?;
    Ok(closed)
}

/// Records the ends of the calls of `node` that were closed as lost in its runs before `boot`, and of their transfers, as events. Returns
/// the number of these calls.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn record_ends(tx: &mut Tx, node: u8, boot: i64) -> Result<u64, Error> {
    // Read before the update: the transfers are found by the calls whose ends aren't recorded yet.
    let transfers = transfers::events_of_lost(tx, node, boot)?;
    let sql = concat!(
        "UPDATE calls SET lost_told = TRUE WHERE node = $1 AND boot < $2 AND lost_told = FALSE RETURNING ",
        call_columns!()
    );
    let lost: Vec<CallRow> = tx.all(sql, &[&node, &boot])?;
    let recorded = lost.len() as u64;
    tx.record_ends(lost.iter().filter_map(call_ends::of_row));
    tx.record(transfers);
    tx.record(lost.into_iter().flat_map(CallRow::lost));
    Ok(recorded)
}

/// Reopens the calls of a run that other nodes had taken for dead, unless the event of their end is recorded; returns their number. A call
/// that has really ended since then is closed again by its last facts.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn reopen(tx: &mut Tx, run: Origin) -> Result<u64, Error> {
    // The calls are locked before their transfers, as `close` and the projection do. Otherwise their ends could be recorded after their
    // transfers were reopened.
    if tx.is_shared() {
        let sql =
            "SELECT id FROM calls WHERE node = $1 AND boot = $2 AND lost_told = FALSE FOR UPDATE";
        tx.all::<(Uuid,)>(sql, &[&run.node, &run.boot])?;
    }

    // Reopened before the calls: the transfers are found by `lost_told` of their calls, which is cleared below.
    transfers::reopen(tx, run)?;
    tx.run(
        "UPDATE calls SET ended_at = NULL, hangup_by = NULL, reason = NULL, lost_told = NULL, list = list & -16,
             status = CASE WHEN answered_at IS NOT NULL THEN 'in_progress' WHEN ringing_at IS NOT NULL THEN 'ringing'
                 ELSE 'queued' END
         WHERE node = $1 AND boot = $2 AND lost_told = FALSE",
        &[&run.node, &run.boot],
    )
}
