//! Stored answers to requests with an `Idempotency-Key`, so that a repeated request does its work once.
//!
//! An entry belongs to one credential, method, path and key. It begins as a claim without an answer. If the claim's node dies, the claim
//! ends once the node has no lease any more, at its next start, or after two minutes, but not while another node carries out a command that the dead
//! one may have sent for it. The answer, sealed, replaces it, and is committed together with the effects of the request:
//! a node that dies has either done and answered it, or neither.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::clock::{by_its_clock, length};
use super::column::{from_row, maybe, moment, small, to_json};
use super::error::{Broke, Conflict, Error};
use super::tx::Tx;

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
}

#[derive(Debug)]
struct Row {
    body_hash: Vec<u8>,
    status: Option<u16>,
    answer: Option<Vec<u8>>,
    expires_at: Moment,
    node: Option<i64>,
    org_id: Option<Uuid>,
    attempt: Option<Uuid>,
}
from_row!(Row {
    body_hash,
    status: maybe(small),
    answer,
    expires_at: moment,
    node,
    org_id,
    attempt,
});

const OF_REQUEST: &str =
    "SELECT body_hash, status, answer, expires_at, node, org_id, attempt FROM idempotency_keys
                          WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4";

/// Age of a command to another node after which it is no longer carried out.
const CARRIED_OUT: Duration = Duration::from_secs(60);

impl Row {
    fn claim(self, tx: &mut Tx, asked: &RequestKey) -> Result<Claim, Error> {
        Ok(match (self.status, self.answer) {
            _ if self.body_hash != asked.body => Claim::OtherBody,
            (Some(_), Some(sealed)) => {
                let plain = tx.keyring().open(&context_of(asked), &sealed)?;
                Claim::Done(serde_json::from_slice(&plain).map_err(|_| Broke::Seal)?)
            }
            _ => Claim::InProgress,
        })
    }

    /// Returns whether nobody does the request any more: the node that did it has no lease, and no other node carries out a command of the org.
    fn is_abandoned(&self, tx: &mut Tx) -> Result<bool, Error> {
        let (None, Some(node)) = (self.status, self.node) else {
            return Ok(false);
        };
        let sql = by_its_clock!(
            tx,
            "SELECT 1 FROM nodes WHERE node = $1 AND lease_expires_at < ",
            ""
        );
        let gone: Option<(i64,)> = tx.one(sql, &[&node])?;
        if gone.is_none() {
            return Ok(false);
        }
        let sql = by_its_clock!(
            tx,
            "SELECT 1 FROM asks WHERE org_id = $1 AND status IS NULL AND asked_at >= ",
            " - $2 LIMIT 1"
        );
        let carried_out: Option<(i64,)> = tx.one(sql, &[&self.org_id, &length(CARRIED_OUT)])?;
        Ok(carried_out.is_none())
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
        Found::Row(row) => return row.claim(tx, asked),
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
             node = excluded.node, attempt = excluded.attempt, org_id = excluded.org_id
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
        Found::Row(row) => row.claim(tx, asked).map(Some),
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

/// Gives up the unanswered claims of earlier runs of the node, but those of orgs for which another node carries out a command: they end with their
/// time. Returns their number.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn free(tx: &mut Tx, node: u8) -> Result<u64, Error> {
    let sql = by_its_clock!(
        tx,
        "DELETE FROM idempotency_keys WHERE node = $1 AND status IS NULL AND NOT EXISTS (
             SELECT 1 FROM asks WHERE asks.org_id = idempotency_keys.org_id AND asks.status IS NULL AND asked_at >= ",
        " - $2)"
    );
    let freed = tx.run(sql, &[&node, &length(CARRIED_OUT)])?;
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
pub(super) fn context(credential: Uuid, method: &str, path: &str, key: &str) -> Vec<u8> {
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
