//! The rotation of the sealing key and of the master key.
//!
//! A new sealing key is staged first: every process opens with it, none seals with it. Once all have followed the change feed it seals, and
//! what older keys have sealed is sealed anew. Then the older keys can go. Each step may be cut off and run again: no value is ever sealed
//! with a key that isn't kept.

use trunkline_sip::moment::Moment;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::column::from_row;
use super::error::{Broke, Error};
use super::keyring::SealingId;
use super::open::OpenFault;
use super::pool::{Writing, execute, fetch_all, fetch_one};
use super::secrets::{CHECK, KeyEdit, MasterKey};
use super::{
    Change, Store, agents, erasures, idempotency, inbound_trunks, integrations, outbound_trunks,
    webhooks,
};

/// Rows that are sealed anew in one transaction: other writers wait for it.
const AT_ONCE: i64 = 500;

/// A sealed value of a row with an id.
struct OfId {
    id: Uuid,
    value: Vec<u8>,
}
from_row!(OfId { id, value });

/// A sealed value of a row with a name.
struct OfName {
    id: String,
    value: Vec<u8>,
}
from_row!(OfName { id, value });

/// A sealed answer that is kept for an `Idempotency-Key`.
struct Answer {
    credential_id: Uuid,
    method: String,
    path: String,
    key: String,
    value: Vec<u8>,
}
from_row!(Answer {
    credential_id,
    method,
    path,
    key,
    value
});

/// Seals the values of one column anew that the newest key hasn't sealed, some at a time; gives how many. What is written meanwhile stays.
/// The column, its table, the rows as `row` and the columns to read of them, what a value is sealed for, and the row's own condition.
macro_rules! reseal {
    ($store:expr, $column:literal of $table:literal, $row:ident: $type:ty = $columns:literal, $context:expr,
     $condition:literal [$($key:expr),+]) => {{
        const COLUMN: &str = concat!($table, ".", $column);
        const OLD: &str = concat!(
            "SELECT ", $columns, ", ", $column, " AS value FROM ", $table,
            " WHERE ", $column, " IS NOT NULL AND substr(", $column, ", 1, 8) <> $1 LIMIT $2"
        );
        const ANEW: &str = concat!(
            "UPDATE ", $table, " SET ", $column, " = $1 WHERE ", $column, " = $2 AND ", $condition
        );
        let (keyring, mut count) = ($store.keyring(), 0);
        'anew: loop {
            // Of two rotations at once the later one's key seals: neither undoes the other's work.
            $store.follow_signing_keys().await?;
            let mut writing = $store.pool().write().await?;
            let newest = keyring.sealing_id().to_vec();
            let rows: Vec<$type> = fetch_all!(writing, OLD, newest.as_slice(), AT_ONCE)?;
            if rows.is_empty() {
                break count;
            }
            let mut sealed_anew = 0;
            for $row in rows {
                let context: Vec<u8> = $context;
                let Ok(plain) = keyring.open(&context, &$row.value) else {
                    // Another rotation may have sealed it since the keys were followed, with a key that isn't known here yet.
                    $store.follow_signing_keys().await?;
                    if keyring.sealing_id().to_vec() != newest {
                        continue 'anew;
                    }
                    return Err(Error::from(Broke::Stored { column: COLUMN }).into());
                };
                let sealed = keyring.seal(&context, &Zeroizing::new(plain));
                sealed_anew += execute!(writing, ANEW, sealed, $row.value, $($key),+)?;
            }
            writing.commit().await?;
            count += sealed_anew;
        }
    }};
}

/// How many values older keys have sealed.
const LEFT: &str = "SELECT
    (SELECT COUNT(*) FROM inbound_trunks WHERE substr(password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM old_credentials WHERE substr(password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM outbound_trunks WHERE substr(password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM agents WHERE substr(runtime_password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM webhooks WHERE substr(secret, 1, 8) <> $1 OR substr(old_secret, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM integrations WHERE substr(credentials, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM idempotency_keys WHERE substr(answer, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM erasures WHERE substr(subject, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM erasure_calls WHERE substr(legs, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM secrets WHERE id = 'check' AND substr(value, 1, 8) <> $1)";

impl Store {
    /// Adds a sealing key that every process knows once it has followed the change feed, and none seals with yet; gives its id.
    ///
    /// # Errors
    /// The keys can't be read or written; nothing was changed then.
    pub async fn stage_sealing_key(&self, now: Moment) -> Result<SealingId, OpenFault> {
        let writing = self.pool().write().await?;
        self.edit_keys(writing, KeyEdit::StageSealing, now).await?;
        Ok(self.keyring().staged_id())
    }

    /// Seals with the staged key from now on.
    ///
    /// # Errors
    /// It is gone, or the keys can't be read or written; nothing was changed then.
    pub async fn use_staged_sealing_key(
        &self,
        staged: SealingId,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let writing = self.pool().write().await?;
        let edit = KeyEdit::UseStagedSealing(staged);
        self.edit_keys(writing, edit, now).await
    }

    /// Seals anew what older keys have sealed; gives how many values.
    ///
    /// # Errors
    /// A value or the keys can't be read or written: what was sealed anew by then stays so.
    pub async fn reseal(&self) -> Result<u64, OpenFault> {
        Ok(self.reseal_trunks().await? + self.reseal_others().await?)
    }

    async fn reseal_trunks(&self) -> Result<u64, OpenFault> {
        let mut count = 0;
        count += reseal!(
            self, "password" of "inbound_trunks", row: OfName = "username AS id",
            inbound_trunks::owner(&row.id), "username = $3" [row.id]
        );
        count += reseal!(
            self, "password" of "old_credentials", row: OfName = "username AS id",
            inbound_trunks::owner(&row.id), "username = $3" [row.id]
        );
        count += reseal!(
            self, "password" of "outbound_trunks", row: OfId = "id",
            outbound_trunks::owner(row.id), "id = $3" [row.id]
        );
        Ok(count)
    }

    async fn reseal_others(&self) -> Result<u64, OpenFault> {
        let mut count = 0;
        count += reseal!(
            self, "runtime_password" of "agents", row: OfId = "id",
            agents::owner(row.id), "id = $3" [row.id]
        );
        count += reseal!(
            self, "secret" of "webhooks", row: OfId = "id", webhooks::owner(row.id), "id = $3" [row.id]
        );
        count += reseal!(
            self, "old_secret" of "webhooks", row: OfId = "id", webhooks::owner(row.id), "id = $3" [row.id]
        );
        count += reseal!(
            self, "credentials" of "integrations", row: OfId = "id",
            integrations::context(row.id), "id = $3" [row.id]
        );
        count += reseal!(
            self, "answer" of "idempotency_keys", row: Answer = "credential_id, method, path, key",
            idempotency::context(row.credential_id, &row.method, &row.path, &row.key),
            "credential_id = $3 AND method = $4 AND path = $5 AND key = $6"
            [row.credential_id, row.method, row.path, row.key]
        );
        count += reseal!(
            self, "subject" of "erasures", row: OfId = "id", erasures::context(row.id), "id = $3" [row.id]
        );
        count += reseal!(
            self, "legs" of "erasure_calls", row: OfId = "call_id AS id",
            erasures::legs_context(row.id), "call_id = $3" [row.id]
        );
        count += self.reseal_mark().await?;
        Ok(count)
    }

    /// Seals the known text anew that a SQLite database has of its keys.
    async fn reseal_mark(&self) -> Result<u64, Error> {
        let mut writing = self.pool().write().await?;
        let keyring = self.keyring();
        let sql = "UPDATE secrets SET value = $1 WHERE id = 'check' AND substr(value, 1, 8) <> $2";
        let (sealed, newest) = (keyring.seal(CHECK, CHECK), keyring.sealing_id().to_vec());
        let count = execute!(writing, sql, sealed, newest)?;
        writing.commit().await?;
        Ok(count)
    }

    /// Drops every sealing key but the one that seals, once it has sealed everything.
    ///
    /// # Errors
    /// [`OpenFault::StillSealed`] if somebody sealed with an older key meanwhile; or the keys can't be read or written. Nothing was dropped then.
    pub async fn retire_sealing_keys(&self, now: Moment) -> Result<(), OpenFault> {
        self.reseal().await?;
        let mut writing = self.pool().write().await?;
        let newest = self.keyring().sealing_id();
        let (left,): (i64,) = fetch_one!(writing, LEFT, newest.to_vec())?;
        if left > 0 {
            return Err(OpenFault::StillSealed(left.unsigned_abs()));
        }
        let edit = KeyEdit::RetireSealing(newest);
        self.edit_keys(writing, edit, now).await
    }

    /// Seals the keys that a PostgreSQL database holds under another master key. Processes that are open go on with the keys that they know;
    /// each needs the new master key at its next start.
    ///
    /// # Errors
    /// There is no master key, the new one is weak, or the keys can't be read or written; nothing was changed then.
    pub async fn rotate_master_key(&self, new: &str, now: Moment) -> Result<(), OpenFault> {
        let new = MasterKey::new(Some(new))?;
        let mut writing = self.pool().write().await?;
        self.vault().rotate_master(&mut writing, &new).await?;
        // Whoever runs under the old one finds that out at once, and says so.
        self.commit(writing, &[Change::SigningKeys], now).await?;
        Ok(())
    }

    async fn edit_keys(
        &self,
        mut writing: Writing,
        edit: KeyEdit<'_>,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let keyring = self.vault().edit(&mut writing, edit).await?;
        self.commit(writing, &[Change::SigningKeys], now).await?;
        self.keyring().follow(&keyring);
        Ok(())
    }
}
