//! Parts that all edits of rows share.

use uuid::Uuid;

use super::error::{Error, Kind, Wrong};
use super::tx::Tx;

/// Refuses an org that doesn't exist. Transactions that edit the same org take turns, so that what was checked still holds at the commit.
pub(crate) fn edit(tx: &mut Tx, org: Uuid) -> Result<(), Error> {
    let sql = tx.words(
        "SELECT id FROM orgs WHERE id = $1 AND deleted_at IS NULL",
        "SELECT id FROM orgs WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE",
    );
    let row: Option<(Uuid,)> = tx.one(sql, &[&org])?;
    row.ok_or(Wrong::Absent(Kind::Org))?;
    Ok(())
}

/// Applies one field of a change.
pub(crate) fn set<V>(field: &mut V, value: Option<V>) {
    if let Some(value) = value {
        *field = value;
    }
}
