//! The database rows that an erasure changes, table by table, a bounded number in each transaction. Every step can be repeated: an erased
//! row isn't found again, and a call that was found stays known until no node needs it.

mod calls;
pub mod erasures;
mod events;
mod others;
mod search;
pub(crate) mod subject;

use std::collections::HashSet;
use std::sync::Arc;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

pub use search::RowsErased;
use search::{Search, erase};

use crate::access::store::Store;
use crate::driver::column::{from_row, moment, written};
use crate::driver::error::Error;
use crate::erasing::erasures::OpenErasure;

struct CallOfContact {
    call_id: Uuid,
    session_id: Option<Uuid>,
}
from_row!(CallOfContact {
    call_id,
    session_id
});

struct HandoffOfContact {
    session_id: String,
    created_at: Moment,
}
from_row!(HandoffOfContact {
    session_id,
    created_at: moment
});

/// Erases the rows of the database that are older than the request and name the contact, its number or its address. Returns
/// [`RowsErased::CallIsUp`] while an older call of the contact, or one that was transferred to it, is up: the caller tries again later.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke); the erasure can then be repeated.
pub async fn erase_rows(
    store: &Store,
    erasure: &OpenErasure,
    now: Moment,
) -> Result<RowsErased, Error> {
    let mut search = Arc::new(Search {
        erasure: erasure.clone(),
        calls: HashSet::new(),
        sessions: HashSet::new(),
        handoffs: HashSet::new(),
    });
    add_found_calls(store, &mut search).await?;

    // Calls come first, since the other tables are also searched for the calls and sessions that are found here.
    if calls::erase(store, &mut search).await? == RowsErased::CallIsUp {
        return Ok(RowsErased::CallIsUp);
    }
    // Another node may have erased some of them since this pass began.
    add_found_calls(store, &mut search).await?;

    // Checked before any transfer is erased, since the next pass has to find the transfer again.
    if calls::is_transferred_call_up(store, &search).await? {
        return Ok(RowsErased::CallIsUp);
    }

    add_handoffs(store, &mut search).await?;
    erase::<calls::TransferRow>(store, &search).await?;
    erase::<events::EventRow>(store, &search).await?;
    erase::<others::AnswerRow>(store, &search).await?;
    // After what is found by the handoffs of the contact: a pass that is interrupted has to find them again.
    erase::<events::HandoffRow>(store, &search).await?;
    let of = Arc::clone(&search);
    store.write(move |tx| of.node_commands(tx, now)).await?;
    erase::<others::LogInRow>(store, &search).await?;
    erase::<crate::calls::contacts::Contact>(store, &search).await?;
    store.write(move |tx| search.configuration(tx)).await?;

    Ok(RowsErased::All)
}

/// Adds the calls found by an earlier pass or another node: their rows no longer name the contact.
async fn add_found_calls(store: &Store, search: &mut Arc<Search>) -> Result<(), Error> {
    let id = search.erasure.id;
    let sql = "SELECT call_id, session_id FROM erasure_calls WHERE erasure_id = $1";
    let rows: Vec<CallOfContact> = store.read(move |tx| tx.all(sql, &[&id])).await?;

    let search = Arc::make_mut(search);
    search.calls.extend(rows.iter().map(|row| row.call_id));
    search
        .sessions
        .extend(rows.iter().filter_map(|row| row.session_id));
    Ok(())
}

/// Adds the handoffs that name the contact. Those of a chat belong to no call, by which their events could be found.
async fn add_handoffs(store: &Store, search: &mut Arc<Search>) -> Result<(), Error> {
    let OpenErasure {
        org_id,
        contact_id,
        requested_at,
        ..
    } = search.erasure;
    let sql = "SELECT session_id, created_at FROM handoffs
        WHERE org_id = $1 AND contact_id = $2 AND created_at <= $3";
    let read = store.read(move |tx| tx.all(sql, &[&org_id, &contact_id, &requested_at]));
    let rows: Vec<HandoffOfContact> = read.await?;

    let named = rows
        .into_iter()
        .map(|row| (row.session_id, written(row.created_at)));
    Arc::make_mut(search).handoffs.extend(named);
    Ok(())
}

impl Store {
    /// Overwrites the deleted rows that an embedded database still has in its write-ahead log. Returns false while a reader blocks this.
    ///
    /// # Errors
    /// [`Broke`](crate::driver::error::Broke): the database fails.
    pub async fn truncate_log(&self) -> Result<bool, Error> {
        self.pool().truncate_log().await
    }
}
