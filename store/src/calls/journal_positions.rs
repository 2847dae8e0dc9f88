//! Positions up to which the database has the facts of each node's journal, so that a restart doesn't project them once more.

use crate::driver::column::from_row;
use crate::driver::error::Error;
use crate::driver::tx::Tx;
use crate::journal::{FactPosition, Origin, ReadPosition};

struct Row {
    segment: i64,
    fact: i64,
}
from_row!(Row { segment, fact });

/// Saves the end of the facts that this transaction stores. A node reads the segments of its runs in order, so one row is enough.
pub(crate) fn save(tx: &mut Tx, origin: Origin, end: ReadPosition) -> Result<(), Error> {
    tx.run(
        "INSERT INTO journal_positions (node, boot, segment, fact) VALUES ($1, $2, $3, $4)
         ON CONFLICT (node) DO UPDATE SET boot = excluded.boot, segment = excluded.segment, fact = excluded.fact",
        &[
            &origin.node,
            &origin.boot,
            &end.segment.cast_signed(),
            &end.fact.0.cast_signed(),
        ],
    )?;
    Ok(())
}

/// Returns the end of the stored facts of a run; zero if none are known to be stored.
pub(crate) fn of_run(tx: &mut Tx, origin: Origin) -> Result<ReadPosition, Error> {
    let sql = "SELECT segment, fact FROM journal_positions WHERE node = $1 AND boot = $2";
    let row: Option<Row> = tx.one(sql, &[&origin.node, &origin.boot])?;

    Ok(row.map_or_else(ReadPosition::default, |row| ReadPosition {
        segment: row.segment.cast_unsigned(),
        fact: FactPosition(row.fact.cast_unsigned()),
    }))
}
