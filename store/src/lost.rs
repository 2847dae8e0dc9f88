//! Calls whose node has died, or doesn't answer: closed as `lost`, and given back to a node that was only held up.
//!
//! A stalled node looks like a dead one, while its calls go on. So their rows are closed as soon as its lease has expired, and their end is
//! told as an event later: when the node's next run begins, or when nobody waits for it any more. A true end that is learnt until then is
//! the one that is told, and no call has two.

use trunkline_model::record::{HangupBy, Status};
use trunkline_sip::moment::Moment;

use super::call_ends;
use super::call_events::{CallRow, call_columns};
use super::calls::Calls;
use super::column::micros;
use super::error::Error;
use super::events;
use super::pool::{execute, fetch_all};
use super::transfers;
use crate::journal::Origin;

impl Calls<'_> {
    /// Closes as lost what `node` left open in its runs before `boot`, and gives how many calls that were. Nothing is told yet: see
    /// [`tell_lost`](Self::tell_lost).
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn close_lost(self, node: u8, boot: i64, now: Moment) -> Result<u64, Error> {
        let mut writing = self.0.pool().write().await?;
        transfers::close_lost(&mut writing, node, boot, now).await?;
        let closed = execute!(
            writing,
            "UPDATE calls SET status = $3, ended_at = $4, hangup_by = $5, reason = $6, lost_told = FALSE
             WHERE node = $1 AND boot < $2 AND ended_at IS NULL",
            i64::from(node),
            boot,
            Status::Lost.as_str(),
            micros(now),
            HangupBy::Platform.as_str(),
            "node_lost",
        )?;
        writing.commit().await?;
        Ok(closed)
    }

    /// Tells the end of the calls of `node` that were closed as lost in its runs before `boot`, and gives how many calls that were.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn tell_lost(self, node: u8, boot: i64) -> Result<u64, Error> {
        let mut writing = self.0.pool().write().await?;
        let lost: Vec<CallRow> = fetch_all!(
            writing,
            concat!(
                "UPDATE calls SET lost_told = TRUE WHERE node = $1 AND boot < $2 AND lost_told = FALSE RETURNING ",
                call_columns!()
            ),
            i64::from(node),
            boot,
        )?;
        let told = lost.len() as u64;
        let ends: Vec<_> = lost.iter().filter_map(call_ends::of_row).collect();
        let events: Vec<_> = lost.into_iter().flat_map(CallRow::lost).collect();
        events::append(&mut writing, &events).await?;
        call_ends::append(&mut writing, &ends).await?;
        self.0.commit_recorded(writing).await?;
        Ok(told)
    }

    /// Opens again the calls of a run that others took for dead, as far as their end wasn't told; gives how many calls that were. Calls that
    /// ended meanwhile are closed by their last facts.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn reopen(self, run: Origin) -> Result<u64, Error> {
        let mut writing = self.0.pool().write().await?;
        let reopened = execute!(
            writing,
            "UPDATE calls SET ended_at = NULL, hangup_by = NULL, reason = NULL, lost_told = NULL,
                 status = CASE WHEN answered_at IS NOT NULL THEN 'in_progress' WHEN ringing_at IS NOT NULL THEN 'ringing'
                     ELSE 'queued' END
             WHERE node = $1 AND boot = $2 AND lost_told = FALSE",
            i64::from(run.node),
            run.boot,
        )?;
        writing.commit().await?;
        Ok(reopened)
    }
}
