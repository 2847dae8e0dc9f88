//! The rotation of the keys: those that sign, those that seal, and the master key.
//!
//! A new sealing key is staged first: every process opens with it, none seals with it. Once all have followed the change feed it seals, and
//! what older keys have sealed is sealed anew. Then the older keys can go. Each step may be cut off and run again: no value is ever sealed
//! with a key that isn't kept.

use std::sync::Arc;

use trunkline_sip::moment::Moment;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::column::from_row;
use super::commit::commit;
use super::error::{Broke, Error};
use super::keyring::SealingId;
use super::open_fault::OpenFault;
use super::secrets::{CHECK, KeyEdit, MasterKey};
use super::threads::Session;
use super::tx::Tx;
use super::value::{Param, Record};
use super::{
    Change, Store, agents, erasures, idempotency, inbound_trunks, integrations, outbound_trunks,
    webhooks,
};

/// Rows that are sealed anew in one transaction: other writers wait for it.
const AT_ONCE: i64 = 500;

/// A column of sealed values.
#[derive(Debug)]
struct Column<R> {
    /// Its name, behind that of the table.
    column: &'static str,
    /// What is read of a row beside the value, and the row's own condition, from `$3` on.
    keys: (&'static str, &'static str),
    /// What a value is sealed for.
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
    /// Seals some values anew that the newest key hasn't sealed; gives how many, and `None` once there are none. What is written meanwhile stays.
    fn reseal_some(&self, tx: &mut Tx) -> Result<Option<u64>, Error> {
        let (Self { column, .. }, (read, is_row)) = (self, self.keys);
        let (table, name) = column.split_once('.').unwrap_or_default();
        let keyring = tx.keyring();
        let old = format!(
            "SELECT {read}, {name} AS value FROM {table} WHERE {name} IS NOT NULL AND substr({name}, 1, 8) <> $1 LIMIT $2"
        );
        let rows: Vec<R> = tx.all(old, &[&keyring.sealing_id().to_vec(), &AT_ONCE])?;

        if rows.is_empty() {
            tx.aside();
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
    /// Adds a signing key, with which every process signs as soon as it has followed the change feed: tokens of the others stay good.
    ///
    /// # Errors
    /// The keys can't be read or written; nothing was changed then.
    pub async fn rotate_signing_key(&self, now: Moment) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        self.edit_keys(session, KeyEdit::AddSigning, now).await
    }

    /// Retires a signing key: what it has signed is refused by every process that has followed the change feed, but for API keys whose
    /// token is kept. One that is retired already is told of again, to those whom a command that was cut off didn't tell.
    ///
    /// # Errors
    /// There is no such key, or it is the one that signs; or the keys can't be read or written. Nothing was changed then.
    pub async fn retire_signing_key(&self, kid: &str, now: Moment) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        let edit = KeyEdit::RetireSigning(kid.to_owned());
        self.edit_keys(session, edit, now).await
    }

    /// Adds a sealing key that every process knows once it has followed the change feed, and none seals with yet; gives its id.
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
    /// It is gone, or the keys can't be read or written; nothing was changed then.
    pub async fn use_staged_sealing_key(
        &self,
        staged: SealingId,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let session = self.pool().begin().await?;
        let edit = KeyEdit::UseStagedSealing(staged);
        self.edit_keys(session, edit, now).await
    }

    /// Seals anew what older keys have sealed; gives how many values.
    ///
    /// # Errors
    /// A value or the keys can't be read or written: what was sealed anew by then stays so.
    pub async fn reseal(&self) -> Result<u64, OpenFault> {
        let mut count = 0;
        for column in ["inbound_trunks.password", "old_credentials.password"] {
            count += self.reseal_column(Column::of_trunk(column)).await?;
        }

        let mut legs =
            Column::<OfId>::of_id("erasure_calls.legs", |row| erasures::legs_context(row.id));
        legs.keys = ("call_id AS id", "call_id = $3");

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
                    // Another rotation may have sealed it since the keys were followed, with a key that isn't known here yet.
                    self.follow_signing_keys().await?;
                    if self.keyring().sealing_id() == newest {
                        return Err(fault.into());
                    }
                }
            }
        }
    }

    /// Drops every sealing key but the one that seals, once it has sealed everything.
    ///
    /// # Errors
    /// [`OpenFault::StillSealed`] if somebody sealed with an older key meanwhile; or the keys can't be read or written. Nothing was dropped then.
    pub async fn retire_sealing_keys(&self, now: Moment) -> Result<(), OpenFault> {
        self.reseal().await?;
        let session = self.pool().begin().await?;
        let newest = self.keyring().sealing_id();
        let left = session.run(move |tx| tx.only(LEFT, &[&newest.to_vec()]));
        let (left,): (i64,) = left.await?;
        if left > 0 {
            return Err(OpenFault::StillSealed(left.unsigned_abs()));
        }
        let edit = KeyEdit::RetireSealing(newest);
        self.edit_keys(session, edit, now).await
    }

    /// Seals the keys that a PostgreSQL database holds under another master key. Processes that are open go on with the keys that they know;
    /// each needs the new master key at its next start.
    ///
    /// # Errors
    /// There is no master key, the new one is weak, or the keys can't be read or written; nothing was changed then.
    pub async fn rotate_master_key(&self, new: &str, now: Moment) -> Result<(), OpenFault> {
        let new = MasterKey::new(Some(new))?;
        let (session, store) = (self.pool().begin().await?, self.clone());
        let rotated = session.run(move |tx| Ok(store.vault().rotate_master(tx, &new)));
        rotated.await??;
        // Whoever runs under the old one finds that out at once, and says so.
        Ok(self.end_keys(session, now).await?)
    }

    /// Changes the keys within a transaction, and ends it.
    async fn edit_keys(
        &self,
        session: Session,
        edit: KeyEdit,
        now: Moment,
    ) -> Result<(), OpenFault> {
        let store = self.clone();
        let edited = session.run(move |tx| Ok(store.vault().edit(tx, edit)));
        let keyring = edited.await??;
        self.end_keys(session, now).await?;
        self.keyring().follow(&keyring);
        Ok(())
    }

    async fn end_keys(&self, session: Session, now: Moment) -> Result<(), Error> {
        let ended = session.end(move |tx| {
            tx.changed(Change::SigningKeys, now);
            commit(tx)
        });
        self.settle(ended.await?).await;
        Ok(())
    }
}

/// Seals the known text anew that a SQLite database has of its keys.
fn reseal_mark(tx: &mut Tx) -> Result<u64, Error> {
    let keyring = tx.keyring();
    let sql = "UPDATE secrets SET value = $1 WHERE id = 'check' AND substr(value, 1, 8) <> $2";
    let (sealed, newest) = (keyring.seal(CHECK, CHECK), keyring.sealing_id().to_vec());
    tx.run(sql, &[&sealed, &newest])
}
