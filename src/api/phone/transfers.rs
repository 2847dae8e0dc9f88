//! `POST /phone/calls/{call_id}/transfer`.

use axum::extract::State;
use serde_json::{Value, json};
use trunkline_calls::features::transfer::{DestinationChoice, TransferRequest};
use trunkline_store::Kind;

use super::call_actor::CallActor;
use super::calls::find;
use super::command_result::CommandResult;
use super::remote::RemoteCommand;
use super::{OF_CALLS, TransferView};
use crate::api::body::{Body, Fields};
use crate::api::field_type::{FieldType as _, ID, NAME};
use crate::api::handoff_analytics::report;
use crate::api::idempotency::call_once_for;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.post_once(
        "/phone/calls/{call_id}/transfer",
        call_once_for::<CallActor, _>(create),
        "transferCall",
        "Transfers the caller to a destination of the agent; the call shows the outcome",
        |op| {
            let body = read_by(read_request);
            let op = op.or_session();
            op.body(body).may_refuse(&[503]).gives::<TransferView>(202)
        },
    );
}

/// `POST /phone/calls/{call_id}/transfer {destination | destination_id, reasons, summary, explanation, sentiment}`: 202
/// with the transfer; the call shows the outcome. 400 for a destination that the call's agent doesn't have; 409 for a
/// call that isn't answered, is over, or is being transferred.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: CallActor,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    // Unlike for `hangup`: a suspended org's calls go on and can be ended, but nothing new is called for it.
    caller.must_not_be_suspended()?;
    let ask = read_request(body.fields()?)?;
    let by_bot = false;
    RemoteCommand::Transfer { ask, by_bot }
        .run(&api, call)
        .await
}

pub(super) fn read_request(mut fields: Fields) -> Result<TransferRequest, ApiError> {
    let (by_name, by_id) = (
        fields.has_value("destination"),
        fields.has_value("destination_id"),
    );
    if by_name == by_id {
        fields.refuse("destination", "give either destination or destination_id");
    }

    let name = fields.optional("destination", NAME);
    let id = fields.optional("destination_id", ID);
    let report = report(&mut fields);
    fields.amend_schema(either);

    fields.done(|| {
        let chosen = match (name, id) {
            (Some(name), None) => DestinationChoice::Name(name.into()),
            (None, Some(id)) => DestinationChoice::Id(id),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(TransferRequest { chosen, report })
    })
}

/// Adds to the schema that a destination is given by name or by id.
fn either(schema: &mut Value) {
    let of = |name: &str, shape: Value, other: &str| {
        let mut schema = schema.clone();
        schema["properties"][name] = shape;
        schema["properties"][other] = json!({"type": "null"});
        schema["required"] = json!([name]);
        schema
    };
    *schema = json!({"oneOf": [
        of("destination", NAME.schema(), "destination_id"),
        of("destination_id", ID.schema(), "destination"),
    ]});
}
