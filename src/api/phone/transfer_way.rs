//! Method of transferring callers: the trunk's setting, and the method in force with its reason.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_calls::features::transfer::{MethodReason, method_in_force};
use trunkline_model::settings::TransferWay;
use trunkline_model::transfer::TransferMethod;
use trunkline_sip::moment::Moment;

use crate::api::field_type::Choice;

/// Field `transfer_way` of a trunk.
pub(super) const TRANSFER_WAY: Choice<TransferWay> = Choice(&[
    ("refer", TransferWay::Refer),
    ("bridge", TransferWay::Bridge),
    ("auto", TransferWay::Auto),
]);

/// The way that the next transfer takes first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TransferWayInForce")]
pub(crate) struct MethodInForceView {
    pub(crate) way: TransferMethod,
    reason: MethodReason,
    /// The reason in a sentence.
    pub(crate) explanation: Cow<'static, str>,
}

impl MethodInForceView {
    /// Returns the method in force for a trunk with this setting, whose PBX was seen to keep a caller at this time.
    pub(super) fn of(set: TransferWay, kept: Option<Moment>) -> Self {
        let (way, reason) = method_in_force(set, kept.is_some());
        Self {
            way,
            reason,
            explanation: reason.sentence().into(),
        }
    }
}
