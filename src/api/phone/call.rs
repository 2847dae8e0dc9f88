//! `/phone/calls/{call_id}`: one call in its current state, and the command that ends it.

use axum::Json;
use axum::extract::State;
use trunkline_store::Kind;

use super::OF_CALLS;
use super::call_actor::CallActor;
use super::calls::{CallView, find};
use super::command_result::CommandResult;
use super::remote::RemoteCommand;
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::openapi::no_fields;
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.get(
        "/phone/calls/{call_id}",
        one,
        "showCall",
        "One call",
        |op| op.gives::<CallView>(200),
    );

    of.post(
        "/phone/calls/{call_id}/hangup",
        hang_up,
        "hangUpCall",
        "Ends a call on both sides: 202 while its end is not recorded yet",
        |op| {
            let op = op.or_session();
            let op = op.may_refuse(&[409, 503]);
            op.body(no_fields())
                .gives::<CallView>(200)
                .gives::<CallView>(202)
        },
    );
}

/// `GET /phone/calls/{call_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<CallView>, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;
    Ok(Json(call.into()))
}

/// `POST /phone/calls/{call_id}/hangup`: ends a call on both sides. 200 with the call once its end is recorded, 202 if
/// that takes longer than a second; 409 if the call is over.
pub(crate) async fn hang_up(
    State(api): State<Api>,
    caller: CallActor,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    body.empty()?;
    let ended = RemoteCommand::HangUp.run(&api, call).await?;
    Ok(match caller.is_runtime() {
        true => ended.for_runtime(),
        false => ended,
    })
}
