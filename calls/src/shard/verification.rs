//! Beginning of a call that speaks a code (`verification`): its conditions and its permit.

use std::time::Duration;

use trunkline_bounds::Holder;
use trunkline_model::tied::Namer;
use trunkline_model::view::View;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use uuid::Uuid;

use super::Calls;
use super::placing::CalleeCall;
use crate::core::context::Cx;
use crate::dial::calling::{dial_first, parties, prepare};
use crate::dial::outbound::Outbound;
use crate::leg::callee::Callee;
use crate::leg::media_rules::MediaRules;
use crate::leg::uas_invite::ContactState;
use crate::leg::{LegPeer, LocalAgent, LocalMedia};
use crate::limits::LimitReached;
use crate::limits::attempt_counter::AttemptCounter;
use crate::limits::outbound_limits::OutboundRefusal;
use crate::media::verification::Verification;
use crate::parts::ids::DEPLOYMENT;
use crate::parts::refusal::Reason;

/// Ringing time.
const RINGING: Duration = Duration::from_secs(40);
/// Longest duration of the call, more than twice the time that the code takes to speak.
const LONGEST: Duration = Duration::from_secs(60);

impl Calls {
    /// Begins a call that speaks a code, in `slot`, which must be this shard's.
    ///
    /// # Errors
    /// The reason why it can't begin; then nothing of it is kept.
    pub fn verify(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        slot: Slot,
        asked: &Verification,
        now: Moment,
    ) -> Result<(), OutboundRefusal> {
        if let Some(reason) = self.core.closed() {
            return Err(reason.into());
        }
        if !self.core.outbound_limits.allows(asked.number) {
            return Err(Reason::DestinationNotAllowed.into());
        }
        let Some(org) = view.org(asked.org).filter(|org| !org.suspended) else {
            return Err(Reason::OrgSuspended.into());
        };

        let callee = Callee::through(&asked.way, asked.number).ok_or(Reason::NoWayOut)?;
        let callee = Callee {
            // Realms are learned for trunks only, and this route is none.
            challenger: None,
            ..callee
        };

        let permit = self.core.limits.acquire_verification(org.holder());
        let permit = permit.map_err(LimitReached::reason)?;

        let key = self.table.reserve();
        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now,
        };

        let parties = parties(&callee, &asked.way);
        let (placed, _, mut dialing) = dial_first(&mut cx, key, slot, DEPLOYMENT, callee);
        prepare(&mut cx, key, &mut dialing);

        let outbound = Outbound {
            parties,
            runtime: None,
            namer: Namer::Operator,
            krisp: false,
            contact: ContactState::Known(None),
            ringing_timeout: RINGING,
            max_duration: LONGEST.min(cx.core.config.max_duration),
            media: None,
            chain: None,
        };

        // The code ends the call by itself, so silence of the callee needs no questions.
        let rules = MediaRules {
            trunk: asked.way.id,
            ..MediaRules::default()
        };
        let media = LocalMedia::of(placed.call, LocalAgent::Code(Some(asked.code)), rules);
        self.begin(CalleeCall {
            key,
            slot,
            placed,
            holder: Holder::alone(DEPLOYMENT),
            agent: Uuid::nil(),
            dialing,
            outbound,
            agent_peer: Some(LegPeer::Media(media)),
            permit,
        });
        Ok(())
    }
}
