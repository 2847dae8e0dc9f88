//! Numbers of lists that readers follow: drawn in the transaction that adds to the list, and visible in their order.
//!
//! A sequence of PostgreSQL gives a number before its transaction commits, so that a reader which has seen 8 would never see a 7 that commits
//! later. Here the transaction that draws holds the list's row until it commits.

use uuid::Uuid;

use super::error::Error;
use super::rows::{self, Insert};
use super::tx::Tx;

const ENDS: Insert = Insert {
    into: "call_ends (org_id, seq, call_id)",
    ending: "",
};

/// Numbers ends of calls (org and call). After events are appended, and before the change feed is: the row that is held is locked in the same
/// order by all.
pub(super) fn number_ends(tx: &mut Tx, ends: &[(Uuid, Uuid)]) -> Result<(), Error> {
    if ends.is_empty() {
        return Ok(());
    }
    let first = draw(tx, "call_ends", ends.len())?;
    let rows: Vec<_> = (first..)
        .zip(ends)
        .map(|(seq, (org, call))| [(*org).into(), seq.into(), (*call).into()])
        .collect();
    for some in rows::portions(&rows) {
        tx.insert(ENDS, some)?;
    }
    Ok(())
}

/// Draws so many numbers of a list, and gives the first. The row is locked after everything else that the transaction locks.
pub(super) fn draw(tx: &mut Tx, list: &str, count: usize) -> Result<i64, Error> {
    let count = count as i64;
    let sql = "UPDATE drawn SET last = last + $1 WHERE list = $2 RETURNING last";
    let (last,): (i64,) = tx.only(sql, &[&count, &list])?;
    Ok(last - count + 1)
}
