//! Which ways a transfer may take: REFER or bridge first, what may follow, and what the operator's bounds leave of it.
//!
//! A leg back to the PBX that called isn't held to the bounds on outbound calls: that PBX dials with its own lines. Any other leg is, and a
//! REFER to a number as well; so is one back to a peer that the operator has reserved, whose lines are the operator's.

use schemars::JsonSchema;
use serde::Serialize;
use trunkline_model::destinations::Destination;
use trunkline_model::settings::{TransferTarget, TransferWay};
use trunkline_model::transfer::{self as record, State, Way};
use trunkline_model::view::OrgView;

use super::bridge::{Fallback, Leaves};
use super::{Unable, Wait};
use crate::call::Call;
use crate::context::Cx;
use crate::dialled::may_dial;
use crate::pbx::Pbx;
use crate::registrar::bindings::Binding;
use crate::unanswered::Failure;

/// Why a way is in force.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferWayReason")]
pub enum WayReason {
    /// `transfer_way` says so.
    Configured,
    /// `auto`: nothing shows that the PBX keeps its caller when an accepted REFER fails.
    NotProven,
    /// `auto`: the PBX was seen alive in a call whose accepted REFER had failed.
    KeptCaller,
}

impl WayReason {
    /// The same in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Configured => "transfer_way says so.",
            Self::NotProven => {
                "Nothing shows yet that this PBX keeps its caller when an accepted REFER fails."
            }
            Self::KeptCaller => {
                "This PBX was seen to keep its caller after an accepted REFER had failed."
            }
        }
    }
}

/// The way that the next transfer takes first, and why. `keeps_caller`: the PBX was seen to keep its caller.
pub const fn way_in_force(set: TransferWay, keeps_caller: bool) -> (Way, WayReason) {
    match (set, keeps_caller) {
        (TransferWay::Refer, _) => (Way::Refer, WayReason::Configured),
        (TransferWay::Bridge, _) => (Way::Bridge, WayReason::Configured),
        (TransferWay::Auto, true) => (Way::Refer, WayReason::KeptCaller),
        (TransferWay::Auto, false) => (Way::Bridge, WayReason::NotProven),
    }
}

/// The ways that one transfer may take.
#[derive(Debug)]
pub(super) struct Plan {
    /// The way that is tried first.
    pub(super) first: Way,
    /// The PBX may be asked where no bridge could be begun.
    pub(super) refers: bool,
    /// The PBX is asked after a bridge that reached nobody.
    pub(super) refers_after_bridge: bool,
    /// A REFER that fails is followed by a bridge.
    pub(super) bridges_after_refer: bool,
    /// The PBX was seen to keep its caller when a REFER failed.
    pub(super) keeps_caller: bool,
    /// Route for calling the destination from here, until it is used.
    pub(super) fallback: Option<Box<Fallback>>,
}

impl Plan {
    /// The PBX isn't asked: of this destination it can't know.
    pub(super) fn own(fallback: Fallback) -> Self {
        Self {
            first: Way::Bridge,
            refers: false,
            refers_after_bridge: false,
            bridges_after_refer: false,
            keeps_caller: false,
            fallback: Some(Box::new(fallback)),
        }
    }

    /// Whether a REFER that was refused with this status is followed by a bridge. After 403 and 603 somebody has said no: then only the PBX
    /// itself is called, or the trunk that the destination names.
    pub(super) fn bridges_after(&self, status: u16) -> bool {
        let may_go_elsewhere = !matches!(status, 403 | 603);
        let suits = |fallback: &Fallback| may_go_elsewhere || fallback.suits_after_decline();
        self.bridges_after_refer && self.fallback.as_deref().is_some_and(suits)
    }
}

impl Call {
    /// The ways to a destination.
    ///
    /// # Errors
    /// [`Unable::NotAllowed`] where the operator's bounds leave none.
    pub(super) fn plan(
        &self,
        cx: &Cx<'_>,
        org: &OrgView,
        destination: &Destination,
        replaces: Option<&str>,
    ) -> Result<Plan, Unable> {
        // A suspended org's caller may still be brought back to its own PBX.
        let allowed = !org.suspended && is_allowed(cx, org, destination);
        let fallback = self.fallback(cx, destination, replaces, org);
        let fallback = fallback.filter(|fallback| allowed || fallback.leads_back());
        let trunk = org.trunk.as_ref();
        let bridges_after_refer = trunk.is_none_or(|trunk| trunk.bridge_when_refer_fails);
        let (set, keeps_caller) = match (self.outbound_route(org), trunk) {
            (Some(way), _) => (way.transfer_way, way.keeps_caller),
            (None, Some(trunk)) => (trunk.transfer_way, trunk.keeps_caller),
            (None, None) => (TransferWay::default(), false),
        };

        let abilities = self
            .trunk()
            .map(|trunk| trunk.abilities)
            .unwrap_or_default();
        let takes_no_refer = abilities.no_refer;
        let first = match way_in_force(set, keeps_caller) {
            _ if takes_no_refer && bridges_after_refer => Way::Bridge,
            (way, _) => way,
        };
        if !allowed && (first == Way::Refer || fallback.is_none()) {
            return Err(Unable::NotAllowed);
        }

        let is_sip = matches!(destination.target, TransferTarget::Sip(_));
        let is_in_vain = abilities
            .pbx
            .is_some_and(|pbx| is_sip && pbx.ignores_host_of_refer_to());
        Ok(Plan {
            first,
            refers: allowed,
            refers_after_bridge: allowed && !takes_no_refer && !is_in_vain,
            bridges_after_refer,
            keeps_caller,
            fallback: fallback.map(Box::new),
        })
    }

    /// The way back to where the call came from.
    pub(super) fn back_to_caller(&self, cx: &Cx<'_>) -> Leaves {
        let addresses = &cx.core.config.addresses;
        let source = self.trunk().map(|trunk| trunk.flow.peer.ip());
        match source.is_some_and(|source| addresses.is_reserved(source)) {
            true => Leaves::ReservedPeer,
            false => Leaves::Pbx,
        }
    }

    /// Whether the PBX has registered by a flow that only another node has, and isn't the one that called. The call stays on this node, so that
    /// nothing of it goes by that flow: the transfer goes on as REFER.
    pub(super) fn is_with_another_node(&self, cx: &Cx<'_>, org: &OrgView) -> bool {
        let (Some(trunk), Some(caller)) = (&org.trunk, self.trunk()) else {
            return false;
        };
        let (core, source) = (&cx.core, caller.flow.peer.ip().to_canonical());
        let registered = core.bindings.of(trunk.id, cx.now);
        let is_caller = |binding: &Binding| binding.flow.peer.ip().to_canonical() == source;
        let reach = core
            .bindings
            .reach(trunk.id, &core.config.addresses, cx.now);
        reach.is_empty() && !registered.is_empty() && !registered.iter().any(is_caller)
    }

    /// The trunk whose PBX is asked.
    pub(super) fn trunk_asked(&self, org: &OrgView) -> Option<record::Trunk> {
        if self.outbound.is_some() {
            return self
                .outbound_route(org)
                .map(|way| record::Trunk::Outbound(way.id));
        }
        let trunk = org.trunk.as_ref();
        trunk.map(|trunk| record::Trunk::Inbound(trunk.id))
    }

    /// Whether the PBX loses the caller when a REFER that it has accepted fails.
    pub(super) fn loses_caller(&self) -> bool {
        let keeps = self
            .transfer
            .as_deref()
            .is_some_and(|transfer| transfer.plan.keeps_caller);
        let pbx = self.trunk().and_then(|trunk| trunk.abilities.pbx);
        !keeps && pbx.is_some_and(Pbx::loses_caller)
    }

    /// A bridge has failed before anything rang: the PBX may know a way. False if it isn't asked.
    pub(super) fn refers_instead(&mut self, cx: &mut Cx<'_>, failure: &Failure) -> bool {
        let pbx = self.trunk().and_then(|trunk| trunk.abilities.pbx);
        let has_run = |pbx: Pbx| pbx.has_run_dialplan(failure.sip_code, failure.cause);

        // A REFER would take the caller into the same dialplan.
        let is_in_vain = failure.is_answer && self.loses_caller() && pbx.is_some_and(has_run);
        let is_out_of_reach =
            !is_in_vain && matches!(failure.sip_code, 401 | 403 | 404 | 407 | 408 | 503);
        let Some(transfer) = self.transfer.as_deref_mut() else {
            return false;
        };

        let record = &mut transfer.record;
        let has_rung = record.ringing_at.is_some();
        if transfer.wait != Wait::Destination
            || !transfer.plan.refers_after_bridge
            || has_rung
            || !is_out_of_reach
        {
            return false;
        }

        transfer.plan.refers_after_bridge = false;
        transfer.bridge_failure = Some(failure.sip_code);
        transfer.permit = None;
        record.way = Way::Refer;
        record.state = State::Requested;
        record.accepted_at = None;
        self.tell_transfer(cx);
        self.send_refer(cx);
        true
    }
}

/// Whether the operator allows calls to the number that a destination is or holds, whoever would dial it: a PBX that is asked by REFER
/// no less than we.
fn is_allowed(cx: &Cx<'_>, org: &OrgView, destination: &Destination) -> bool {
    let caps = &cx.core.caps;
    let trunk = org.routing.trunk.as_ref();
    let country = trunk.and_then(|trunk| trunk.default_country);
    match &destination.target {
        TransferTarget::Phone(number) => caps.allows(*number),
        TransferTarget::Sip(uri) => may_dial(caps, uri.as_bytes(), country),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_force_has_a_reason() {
        for (set, keeps, way, reason) in [
            (TransferWay::Refer, false, Way::Refer, WayReason::Configured),
            (TransferWay::Refer, true, Way::Refer, WayReason::Configured),
            (
                TransferWay::Bridge,
                true,
                Way::Bridge,
                WayReason::Configured,
            ),
            (TransferWay::Auto, false, Way::Bridge, WayReason::NotProven),
            (TransferWay::Auto, true, Way::Refer, WayReason::KeptCaller),
        ] {
            assert_eq!(way_in_force(set, keeps), (way, reason), "{set:?} {keeps}");
        }
    }
}
