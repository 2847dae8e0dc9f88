//! Commands that one node sends another through the database, about a call that is up there. Each command is taken once, by the addressed
//! node; the sender polls for the answer, and withdraws a command that was not taken. Its age is judged by the database's clock: those of the two
//! nodes may differ by more than it is valid for.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::clock::{by_its_clock, length};
use crate::driver::column::from_row;
use crate::driver::error::Error;
use crate::driver::ids::id_at;
use crate::driver::tx::Tx;

/// Age after which a command is deleted, when the next one is sent.
const KEPT: Duration = Duration::from_secs(60);

/// A command for a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeCommand {
    /// Id of the command.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The call.
    pub call_id: Uuid,
    /// The command, as JSON.
    pub what: String,
}
from_row!(NodeCommand {
    id,
    org_id,
    call_id,
    what
});

/// State of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandState {
    /// The node has not taken the command. The sender withdraws it after five seconds.
    Waits,
    /// The node is carrying the command out. The sender waits until 25 seconds have passed since it sent the command.
    Taken,
    /// The command is done or refused: an HTTP status, and a body or a sentence.
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

/// Sends a command to a node; returns its id.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn put(
    tx: &mut Tx,
    org: Uuid,
    call: Uuid,
    node: u8,
    what: &str,
    now: Moment,
) -> Result<Uuid, Error> {
    let id = id_at(now);
    // A node that died after it had sent a command never deletes that command: each new one deletes all old ones.
    let old = by_its_clock!(tx, "DELETE FROM asks WHERE asked_at < ", " - $1");
    tx.run(old, &[&length(KEPT)])?;
    let sql = by_its_clock!(
        tx,
        "INSERT INTO asks (id, node, org_id, call_id, what, asked_at) VALUES ($1, $2, $3, $4, $5, ",
        ")"
    );
    tx.run(sql, &[&id, &node, &org, &call, &what])?;
    tx.mark_internal();
    Ok(id)
}

/// Returns whether commands to this node that aren't older than `age` wait to be taken.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn are_waiting(tx: &mut Tx, node: u8, age: Duration) -> Result<bool, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT 1 FROM asks WHERE node = $1 AND asked_at >= ",
        " - $2 AND taken_at IS NULL LIMIT 1"
    );
    let some: Option<(i64,)> = tx.one(sql, &[&node, &length(age)])?;
    Ok(some.is_some())
}

/// Takes the commands to this node that aren't older than `age`, each once.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn take(tx: &mut Tx, node: u8, age: Duration, now: Moment) -> Result<Vec<NodeCommand>, Error> {
    let sql = by_its_clock!(
        tx,
        "UPDATE asks SET taken_at = $3 WHERE node = $1 AND asked_at >= ",
        " - $2 AND taken_at IS NULL RETURNING id, org_id, call_id, what"
    );
    let taken = tx.all(sql, &[&node, &length(age), &now])?;
    tx.mark_internal();
    Ok(taken)
}

/// Stores the answer to a command.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn answer(tx: &mut Tx, ask: Uuid, status: u16, answer: &str) -> Result<(), Error> {
    let sql = "UPDATE asks SET status = $2, answer = $3 WHERE id = $1";
    tx.run(sql, &[&ask, &status, &answer])?;
    tx.mark_internal();
    Ok(())
}

/// Returns the state of a command. One that no longer exists counts as [`CommandState::Waits`]: its answer will not come.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn state(tx: &mut Tx, org: Uuid, ask: Uuid) -> Result<CommandState, Error> {
    let sql = "SELECT taken_at, status, answer FROM asks WHERE org_id = $1 AND id = $2";
    let row: Option<Row> = tx.one(sql, &[&org, &ask])?;
    Ok(row.map_or(CommandState::Waits, |row| {
        let status = row.status.and_then(|status| u16::try_from(status).ok());
        match (status, row.answer, row.taken_at) {
            (Some(status), Some(answer), _) => CommandState::Answered(status, answer),
            (_, _, Some(_)) => CommandState::Taken,
            (_, _, None) => CommandState::Waits,
        }
    }))
}

/// Withdraws a command that the node hasn't taken. Returns true if so: it never will.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn withdraw(tx: &mut Tx, org: Uuid, ask: Uuid) -> Result<bool, Error> {
    let sql = "DELETE FROM asks WHERE org_id = $1 AND id = $2 AND taken_at IS NULL";
    let withdrawn = tx.run(sql, &[&org, &ask])?;
    tx.mark_internal();
    Ok(withdrawn > 0)
}

/// Forgets a command, with its answer.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn forget(tx: &mut Tx, org: Uuid, ask: Uuid) -> Result<(), Error> {
    let sql = "DELETE FROM asks WHERE org_id = $1 AND id = $2";
    tx.run(sql, &[&org, &ask])?;
    tx.mark_internal();
    Ok(())
}
