//! What one node asks another to do with a call that is up there, and what came of it. Each is taken up once, by the node that is asked;
//! whoever asks looks for the answer, and takes back what nobody has taken up.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::from_row;
use super::error::Error;
use super::id_at;
use super::tx::Tx;

/// What is older than this is nobody's any more.
const KEPT: Duration = Duration::from_secs(60);

/// What a node is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Its id.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its call.
    pub call_id: Uuid,
    /// What is to be done, as JSON.
    pub what: String,
}
from_row!(Ask {
    id,
    org_id,
    call_id,
    what
});

/// How far an ask has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asking {
    /// Nobody has taken it up.
    Waits,
    /// It is being done.
    Taken,
    /// It is done, or refused: an HTTP status, and a body or a sentence.
    Answered(u16, String),
}

struct Row {
    taken_at: Option<i64>,
    status: Option<i64>,
    answer: Option<String>,
}
from_row!(Row {
    taken_at,
    status,
    answer
});

/// Asks a node.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn put(
    tx: &mut Tx,
    (org, call): (Uuid, Uuid),
    node: u8,
    what: &str,
    now: Moment,
) -> Result<Uuid, Error> {
    let id = id_at(now);
    let old = "DELETE FROM asks WHERE asked_at < $1";
    tx.run(old, &[&(now - KEPT)])?;
    let sql = "INSERT INTO asks (id, node, org_id, call_id, what, asked_at) VALUES ($1, $2, $3, $4, $5, $6)";
    tx.run(sql, &[&id, &node, &org, &call, &what, &now])?;
    tx.aside();
    Ok(id)
}

/// Whether this node is asked something since then that it hasn't taken.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn are_waiting(tx: &mut Tx, node: u8, since: Moment) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM asks WHERE node = $1 AND asked_at >= $2 AND taken_at IS NULL LIMIT 1";
    let some: Option<(i64,)> = tx.one(sql, &[&node, &since])?;
    Ok(some.is_some())
}

/// What this node is asked since then, each once.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn take(tx: &mut Tx, node: u8, since: Moment, now: Moment) -> Result<Vec<Ask>, Error> {
    let sql =
        "UPDATE asks SET taken_at = $3 WHERE node = $1 AND asked_at >= $2 AND taken_at IS NULL
         RETURNING id, org_id, call_id, what";
    let taken = tx.all(sql, &[&node, &since, &now])?;
    tx.aside();
    Ok(taken)
}

/// What came of it.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn answer(tx: &mut Tx, ask: Uuid, status: u16, answer: &str) -> Result<(), Error> {
    let sql = "UPDATE asks SET status = $2, answer = $3 WHERE id = $1";
    tx.run(sql, &[&ask, &status, &answer])?;
    tx.aside();
    Ok(())
}

/// How far it has come.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn state(tx: &mut Tx, org: Uuid, ask: Uuid) -> Result<Asking, Error> {
    let sql = "SELECT taken_at, status, answer FROM asks WHERE org_id = $1 AND id = $2";
    let row: Option<Row> = tx.one(sql, &[&org, &ask])?;
    Ok(row.map_or(Asking::Waits, |row| {
        let status = row.status.and_then(|status| u16::try_from(status).ok());
        match (status, row.answer, row.taken_at) {
            (Some(status), Some(answer), _) => Asking::Answered(status, answer),
            (_, _, Some(_)) => Asking::Taken,
            (_, _, None) => Asking::Waits,
        }
    }))
}

/// Forgets an ask. True if nobody had taken it up, and nobody will.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn forget(tx: &mut Tx, org: Uuid, ask: Uuid) -> Result<bool, Error> {
    let sql = "DELETE FROM asks WHERE org_id = $1 AND id = $2 RETURNING taken_at, status, answer";
    let gone: Option<Row> = tx.one(sql, &[&org, &ask])?;
    tx.aside();
    Ok(gone.is_some_and(|row| row.taken_at.is_none()))
}
