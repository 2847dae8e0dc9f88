//! Credentials of inbound trunks from before a rotation, which work for a day unless they are ended.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, moment};
use super::error::Error;
use super::tx::Tx;
use super::{Change, edit};

/// A pair from before a rotation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldPair {
    /// Digest user name.
    pub username: String,
    /// Until when it works.
    pub expires_at: Moment,
}
from_row!(OldPair {
    username,
    expires_at: moment
});

/// The pairs from before a rotation that still work: user name, and until when; the last one to end first.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn list(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Vec<OldPair>, Error> {
    tx.all(
        "SELECT username, expires_at FROM old_credentials WHERE org_id = $1 AND expires_at > $2 ORDER BY expires_at DESC, username",
        &[&org, &now],
    )
}

/// Ends the pairs from before a rotation at once.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn end(tx: &mut Tx, org: Uuid, now: Moment) -> Result<(), Error> {
    edit(tx, org)?;
    tx.run("DELETE FROM old_credentials WHERE org_id = $1", &[&org])?;
    tx.changed(Change::Org(org), now);
    Ok(())
}
