//! Earlier credentials of inbound trunks, which work for a day after a rotation unless they are ended.

use std::cmp::Reverse;

use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{from_row, moment};
use crate::driver::edit::lock_org;
use crate::driver::error::Error;
use crate::driver::page::{Page, Position};
use crate::driver::tx::Tx;

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

impl OldPair {
    /// Position in the list. A pair has no id, so a hash of its user name takes the id's place.
    fn position(&self) -> Position {
        let hash: [u8; 32] = Sha256::digest(&self.username).into();
        let id = hash.first_chunk().expect("a hash has 32 octets");
        Position {
            at: self.expires_at,
            id: Uuid::from_bytes(*id),
        }
    }
}

/// Returns a page of the earlier credentials that still work, the last one to expire first, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    now: Moment,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<OldPair>, Error> {
    let sql =
        "SELECT username, expires_at FROM old_credentials WHERE org_id = $1 AND expires_at > $2";
    // A trunk has ten at most. They are sorted here, since the database has no column for the hash.
    let mut pairs: Vec<OldPair> = tx.all(sql, &[&org, &now])?;
    let total = pairs.len() as i64;

    let place = |pair: &OldPair| {
        let Position { at, id } = pair.position();
        (at, id)
    };
    if let Some(Position { at, id }) = after {
        pairs.retain(|pair| place(pair) < (at, id));
    }
    pairs.sort_by_key(|pair| Reverse(place(pair)));

    Ok(Page::of(pairs, limit, total, OldPair::position))
}

/// Ends the earlier credentials at once.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn end(tx: &mut Tx, org: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    tx.run("DELETE FROM old_credentials WHERE org_id = $1", &[&org])?;
    tx.changed(Change::Org(org), now);
    Ok(())
}
