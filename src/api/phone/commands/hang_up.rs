//! Ends a call that is up on this node.

use std::time::Duration;

use axum::http::StatusCode;
use trunkline_calls::HangUpRequester;
use trunkline_store::{Call, calls};

use super::super::calls::{CallView, not_up};
use super::super::command_result::CommandResult;
use crate::api::{Api, ApiError};

/// Ends a call, and waits a while until its end is recorded.
pub(in crate::api::phone) async fn end(
    api: &Api,
    call: Call,
    by: HangUpRequester,
) -> Result<CommandResult, ApiError> {
    let was_up = match api.engine() {
        Some(engine) if call.ended_at.is_none() => engine.hang_up(call.id, by).await,
        Some(_) | None => Ok(false),
    };

    if !was_up.map_err(|fault| ApiError::Broke(Box::new(fault)))? {
        return Err(not_up(api, &call));
    }

    // The shard has begun to end the call. If the end isn't stored in time, the client gets 202 and reads it later.
    for _ in 0..CHECKS {
        let stored = api
            .read_inline(move |tx| calls::by_id(tx, call.org_id, call.id))
            .await;
        if let Some(ended) = stored.ok().filter(|call| call.ended_at.is_some()) {
            return CommandResult::new(StatusCode::OK, &CallView::from(ended));
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }

    CommandResult::new(StatusCode::ACCEPTED, &CallView::from(call))
}

/// Interval between checks whether the end is recorded.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const CHECKS: u32 = 50;
