//! Number of contacts of each org, which bounds them. It changes with the rows in one transaction, so that no query has to count them.

use uuid::Uuid;

use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Returns the number of the org's contacts.
pub(crate) fn of_org(tx: &mut Tx, org: Uuid) -> Result<i64, Error> {
    let sql = "SELECT contacts FROM contact_counts WHERE org_id = $1";
    let row: Option<(i64,)> = tx.one(sql, &[&org])?;
    Ok(row.map_or(0, |(contacts,)| contacts))
}

/// Notes that contacts of the org were added.
pub(crate) fn added(tx: &mut Tx, org: Uuid, contacts: usize) -> Result<(), Error> {
    let contacts = i64::try_from(contacts).unwrap_or(i64::MAX);
    tx.run(
        "INSERT INTO contact_counts (org_id, contacts) VALUES ($1, $2)
         ON CONFLICT (org_id) DO UPDATE SET contacts = contact_counts.contacts + excluded.contacts",
        &[&org, &contacts],
    )?;
    Ok(())
}

/// Deletes a contact of the org.
pub(crate) fn delete(tx: &mut Tx, org: Uuid, contact: Uuid) -> Result<(), Error> {
    let sql = "DELETE FROM contacts WHERE org_id = $1 AND id = $2";
    let deleted = tx.run(sql, &[&org, &contact])?;
    removed(tx, org, deleted)
}

/// Notes that contacts of the org were deleted.
pub(crate) fn removed(tx: &mut Tx, org: Uuid, contacts: u64) -> Result<(), Error> {
    let contacts = i64::try_from(contacts).unwrap_or(i64::MAX);
    let sql = "UPDATE contact_counts SET contacts = contacts - $2 WHERE org_id = $1";
    tx.run(sql, &[&org, &contacts])?;
    Ok(())
}
