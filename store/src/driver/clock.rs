//! The clock of the database.

use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::column::moment;
use super::error::Error;
use super::tx::Tx;

/// Statement that uses the database's own clock: the pieces of its text are joined by the database's expression for the present time in
/// microseconds. The clocks of nodes differ, while a lease must hold, and a command be fresh, on all of them.
macro_rules! by_its_clock {
    ($tx:expr, $first:literal $(, $next:literal)+ $(,)?) => {
        if $tx.is_shared() {
            concat!($first $(, "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)", $next)+)
        } else {
            concat!($first $(, "CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)", $next)+)
        }
    };
}
pub(crate) use by_its_clock;

/// Returns the time of the database's clock; `None` for an embedded database, which has none of its own.
///
/// # Errors
/// [`Broke`](super::error::Broke): the database fails.
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

/// Returns a length in microseconds.
pub(crate) fn length(of: Duration) -> i64 {
    i64::try_from(of.as_micros()).unwrap_or(i64::MAX)
}
