//! One node's search through the rows of an erasure: the calls that it has found, and the iteration over a table in portions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::Store;
use crate::erasures::OpenErasure;
use crate::error::Error;
use crate::tx::Tx;

/// Rows that are read in one query, and the most that one transaction changes.
pub(super) const ROWS_AT_ONCE: i64 = 200;
/// Pause between two transactions, for other writers.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// Result of erasing the rows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum RowsErased {
    /// All are erased.
    All,
    /// A call that began before the request is up; the erasure waits for its end.
    CallIsUp,
}

/// One node's search through the rows.
#[derive(Clone)]
pub(super) struct Search {
    pub(super) erasure: OpenErasure,
    /// Calls found so far, by any node.
    pub(super) calls: HashSet<Uuid>,
    /// Their sessions.
    pub(super) sessions: HashSet<Uuid>,
}

/// Rows of a table, which are searched in the order of their positions.
pub(super) trait Searched: Sized + Send + 'static {
    /// Position of a row in the table's order.
    type Position: Clone + Send + 'static;

    /// Returns the position before the first row.
    fn start() -> Self::Position;

    fn place(&self) -> Self::Position;

    /// Reads the first rows after a position, [`ROWS_AT_ONCE`] at most.
    fn read(tx: &mut Tx, search: &Search, after: &Self::Position) -> Result<Vec<Self>, Error>;

    /// Returns whether the row mentions the contact.
    fn is_found(&self, search: &Search) -> bool;

    /// Erases the contact from the rows found, and counts them.
    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error>;
}

/// Searches a table, with one transaction for each portion of rows.
pub(super) async fn erase<R: Searched>(store: &Store, search: &Arc<Search>) -> Result<(), Error> {
    let mut place = R::start();
    loop {
        let (of, after) = (Arc::clone(search), place);
        let rows = store.read(move |tx| R::read(tx, &of, &after)).await?;
        let Some(last) = rows.last() else {
            return Ok(());
        };

        place = last.place();
        let found: Vec<R> = rows
            .into_iter()
            .filter(|row| row.is_found(search))
            .collect();
        if found.is_empty() {
            continue;
        }

        let of = Arc::clone(search);
        store.write(move |tx| R::erase(tx, &of, &found)).await?;

        tokio::time::sleep(PAUSE).await;
    }
}

impl Search {
    /// Returns whether a text names a session that was found.
    pub(super) fn has_session(&self, text: &str) -> bool {
        Uuid::try_parse(text).is_ok_and(|id| self.sessions.contains(&id))
    }
}
