//! Calls of the deployment's own that speak a code, to prove that an org holds a number. Such a call uses the operator's route, belongs to no org,
//! counts against none, and isn't recorded; a trace has its messages, which don't contain the code.

use std::sync::Arc;

use trunkline_model::view::OutboundRoute;
use trunkline_routing::E164;
use uuid::Uuid;

use crate::core::context::Cx;
use crate::core::effect::Effect;
use crate::leg::LocalAgent;
use crate::leg::bridge::Bridge;

pub use crate::parts::spoken_code::SpokenCode;

/// A call that speaks a code.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The org that says it holds the number.
    pub org: Uuid,
    /// Number that is called.
    pub number: E164,
    /// The code that is spoken.
    pub code: SpokenCode,
    /// The operator's route.
    pub way: Arc<OutboundRoute>,
}

/// Speaks the code, if this call has one, once the callee has answered.
pub(crate) fn speak_code(bridge: &mut Bridge, cx: &mut Cx<'_>) {
    let code = bridge.local_mut().and_then(|media| match &mut media.agent {
        LocalAgent::Code(code) => code.take(),
        LocalAgent::Echo | LocalAgent::Bot(_) => None,
    });
    if let Some(code) = code {
        let call = bridge.key;
        cx.core.effects.push_back(Effect::SpeakCode { call, code });
    }
}
