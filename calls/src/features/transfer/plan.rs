//! Ways of one transfer: REFER or bridge first, and which may follow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_model::settings::TransferWay;
use trunkline_model::transfer::TransferMethod;

use super::destination_route::DestinationRoute;

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

/// Ways that one transfer may take.
#[derive(Debug)]
pub(crate) struct Plan {
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
    pub(crate) route: Option<Box<DestinationRoute>>,
}

impl Plan {
    /// Plan without REFER: the PBX can't know this destination.
    pub(crate) const fn own(route: Box<DestinationRoute>) -> Self {
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
