//! Ended calls in the order in which their ends were recorded, for clients that read on from a cursor.
//!
//! A cursor over start times would skip calls: a call that another node projects late may have started before those already read. So each
//! end gets a number in the transaction that records it. Drawing a number locks one row until the commit, so that numbers become visible in
//! their order.

use std::collections::HashMap;

use trunkline_model::record::{Direction, Status};
use uuid::Uuid;

use super::Call;
use super::call_events::CallRow;
use super::call_search::CallFilter;
use super::transfers::last_transfers;
use crate::driver::column::micros;
use crate::driver::error::Error;
use crate::driver::page::fitting;
use crate::driver::tx::Tx;

/// An ended call, with its number.
#[derive(Clone, PartialEq, Debug)]
pub struct CallEnd {
    /// Number of the end: later ends have higher ones.
    pub seq: i64,
    /// The call as stored now.
    pub call: Call,
}

/// A portion of an org's ended calls.
#[derive(Clone, PartialEq, Debug)]
pub struct CallEnds {
    /// Calls that match the filter, by their numbers.
    pub ends: Vec<CallEnd>,
    /// Number to continue from; `None` if nothing further is recorded now.
    pub more_after: Option<i64>,
}

/// Returns org and call of a written row, if the call is over and its end final. The end of a call that was closed as lost is final once
/// its event is recorded.
pub(crate) fn of_row(row: &CallRow) -> Option<(Uuid, Uuid)> {
    let is_over = row.started_at.is_some() && row.ended_at.is_some();
    (is_over && row.lost_told != Some(false)).then_some((row.org_id, row.id))
}

/// Calls with an end in this range of numbers.
macro_rules! between {
    () => {
        "IN (SELECT call_id FROM call_ends WHERE org_id = $1 AND seq BETWEEN $9 AND $10)"
    };
}

/// Returns the org's ended calls after `seq`, in the order in which their ends were recorded. Examines `most` ends, and returns those that
/// match the filter, and none after their texts have reached 1 MiB.
///
/// An end that is recorded later has a higher number, also on another node, so no call is ever skipped. A call is returned
/// again when a fact about it was recorded after its end.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn after(
    tx: &mut Tx,
    org: Uuid,
    filter: &CallFilter,
    seq: i64,
    most: u32,
) -> Result<CallEnds, Error> {
    tx.snapshot()?;
    let sql =
        "SELECT seq, call_id FROM call_ends WHERE org_id = $1 AND seq > $2 ORDER BY seq LIMIT $3";
    let places: Vec<(i64, Uuid)> = tx.all(sql, &[&org, &seq, &most])?;
    let Some(((first, _), (last, _))) = places.first().zip(places.last()) else {
        return Ok(CallEnds {
            ends: Vec::new(),
            more_after: None,
        });
    };

    // A row whose first fact hasn't been projected is left out: its time is NULL.
    let rows: Vec<Call> = tx.all(
        concat!(
            "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls
             WHERE org_id = $1
                 AND ($2 IS NULL OR agent_id = $2)
                 AND ($3 IS NULL OR direction = $3)
                 AND ($4 IS NULL OR status = $4)
                 AND ($5 IS NULL OR $5 IN (from_number, to_number, from_e164, to_e164))
                 AND started_at BETWEEN $6 AND $7
                 AND ($8 IS NULL OR trunk_id = $8)
                 AND ended_at IS NOT NULL AND id ",
            between!()
        ),
        &[
            &org,
            &filter.agent,
            &filter.direction.map(Direction::as_str),
            &filter.status.map(Status::as_str),
            &filter.number.as_deref(),
            &filter.from.map_or(0, micros),
            &filter.to.map_or(i64::MAX, micros),
            &filter.trunk,
            &first,
            &last,
        ],
    )?;

    let mut calls: HashMap<Uuid, Call> = rows.into_iter().map(|row| (row.id, row)).collect();
    let ids: Vec<Uuid> = calls.keys().copied().collect();
    for (id, transfer) in last_transfers(tx, org, &ids)? {
        if let Some(call) = calls.get_mut(&id) {
            call.transfer = Some(transfer);
        }
    }

    // The list goes on as long as `most` ends were examined, however many match: a filter that matches none of them doesn't end the list.
    let is_full = places.len() == most as usize;
    let more_after = is_full.then_some(*last);

    let at_place = |(seq, call): (i64, Uuid)| {
        let call = calls.get(&call)?.clone();
        Some(CallEnd { seq, call })
    };
    let mut ends: Vec<CallEnd> = places.into_iter().filter_map(at_place).collect();

    // Bounded, since a client that doesn't read its answer keeps it in memory.
    let fit = fitting(ends.iter().map(|end| end.call.octets()));
    if fit < ends.len() {
        ends.truncate(fit);
        let more_after = ends.last().map(|end| end.seq);
        return Ok(CallEnds { ends, more_after });
    }
    Ok(CallEnds { ends, more_after })
}
