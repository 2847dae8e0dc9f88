//! Stored answers to requests with an `Idempotency-Key`, so that a repeated request does its work once.
//!
//! An entry belongs to one credential, method, path and key. It begins as a claim without an answer. If the claim's node dies, the claim
//! ends once the node has no lease any more, at its next start, or after two minutes. The answer, sealed, replaces it, and is committed together
//! with the effects of the request: a node that dies has either done and answered it, or neither.
//!
//! A call can't be rolled back. Before one is placed or transferred, here or by another node, the claim is marked as begun ([`begin`]), which
//! fails if the claim has ended: a node that was held up places nothing that another attempt may have placed. A begun claim is never free, whatever
//! becomes of its node. Without an answer its outcome stays unknown.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::clock::by_its_clock;
use crate::driver::column::{from_row, maybe, moment, small, to_json};
use crate::driver::error::{Broke, Conflict, Error};
use crate::driver::tx::Tx;

/// Time for which an answer is stored.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Time for which a claim holds without an answer: longer than any request takes.
const CLAIMED: Duration = Duration::from_secs(120);

/// Identity of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKey {
    /// The key of the org or partner.
    pub credential: Uuid,
    /// The org that the request is about, for which its answer is searched and deleted; `None` for a partner's own.
    pub org: Option<Uuid>,
    /// This attempt, which holds the claim: another one that comes once the claim has ended has an id of its own.
    pub attempt: Uuid,
    /// The method.
    pub method: &'static str,
    /// The path as requested.
    pub path: String,
    /// The `Idempotency-Key`.
    pub key: String,
    /// Hash of the body's meaning.
    pub body: [u8; 32],
}

/// A stored answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// The status.
    pub status: u16,
    /// A refusal's sentence, or else the whole body.
    pub text: String,
    /// `text` is a refusal's sentence.
    pub refusal: bool,
    /// The `ETag`; `None` for an answer that shows no object with a version.
    #[serde(default)]
    pub etag: Option<String>,
}

/// State of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The request is new, and claimed for the caller, who has to do it now.
    New,
    /// Another attempt is doing the request. This state ends with its answer, or with its claim, two minutes after it began.
    InProgress,
    /// The key was used with another body.
    OtherBody,
    /// The request is done.
    Done(StoredAnswer),
    /// The request was begun, and nobody will answer it any more: what it was to do may be done.
    Unknown,
}

#[derive(Debug)]
struct Row {
    body_hash: Vec<u8>,
    status: Option<u16>,
    answer: Option<Vec<u8>>,
    expires_at: Moment,
    node: Option<i64>,
    attempt: Option<Uuid>,
    begun_at: Option<Moment>,
}
from_row!(Row {
    body_hash,
    status: maybe(small),
    answer,
    expires_at: moment,
    node,
    attempt,
    begun_at: maybe(moment),
});

const OF_REQUEST: &str =
    "SELECT body_hash, status, answer, expires_at, node, attempt, begun_at FROM idempotency_keys
                          WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4";

impl Row {
    fn claim(self, tx: &mut Tx, asked: &RequestKey, now: Moment) -> Result<Claim, Error> {
        Ok(match (&self.status, &self.answer, self.begun_at) {
            _ if self.body_hash != asked.body => Claim::OtherBody,
            (Some(_), Some(sealed), _) => {
                let plain = tx.keyring().open(&context_of(asked), sealed)?;
                Claim::Done(serde_json::from_slice(&plain).map_err(|_| Broke::Seal)?)
            }
            (_, _, Some(begun_at)) if begun_at + CLAIMED <= now || self.is_left(tx)? => {
                Claim::Unknown
            }
            _ => Claim::InProgress,
        })
    }

    /// Returns whether the request may be made by another attempt, since nobody does it any more and nothing of it can have been done.
    fn is_abandoned(&self, tx: &mut Tx) -> Result<bool, Error> {
        let is_open = self.status.is_none() && self.node.is_some();
        Ok(is_open && self.begun_at.is_none() && self.is_left(tx)?)
    }

    /// Returns whether the node of the claim has no lease, or has begun another run.
    fn is_left(&self, tx: &mut Tx) -> Result<bool, Error> {
        let Some(node) = self.node else {
            return Ok(true);
        };
        let sql = by_its_clock!(
            tx,
            "SELECT 1 FROM nodes WHERE node = $1 AND lease_expires_at < ",
            ""
        );
        let gone: Option<(i64,)> = tx.one(sql, &[&node])?;
        Ok(gone.is_some())
    }
}

/// Looks the request up, and claims it for `node` if it is new.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn claim(
    tx: &mut Tx,
    asked: &RequestKey,
    node: Option<u8>,
    now: Moment,
) -> Result<Claim, Error> {
    tx.mark_internal();

    match found(tx, asked, now)? {
        Found::Nothing => {}
        Found::Row(row) => return row.claim(tx, asked, now),
        Found::Abandoned(attempt) => {
            let sql = "DELETE FROM idempotency_keys WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4
                           AND attempt = $5 AND status IS NULL";
            // This attempt's and no other: another node may have claimed the request meanwhile.
            tx.run(
                sql,
                &[
                    &asked.credential,
                    &asked.method,
                    &asked.path,
                    &asked.key,
                    &attempt,
                ],
            )?;
        }
    }

    // An expired row makes room for a new claim; of two transactions at once one inserts or updates the row.
    let claimed = tx.run(
        "INSERT INTO idempotency_keys (credential_id, method, path, key, body_hash, expires_at, node, attempt, org_id)
         VALUES ($1, $2, $3, $4, $5, $6, $8, $9, $10)
         ON CONFLICT (credential_id, method, path, key) DO UPDATE
         SET body_hash = excluded.body_hash, status = NULL, answer = NULL, expires_at = excluded.expires_at,
             node = excluded.node, attempt = excluded.attempt, org_id = excluded.org_id, begun_at = NULL
         WHERE idempotency_keys.expires_at <= $7",
        &[
            &asked.credential,
            &asked.method,
            &asked.path,
            &asked.key,
            &asked.body,
            &(now + CLAIMED),
            &now,
            &node,
            &asked.attempt,
            &asked.org,
        ],
    )?;

    match claimed {
        // If the other claim was given up just now, the client has to try again.
        0 => Ok(look_up(tx, asked, now)?.unwrap_or(Claim::InProgress)),
        _ => Ok(Claim::New),
    }
}

/// Returns the state of the request; `None` if it is unclaimed.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn look_up(tx: &mut Tx, asked: &RequestKey, now: Moment) -> Result<Option<Claim>, Error> {
    match found(tx, asked, now)? {
        Found::Nothing | Found::Abandoned(_) => Ok(None),
        Found::Row(row) => row.claim(tx, asked, now).map(Some),
    }
}

/// Entry of a request.
enum Found {
    Nothing,
    /// A claim that nobody works on, by its attempt.
    Abandoned(Option<Uuid>),
    Row(Row),
}

fn found(tx: &mut Tx, asked: &RequestKey, now: Moment) -> Result<Found, Error> {
    let row: Option<Row> = tx.one(
        OF_REQUEST,
        &[&asked.credential, &asked.method, &asked.path, &asked.key],
    )?;
    // An expired row counts as none, and `claim` overwrites it.
    let Some(row) = row.filter(|row| row.expires_at > now) else {
        return Ok(Found::Nothing);
    };
    Ok(match row.is_abandoned(tx)? {
        true => Found::Abandoned(row.attempt),
        false => Found::Row(row),
    })
}

/// Marks a claimed request as begun: what follows can't be rolled back. The claim now lasts as long as an answer does. May be repeated.
///
/// # Errors
/// [`Conflict::ClaimEnded`]: another attempt may be making the request, so that this one must do nothing.
pub fn begin(tx: &mut Tx, asked: &RequestKey, now: Moment) -> Result<(), Error> {
    tx.mark_internal();
    let sql = "UPDATE idempotency_keys SET begun_at = $6, expires_at = $7
               WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4 AND attempt = $5 AND status IS NULL";
    let begun = tx.run(
        sql,
        &[
            &asked.credential,
            &asked.method,
            &asked.path,
            &asked.key,
            &asked.attempt,
            &now,
            &(now + KEPT),
        ],
    )?;
    match begun {
        0 => Err(Conflict::ClaimEnded.into()),
        _ => Ok(()),
    }
}

/// Stores the answer to a claimed request.
///
/// # Errors
/// [`Conflict::ClaimEnded`]: the changes of the request must be rolled back, since another attempt may have made them.
pub fn keep(
    tx: &mut Tx,
    asked: &RequestKey,
    kept: &StoredAnswer,
    now: Moment,
) -> Result<(), Error> {
    let sealed = tx
        .keyring()
        .seal(&context_of(asked), to_json(kept).as_bytes());
    let sql = "UPDATE idempotency_keys SET status = $5, answer = $6, expires_at = $7
               WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4
                 AND attempt = $8 AND status IS NULL";

    let RequestKey {
        credential,
        method,
        path,
        key,
        attempt,
        ..
    } = asked;

    let until = now + KEPT;
    let stored = tx.run(
        sql,
        &[
            credential,
            method,
            path,
            key,
            &kept.status,
            &sealed,
            &until,
            attempt,
        ],
    )?;

    match stored {
        0 => Err(Conflict::ClaimEnded.into()),
        _ => Ok(()),
    }
}

/// Gives up a claim, so that the request may be made again.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn give_up(tx: &mut Tx, asked: &RequestKey) -> Result<(), Error> {
    tx.mark_internal();
    tx.run(
        "DELETE FROM idempotency_keys
         WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4 AND attempt = $5 AND status IS NULL",
        &[
            &asked.credential,
            &asked.method,
            &asked.path,
            &asked.key,
            &asked.attempt,
        ],
    )?;
    Ok(())
}

/// Gives up the unanswered claims of earlier runs of the node, and returns their number. Those that were begun stay, and have no node any more.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn free(tx: &mut Tx, node: u8) -> Result<u64, Error> {
    let sql =
        "DELETE FROM idempotency_keys WHERE node = $1 AND status IS NULL AND begun_at IS NULL";
    let freed = tx.run(sql, &[&node])?;
    let sql = "UPDATE idempotency_keys SET node = NULL WHERE node = $1 AND status IS NULL";
    tx.run(sql, &[&node])?;
    Ok(freed)
}

/// Deletes expired entries.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn prune(tx: &mut Tx, now: Moment) -> Result<(), Error> {
    let sql = "DELETE FROM idempotency_keys WHERE expires_at <= $1";
    tx.run(sql, &[&now])?;
    Ok(())
}

fn context_of(asked: &RequestKey) -> Vec<u8> {
    context(asked.credential, asked.method, &asked.path, &asked.key)
}

/// Returns the context under which the answer is sealed: this request and no other.
pub(crate) fn context(credential: Uuid, method: &str, path: &str, key: &str) -> Vec<u8> {
    // The zeros keep the parts apart: no two requests run together into the same octets.
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
