//! What one node asks another to do with a call that is up there, and what came of it. Each is taken up once, by the node that is asked;
//! whoever asks looks for the answer, and takes back what nobody has taken up.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, micros};
use super::error::Error;
use super::pool::{execute, fetch_all, fetch_optional};
use super::{Store, id_at};

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

/// The asks.
#[derive(Copy, Clone, Debug)]
pub struct Asks<'s>(&'s Store);

impl Store {
    /// The asks.
    pub fn asks(&self) -> Asks<'_> {
        Asks(self)
    }
}

impl Asks<'_> {
    /// Asks a node.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn put(
        self,
        (org, call): (Uuid, Uuid),
        node: u8,
        what: &str,
        now: Moment,
    ) -> Result<Uuid, Error> {
        let id = id_at(now);
        let mut writing = self.0.pool().write().await?;
        let old = "DELETE FROM asks WHERE asked_at < $1";
        execute!(writing, old, micros(now - KEPT))?;
        let sql = "INSERT INTO asks (id, node, org_id, call_id, what, asked_at) VALUES ($1, $2, $3, $4, $5, $6)";
        execute!(
            writing,
            sql,
            id,
            i64::from(node),
            org,
            call,
            what,
            micros(now)
        )?;
        writing.commit_aside().await?;
        Ok(id)
    }

    /// What this node is asked since then, each once.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn take(self, node: u8, since: Moment, now: Moment) -> Result<Vec<Ask>, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql =
            "SELECT 1 FROM asks WHERE node = $1 AND asked_at >= $2 AND taken_at IS NULL LIMIT 1";
        let some: Option<(i64,)> = fetch_optional!(reading, sql, i64::from(node), micros(since))?;
        drop(reading);
        if some.is_none() {
            return Ok(Vec::new());
        }
        let mut writing = self.0.pool().write().await?;
        let sql =
            "UPDATE asks SET taken_at = $3 WHERE node = $1 AND asked_at >= $2 AND taken_at IS NULL
             RETURNING id, org_id, call_id, what";
        let taken = fetch_all!(writing, sql, i64::from(node), micros(since), micros(now))?;
        writing.commit_aside().await?;
        Ok(taken)
    }

    /// What came of it.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn answer(self, ask: Uuid, status: u16, answer: &str) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "UPDATE asks SET status = $2, answer = $3 WHERE id = $1";
        execute!(writing, sql, ask, i64::from(status), answer)?;
        writing.commit_aside().await
    }

    /// How far it has come.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn state(self, org: Uuid, ask: Uuid) -> Result<Asking, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql = "SELECT taken_at, status, answer FROM asks WHERE org_id = $1 AND id = $2";
        let row: Option<Row> = fetch_optional!(reading, sql, org, ask)?;
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
    pub async fn forget(self, org: Uuid, ask: Uuid) -> Result<bool, Error> {
        let mut writing = self.0.pool().write().await?;
        let sql =
            "DELETE FROM asks WHERE org_id = $1 AND id = $2 RETURNING taken_at, status, answer";
        let gone: Option<Row> = fetch_optional!(writing, sql, org, ask)?;
        writing.commit_aside().await?;
        Ok(gone.is_some_and(|row| row.taken_at.is_none()))
    }
}
