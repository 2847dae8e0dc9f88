//! When keys were last used: written for many at once.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Runs `sql` for each key, in one transaction and in a fixed order, so that nodes that write at once don't deadlock.
pub(crate) fn note_uses_by(
    tx: &mut Tx,
    sql: &'static str,
    uses: &[(Uuid, Moment)],
) -> Result<(), Error> {
    let mut uses = uses.to_vec();
    uses.sort_unstable();
    for (key, at) in uses {
        tx.run(sql, &[&key, &at])?;
    }
    tx.mark_internal();
    Ok(())
}
