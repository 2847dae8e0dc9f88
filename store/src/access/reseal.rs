//! Rotation of the signing keys, the sealing keys and the master key.
//!
//! A new sealing key is staged first: every process opens with it, none seals with it. Once all have followed the change feed it seals, and
//! values of older keys are sealed again. Then the older keys can be dropped. Each step may be interrupted and repeated: no value is ever
//! sealed with a key that isn't stored.

use std::sync::Arc;

use trunkline_sip::moment::Moment;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::commit::commit;
use super::secrets::{CHECK, KeyEdit, MasterKey};
use super::store::Store;
use crate::driver::change::Change;
use crate::driver::column::from_row;
use crate::driver::error::{Broke, Error};
use crate::driver::keyring::{SealingId, TokenKind};
use crate::driver::open_fault::OpenFault;
use crate::driver::threads::OpenTransaction;
use crate::driver::tx::Tx;
use crate::driver::value::{Param, Record};
use crate::erasing::erasures;
use crate::telephony::{agents, bot_tokens, inbound_trunks, outbound_trunks};
use crate::tenants::{idempotency, integrations, webhooks};

/// Rows sealed again in one transaction, for which other writers wait.
const AT_ONCE: i64 = 500;

/// A column of sealed values.
#[derive(Debug)]
struct Column<R> {
    /// Table and column, as `table.column`.
    column: &'static str,
    /// Columns that are read beside the value, and the condition by which they find the row again, on `$3` and following.
    keys: (&'static str, &'static str),
    /// Returns the context of a value.
    context: fn(&R) -> Vec<u8>,
}

/// A row with a sealed value.
trait Sealed: Record {
    fn value(&self) -> &Vec<u8>;

    fn keys(&self) -> Vec<&dyn Param>;
}

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

/// A sealed answer to a request with an `Idempotency-Key`.
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

impl Sealed for OfId {
    fn value(&self) -> &Vec<u8> {
        &self.value
    }

    fn keys(&self) -> Vec<&dyn Param> {
        vec![&self.id]
    }
}

impl Sealed for OfName {
    fn value(&self) -> &Vec<u8> {
        &self.value
    }

    fn keys(&self) -> Vec<&dyn Param> {
        vec![&self.id]
    }
}

impl Sealed for Answer {
    fn value(&self) -> &Vec<u8> {
        &self.value
    }

    fn keys(&self) -> Vec<&dyn Param> {
        vec![&self.credential_id, &self.method, &self.path, &self.key]
    }
}

impl Column<OfId> {
    const fn of_id(column: &'static str, context: fn(&OfId) -> Vec<u8>) -> Self {
        let keys = ("id", "id = $3");
        Self {
            column,
            keys,
            context,
        }
    }
}

impl Column<OfName> {
    const fn of_trunk(column: &'static str) -> Self {
        Self {
            column,
            keys: ("username AS id", "username = $3"),
            context: |row| inbound_trunks::owner(&row.id),
        }
    }
}

impl<R: Sealed> Column<R> {
    /// Seals a portion of the values of older keys again; returns their number, and `None` once none is left. Values written meanwhile
    /// stay.
    fn reseal_some(&self, tx: &mut Tx) -> Result<Option<u64>, Error> {
        let (Self { column, .. }, (read, is_row)) = (self, self.keys);
        let (table, name) = column.split_once('.').unwrap_or_default();
        let keyring = tx.keyring();
        let old = format!(
            "SELECT {read}, {name} AS value FROM {table} WHERE {name} IS NOT NULL AND substr({name}, 1, 8) <> $1 LIMIT $2"
        );
        let rows: Vec<R> = tx.all(old, &[&keyring.sealing_id().to_vec(), &AT_ONCE])?;

        if rows.is_empty() {
            // The last pass over a column changes nothing, so it has no entry in the audit log.
            tx.mark_internal();
            return Ok(None);
        }

        let mut count = 0;

        for row in rows {
            let context = (self.context)(&row);
            let plain = keyring.open(&context, row.value());
            let plain = plain.map_err(|_| Broke::Stored { column })?;
            let sealed = keyring.seal(&context, &Zeroizing::new(plain));
            let anew = format!("UPDATE {table} SET {name} = $1 WHERE {name} = $2 AND {is_row}");
            let values: [&dyn Param; 2] = [&sealed, row.value()];
            count += tx.run(anew, &[values.as_slice(), &row.keys()].concat())?;
        }

        Ok(Some(count))
    }
}

/// Number of values that older keys have sealed.
const LEFT: &str = "SELECT
    (SELECT COUNT(*) FROM inbound_trunks WHERE substr(password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM old_credentials WHERE substr(password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM outbound_trunks WHERE substr(password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM agents WHERE substr(runtime_password, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM webhooks WHERE substr(secret, 1, 8) <> $1 OR substr(old_secret, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM bot_tokens
        WHERE substr(token, 1, 8) <> $1 OR substr(next_token, 1, 8) <> $1 OR substr(old_token, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM integrations WHERE substr(credentials, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM idempotency_keys WHERE substr(answer, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM erasures WHERE substr(subject, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM erasure_calls WHERE substr(legs, 1, 8) <> $1)
    + (SELECT COUNT(*) FROM secrets WHERE id = 'check' AND substr(value, 1, 8) <> $1)";

impl Store {
    /// Adds a key of API keys, which every process uses as soon as it has followed the change feed. Tokens of the other keys stay valid.
    ///
    /// # Errors
    /// The keys can't be read or written; nothing was changed then.
    pub async fn rotate_signing_key(&self, now: Moment) -> Result<(), OpenFault> {
        self.rotate_signing_key_of(TokenKind::ApiKey, now).await
    }

    /// Adds a signing key of this kind, as [`rotate_signing_key`](Self::rotate_signing_key) does.
    ///
    /// # Errors
    /// The keys can't be read or written; nothing was changed then.
    pub async fn rotate_signing_key_of(
        &self,
        kind: TokenKind,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        let edit = KeyEdit::AddSigning(kind);
        self.edit_keys(session, edit, now).await
    }

    /// Retires a signing key of either kind: every process that has followed the change feed refuses its tokens, except API keys whose token is stored. A
    /// key that is retired already is announced again, in case a command was interrupted before the announcement.
    ///
    /// # Errors
    /// The key doesn't exist, or is the one that signs; or the keys can't be read or written. Nothing was changed then.
    pub async fn retire_signing_key(&self, kid: &str, now: Moment) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        let edit = KeyEdit::RetireSigning(kid.to_owned());
        self.edit_keys(session, edit, now).await
    }

    /// Adds a sealing key that every process knows once it has followed the change feed, and none seals with yet; returns its id.
    ///
    /// # Errors
    /// The keys can't be read or written; nothing was changed then.
    pub async fn stage_sealing_key(&self, now: Moment) -> Result<SealingId, OpenFault> {
        let session = self.pool().begin().await?;
        self.edit_keys(session, KeyEdit::StageSealing, now).await?;
        Ok(self.keyring().staged_id())
    }

    /// Seals with the staged key from now on.
    ///
    /// # Errors
    /// The staged key is gone, or the keys can't be read or written; nothing was changed then.
    pub async fn use_staged_sealing_key(
        &self,
        staged: SealingId,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        let edit = KeyEdit::UseStagedSealing(staged);
        self.edit_keys(session, edit, now).await
    }

    /// Seals the values of older keys again; returns their number.
    ///
    /// # Errors
    /// A value or the keys can't be read or written: values sealed again by then stay so.
    pub async fn reseal(&self) -> Result<u64, OpenFault> {
        let mut count = 0;
        for column in ["inbound_trunks.password", "old_credentials.password"] {
            count += self.reseal_column(Column::of_trunk(column)).await?;
        }

        let mut legs =
            Column::<OfId>::of_id("erasure_calls.legs", |row| erasures::legs_context(row.id));
        legs.keys = ("call_id AS id", "call_id = $3");

        for column in [
            "bot_tokens.token",
            "bot_tokens.next_token",
            "bot_tokens.old_token",
        ] {
            let mut column = Column::<OfId>::of_id(column, |row| bot_tokens::owner(row.id));
            column.keys = ("org_id AS id", "org_id = $3");
            count += self.reseal_column(column).await?;
        }

        for column in [
            Column::of_id("outbound_trunks.password", |row| {
                outbound_trunks::owner(row.id)
            }),
            Column::of_id("agents.runtime_password", |row| agents::owner(row.id)),
            Column::of_id("webhooks.secret", |row| webhooks::owner(row.id)),
            Column::of_id("webhooks.old_secret", |row| webhooks::owner(row.id)),
            Column::of_id("integrations.credentials", |row| {
                integrations::context(row.id)
            }),
            Column::of_id("erasures.subject", |row| erasures::context(row.id)),
            legs,
        ] {
            count += self.reseal_column(column).await?;
        }

        let answers: Column<Answer> = Column {
            column: "idempotency_keys.answer",
            keys: (
                "credential_id, method, path, key",
                "credential_id = $3 AND method = $4 AND path = $5 AND key = $6",
            ),
            context: |row| {
                idempotency::context(row.credential_id, &row.method, &row.path, &row.key)
            },
        };

        count += self.reseal_column(answers).await?;
        Ok(count + self.write(reseal_mark).await?)
    }

    async fn reseal_column<R: Sealed>(&self, column: Column<R>) -> Result<u64, OpenFault> {
        let (column, mut count) = (Arc::new(column), 0);

        loop {
            // Of two rotations at once the later one's key seals: neither undoes the other's work.
            self.follow_signing_keys().await?;
            let newest = self.keyring().sealing_id();
            let some = Arc::clone(&column);
            match self.write(move |tx| some.reseal_some(tx)).await {
                Ok(Some(some)) => count += some,
                Ok(None) => return Ok(count),
                Err(fault) => {
                    // Another rotation may have sealed a value since the keys were read, with a key that isn't known here yet.
                    self.follow_signing_keys().await?;
                    if self.keyring().sealing_id() == newest {
                        return Err(fault.into());
                    }
                }
            }
        }
    }

    /// Drops every sealing key but the newest, once it has sealed every value.
    ///
    /// # Errors
    /// [`OpenFault::StillSealed`] if another process sealed with an older key meanwhile; or the keys can't be read or written. Nothing was
    /// dropped then.
    pub async fn retire_sealing_keys(&self, now: Moment) -> Result<(), OpenFault> {
        self.reseal().await?;
        let session = self.pool().begin().await?;
        let newest = self.keyring().sealing_id();
        // Counted in the transaction that drops the keys. On SQLite no other process writes a value before this transaction ends.
        let left = session.run(move |tx| tx.exactly_one(LEFT, &[&newest.to_vec()]));
        let (left,): (i64,) = left.await?;
        if left > 0 {
            return Err(OpenFault::StillSealed(left.unsigned_abs()));
        }
        let edit = KeyEdit::RetireSealing(newest);
        self.edit_keys(session, edit, now).await
    }

    /// Seals the keys that a PostgreSQL database holds under another master key. Running processes continue with the keys that they have;
    /// each needs the new master key at its next start.
    ///
    /// # Errors
    /// The database has no master key, the new one is weak, or the keys can't be read or written; nothing was changed then.
    pub async fn rotate_master_key(&self, new: &str, now: Moment) -> Result<(), OpenFault> {
        let new = MasterKey::new(Some(new))?;
        let (session, store) = (self.pool().begin().await?, self.clone());
        let rotated = session.run(move |tx| Ok(store.vault().rotate_master(tx, &new)));
        rotated.await??;
        // A process that runs under the old master key notices at once, and logs it.
        Ok(self.end_keys(session, now).await?)
    }

    /// Changes the keys within a transaction, and ends it.
    async fn edit_keys(
        &self,
        session: OpenTransaction,
        edit: KeyEdit,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let store = self.clone();
        let edited = session.run(move |tx| Ok(store.vault().edit(tx, edit)));
        let keyring = edited.await??;
        self.end_keys(session, now).await?;
        // Adopted after the commit: a key that a rollback takes back must not seal anything.
        self.keyring().follow(&keyring);
        Ok(())
    }

    async fn end_keys(&self, session: OpenTransaction, now: Moment) -> Result<(), Error> {
        let ended = session.end(move |tx| {
            tx.changed(Change::SigningKeys, now);
            commit(tx)
        });
        self.settle(ended.await?).await;
        Ok(())
    }
}

/// Seals a SQLite database's mark again: the known text by which its keys are recognised.
fn reseal_mark(tx: &mut Tx) -> Result<u64, Error> {
    let keyring = tx.keyring();
    let sql = "UPDATE secrets SET value = $1 WHERE id = 'check' AND substr(value, 1, 8) <> $2";
    let (sealed, newest) = (keyring.seal(CHECK, CHECK), keyring.sealing_id().to_vec());
    tx.run(sql, &[&sealed, &newest])
}
