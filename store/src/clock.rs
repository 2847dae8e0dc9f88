//! What time it is for the database.

use trunkline_sip::moment::Moment;

use super::column::moment;
use super::error::Error;
use super::tx::Tx;

/// The database's clock; `None` for one that is part of this process.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn now(tx: &mut Tx) -> Result<Option<Moment>, Error> {
    if !tx.is_shared() {
        return Ok(None);
    }
    let (micros,): (i64,) = tx.only(
        "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
        &[],
    )?;
    Ok(moment(micros).ok())
}
