//! Earlier credentials of inbound trunks, which work for a day after a rotation unless they are ended.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, moment};
use super::error::Error;
use super::tx::Tx;
use super::{Change, lock_org};

/// Earlier credentials of a trunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldPair {
    /// Digest user name.
    pub username: String,
    /// Expiry.
    pub expires_at: Moment,
}
from_row!(OldPair {
    username,
    expires_at: moment
});

/// Returns the earlier credentials that still work, the last one to expire first.
///
/// # Errors
/// [`Broke`](super::Broke): the database fails.
pub fn list(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Vec<OldPair>, Error> {
    tx.all(
        "SELECT username, expires_at FROM old_credentials WHERE org_id = $1 AND expires_at > $2 ORDER BY expires_at DESC, username",
        &[&org, &now],
    )
}

/// Ends the earlier credentials at once.
///
/// # Errors
/// [`Broke`](super::Broke): the database fails.
pub fn end(tx: &mut Tx, org: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    tx.run("DELETE FROM old_credentials WHERE org_id = $1", &[&org])?;
    tx.changed(Change::Org(org), now);
    Ok(())
}
