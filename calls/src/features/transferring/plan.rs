//! Ways to a destination: the trunk's settings and its PBX's abilities, within the operator's bounds.
//!
//! The bounds on outbound calls apply to a REFER to a number as to a leg of ours.

use trunkline_model::destinations::Destination;
use trunkline_model::settings::{TransferTarget, TransferWay};
use trunkline_model::transfer::TransferMethod;
use trunkline_model::view::OrgView;

use super::transferee::Transferee;
use crate::core::context::Cx;
use crate::features::destination_route::DestinationRoute;
use crate::features::transfer::{NewTransfer, Plan, TransferError, method_in_force};
use crate::invite::dial_policy::may_dial;

/// Ways that a transfer of a call may take.
pub(super) type TransferPlan = Plan<Box<DestinationRoute>>;

/// Transfer of a call that is about to begin.
pub(crate) type PlannedTransfer = NewTransfer<Box<DestinationRoute>>;

impl Transferee<'_> {
    /// Returns the ways to a destination.
    ///
    /// # Errors
    /// [`TransferError::NotAllowed`] where the operator's bounds leave none.
    pub(super) fn plan(
        &self,
        cx: &Cx<'_>,
        org: &OrgView,
        destination: &Destination,
        replaces: Option<&str>,
    ) -> Result<TransferPlan, TransferError> {
        // A suspended org's caller may still be moved back to its own PBX.
        let allowed = !org.suspended && is_allowed(cx, org, destination);
        let route = self.route(cx, destination, replaces, org);
        let route = route.filter(|route| allowed || route.leads_back());
        let trunk = org.trunk.as_ref();
        let bridges_after_refer = trunk.is_none_or(|trunk| trunk.bridge_when_refer_fails);
        let (set, keeps_caller) = match (self.outbound_route(org), trunk) {
            (Some(way), _) => (way.transfer_way, way.keeps_caller),
            (None, Some(trunk)) => (trunk.transfer_way, trunk.keeps_caller),
            (None, None) => (TransferWay::default(), false),
        };

        let abilities = self.trunk.map(|trunk| trunk.abilities);
        let abilities = abilities.unwrap_or_default();
        let takes_no_refer = abilities.no_refer;
        // A PBX without REFER in Allow would refuse it, and the bridge would follow anyway.
        let first = match method_in_force(set, keeps_caller) {
            _ if takes_no_refer && bridges_after_refer => TransferMethod::Bridge,
            (way, _) => way,
        };
        // If the bounds forbid the number, neither REFER nor our own call may reach it; a leg back to the PBX may.
        if !allowed && (first == TransferMethod::Refer || route.is_none()) {
            return Err(TransferError::NotAllowed);
        }

        let suits_after_decline = |route: &DestinationRoute| route.suits_after_decline();
        // A PBX that ignores the host of Refer-To looks the user up in its own dialplan, and may reach another party.
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
            bridges_after_decline: route.as_ref().is_some_and(suits_after_decline),
            route: route.map(Box::new),
        })
    }
}

/// Returns whether the operator allows calls to the number that a destination is or holds. That applies to every party that would dial it, a PBX by
/// REFER as well.
fn is_allowed(cx: &Cx<'_>, org: &OrgView, destination: &Destination) -> bool {
    let outbound_limits = &cx.core.outbound_limits;
    let trunk = org.routing.trunk.as_ref();
    let country = trunk.and_then(|trunk| trunk.default_country);
    match &destination.target {
        TransferTarget::Phone(number) => outbound_limits.allows(*number),
        TransferTarget::Sip(uri) => may_dial(outbound_limits, uri.as_bytes(), country),
    }
}
