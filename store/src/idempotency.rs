//! Answers that are kept, so that a request which is sent again does its work once.
//!
//! An entry is of one credential, method, path and key. It begins as a claim without an answer, which ends at the next start of its
//! node if that one dies, or by itself; then the answer takes its place, sealed, for as long as answers are kept. It is committed with what
//! the request did: a node that dies has either done and answered it, or neither.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Store;
use super::column::{from_row, maybe, micros, moment, small, to_json};
use super::effects::Effects;
use super::error::{Broke, Error};
use super::pool::{execute, fetch_optional};
use super::tx::Tx;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long a claim stands without an answer: longer than any request takes.
const CLAIMED: Duration = Duration::from_secs(120);

/// Which request it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The key of the org or partner.
    pub credential: Uuid,
    /// The method.
    pub method: &'static str,
    /// The path, as it was asked for.
    pub path: String,
    /// The client's name for the request.
    pub key: String,
    /// What the body says, as a hash.
    pub body: [u8; 32],
    /// SHA-256 of the body's octets, which earlier versions compared.
    pub octets: [u8; 32],
}

/// An answer as it is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The status.
    pub status: u16,
    /// What is said: a refusal's sentence, or else the whole body.
    pub text: String,
    /// Whether `text` is a refusal's sentence.
    pub refusal: bool,
}

/// What is known of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Nothing: it is the asker's to do now.
    Ours,
    /// Somebody does it at this moment.
    UnderWay,
    /// The key was used with another body.
    OtherBody,
    /// It has been done.
    Done(Kept),
}

#[derive(Debug)]
struct Row {
    body_hash: Vec<u8>,
    status: Option<u16>,
    answer: Option<Vec<u8>>,
    expires_at: Moment,
}
from_row!(Row {
    body_hash,
    status: maybe(small),
    answer,
    expires_at: moment,
});

/// The kept answers.
#[derive(Copy, Clone, Debug)]
pub struct Idempotency<'s>(&'s Store);

impl Store {
    /// The kept answers.
    pub fn idempotency(&self) -> Idempotency<'_> {
        Idempotency(self)
    }
}

const OF_REQUEST: &str = "SELECT body_hash, status, answer, expires_at FROM idempotency_keys
                          WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4";

impl Idempotency<'_> {
    /// Looks the request up, and claims it for `node` if nobody has.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn claim(self, asked: &Asked, node: Option<u8>, now: Moment) -> Result<Claim, Error> {
        if let Some(claim) = self.look_up(asked, now).await? {
            return Ok(claim);
        }
        let mut writing = self.0.pool().write().await?;
        // What has expired makes room for a new claim; of two at once one inserts or updates the row.
        let claimed = execute!(
            writing,
            "INSERT INTO idempotency_keys (credential_id, method, path, key, body_hash, expires_at, node)
             VALUES ($1, $2, $3, $4, $5, $6, $8)
             ON CONFLICT (credential_id, method, path, key) DO UPDATE
             SET body_hash = excluded.body_hash, status = NULL, answer = NULL, expires_at = excluded.expires_at,
                 node = excluded.node
             WHERE idempotency_keys.expires_at <= $7",
            asked.credential,
            asked.method,
            &asked.path,
            &asked.key,
            asked.body.as_slice(),
            micros(now + CLAIMED),
            micros(now),
            node.map(i64::from),
        )?;
        writing.commit().await?;
        match claimed {
            0 => Ok(self.look_up(asked, now).await?.unwrap_or(Claim::UnderWay)),
            _ => Ok(Claim::Ours),
        }
    }

    /// What is known of the request: `None` if nobody has claimed it.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn look_up(self, asked: &Asked, now: Moment) -> Result<Option<Claim>, Error> {
        let mut reading = self.0.pool().peek().await?;
        let row: Option<Row> = fetch_optional!(
            reading,
            OF_REQUEST,
            asked.credential,
            asked.method,
            &asked.path,
            &asked.key
        )?;
        let Some(row) = row.filter(|row| row.expires_at > now) else {
            return Ok(None);
        };
        Ok(Some(match (row.status, row.answer) {
            _ if row.body_hash != asked.body && row.body_hash != asked.octets => Claim::OtherBody,
            (Some(_), Some(sealed)) => {
                let plain = self.0.keyring().open(&context_of(asked), &sealed)?;
                Claim::Done(serde_json::from_slice(&plain).map_err(|_| Broke::Seal)?)
            }
            _ => Claim::UnderWay,
        }))
    }

    /// Keeps the answer to a claimed request, in one transaction with its effects, and waits until those are in force in this process.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone; the effects are undone then.
    pub async fn keep(
        self,
        asked: &Asked,
        kept: &Kept,
        effects: &Effects,
        now: Moment,
    ) -> Result<(), Error> {
        let sealed = self
            .0
            .keyring()
            .seal(&context_of(asked), to_json(kept).as_bytes());
        let asked = asked.clone();
        let status = kept.status;
        let answered = move |tx: &mut Tx| {
            let sql = "UPDATE idempotency_keys SET status = $5, answer = $6, expires_at = $7
                       WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4";
            let Asked {
                credential,
                method,
                path,
                key,
                ..
            } = &asked;
            tx.run(
                sql,
                &[
                    credential,
                    method,
                    path,
                    key,
                    &status,
                    &sealed,
                    &(now + KEPT),
                ],
            )?;
            Ok(())
        };
        match effects.take() {
            Some(writing) => {
                let committed = writing.end(answered).await?;
                self.0.settle(committed).await;
                Ok(())
            }
            None => self.0.write(answered).await,
        }
    }

    /// Gives a claim up: the request may be made again.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn give_up(self, asked: &Asked) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        execute!(
            writing,
            "DELETE FROM idempotency_keys
             WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4 AND status IS NULL",
            asked.credential,
            asked.method,
            &asked.path,
            &asked.key,
        )?;
        writing.commit().await
    }

    /// Gives up what earlier runs of the node have claimed and not answered: they are dead. Gives how many claims that were.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn free(self, node: u8) -> Result<u64, Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "DELETE FROM idempotency_keys WHERE node = $1 AND status IS NULL";
        let freed = execute!(writing, sql, i64::from(node))?;
        writing.commit().await?;
        Ok(freed)
    }

    /// Forgets what has expired.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn prune(self, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "DELETE FROM idempotency_keys WHERE expires_at <= $1";
        execute!(writing, sql, micros(now))?;
        writing.commit().await
    }
}

fn context_of(asked: &Asked) -> Vec<u8> {
    context(asked.credential, asked.method, &asked.path, &asked.key)
}

/// What the answer is sealed for: this request and no other.
pub(super) fn context(credential: Uuid, method: &str, path: &str, key: &str) -> Vec<u8> {
    let request = Sha256::new()
        .chain_update(credential)
        .chain_update(method)
        .chain_update([0])
        .chain_update(path)
        .chain_update([0])
        .chain_update(key)
        .finalize();
    [b"idempotency\0".as_slice(), &request].concat()
}
