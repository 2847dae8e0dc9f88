//! Transfers a call that is up on this node.

use std::time::Duration;

use axum::http::StatusCode;
use trunkline_calls::features::transfer::{DestinationChoice, TransferError, TransferRequest};
use trunkline_store::{Call, CallTransfer, transfers};

use super::super::calls::not_up;
use super::super::command_result::CommandResult;
use super::super::transfer_view::TransferView;
use crate::api::{Api, ApiError};

/// Begins a transfer.
pub(in crate::api::phone) async fn begin(
    api: &Api,
    call: &Call,
    ask: TransferRequest,
) -> Result<CommandResult, ApiError> {
    let field = match ask.chosen {
        DestinationChoice::Name(_) => "destination",
        DestinationChoice::Id(_) => "destination_id",
    };

    api.begin_once().await?;
    let begun = match api.engine() {
        Some(engine) if call.ended_at.is_none() => engine.transfer(call.id, ask).await,
        Some(_) | None => Ok(Err(TransferError::NotUp)),
    };

    let begun = begun.map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    let transfer = begun.map_err(|unable| match unable {
        TransferError::NotAssigned | TransferError::NotAllowed => {
            ApiError::bad(format!("{field}: {unable}"))
        }
        TransferError::NotUp => not_up(api, call),
        TransferError::NotAnswered => {
            ApiError::Conflict("The call has not been answered yet".to_owned())
        }
        TransferError::UnderWay => {
            ApiError::Conflict("Another transfer of the call is under way".to_owned())
        }
    })?;

    // An acknowledged transfer must survive a crash: wait for the row. If that takes too long, the journal has been
    // synced long before.
    let (org, id) = (call.org_id, transfer.id);
    for _ in 0..CHECKS {
        if api
            .read_inline(move |tx| transfers::exists(tx, org, id))
            .await
            .unwrap_or(false)
        {
            break;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }

    let shown = CallTransfer::from(&transfer);
    CommandResult::new(StatusCode::ACCEPTED, &TransferView::from(shown))
}

/// Interval between checks whether the transfer is recorded.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const CHECKS: u32 = 50;
