//! Sequence numbers of lists that readers follow: drawn in the transaction that adds to the list, and visible in their order.
//!
//! A PostgreSQL sequence draws a number before its transaction commits: a reader that has seen 8 would never see a 7 that commits later.
//! Here the transaction that draws locks the list's row until it commits.

use uuid::Uuid;

use crate::driver::error::Error;
use crate::driver::rows::Insert;
use crate::driver::tx::Tx;

const ENDS: Insert = Insert {
    into: "call_ends (org_id, seq, call_id)",
    ending: "",
};

/// Numbers the ends of calls (org and call). Called after events are appended and before the change feed is, so that all transactions take
/// the locks in the same order.
pub(crate) fn number_ends(tx: &mut Tx, ends: &[(Uuid, Uuid)]) -> Result<(), Error> {
    if ends.is_empty() {
        return Ok(());
    }
    let first = next_numbers(tx, "call_ends", ends.len())?;
    let rows: Vec<_> = (first..)
        .zip(ends)
        .map(|(seq, (org, call))| [(*org).into(), seq.into(), (*call).into()])
        .collect();
    for some in tx.portions(&rows) {
        tx.insert(ENDS, some)?;
    }
    Ok(())
}

/// Draws `count` numbers of a list, and returns the first. The transaction locks the row after everything else.
pub(crate) fn next_numbers(tx: &mut Tx, list: &str, count: usize) -> Result<i64, Error> {
    let count = count as i64;
    let sql = "UPDATE drawn SET last = last + $1 WHERE list = $2 RETURNING last";
    let (last,): (i64,) = tx.exactly_one(sql, &[&count, &list])?;
    Ok(last - count + 1)
}
