//! The clock of the database.

use trunkline_sip::moment::Moment;

use super::column::moment;
use super::error::Error;
use super::tx::Tx;

/// Returns the time of the database's clock; `None` for an embedded database, which has none of its own.
///
/// # Errors
/// [`Broke`](super::Broke): the database fails.
pub fn now(tx: &mut Tx) -> Result<Option<Moment>, Error> {
    if !tx.is_shared() {
        return Ok(None);
    }
    let (micros,): (i64,) = tx.exactly_one(
        "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
        &[],
    )?;
    Ok(moment(micros).ok())
}
