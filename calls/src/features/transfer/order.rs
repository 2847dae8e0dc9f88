//! Transfers as they are requested: the destination, the ways to it (the trunk's settings and its PBX's abilities, within the operator's bounds), and the
//! record.
//!
//! The bounds on outbound calls apply to a REFER to a number as to a leg of ours.

use trunkline_model::destinations::Destination;
use trunkline_model::handoff::Report;
use trunkline_model::settings::{TransferTarget, TransferWay};
use trunkline_model::transfer as record;
use trunkline_model::transfer::{State, TransferMethod};
use trunkline_model::view::OrgView;

use super::destination_route::DestinationRoute;
use super::event::{NewTransfer, Requester};
use super::plan::{Plan, method_in_force};
use super::request::{DestinationChoice, TransferError, TransferRequest};
use super::transferee::Transferee;
use crate::core::context::Cx;
use crate::invite::dial_policy::may_dial;

/// Destination of a transfer, and the ways to it.
pub(super) struct Meant {
    pub(super) destination: Destination,
    /// Dialog to replace there.
    pub(super) replaces: Option<String>,
    pub(super) plan: Plan,
}

impl Transferee<'_> {
    /// Returns the transfer that a client has requested.
    pub(crate) fn requested(
        &self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        ask: TransferRequest,
    ) -> Result<NewTransfer, TransferError> {
        let own = org.destinations.get(&self.ids.agent);
        let own = own.map(|own| &**own).unwrap_or_default();
        let destination = match &ask.chosen {
            DestinationChoice::Name(name) => Destination::named(own, name),
            DestinationChoice::Id(id) => Destination::of_id(own, *id),
        };
        let destination = destination.ok_or(TransferError::NotAssigned)?.clone();
        let plan = self.plan(cx, org, &destination, None)?;
        let meant = Meant {
            destination,
            replaces: None,
            plan,
        };
        Ok(self.transfer_to(cx, org, meant, ask.report, Requester::Api))
    }

    /// Makes a transfer, with its record before any request is sent.
    pub(super) fn transfer_to(
        &self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        meant: Meant,
        report: Report,
        requester: Requester,
    ) -> NewTransfer {
        let Meant {
            destination,
            replaces,
            plan,
        } = meant;

        // Made for a bridge as well: if it can't begin or fails early, REFER follows.
        let prefix = &cx.core.config.header_prefix;
        let refer_to = self.refer_to(&destination.target, replaces.as_deref(), org, prefix);

        let record = record::Transfer {
            id: cx.mint_id(self.ids.slot),
            call: self.ids.call,
            org: self.ids.org,
            session: self.ids.session,
            destination: destination.id,
            name: destination.name,
            target: destination.target,
            way: plan.first,
            state: State::Requested,
            sip_code: None,
            report,
            requested_at: cx.now,
            accepted_at: None,
            ringing_at: None,
            ended_at: None,
            handed_over: false,
            answer_confirmed: None,
            caller_may_be_gone: false,
            counted_at: None,
            kept_by: None,
            step: 0,
        };

        NewTransfer {
            record,
            requester,
            plan,
            trunk: self.trunk_asked(org),
            refer_to: refer_to.into(),
        }
    }

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
    ) -> Result<Plan, TransferError> {
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
