//! `POST /phone/calls/{call_id}/transfer`, and a transfer as the API shows it.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use trunkline_calls::transfer::{Ask, Chosen, Unable};
use trunkline_model::handoff::{Reason, Sentiment};
use trunkline_model::transfer::{State as TransferState, Way};
use trunkline_store::{Call, CallTransfer, Kind, transfers};
use uuid::Uuid;

use super::calls::find;
use super::of_call::OfCall;
use super::remote::{CommandResult, RemoteCommand};
use crate::api::body::{Body, Fields};
use crate::api::handoff_analytics::report;
use crate::api::path::Named;
use crate::api::shape::{ID, NAME, Shape as _};
use crate::api::time::written;
use crate::api::{Api, ApiError};

/// A transfer as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Transfer")]
pub(crate) struct TransferView {
    pub(super) id: Uuid,
    call_id: Uuid,
    /// `null` for the agent's `handoff_phone_number`.
    destination_id: Option<Uuid>,
    /// The destination's name.
    destination: String,
    /// `phone` or `sip`.
    r#type: &'static str,
    value: String,
    way: Way,
    pub(super) state: TransferState,
    sip_code: Option<u16>,
    /// `true` once somebody is known to have answered, `false` where the PBX said 200 too soon for that; `null` unless `completed`.
    answer_confirmed: Option<bool>,
    /// The transfer failed at a PBX that loses the caller when an accepted REFER fails.
    caller_may_be_gone: bool,
    reasons: Vec<Reason>,
    summary: String,
    explanation: Option<String>,
    sentiment: Option<Sentiment>,
    requested_at: String,
    accepted_at: Option<String>,
    ringing_at: Option<String>,
    ended_at: Option<String>,
}

impl From<CallTransfer> for TransferView {
    fn from(transfer: CallTransfer) -> Self {
        let mut reasons = transfer.reasons;
        if reasons.is_empty() {
            reasons.push(Reason::AiImpliedHandoff);
        }
        Self {
            id: transfer.id,
            call_id: transfer.call_id,
            destination_id: transfer.destination_id,
            destination: transfer.name,
            r#type: transfer.target.kind(),
            value: transfer.target.value().to_owned(),
            way: transfer.way,
            state: transfer.state,
            sip_code: transfer.sip_code,
            answer_confirmed: transfer.answer_confirmed,
            caller_may_be_gone: transfer.caller_may_be_gone.unwrap_or_default(),
            reasons,
            summary: transfer.summary,
            explanation: transfer.explanation,
            sentiment: transfer.sentiment,
            requested_at: written(transfer.requested_at),
            accepted_at: transfer.accepted_at.map(written),
            ringing_at: transfer.ringing_at.map(written),
            ended_at: transfer.ended_at.map(written),
        }
    }
}

/// `POST /phone/calls/{call_id}/transfer {destination | destination_id, reasons, summary, explanation, sentiment}`: 202 with the
/// transfer; what becomes of it is on the call. 400 for a destination that the call's agent doesn't have; 409 for a call that
/// isn't answered, is over, or has a transfer under way.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: OfCall,
    named: Named,
    body: Body,
) -> Result<CommandResult, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    let ask = asked(body.fields()?)?;
    RemoteCommand::Transfer { ask }.run(&api, call).await
}

/// Begins a transfer of a call of this node.
pub(super) async fn begin(api: &Api, call: &Call, ask: Ask) -> Result<CommandResult, ApiError> {
    let field = match ask.chosen {
        Chosen::Name(_) => "destination",
        Chosen::Id(_) => "destination_id",
    };
    let begun = match api.engine() {
        Some(engine) if call.ended_at.is_none() => engine.transfer(call.id, ask).await,
        Some(_) | None => Ok(Err(Unable::NotUp)),
    };
    let begun = begun.map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    let transfer = begun.map_err(|unable| match unable {
        Unable::NotAssigned | Unable::NotAllowed => ApiError::bad(format!("{field}: {unable}")),
        Unable::NotUp => super::calls::not_up(api, call),
        Unable::NotAnswered => ApiError::Conflict("The call has not been answered yet".to_owned()),
        Unable::UnderWay => {
            ApiError::Conflict("Another transfer of the call is under way".to_owned())
        }
    })?;
    // What is acknowledged is kept: the row, or the journal, which is synced long before.
    let (org, id) = (call.org_id, transfer.id);
    for _ in 0..LOOKS {
        if api
            .read_inline(move |tx| transfers::is_there(tx, org, id))
            .await
            .unwrap_or(false)
        {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let shown = CallTransfer::from(&transfer);
    CommandResult::new(StatusCode::ACCEPTED, &TransferView::from(shown))
}

/// How often it is looked whether a transfer is recorded.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 50;

pub(super) fn asked(mut fields: Fields) -> Result<Ask, ApiError> {
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
    fields.sketch(either);
    fields.done(|| {
        let chosen = match (name, id) {
            (Some(name), None) => Chosen::Name(name.into()),
            (None, Some(id)) => Chosen::Id(id),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(Ask { chosen, report })
    })
}

/// A destination is given by its name or by its id.
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
