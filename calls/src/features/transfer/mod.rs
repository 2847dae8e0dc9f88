//! Cold transfer: a caller is moved to one of its agent's destinations. Either the PBX gets REFER on the caller's dialog (RFC 3515), or the daemon
//! calls the destination, which replaces the agent; if one of the two fails, the other may follow (`plan`). `machine` is the transfer's state. It knows
//! no call; the other modules pass it events and carry out its steps: the REFER, the NOTIFYs, the call to the destination.

pub(crate) mod bridge;
pub(crate) mod digit;
mod event;
mod last;
mod machine;
pub(crate) mod notify;
mod outcome;
mod own;
mod plan;
pub(crate) mod refer;
pub(crate) mod route;
pub(crate) mod runtime;
mod sent_refers;
mod sipfrag;
#[cfg(test)]
mod tests;
mod transferee;

use serde::{Deserialize, Serialize};
use trunkline_model::destinations::Destination;
use trunkline_model::handoff::Report;
use trunkline_model::transfer as record;
use trunkline_model::transfer::State;
use trunkline_model::view::OrgView;
use uuid::Uuid;

use crate::core::context::Cx;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::parts::ids::LegId;
use plan::TransferPlan;

pub(crate) use bridge::DestinationAnswer;
pub(crate) use event::{
    AgentEnd, CallFacts, NewTransfer, ReferAnswer, Requester, Steps, Subscription, TransferEvent,
    TransferStep,
};
pub(crate) use last::LastTransfer;
pub(crate) use own::asked_by_ourselves;
pub use plan::{MethodReason, method_in_force};
pub(crate) use plan::{Plan, PlannedTransfer};
pub(crate) use runtime::ReferRequest;
pub(crate) use sipfrag::status_of;
pub(crate) use transferee::Transferee;

/// Request for a transfer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TransferRequest {
    /// The destination.
    pub chosen: DestinationChoice,
    /// Report of the agent.
    pub report: Report,
}

/// Reference to a destination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationChoice {
    /// By its name, ignoring case.
    Name(Box<str>),
    /// By its id.
    Id(Uuid),
}

/// Reason why there is no transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransferError {
    /// The call is over, or was never here.
    #[error("the call is not up")]
    NotUp,
    /// The call has not been answered yet.
    #[error("the call has not been answered yet")]
    NotAnswered,
    /// Another transfer has no outcome yet.
    #[error("another transfer of the call is under way")]
    UnderWay,
    /// The agent has no such destination.
    #[error("no such destination is assigned to the call's agent")]
    NotAssigned,
    /// The operator allows no calls to its number.
    #[error("calls to this number are not allowed here (phone.outbound_prefixes)")]
    NotAllowed,
}

/// Destination of a transfer, and the ways to it.
struct Meant {
    destination: Destination,
    /// Dialog to replace there.
    replaces: Option<String>,
    plan: TransferPlan,
}

impl<R> LastTransfer<R> {
    /// Returns why no transfer of the call can begin now, if none can.
    pub(crate) fn may_begin(&self, bridge: &Bridge) -> Result<(), TransferError> {
        match bridge.status() {
            CallStatus::SettingUp => return Err(TransferError::NotAnswered),
            CallStatus::Over => return Err(TransferError::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        // The destination is no agent of the org: there is no list of destinations that it may transfer to.
        if bridge.is_with_destination() {
            return Err(TransferError::NotUp);
        }
        // Once a new leg replaces one of the two, the result of a REFER on the old one has no use (RFC 3891 §3).
        match self.is_busy() || bridge.legs.successor().is_some() {
            true => Err(TransferError::UnderWay),
            false => Ok(()),
        }
    }

    /// Returns whether the call goes on without this leg: that of an agent whose caller is being transferred.
    pub(crate) fn outlives(&self, bridge: &Bridge, leg: LegId) -> bool {
        let is_up = matches!(bridge.status(), CallStatus::Answered | CallStatus::Up);
        is_up && leg == bridge.agent_id() && self.goes_on()
    }

    /// Returns whether the caller is alone: its agent has hung up, and the outcome of its transfer is open.
    pub(crate) fn has_agent_left(&self, bridge: &Bridge) -> bool {
        let is_gone = bridge.agent().is_some_and(|agent| agent.dialogs.is_empty());
        is_gone && bridge.status() == CallStatus::Up && self.is_under_way()
    }
}

impl Transferee<'_> {
    /// Returns the transfer that a client has requested.
    pub(crate) fn requested(
        &self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        ask: TransferRequest,
    ) -> Result<PlannedTransfer, TransferError> {
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
    fn transfer_to(
        &self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        meant: Meant,
        report: Report,
        requester: Requester,
    ) -> PlannedTransfer {
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
}
