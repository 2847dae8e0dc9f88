//! Beginning of an outbound call that the API ordered: its conditions and its permits.

use std::sync::Arc;

use trunkline_bounds::Holder;
use trunkline_model::record::{Direction, Fact, Started};
use trunkline_model::settings::Runtime;
use trunkline_model::view::{OrgView, OutboundRoute, View};
use trunkline_routing::E164;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{CallId, Slot};
use uuid::Uuid;

use super::Calls;
use crate::call::Call;
use crate::core::context::{Core, Cx};
use crate::core::effect::Effect;
use crate::dial::calling::{dial_first, parties, prepare};
use crate::dial::outbound::{NewOutboundCall, Outbound, PlacedCall, users};
use crate::features::hold::Hold;
use crate::features::join::Joining;
use crate::features::transfer::LastTransfer;
use crate::inbound::lifetime::Lifetime;
use crate::leg::bot_state::Bot;
use crate::leg::bridge::Bridge;
use crate::leg::callee::Callee;
use crate::leg::dial::Dialing;
use crate::leg::media_rules::MediaRules;
use crate::leg::runtime_chain::{First, NewChain};
use crate::leg::uas_invite::ContactState;
use crate::leg::{LegPeer, LegState, Legs, LocalAgent, LocalMedia, Session};
use crate::limits::attempt_counter::AttemptCounter;
use crate::limits::outbound_limits::OutboundRefusal;
use crate::limits::{Claim, LimitReached, Permit};
use crate::parts::ids::{CallKey, CallRef};
use crate::parts::privacy::CallerIdentity;
use crate::parts::refusal::Reason;
use crate::parts::request_origin::RequestOrigin;
use crate::parts::role::LegRole;

impl Calls {
    /// Begins an outbound call in `slot`, which must be this shard's.
    ///
    /// # Errors
    /// The reason why it can't begin; then nothing of it is kept.
    pub fn place(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        slot: Slot,
        order: &NewOutboundCall,
        now: Moment,
    ) -> Result<PlacedCall, OutboundRefusal> {
        let org = org_of(&self.core, view, order)?;
        let way = org
            .outbound_routes
            .get(&order.agent)
            .ok_or(Reason::NoWayOut)?;
        let callee = callee(&self.core, org, way, order.number, now)?;

        // Last of the conditions: it counts the call, and all steps after it succeed.
        let permit = permit(&self.core, org, way, order, now)?;

        let key = self.table.reserve();
        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut AttemptCounter::default(),
            now,
        };

        let parties = parties(&callee, way);
        let (placed, call_id, mut dialing) = dial_first(&mut cx, key, slot, order.org, callee);

        // The call's first fact goes before its effects, whose results are facts of the same call.
        cx.core.fact(started(placed, call_id, way, order, now));
        cx.core.effects.push_back(Effect::FindContact {
            call: key,
            org: order.org,
            number: order.number,
        });
        prepare(&mut cx, key, &mut dialing);

        let media = MediaRules::of_route(org, way, order.agent, &cx.core.config);
        let krisp = org.trunk.as_ref().is_some_and(|trunk| trunk.krisp_enabled);

        let [called, caller] = users(&parties);
        let of = NewChain {
            runtime: runtime(cx.core, org, order.agent),
            namer: org.namer(order.agent),
            called,
            caller,
            krisp,
            media: media.clone(),
        };

        let (agent_peer, over_sip) = match First::of(of, order.agent, order.org, &cx.core.config) {
            First::Echo => (Some(LocalAgent::Echo), None),
            First::Bot(chain) => (Some(LocalAgent::Bot(Box::new(Bot::new(chain)))), None),
            First::Sip(runtime, chain) => (None, Some((runtime, chain))),
        };
        let agent_peer =
            agent_peer.map(|agent| LegPeer::Media(LocalMedia::of(placed.call, agent, media)));

        let (runtime, chain) = over_sip.unzip();
        let outbound = Outbound {
            parties,
            runtime,
            namer: org.namer(order.agent),
            krisp,
            contact: ContactState::Pending,
            ringing_timeout: order.ringing_timeout,
            // An order may shorten the longest duration of this node's calls, not extend it.
            max_duration: order.max_duration.min(cx.core.config.max_duration),
            media: None,
            chain: chain.flatten().map(Box::new),
        };

        self.begin(CalleeCall {
            key,
            slot,
            placed,
            holder: org.holder(),
            agent: order.agent,
            dialing,
            outbound,
            agent_peer,
            permit,
        });
        Ok(placed)
    }
}

/// Returns the org of an order, if it may call that number now.
fn org_of<'v>(
    core: &Core,
    view: &'v View,
    order: &NewOutboundCall,
) -> Result<&'v OrgView, OutboundRefusal> {
    if let Some(reason) = core.closed() {
        return Err(reason.into());
    }
    if !core.outbound_limits.allows(order.number) {
        return Err(Reason::DestinationNotAllowed.into());
    }
    let org = view.org(order.org).ok_or(Reason::NoAgent)?;
    if org.suspended {
        return Err(Reason::OrgSuspended.into());
    }
    Ok(org)
}

/// Returns the callee, if there is a route to it.
fn callee(
    core: &Core,
    org: &OrgView,
    way: &OutboundRoute,
    number: E164,
    now: Moment,
) -> Result<Callee, OutboundRefusal> {
    let callee = match (&way.peer, &org.trunk) {
        (Some(_), _) => {
            let route = core.registrations.service_route(way.id);
            let callee = Callee::through(way, number);
            callee.map(|callee| callee.along(route.as_deref(), &org.tied))
        }
        (None, Some(trunk)) => {
            let addresses = &core.config.addresses;
            let reach = core.bindings.reach(trunk.id, addresses, now);
            Callee::registered(way, number, reach)
        }
        (None, None) => None,
    };
    let callee = callee.ok_or(Reason::NotRegistered)?;
    // `None`: nothing is known of the trunk's peers, which is no reason to refuse.
    if core.health.trunk(way.id) == Some(false) {
        return Err(Reason::TrunkUnreachable.into());
    }
    Ok(callee)
}

/// Takes the permits of an outbound call: concurrent calls of org, trunk and agent, and rates of org and trunk.
fn permit(
    core: &Core,
    org: &OrgView,
    way: &OutboundRoute,
    order: &NewOutboundCall,
    now: Moment,
) -> Result<Permit, OutboundRefusal> {
    let outbound_limits = &core.outbound_limits;
    let [org_claim, agent_claim] = claims(org, order.agent)?;

    let trunk_claim = Claim {
        id: way.id,
        max: way.max_concurrent_calls,
    };
    let claims = [
        org_claim,
        outbound_limits.claim(order.org),
        trunk_claim,
        agent_claim,
    ];

    let permit = core.limits.acquire_outbound(org.holder(), claims, now);
    let permit = permit.map_err(LimitReached::reason)?;

    // After the permit: a permit is released by drop, but a start that was counted can't be taken back.
    outbound_limits.begin(order.org, way.id, way.calls_per_second, now)?;
    Ok(permit)
}

/// First fact of a call that an order begins.
fn started(
    placed: PlacedCall,
    call_id: CallId,
    way: &OutboundRoute,
    order: &NewOutboundCall,
    now: Moment,
) -> Fact {
    Fact::Started(Arc::new(Started {
        call: placed.call,
        org: order.org,
        session: placed.session,
        agent: Some(order.agent),
        trunk: Some(way.id),
        direction: Direction::Outbound,
        from: way.caller_number.as_str().into(),
        to: order.number.as_str().into(),
        from_e164: Some(way.caller_number),
        to_e164: Some(order.number),
        caller_call_id: call_id.as_str().into(),
        at: now,
        decision: None,
        headers: Vec::new(),
        metadata: order.metadata.clone(),
        invite_facts: None,
        clock_offset: 0,
    }))
}

/// Runtime of an agent, or the default one.
fn runtime(core: &Core, org: &OrgView, agent: Uuid) -> Arc<Runtime> {
    let own = org.runtimes.get(&agent);
    Arc::clone(own.unwrap_or(&core.config.default_runtime))
}

/// Limits of the call apart from its trunk's; the agent must exist and be enabled.
fn claims(org: &OrgView, agent: Uuid) -> Result<[Claim; 2], Reason> {
    let known = org
        .routing
        .agents
        .iter()
        .find(|known| known.id == agent && known.enabled)
        .ok_or(Reason::NoAgent)?;
    Ok([
        Claim {
            id: org.routing.id,
            max: org.routing.max_concurrent_calls,
        },
        Claim {
            id: agent,
            max: known.max_concurrent_calls,
        },
    ])
}

/// Parts of a call that begins with a callee.
pub(super) struct CalleeCall {
    pub(super) key: CallKey,
    pub(super) slot: Slot,
    pub(super) placed: PlacedCall,
    pub(super) holder: Holder,
    pub(super) agent: Uuid,
    pub(super) dialing: Box<Dialing>,
    pub(super) outbound: Outbound,
    /// The agent, if its audio passes through us.
    pub(super) agent_peer: Option<LegPeer>,
    pub(super) permit: Permit,
}

impl Calls {
    /// Stores a call that begins with a callee.
    pub(super) fn begin(&mut self, begun: CalleeCall) {
        let CalleeCall { key, placed, .. } = begun;
        let mut legs = Legs::beginning_with(LegPeer::Unknown, LegState::Dialing(begun.dialing));
        if let Some(agent_peer) = begun.agent_peer {
            legs.add(
                LegRole::Agent,
                agent_peer,
                // No INVITE goes to media of ours, so that leg is ready at once. The call is still being set up.
                LegState::Ready(Session::default()),
            );
        }

        let call = Call {
            bridge: Bridge::new(key, legs),
            ids: CallRef {
                call: placed.call,
                session: placed.session,
                org: begun.holder.org,
                partner: begun.holder.partner,
                agent: begun.agent,
                slot: begun.slot,
            },
            hops: RequestOrigin::Ours.hops(),
            outbound: Some(Box::new(begun.outbound)),
            joining: Joining::default(),
            permit: Some(begun.permit),
            lifetime: Lifetime::default(),
            contact: None,
            identity: CallerIdentity::default(),
            transfer: LastTransfer::default(),
            hold: Hold::default(),
            proof: None,
        };

        self.table.insert(call);
    }
}
