//! Figures of an org's calls: counts by outcome in equal parts of a window, from the rows of calls on request.

use std::time::Duration;

use trunkline_model::record::Status;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{from_row, named};
use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Most groups returned. Parts times statuses times reasons stays far below.
const MOST_ROWS: i64 = 10_000;

/// Window of the calls to count, by their start, in equal parts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FigureWindow {
    /// The earliest start.
    pub from: Moment,
    /// The latest start.
    pub to: Moment,
    /// Length of a part.
    pub part: Duration,
}

/// Calls of one part of the window with the same outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureRow {
    /// Number of the part, from 0.
    pub part: i64,
    /// Status.
    pub status: Status,
    /// Stable reason of a call that wasn't answered.
    pub reason: Option<String>,
    /// All calls.
    pub calls: i64,
    /// Calls that were answered.
    pub answered: i64,
    /// Sum of the microseconds from the start of each answered call to its answer.
    pub set_up_micros: i64,
}
from_row!(FigureRow {
    part,
    status: named,
    reason,
    calls,
    answered,
    set_up_micros,
});

/// Returns the org's calls of the window by part, status and reason.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_org(tx: &mut Tx, org: Uuid, window: FigureWindow) -> Result<Vec<FigureRow>, Error> {
    // At least 1, since the statement divides by it.
    let part = i64::try_from(window.part.as_micros())
        .unwrap_or(i64::MAX)
        .max(1);
    tx.all(
        "SELECT (started_at - $2) / $4 AS part, status, reason, COUNT(*) AS calls, COUNT(answered_at) AS answered,
             CAST(COALESCE(SUM(CASE WHEN answered_at > started_at THEN answered_at - started_at ELSE 0 END), 0) AS BIGINT)
                 AS set_up_micros
         FROM calls WHERE org_id = $1 AND started_at BETWEEN $2 AND $3 GROUP BY 1, 2, 3 LIMIT $5",
        &[&org, &window.from, &window.to, &part, &MOST_ROWS],
    )
}
