//! Usage: calls and answered seconds, counted from the rows of calls on request. Calls of purged orgs were counted by day when their rows
//! were deleted.
//!
//! A row is the union of what is known of its call, regardless of the number and order of its facts. So a count of rows is exact after a
//! crash, and follows a call that was closed as lost and later got its true end. The projection keeps no counters.

use trunkline_model::record::Direction;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{from_row, maybe, micros, named};
use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Microseconds of a day.
pub(crate) const MICROS_OF_DAY: i64 = 86_400_000_000;

/// Window of the calls to count, by their start; both ends are included.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UsageWindow {
    /// The earliest start.
    pub from: Moment,
    /// The latest start.
    pub to: Moment,
}

/// Dimensions by which calls are counted; without any, all calls are one row.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each part is asked for on its own"
)]
pub struct UsageParts {
    /// The day in UTC on which the call started.
    pub day: bool,
    /// The org.
    pub org: bool,
    /// The agent that was chosen.
    pub agent: bool,
    /// The inbound or outbound trunk.
    pub trunk: bool,
    /// The direction.
    pub direction: bool,
}

/// Calls of one group. Dimensions that weren't requested are `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageRow {
    /// Days since 1970-01-01, UTC.
    pub day: Option<i64>,
    /// The org.
    pub org_id: Option<Uuid>,
    /// The agent; also `None` for calls without one.
    pub agent_id: Option<Uuid>,
    /// The trunk; also `None` for calls without one.
    pub trunk_id: Option<Uuid>,
    /// The direction.
    pub direction: Option<Direction>,
    /// All calls, refused ones included.
    pub calls: i64,
    /// Calls that were answered.
    pub answered_calls: i64,
    /// Sum of the answered seconds of each call, as [`whole_seconds`] counts them.
    pub answered_seconds: i64,
}
from_row!(UsageRow {
    day,
    org_id,
    agent_id,
    trunk_id,
    direction: maybe(named),
    calls,
    answered_calls,
    answered_seconds,
});

/// Returns the seconds from one time to another, rounded up; 0 if the clock went backwards.
#[must_use]
pub fn whole_seconds(from: Moment, to: Moment) -> u64 {
    let micros = to.as_micros().saturating_sub(from.as_micros());
    micros.div_ceil(1_000_000)
}

/// Durations of a call that is over.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CallSeconds {
    /// From its start to its end.
    pub duration: u64,
    /// From its answer to its end; 0 for a call that wasn't answered.
    pub answered: u64,
}

impl CallSeconds {
    /// Returns the durations by [`whole_seconds`]; `None` for a call that is up.
    #[must_use]
    pub fn of(started: Moment, answered: Option<Moment>, ended: Option<Moment>) -> Option<Self> {
        let ended = ended?;
        Some(Self {
            duration: whole_seconds(started, ended),
            answered: answered.map_or(0, |answered| whole_seconds(answered, ended)),
        })
    }
}

/// Statement for the [`UsageRow`]s of the calls selected by `$1` to `$9`, and of purged calls. A purged call is known by its day alone, and
/// counts at the start of that day, so that only one of two adjoining windows counts it. Rounds like [`whole_seconds`].
macro_rules! usage_of {
    ($calls:literal, $kept:literal) => {
        concat!(
            "SELECT day, org_id, agent_id, trunk_id, direction, CAST(SUM(calls) AS BIGINT) AS calls,
                 CAST(SUM(answered_calls) AS BIGINT) AS answered_calls, CAST(SUM(answered_seconds) AS BIGINT) AS answered_seconds
             FROM (SELECT CASE WHEN $4 THEN calls.started_at / 86400000000 END AS day,
                 CASE WHEN $5 THEN calls.org_id END AS org_id,
                 CASE WHEN $6 THEN calls.agent_id END AS agent_id,
                 CASE WHEN $7 THEN calls.trunk_id END AS trunk_id,
                 CASE WHEN $8 THEN calls.direction END AS direction,
                 COUNT(*) AS calls, COUNT(calls.answered_at) AS answered_calls,
                 CAST(COALESCE(SUM(CASE WHEN calls.ended_at > calls.answered_at
                     THEN (calls.ended_at - calls.answered_at + 999999) / 1000000 ELSE 0 END), 0) AS BIGINT)
                     AS answered_seconds
             FROM ",
            $calls,
            " AND calls.started_at BETWEEN $2 AND $3 GROUP BY 1, 2, 3, 4, 5
             UNION ALL SELECT CASE WHEN $4 THEN day END, CASE WHEN $5 THEN org_id END,
                 CASE WHEN $6 THEN NULLIF(agent_id, $10) END, CASE WHEN $7 THEN NULLIF(trunk_id, $10) END,
                 CASE WHEN $8 THEN NULLIF(direction, '') END, calls, answered_calls, answered_seconds
             FROM usage_kept WHERE ",
            $kept,
            " AND day BETWEEN $11 AND $12) AS counted GROUP BY 1, 2, 3, 4, 5 LIMIT $9"
        )
    };
}

/// Returns the usage of the org, in order of day, agent, trunk and direction; at most `most` rows.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_org(
    tx: &mut Tx,
    org: Uuid,
    window: UsageWindow,
    parts: UsageParts,
    most: u32,
) -> Result<Vec<UsageRow>, Error> {
    let sql = usage_of!("calls WHERE calls.org_id = $1", "org_id = $1");
    count(tx, sql, org, window, parts, most)
}

/// Returns the usage of all orgs of the partner, in order of day, org, agent, trunk and direction; at most `most` rows.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_partner(
    tx: &mut Tx,
    partner: Uuid,
    window: UsageWindow,
    parts: UsageParts,
    most: u32,
) -> Result<Vec<UsageRow>, Error> {
    let sql = usage_of!(
        "orgs JOIN calls ON calls.org_id = orgs.id WHERE orgs.partner_id = $1",
        "partner_id = $1"
    );
    count(tx, sql, partner, window, parts, most)
}

fn count(
    tx: &mut Tx,
    sql: &'static str,
    owner: Uuid,
    window: UsageWindow,
    parts: UsageParts,
    most: u32,
) -> Result<Vec<UsageRow>, Error> {
    let [from, to] = [window.from, window.to].map(micros);

    let rows = tx.all(
        sql,
        &[
            &owner,
            &from,
            &to,
            &parts.day,
            &parts.org,
            &parts.agent,
            &parts.trunk,
            &parts.direction,
            &most,
            &Uuid::nil(),
            // Rounded up: of two adjoining windows, the one that holds the start of the day counts it.
            &(from.saturating_add(MICROS_OF_DAY - 1) / MICROS_OF_DAY),
            &(to / MICROS_OF_DAY),
        ],
    )?;

    Ok(sorted(rows))
}

/// Sorts in Rust, since the databases order NULL differently.
fn sorted(mut rows: Vec<UsageRow>) -> Vec<UsageRow> {
    rows.sort_unstable_by_key(|row| {
        let direction = row.direction.map(Direction::as_str);
        (row.day, row.org_id, row.agent_id, row.trunk_id, direction)
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begun_second_counts_as_a_whole() {
        for (from, to, seconds) in [
            (0, 0, 0),
            (0, 1, 1),
            (0, 1_000_000, 1),
            (0, 1_000_001, 2),
            (5_000_000, 4_000_000, 0),
        ] {
            let [from, to] = [from, to].map(Moment::from_micros);
            assert_eq!(whole_seconds(from, to), seconds, "{from:?} {to:?}");
        }
    }
}
