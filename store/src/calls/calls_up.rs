//! Calls of an org that are up on other nodes of the installation, newest first, and counts of all of them.

use trunkline_model::record::Status;
use uuid::Uuid;

use super::Call;
use crate::driver::column::{from_row, named};
use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Calls that are up on other nodes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RemoteCalls {
    /// The newest ones, without their metadata and transfers.
    pub newest: Vec<Call>,
    /// Counts of all, the newest ones among them.
    pub counts: CallCounts,
}

/// Counts of calls that are up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CallCounts {
    /// Calls that are queued or ring.
    pub ringing: usize,
    /// Calls that were answered.
    pub in_progress: usize,
    /// Calls of either kind that are on hold.
    pub held: usize,
}

impl CallCounts {
    /// Counts this many calls more. A call that has ended doesn't count.
    pub fn add(&mut self, status: Status, is_held: bool, calls: usize) {
        match status {
            Status::Queued | Status::Ringing => self.ringing += calls,
            Status::InProgress => self.in_progress += calls,
            Status::Completed
            | Status::Busy
            | Status::NoAnswer
            | Status::Failed
            | Status::Canceled
            | Status::Refused
            | Status::Transferred
            | Status::Lost => return,
        }
        if is_held {
            self.held += calls;
        }
    }

    /// Returns the number of all.
    pub const fn total(&self) -> usize {
        self.ringing + self.in_progress
    }
}

struct CountRow {
    status: Status,
    is_held: bool,
    calls: i64,
}
from_row!(CountRow {
    status: named,
    is_held,
    calls,
});

/// Returns the org's calls that are up on other nodes than this one, `limit` of them at most, and the counts of all. Without a node, those
/// of all nodes.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn on_other_nodes(
    tx: &mut Tx,
    org: Uuid,
    node: Option<u8>,
    limit: u32,
) -> Result<RemoteCalls, Error> {
    tx.snapshot()?;
    let node = node.map(i64::from);

    // The index of open calls finds them. `started_at + 0` keeps PostgreSQL from reading the org's calls by their time instead, the ended ones
    // too: with 100,000 of these, and 20,000 open calls of other orgs, that took 140 ms, and this takes 3 to 12 ms (EXPLAIN ANALYZE).
    let mut newest: Vec<Call> = tx.all(
        "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls
         WHERE org_id = $1 AND ended_at IS NULL AND started_at IS NOT NULL AND ($2 IS NULL OR node <> $2)
         ORDER BY started_at + 0 DESC, id DESC LIMIT $3",
        &[&org, &node, &i64::from(limit)],
    )?;
    for call in &mut newest {
        call.metadata = None;
    }

    let rows: Vec<CountRow> = tx.all(
        "SELECT status, COALESCE(held, FALSE) AS is_held, COUNT(*) AS calls FROM calls
         WHERE org_id = $1 AND ended_at IS NULL AND started_at IS NOT NULL AND ($2 IS NULL OR node <> $2)
         GROUP BY 1, 2",
        &[&org, &node],
    )?;
    let mut counts = CallCounts::default();
    for row in rows {
        let calls = usize::try_from(row.calls).unwrap_or_default();
        counts.add(row.status, row.is_held, calls);
    }

    Ok(RemoteCalls { newest, counts })
}
