//! The realm of this installation's digest challenges. PBXs store hashes that were made with it, so an installation keeps the realm that it
//! has used.

use crate::driver::error::Error;
use crate::driver::tx::Tx;

const READ: &str = "SELECT value FROM installation WHERE id = 'realm'";

/// Returns the realm of this installation's challenges; `None` before its first start.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn known(tx: &mut Tx) -> Result<Option<String>, Error> {
    let row: Option<(String,)> = tx.one(READ, &[])?;
    Ok(row.map(|(realm,)| realm))
}

/// Determines and stores the realm: the configured one, else the one that was used before, else `default`. Nodes that start at once agree
/// on it.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn keep(tx: &mut Tx, configured: Option<&str>, default: &str) -> Result<String, Error> {
    let sql = "INSERT INTO installation (id, value) VALUES ('realm', $1) ON CONFLICT DO NOTHING";
    // Of nodes without a configured realm the first to insert wins, and the others read its realm below.
    tx.run(sql, &[&configured.unwrap_or(default)])?;
    if let Some(realm) = configured {
        let sql = "UPDATE installation SET value = $1 WHERE id = 'realm' AND value <> $1";
        tx.run(sql, &[&realm])?;
    }
    let (realm,): (String,) = tx.exactly_one(READ, &[])?;
    tx.mark_internal();
    Ok(realm)
}
