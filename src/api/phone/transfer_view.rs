//! A transfer as the API shows it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_model::handoff::{Reason, Sentiment};
use trunkline_model::transfer::{State as TransferState, TransferMethod};
use trunkline_store::CallTransfer;
use uuid::Uuid;

use crate::api::time::written;

/// A transfer as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Transfer")]
pub(crate) struct TransferView {
    pub(super) id: Uuid,
    call_id: Uuid,
    /// `null` for the agent's `handoff_phone_number`.
    destination_id: Option<Uuid>,
    /// The destination's name.
    pub(crate) destination: String,
    /// `phone` or `sip`.
    r#type: Cow<'static, str>,
    pub(crate) value: String,
    pub(crate) way: TransferMethod,
    pub(crate) status: TransferState,
    sip_code: Option<u16>,
    /// `true` once the destination is known to have answered, `false` if the PBX reported 200 too soon for that; `null`
    /// unless `completed`.
    answer_confirmed: Option<bool>,
    /// True if the transfer failed at a PBX that loses the caller when an accepted REFER fails.
    caller_may_be_gone: bool,
    reasons: Vec<Reason>,
    pub(crate) summary: String,
    pub(crate) explanation: Option<String>,
    sentiment: Option<Sentiment>,
    pub(crate) requested_at: String,
    accepted_at: Option<String>,
    ringing_at: Option<String>,
    ended_at: Option<String>,
}

impl TransferView {
    /// Returns whether the destination is known to have answered.
    pub(super) fn is_confirmed(&self) -> bool {
        self.answer_confirmed == Some(true)
    }
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
            r#type: transfer.target.kind().into(),
            value: transfer.target.value().to_owned(),
            way: transfer.way,
            status: transfer.state,
            sip_code: transfer.sip_code,
            answer_confirmed: transfer.answer_confirmed,
            caller_may_be_gone: transfer.caller_may_be_gone,
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
