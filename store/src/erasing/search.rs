//! One node's search through the rows of an erasure: the calls that it has found, and the iteration over a table in portions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::access::store::Store;
use crate::driver::error::Error;
use crate::driver::tx::Tx;
use crate::erasing::erasures::{Erased, OpenErasure, count};

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
    /// A call from before the request is still in progress; the erasure waits for its end.
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
    /// Session and time of the handoffs that name the contact, as events and stored answers have them.
    pub(super) handoffs: HashSet<(String, String)>,
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

    /// Excludes other changes of the rows until the commit.
    fn lock(_: &mut Tx, _: &Search) -> Result<(), Error> {
        Ok(())
    }

    /// Erases the contact from the rows found, and counts them.
    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error>;
}

/// Searches a table, with one transaction for each portion of rows.
pub(super) async fn erase<R: Searched>(store: &Store, search: &Arc<Search>) -> Result<(), Error> {
    let mut place = R::start();
    loop {
        let (of, from, after) = (Arc::clone(search), place.clone(), place);
        let rows = store.read(move |tx| R::read(tx, &of, &from)).await?;
        let Some(last) = rows.last() else {
            return Ok(());
        };

        let mut next = last.place();

        // Most portions mention nobody, and cost no transaction that writes.
        if rows.iter().any(|row| row.is_found(search)) {
            let of = Arc::clone(search);
            let erased = store.write(move |tx| erase_after::<R>(tx, &of, &after));
            // A row that was inserted in between takes the place of the portion's last one, which is searched next.
            if let Some(searched_to) = erased.await? {
                next = searched_to;
            }
            tokio::time::sleep(PAUSE).await;
        }

        place = next;
    }
}

/// Erases the contact from the first rows after a position, and returns the position of the last one. The rows are read again under locks:
/// since the first read another node may have erased and counted them, and a request may have changed them.
fn erase_after<R: Searched>(
    tx: &mut Tx,
    search: &Search,
    after: &R::Position,
) -> Result<Option<R::Position>, Error> {
    R::lock(tx, search)?;
    // Locks the erasure: of two nodes, one finds the rows and counts them.
    count(tx, search.erasure.id, &Erased::default())?;

    let mut found = R::read(tx, search, after)?;
    let searched_to = found.last().map(R::place);
    found.retain(|row| row.is_found(search));
    if !found.is_empty() {
        R::erase(tx, search, &found)?;
    }
    Ok(searched_to)
}

impl Search {
    /// Returns whether a text names a session that was found.
    pub(super) fn has_session(&self, text: &str) -> bool {
        Uuid::try_parse(text).is_ok_and(|id| self.sessions.contains(&id))
    }
}
