//! Holds and resumes a call that is up on this node.

use std::time::Duration;

use axum::http::StatusCode;
use trunkline_calls::LegRole;
use trunkline_calls::core::live::HoldRefusal;
use trunkline_calls::features::hold::HoldError;
use trunkline_store::Call;
use uuid::Uuid;

use super::super::calls::{CallView, find, not_up};
use super::super::command_result::CommandResult;
use crate::api::{Api, ApiError};

/// Interval between checks whether both sides have agreed.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const CHECKS: u32 = 100;

/// Holds or resumes a call.
pub(in crate::api::phone) async fn turn(
    api: &Api,
    call: Call,
    held: bool,
) -> Result<CommandResult, ApiError> {
    let (org, id) = (call.org_id, call.id);
    let begun = match api.engine() {
        Some(engine) if call.ended_at.is_none() => engine.hold(id, held).await,
        Some(_) | None => Ok(Err(HoldError::NotUp)),
    };

    let begun = begun.map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    let number = begun.map_err(|unable| match unable {
        HoldError::NotUp => not_up(api, &call),
        HoldError::NotAnswered => {
            ApiError::Conflict("The call has not been answered yet".to_owned())
        }
        HoldError::Transferring => {
            ApiError::Conflict("A transfer of the call is under way".to_owned())
        }
        HoldError::Opposite if held => {
            ApiError::Conflict("The call is just being resumed".to_owned())
        }
        HoldError::Opposite => ApiError::Conflict("The call is just being held".to_owned()),
        HoldError::NoMedia => ApiError::Conflict("The caller's SDP can't be read".to_owned()),
    })?;

    let status = match number {
        Some(number) => settled(api, org, id, number).await?,
        None => StatusCode::OK,
    };

    let call = find(api, org, id).await?;
    CommandResult::new(status, &CallView::from(call))
}

/// Waits until the change with this number is settled: 200, or 202 if that takes longer than all checks.
///
/// # Errors
/// 409 if the call ends meanwhile, or a side refuses.
async fn settled(api: &Api, org: Uuid, call: Uuid, number: u32) -> Result<StatusCode, ApiError> {
    for _ in 0..CHECKS {
        // Polled from memory: the shard writes the state there, and waits for no reader.
        let live = api.live().one(org, call).filter(|live| !live.is_over());
        let Some(live) = live else {
            return Err(ApiError::Conflict("The call is over".to_owned()));
        };
        if live.hold.settled >= number {
            return match live.hold.refused {
                Some(refused) => Err(ApiError::Conflict(sentence(refused))),
                None => Ok(StatusCode::OK),
            };
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    Ok(StatusCode::ACCEPTED)
}

fn sentence(refused: HoldRefusal) -> String {
    let side = match refused.role {
        LegRole::Trunk => "The other end of the line",
        LegRole::Agent | LegRole::Destination => "The agent's runtime",
    };
    format!("{side} refused with SIP status {}", refused.status)
}
