//! `POST /phone/calls/{call_id}/hold` and `/resume`: both sides of a call are told to wait, and to go on.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use trunkline_calls::Side;
use trunkline_calls::hold::{Refused, Unable};
use trunkline_store::{Call, Kind};
use uuid::Uuid;

use super::calls::{CallView, find, not_up};
use super::remote::{CommandResult, RemoteCommand};
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::path::Named;
use crate::api::{Api, ApiError};

/// 200 with the call once both sides are held, 202 if that takes longer than two seconds; 409 if a side refuses, or if the call is
/// not answered, over, being transferred, or being resumed.
pub(crate) async fn hold(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    change(&api, &caller, &named, body, true).await
}

/// The same back.
pub(crate) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    change(&api, &caller, &named, body, false).await
}

/// How often it is looked whether both sides have agreed.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 100;

async fn change(
    api: &Api,
    caller: &Caller,
    named: &Named,
    body: Body,
    held: bool,
) -> Result<CommandResult, ApiError> {
    caller.needs("calls:write")?;
    let id = named.id("call_id", Kind::Call)?;
    let call = find(api, caller.org, id).await?;
    body.empty()?;
    RemoteCommand::Turn { held }.run(api, call).await
}

/// Holds a call of this node, or resumes it.
pub(super) async fn turn(api: &Api, call: Call, held: bool) -> Result<CommandResult, ApiError> {
    let (org, id) = (call.org_id, call.id);
    let begun = match api.engine() {
        Some(engine) if call.ended_at.is_none() => engine.hold(id, held).await,
        Some(_) | None => Ok(Err(Unable::NotUp)),
    };
    let begun = begun.map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    let number = begun.map_err(|unable| match unable {
        Unable::NotUp => not_up(api, &call),
        Unable::NotAnswered => ApiError::Conflict("The call has not been answered yet".to_owned()),
        Unable::Transferring => {
            ApiError::Conflict("A transfer of the call is under way".to_owned())
        }
        Unable::Opposite if held => ApiError::Conflict("The call is just being resumed".to_owned()),
        Unable::Opposite => ApiError::Conflict("The call is just being held".to_owned()),
        Unable::NoMedia => {
            ApiError::Conflict("What the caller said of its media can't be read".to_owned())
        }
    })?;
    let status = match number {
        Some(number) => settled(api, org, id, number).await?,
        None => StatusCode::OK,
    };
    let call = find(api, org, id).await?;
    CommandResult::new(status, &CallView::from(call))
}

/// Waits for the end of the change of this number.
async fn settled(api: &Api, org: Uuid, call: Uuid, number: u32) -> Result<StatusCode, ApiError> {
    for _ in 0..LOOKS {
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
        tokio::time::sleep(LOOK).await;
    }
    Ok(StatusCode::ACCEPTED)
}

fn sentence(refused: Refused) -> String {
    let who = match refused.side {
        Side::Caller => "The other end of the line",
        Side::Agent => "The agent's runtime",
    };
    format!("{who} refused with SIP status {}", refused.status)
}
