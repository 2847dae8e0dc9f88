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

use super::column::{from_row, maybe, moment, small, to_json};
use super::error::{Broke, Error};
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

const OF_REQUEST: &str = "SELECT body_hash, status, answer, expires_at FROM idempotency_keys
                          WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4";

/// Looks the request up, and claims it for `node` if nobody has.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn claim(tx: &mut Tx, asked: &Asked, node: Option<u8>, now: Moment) -> Result<Claim, Error> {
    tx.aside();

    if let Some(claim) = look_up(tx, asked, now)? {
        return Ok(claim);
    }

    // What has expired makes room for a new claim; of two at once one inserts or updates the row.
    let claimed = tx.run(
        "INSERT INTO idempotency_keys (credential_id, method, path, key, body_hash, expires_at, node)
         VALUES ($1, $2, $3, $4, $5, $6, $8)
         ON CONFLICT (credential_id, method, path, key) DO UPDATE
         SET body_hash = excluded.body_hash, status = NULL, answer = NULL, expires_at = excluded.expires_at,
             node = excluded.node
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
        ],
    )?;
    match claimed {
        0 => Ok(look_up(tx, asked, now)?.unwrap_or(Claim::UnderWay)),
        _ => Ok(Claim::Ours),
    }
}

/// What is known of the request: `None` if nobody has claimed it.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn look_up(tx: &mut Tx, asked: &Asked, now: Moment) -> Result<Option<Claim>, Error> {
    let row: Option<Row> = tx.one(
        OF_REQUEST,
        &[&asked.credential, &asked.method, &asked.path, &asked.key],
    )?;
    let Some(row) = row.filter(|row| row.expires_at > now) else {
        return Ok(None);
    };
    Ok(Some(match (row.status, row.answer) {
        _ if row.body_hash != asked.body && row.body_hash != asked.octets => Claim::OtherBody,
        (Some(_), Some(sealed)) => {
            let plain = tx.keyring().open(&context_of(asked), &sealed)?;
            Claim::Done(serde_json::from_slice(&plain).map_err(|_| Broke::Seal)?)
        }
        _ => Claim::UnderWay,
    }))
}

/// Keeps the answer to a claimed request.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn keep(tx: &mut Tx, asked: &Asked, kept: &Kept, now: Moment) -> Result<(), Error> {
    let sealed = tx
        .keyring()
        .seal(&context_of(asked), to_json(kept).as_bytes());
    let sql = "UPDATE idempotency_keys SET status = $5, answer = $6, expires_at = $7
               WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4";

    let Asked {
        credential,
        method,
        path,
        key,
        ..
    } = asked;

    let until = now + KEPT;
    tx.run(
        sql,
        &[credential, method, path, key, &kept.status, &sealed, &until],
    )?;

    Ok(())
}

/// Gives a claim up: the request may be made again.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn give_up(tx: &mut Tx, asked: &Asked) -> Result<(), Error> {
    tx.aside();
    tx.run(
        "DELETE FROM idempotency_keys
         WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4 AND status IS NULL",
        &[&asked.credential, &asked.method, &asked.path, &asked.key],
    )?;
    Ok(())
}

/// Gives up what earlier runs of the node have claimed and not answered: they are dead. Gives how many claims that were.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn free(tx: &mut Tx, node: u8) -> Result<u64, Error> {
    let sql = "DELETE FROM idempotency_keys WHERE node = $1 AND status IS NULL";
    let freed = tx.run(sql, &[&node])?;
    Ok(freed)
}

/// Forgets what has expired.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn prune(tx: &mut Tx, now: Moment) -> Result<(), Error> {
    let sql = "DELETE FROM idempotency_keys WHERE expires_at <= $1";
    tx.run(sql, &[&now])?;
    Ok(())
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
