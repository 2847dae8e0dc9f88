//! Numbers of lists that readers follow: drawn in the transaction that adds to the list, and visible in their order.
//!
//! A sequence of PostgreSQL gives a number before its transaction commits, so that a reader which has seen 8 would never see a 7 that commits
//! later. Here the transaction that draws holds the list's row until it commits.

use super::error::Error;
use super::pool::{Writing, fetch_one};

/// Draws so many numbers of a list, and gives the first. The row is locked after everything else that the transaction locks.
pub(super) async fn draw(writing: &mut Writing, list: &str, count: usize) -> Result<i64, Error> {
    let count = count as i64;
    let sql = "UPDATE drawn SET last = last + $1 WHERE list = $2 RETURNING last";
    let (last,): (i64,) = fetch_one!(writing, sql, count, list)?;
    Ok(last - count + 1)
}
