//! Inputs of the proof that a call owes, and its consequences for the call (`call::proving`).

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;

use super::Calls;
use crate::call::proving::{ProofProgress, Proving};
use crate::core::context::Cx;
use crate::parts::ids::CallKey;

impl Calls {
    /// Runs `act` on the proof of a call, if the call is still there.
    pub(super) fn with_proof(
        &mut self,
        key: CallKey,
        endpoint: &mut Endpoint,
        now: Moment,
        act: impl FnOnce(&mut Proving<'_>, &mut Cx<'_>) -> ProofProgress,
    ) {
        self.with(key, endpoint, now, |call, cx| {
            match act(&mut Proving::from(&mut *call), cx) {
                ProofProgress::Nothing => {}
                ProofProgress::BeginsRuntime => call.begin_runtime(cx),
                ProofProgress::Ends(reason) => call.hang_up(cx, reason),
            }
        });
    }
}
