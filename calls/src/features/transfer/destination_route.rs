//! Route by which the daemon calls a destination, and the bounds that such a call counts against.
//!
//! The bounds on outbound calls don't apply to a leg back to the PBX that called: that PBX dials with its own lines. They apply to any
//! other leg, and also to a leg back to a peer that the operator has reserved, since that peer's lines are the operator's.

use std::sync::Arc;

use trunkline_bounds::Holder;
use trunkline_model::view::OutboundRoute;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::leg::callee::Callee;
use crate::limits::outbound_limits::OutboundLimits;
use crate::limits::{Claim, LimitReached, Limits, Permit};
use crate::parts::refusal::Reason;
use crate::peers::health::Health;

/// Route by which a destination is called from here.
#[derive(Debug)]
pub(crate) struct DestinationRoute {
    pub(crate) callee: Callee,
    kind: RouteKind,
    /// The destination's own settings name this route, or the call itself went out by it.
    is_named: bool,
}

/// Kind of a route, and the bounds of a call by it.
#[derive(Debug)]
pub(crate) enum RouteKind {
    /// An outbound trunk, within its own bounds and the org's.
    Trunk(TrunkBounds),
    /// A host other than the PBX that called, within the org's bounds.
    OtherHost,
    /// The PBX on the caller's side, at its proven address.
    Pbx,
    /// A PBX that is a reserved peer and takes calls at the operator's cost: within the org's bounds.
    ReservedPeer,
    /// Another call of ours, which is counted already.
    OwnCall,
}

/// Limits of an outbound trunk.
#[derive(Debug)]
pub(crate) struct TrunkBounds {
    id: Uuid,
    max_concurrent_calls: Option<u32>,
    calls_per_second: Option<u32>,
    /// It leads to the registered PBX that called.
    leads_back: bool,
}

impl DestinationRoute {
    pub(crate) const fn new(callee: Callee, kind: RouteKind) -> Self {
        Self {
            callee,
            kind,
            is_named: false,
        }
    }

    /// A route that the destination's own settings name, or by which the call itself went out.
    pub(crate) const fn named(callee: Callee, kind: RouteKind) -> Self {
        Self {
            callee,
            kind,
            is_named: true,
        }
    }

    /// Returns whether it leads back to the PBX on the caller's side, or to a call of ours: bounds on outbound calls don't apply.
    pub(crate) const fn leads_back(&self) -> bool {
        match &self.kind {
            RouteKind::Pbx | RouteKind::OwnCall => true,
            RouteKind::Trunk(trunk) => trunk.leads_back,
            RouteKind::OtherHost | RouteKind::ReservedPeer => false,
        }
    }

    /// Returns whether the destination is called at the caller's own PBX.
    pub(crate) const fn is_at_pbx(&self) -> bool {
        matches!(self.kind, RouteKind::Pbx | RouteKind::ReservedPeer)
    }

    /// Returns whether the destination sees the caller's number rather than that of a trunk.
    pub(crate) const fn calls_as_caller(&self) -> bool {
        !matches!(self.kind, RouteKind::Trunk(_) | RouteKind::OwnCall)
    }

    /// Returns whether the destination may be called although the PBX has declined.
    pub(crate) const fn suits_after_decline(&self) -> bool {
        self.leads_back() || self.is_named
    }

    /// Counts a call by this route; `None` if it counts against nothing.
    ///
    /// # Errors
    /// The reason why there may be no such call now.
    pub(crate) fn permit(
        &self,
        holder: Holder,
        outbound_limits: &OutboundLimits,
        limits: &Arc<Limits>,
        health: &Health,
        now: Moment,
    ) -> Result<Option<Permit>, Reason> {
        let (trunk, leads_back) = match &self.kind {
            RouteKind::Pbx | RouteKind::OwnCall => return Ok(None),
            RouteKind::OtherHost | RouteKind::ReservedPeer => (None, false),
            RouteKind::Trunk(trunk) => (Some(trunk), trunk.leads_back),
        };
        if trunk.is_some_and(|trunk| health.trunk(trunk.id) == Some(false)) {
            return Err(Reason::TrunkUnreachable);
        }

        let org = holder.org;
        let claims = [
            (!leads_back).then(|| outbound_limits.claim(org)),
            trunk.map(|trunk| Claim {
                id: trunk.id,
                max: trunk.max_concurrent_calls,
            }),
        ];
        let permit = limits
            .acquire_leg(holder, claims)
            .map_err(LimitReached::reason)?;

        if !leads_back {
            // After the permit, which is released by drop: a start that was counted can't be taken back.
            let (id, rate) = trunk.map_or((Uuid::nil(), None), |trunk| {
                (trunk.id, trunk.calls_per_second)
            });
            outbound_limits
                .begin(org, id, rate, now)
                .map_err(|denied| denied.reason)?;
        }
        Ok(Some(permit))
    }
}

impl TrunkBounds {
    pub(crate) fn of(way: &OutboundRoute, is_inbound: bool) -> Self {
        Self {
            id: way.id,
            max_concurrent_calls: way.max_concurrent_calls,
            calls_per_second: way.calls_per_second,
            leads_back: is_inbound && way.peer.is_none(),
        }
    }
}
