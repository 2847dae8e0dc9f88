//! Calls whose node has died, or doesn't answer: closed as `lost`, and given back to a node that was only held up.
//!
//! A stalled node looks like a dead one, while its calls go on. So their rows are closed as soon as its lease has expired, and their end is
//! told as an event later: when the node's next run begins, or when nobody waits for it any more. A true end that is learnt until then is
//! the one that is told, and no call has two.

use trunkline_model::record::{HangupBy, Status};
use trunkline_sip::moment::Moment;

use super::call_events::{CallRow, call_columns};
use super::error::Error;
use super::tx::Tx;
use super::{call_ends, transfers};
use crate::journal::Origin;

/// Closes as lost what `node` left open in its runs before `boot`, and gives how many calls that were. They end at `at`, until when the
/// node was taken for alive, or at what is known of them from after it. Nothing is told yet: see [`tell`].
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn close(tx: &mut Tx, node: u8, boot: i64, at: Moment) -> Result<u64, Error> {
    transfers::close_lost(tx, node, boot, at)?;
    tx.run(
        "UPDATE calls SET status = $3, hangup_by = $5, reason = $6, lost_told = FALSE,
             ended_at = CASE WHEN COALESCE(answered_at, ringing_at, started_at) > $4
                 THEN COALESCE(answered_at, ringing_at, started_at) ELSE $4 END
         WHERE node = $1 AND boot < $2 AND ended_at IS NULL",
        &[
            &node,
            &boot,
            &Status::Lost.as_str(),
            &at,
            &HangupBy::Platform.as_str(),
            &"node_lost",
        ],
    )
}

/// Tells the end of the calls of `node` that were closed as lost in its runs before `boot`, and gives how many calls that were.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn tell(tx: &mut Tx, node: u8, boot: i64) -> Result<u64, Error> {
    let sql = concat!(
        "UPDATE calls SET lost_told = TRUE WHERE node = $1 AND boot < $2 AND lost_told = FALSE RETURNING ",
        call_columns!()
    );
    let lost: Vec<CallRow> = tx.all(sql, &[&node, &boot])?;
    let told = lost.len() as u64;
    tx.record_ends(lost.iter().filter_map(call_ends::of_row));
    tx.record(lost.into_iter().flat_map(CallRow::lost));
    Ok(told)
}

/// Opens again the calls of a run that others took for dead, as far as their end wasn't told; gives how many calls that were. Calls that
/// ended meanwhile are closed by their last facts.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn reopen(tx: &mut Tx, run: Origin) -> Result<u64, Error> {
    tx.run(
        "UPDATE calls SET ended_at = NULL, hangup_by = NULL, reason = NULL, lost_told = NULL,
             status = CASE WHEN answered_at IS NOT NULL THEN 'in_progress' WHEN ringing_at IS NOT NULL THEN 'ringing'
                 ELSE 'queued' END
         WHERE node = $1 AND boot = $2 AND lost_told = FALSE",
        &[&run.node, &run.boot],
    )
}
