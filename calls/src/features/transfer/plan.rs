//! Ways of one transfer: REFER or bridge first, and which may follow. The trunk's settings and its PBX's abilities say so, within the operator's bounds.
//!
//! The bounds on outbound calls apply to a REFER to a number as to a leg of ours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_model::destinations::Destination;
use trunkline_model::settings::{TransferTarget, TransferWay};
use trunkline_model::transfer::TransferMethod;
use trunkline_model::view::OrgView;

use super::route::DestinationRoute;
use super::transferee::Transferee;
use super::{NewTransfer, TransferError};
use crate::core::context::Cx;
use crate::invite::dial_policy::may_dial;

/// Reason for the way in force.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TransferWayReason")]
pub enum MethodReason {
    /// `transfer_way` says so.
    Configured,
    /// `auto`: nothing shows that the PBX keeps its caller when an accepted REFER fails.
    NotProven,
    /// `auto`: the PBX was seen alive in a call whose accepted REFER had failed.
    KeptCaller,
}

impl MethodReason {
    /// The reason as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Configured => "The trunk's transfer_way sets this.",
            Self::NotProven => {
                "Nothing shows yet that this PBX keeps its caller when an accepted REFER fails."
            }
            Self::KeptCaller => {
                "This PBX was seen to keep its caller after an accepted REFER had failed."
            }
        }
    }
}

/// Returns the first way of the next transfer, and the reason. `keeps_caller`: the PBX was seen to keep its caller.
pub const fn method_in_force(
    set: TransferWay,
    keeps_caller: bool,
) -> (TransferMethod, MethodReason) {
    match (set, keeps_caller) {
        (TransferWay::Refer, _) => (TransferMethod::Refer, MethodReason::Configured),
        (TransferWay::Bridge, _) => (TransferMethod::Bridge, MethodReason::Configured),
        (TransferWay::Auto, true) => (TransferMethod::Refer, MethodReason::KeptCaller),
        (TransferWay::Auto, false) => (TransferMethod::Bridge, MethodReason::NotProven),
    }
}

/// Ways that one transfer may take. `R` is the route by which the daemon calls the destination.
#[derive(Debug)]
pub(crate) struct Plan<R> {
    /// The way that is tried first.
    pub(crate) first: TransferMethod,
    /// REFER is allowed: the PBX gets it first, or if no bridge can begin.
    pub(crate) refers: bool,
    /// The PBX gets REFER after a bridge that failed before anything rang.
    pub(crate) refers_after_bridge: bool,
    /// A bridge follows a failed REFER.
    pub(crate) bridges_after_refer: bool,
    /// The destination may be called although the PBX has declined.
    pub(crate) bridges_after_decline: bool,
    /// The PBX was seen to keep its caller when a REFER failed.
    pub(crate) keeps_caller: bool,
    /// Route by which the daemon calls the destination, until it is used.
    pub(crate) route: Option<R>,
}

impl<R> Plan<R> {
    /// Plan without REFER: the PBX can't know this destination.
    pub(crate) const fn own(route: R) -> Self {
        Self {
            first: TransferMethod::Bridge,
            refers: false,
            refers_after_bridge: false,
            bridges_after_refer: false,
            bridges_after_decline: false,
            keeps_caller: false,
            route: Some(route),
        }
    }

    /// Returns whether a bridge follows a REFER refused with this status. 403 and 603 are deliberate refusals: then only the PBX itself is called, or
    /// the trunk that the destination names.
    pub(super) const fn bridges_after(&self, status: u16) -> bool {
        let may_go = !matches!(status, 403 | 603) || self.bridges_after_decline;
        self.bridges_after_refer && may_go && self.route.is_some()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_a_sentence_of_its_own() {
        for (reason, names) in [
            (MethodReason::Configured, "The trunk's transfer_way"),
            (MethodReason::NotProven, "Nothing shows yet"),
            (MethodReason::KeptCaller, "was seen to keep its caller"),
        ] {
            assert!(reason.sentence().contains(names), "{reason:?}");
        }
    }

    #[test]
    fn what_is_in_force_has_a_reason() {
        for (set, keeps, way, reason) in [
            (
                TransferWay::Refer,
                false,
                TransferMethod::Refer,
                MethodReason::Configured,
            ),
            (
                TransferWay::Refer,
                true,
                TransferMethod::Refer,
                MethodReason::Configured,
            ),
            (
                TransferWay::Bridge,
                true,
                TransferMethod::Bridge,
                MethodReason::Configured,
            ),
            (
                TransferWay::Auto,
                false,
                TransferMethod::Bridge,
                MethodReason::NotProven,
            ),
            (
                TransferWay::Auto,
                true,
                TransferMethod::Refer,
                MethodReason::KeptCaller,
            ),
        ] {
            assert_eq!(
                method_in_force(set, keeps),
                (way, reason),
                "{set:?} {keeps}"
            );
        }
    }
}
