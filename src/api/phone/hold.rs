//! `POST /phone/calls/{call_id}/hold` and `/resume`: holds both sides of a call, and resumes it.

use axum::extract::State;
use trunkline_store::Kind;

use super::OF_CALLS;
use super::calls::{CallView, find};
use super::command_result::CommandResult;
use super::remote::RemoteCommand;
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::openapi::{Operation, no_fields};
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.post(
        "/phone/calls/{call_id}/hold",
        hold,
        "holdCall",
        "Holds both sides of a call: 202 while they haven't agreed yet, 409 if one refuses",
        answers,
    );

    of.post(
        "/phone/calls/{call_id}/resume",
        resume,
        "resumeCall",
        "Ends a hold: 202 while both sides haven't agreed yet, 409 if one refuses",
        answers,
    );
}

fn answers(op: Operation<'_>) -> Operation<'_> {
    op.may_refuse(&[409, 503])
        .body(no_fields())
        .gives::<CallView>(200)
        .gives::<CallView>(202)
}

/// Holds a call. 200 with the call once both sides are held, 202 if that takes longer than two seconds; 409 if a side
/// refuses, or if the call is not answered, over, being transferred, or being resumed.
pub(crate) async fn hold(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    change(&api, &caller, &named, body, true).await
}

/// Resumes a call, with the same answers.
pub(crate) async fn resume(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    change(&api, &caller, &named, body, false).await
}

async fn change(
    api: &Api,
    caller: &Caller,
    named: &Named,
    body: Body,
    held: bool,
) -> Result<CommandResult, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(api, caller.org, id).await?;
    body.empty()?;
    RemoteCommand::Turn { held }.run(api, call).await
}
