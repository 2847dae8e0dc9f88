//! Steps that all edits of an org's rows share.

use uuid::Uuid;

use super::error::{Error, Kind, Wrong};
use super::tx::Tx;

/// Locks an org's row until the commit, and refuses an org that doesn't exist. Edits of the same org thus run one after the other, so that
/// a check still holds at the commit.
pub(crate) fn lock_org(tx: &mut Tx, org: Uuid) -> Result<(), Error> {
    // SQLite has one writer at a time. NO KEY lets other transactions add rows that refer to the org.
    let sql = tx.by_dialect(
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
