//! Calls of the deployment's own that speak a code, to prove that an org holds a number. Such a call uses the operator's route, belongs to no org,
//! counts against none, and isn't recorded; a trace has its messages, which don't contain the code.

use std::sync::Arc;
use std::time::Duration;

use trunkline_model::tied::Namer;
use trunkline_model::view::{OutboundRoute, View};
use trunkline_routing::E164;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use uuid::Uuid;

use super::Calls;
use super::attempt_counter::AttemptCounter;
use super::bridge::Bridge;
use super::callee::Callee;
use super::calling::{CalleeCall, dial_first, parties, prepare};
use super::context::Cx;
use super::effect::Effect;
use super::ids::CallKey;
use super::ids::DEPLOYMENT;
use super::leg::{LegPeer, LocalAgent, LocalMedia};
use super::limits::{Claim, LimitReached};
use super::outbound::Outbound;
use super::outbound_limits::OutboundRefusal;
use super::refusal::Reason;
pub use super::spoken_code::SpokenCode;
use super::uas_invite::ContactState;

/// Verification calls of this node at once, and those for one org: they count apart from other calls.
pub(super) const AT_ONCE: u32 = 10;
const OF_ORG: u32 = 2;
/// Ringing time.
const RINGING: Duration = Duration::from_secs(40);
/// More than twice the time of the code.
const LONGEST: Duration = Duration::from_secs(60);

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

impl Calls {
    /// Begins a call that speaks a code, in `slot`, which must be this shard's.
    ///
    /// # Errors
    /// The reason why it can't begin; then nothing of it is kept.
    pub fn verify(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        (slot, asked): (Slot, &Verification),
        now: Moment,
    ) -> Result<(), OutboundRefusal> {
        if let Some(reason) = self.core.closed() {
            return Err(reason.into());
        }
        if !self.core.outbound_limits.allows(asked.number) {
            return Err(Reason::DestinationNotAllowed.into());
        }
        if view.org(asked.org).is_none_or(|org| org.suspended) {
            return Err(Reason::OrgSuspended.into());
        }
        let callee = Callee::through(&asked.way, asked.number).ok_or(Reason::NoWayOut)?;
        let callee = Callee {
            // Realms are learned for trunks only, and this route is none.
            challenger: None,
            ..callee
        };
        let permit = self.core.limits.acquire_own(claims(asked.org), now);
        let permit = permit.map_err(|full| match full {
            LimitReached::Org => Reason::OutboundBusy,
            LimitReached::Node
            | LimitReached::Outbound
            | LimitReached::Trunk
            | LimitReached::Agent => Reason::Overload,
        })?;

        let key = self.reserve();
        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now,
        };
        let parties = parties(&callee, &asked.way);
        let (placed, _, mut dialing) = dial_first(&mut cx, (key, slot), DEPLOYMENT, callee);
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
        let media = LocalMedia::of(placed.call, LocalAgent::Code(Some(asked.code)), false);
        self.begin(CalleeCall {
            key,
            slot,
            placed,
            org: DEPLOYMENT,
            agent: Uuid::nil(),
            dialing,
            outbound,
            agent_peer: Some(LegPeer::Media(media)),
            permit,
        });
        Ok(())
    }

    /// Ends the call once its media has finished with the code.
    pub fn handle_spoken(&mut self, endpoint: &mut Endpoint, key: CallKey, now: Moment) {
        self.with(key, endpoint, now, |call, cx| {
            call.hang_up(cx, Reason::Operator);
        });
    }
}

/// Limits of such a call.
fn claims(org: Uuid) -> [Claim; 2] {
    let claim = |id, max| Claim { id, max: Some(max) };
    // Counts apart from the org's own calls, which are counted under its id.
    let of_org = Uuid::from_u128(org.as_u128().rotate_left(64));
    [claim(DEPLOYMENT, AT_ONCE), claim(of_org, OF_ORG)]
}

impl Bridge {
    /// Speaks the code, if this call has one, once the callee has answered.
    pub(super) fn speak_code(&mut self, cx: &mut Cx<'_>, remote: std::net::IpAddr) {
        let code = self.local_mut().and_then(|media| match &mut media.agent {
            LocalAgent::Code(code) => code.take(),
            LocalAgent::Echo | LocalAgent::Bot(_) => None,
        });
        let (Some(code), Some(trunk)) = (code, self.trunk()) else {
            return;
        };
        let signals_from = trunk.flow.peer.ip().to_canonical();
        cx.core.effects.push_back(Effect::SpeakCode {
            call: self.key,
            code,
            is_known: remote.to_canonical() == signals_from,
        });
    }
}
