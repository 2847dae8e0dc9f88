//! Which ways a transfer may take: REFER or bridge first, and what may follow.

use schemars::JsonSchema;
use serde::Serialize;
use trunkline_model::settings::TransferWay;
use trunkline_model::transfer::Way;

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

/// The ways that one transfer may take. `R` is the route by which the destination is called from here.
#[derive(Debug)]
pub(crate) struct Plan<R> {
    /// The way that is tried first.
    pub(crate) first: Way,
    /// The PBX may be asked where no bridge could be begun.
    pub(crate) refers: bool,
    /// The PBX is asked after a bridge that reached nobody.
    pub(crate) refers_after_bridge: bool,
    /// A REFER that fails is followed by a bridge.
    pub(crate) bridges_after_refer: bool,
    /// The destination may be called though the PBX has declined to.
    pub(crate) bridges_after_decline: bool,
    /// The PBX was seen to keep its caller when a REFER failed.
    pub(crate) keeps_caller: bool,
    /// Route for calling the destination from here, until it is used.
    pub(crate) route: Option<R>,
}

impl<R> Plan<R> {
    /// The PBX isn't asked: of this destination it can't know.
    pub(crate) const fn own(route: R) -> Self {
        Self {
            first: Way::Bridge,
            refers: false,
            refers_after_bridge: false,
            bridges_after_refer: false,
            bridges_after_decline: false,
            keeps_caller: false,
            route: Some(route),
        }
    }

    /// Returns whether a REFER that was refused with this status is followed by a bridge. After 403 and 603 somebody has said no: then only the
    /// PBX itself is called, or the trunk that the destination names.
    pub(super) const fn bridges_after(&self, status: u16) -> bool {
        let may_go = !matches!(status, 403 | 603) || self.bridges_after_decline;
        self.bridges_after_refer && may_go && self.route.is_some()
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
