//! The rows that an erasure changes, table by table, a bounded number in each transaction. Every step can be repeated: what is erased isn't
//! found again, and a call that was found stays known until no node needs it.

mod calls;
mod others;
mod told;

use std::collections::HashSet;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Store;
use super::column::{from_row, micros};
use super::erasures::{Erasures, OpenErasure};
use super::error::Error;
use super::pool::{execute, fetch_all};

/// Rows that are read at once, and at most changed in one transaction.
const ROWS_AT_ONCE: i64 = 200;
/// Time that others have the database between two transactions.
const PAUSE: Duration = Duration::from_millis(5);

/// What became of the rows of an erasure.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum RowsErased {
    /// All are erased.
    All,
    /// A call that began before the request is up: it is waited for.
    CallIsUp,
}

struct Known {
    call_id: Uuid,
    session_id: Option<Uuid>,
}
from_row!(Known {
    call_id,
    session_id
});

/// One node's search through the rows.
struct Search<'s> {
    store: &'s Store,
    erasure: &'s OpenErasure,
    /// Calls that were found, by any node.
    calls: HashSet<Uuid>,
    /// Their sessions.
    sessions: HashSet<Uuid>,
}

impl Erasures<'_> {
    /// Erases the rows of the database: everything from before the request that names the contact, its number or its address.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone; it can be repeated.
    pub async fn erase_rows(self, erasure: &OpenErasure, now: Moment) -> Result<RowsErased, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql = "SELECT call_id, session_id FROM erasure_calls WHERE erasure_id = $1";
        let known: Vec<Known> = fetch_all!(reading, sql, erasure.id)?;
        drop(reading);
        let mut search = Search {
            store: self.0,
            erasure,
            calls: known.iter().map(|row| row.call_id).collect(),
            sessions: known.iter().filter_map(|row| row.session_id).collect(),
        };
        if search.calls().await? == RowsErased::CallIsUp {
            return Ok(RowsErased::CallIsUp);
        }
        search.handoffs().await?;
        search.transfers().await?;
        search.events().await?;
        search.kept_answers().await?;
        search.node_commands(now).await?;
        search.failed_log_ins().await?;
        search.contacts().await?;
        search.configuration().await?;
        Ok(RowsErased::All)
    }
}

impl Search<'_> {
    fn requested_at(&self) -> i64 {
        micros(self.erasure.requested_at)
    }

    /// Whether a text names a session that was found.
    fn has_session(&self, text: &str) -> bool {
        Uuid::try_parse(text).is_ok_and(|id| self.sessions.contains(&id))
    }
}

impl Store {
    /// Overwrites what an embedded database still holds of deleted rows in its write-ahead log. False while a reader is in the way.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn truncate_log(&self) -> Result<bool, Error> {
        self.pool().truncate_log().await
    }
}
