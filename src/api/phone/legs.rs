//! Finds the SIP messages of a call in the traces: those of its caller, of the runtimes that were called, of a transfer
//! destination called from here, and of a leg that replaced another. Reads files.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use trunkline_calls::LegRole;
use trunkline_capture::Captured;
use trunkline_store::Call;

use crate::api::{Api, ApiError};
use crate::traces::FoundMessage;
use crate::traces::show::masked;

/// Time before the record's beginning that may hold a challenge and its answer, and time after its end that may hold
/// retransmitted answers.
const BEFORE: Duration = Duration::from_secs(40);
const AFTER: Duration = Duration::from_secs(90);
/// Traces read at once. One may search every file of a long call and holds megabytes; further requests wait.
static READERS: Semaphore = Semaphore::const_new(4);
/// Longest wait of a request for its turn, after which it is refused with 503. A node that sent the request waits longer than this. Until
/// then the request takes one of the places for commands of other nodes (see `remote`).
const PATIENCE: Duration = Duration::from_secs(5);

/// Message with its leg.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// `caller`, `runtime` or `destination`.
    pub(super) name: &'static str,
    pub(super) is_sent: bool,
    pub(super) captured: Captured,
}

/// Reads the messages that this node has, on a thread that may wait for the disk. Returns the call, its messages, and true if
/// none is missing.
pub(super) async fn messages_here(
    api: &Api,
    call: Call,
) -> Result<(Call, Vec<Message>, bool), ApiError> {
    let Some(engine) = api.engine() else {
        return Ok((call, Vec::new(), true));
    };

    let traces = Arc::clone(engine.traces());
    let now = api.now();
    // Before the blocking thread is taken: waiting requests must not use up the runtime's threads.
    let permit = match timeout(PATIENCE, READERS.acquire()).await {
        Ok(permit) => permit.map_err(|fault| ApiError::Broke(fault.into()))?,
        Err(_) => {
            return Err(ApiError::Unavailable {
                message: "Other traces are being read".to_owned(),
                wait_s: PATIENCE.as_secs(),
            });
        }
    };
    let read = tokio::task::spawn_blocking(move || {
        // Kept until the search ends, although the client may have gone by then.
        let _permit = permit;
        let from = call.started_at - BEFORE;
        let until = call.ended_at.unwrap_or(now) + AFTER;
        let found = traces.of(call.org_id, call.id, from, until);
        let messages = found.messages.into_iter().map(shown).collect();
        (call, messages, !found.is_cut)
    });
    read.await.map_err(|fault| ApiError::Broke(fault.into()))
}

fn shown(found: FoundMessage) -> Message {
    let mut captured = found.captured;
    captured.octets = masked(&captured.octets);
    Message {
        name: match found.role {
            LegRole::Trunk => "caller",
            LegRole::Agent => "runtime",
            LegRole::Destination => "destination",
        },
        is_sent: found.is_sent,
        captured,
    }
}
