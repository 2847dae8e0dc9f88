//! Transfers of a call: passes events to the state machine (`transfer`) and carries out its steps.

mod bridge;
mod digit;
mod notify;
mod own;
mod plan;
mod refer;
mod route;
mod runtime;
mod transferee;

use std::time::Duration;

use trunkline_model::destinations::Destination;
use trunkline_model::handoff::Report;
use trunkline_model::record::Fact;
use trunkline_model::transfer::{self as record, State};
use trunkline_model::view::OrgView;
use trunkline_sip::wheel::TimerId;

use crate::bridge::Bridge;
use crate::call::Call;
use crate::call_end::CallEnd;
use crate::call_status::CallStatus;
use crate::context::Cx;
use crate::destination_route::DestinationRoute;
use crate::flow::TransferFailure;
use crate::hold::HoldError;
use crate::ids::{CallKey, CallTimer};
use crate::transfer::{
    CallFacts, DestinationChoice, LastTransfer, NewTransfer, Requester, Steps, TransferError,
    TransferEvent, TransferRequest, TransferStep,
};
pub(crate) use bridge::DestinationAnswer;
pub(crate) use own::asked_by_ourselves;
use plan::{PlannedTransfer, TransferPlan};
pub(crate) use runtime::ReferRequest;
use transferee::Transferee;

/// Destination of a transfer, and the ways to it.
struct Meant {
    destination: Destination,
    /// Dialog to replace there.
    replaces: Option<String>,
    plan: TransferPlan,
}

impl<R> LastTransfer<R> {
    /// Returns why no transfer of the call can begin now, if none can.
    fn may_begin(&self, bridge: &Bridge) -> Result<(), TransferError> {
        match bridge.status() {
            CallStatus::SettingUp => return Err(TransferError::NotAnswered),
            CallStatus::Over => return Err(TransferError::NotUp),
            CallStatus::Answered | CallStatus::Up => {}
        }
        if bridge.is_with_destination() {
            return Err(TransferError::NotUp);
        }
        // Once a new leg replaces one of the two, the result of a REFER on the old one has no use (RFC 3891 §3).
        match self.is_busy() || bridge.legs.successor().is_some() {
            true => Err(TransferError::UnderWay),
            false => Ok(()),
        }
    }

    /// Returns whether the caller is alone: its agent has hung up, and the outcome of its transfer is open.
    pub(crate) fn has_agent_left(&self, bridge: &Bridge) -> bool {
        let is_gone = bridge.agent().is_some_and(|agent| agent.dialogs.is_empty());
        is_gone && bridge.status() == CallStatus::Up && self.is_under_way()
    }
}

impl Transferee<'_> {
    /// Returns the transfer that a client has requested.
    fn requested(
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

impl Call {
    /// Begins the transfer that a client has requested. Returns its state before any request is sent.
    pub(crate) fn transfer(
        &mut self,
        cx: &mut Cx<'_>,
        org: &OrgView,
        ask: TransferRequest,
    ) -> Result<record::Transfer, TransferError> {
        self.transfer.may_begin(&self.bridge)?;
        let new = self.transferee().requested(cx, org, ask)?;
        let record = new.record.clone();
        self.begin_transfer(cx, new);
        Ok(record)
    }

    pub(crate) fn transferee(&self) -> Transferee<'_> {
        Transferee {
            trunk: self.bridge.trunk(),
            identity: &self.identity,
            is_outbound: self.outbound.is_some(),
            ids: &self.ids,
            contact: self.contact,
        }
    }

    /// Begins a transfer.
    pub(crate) fn begin_transfer(&mut self, cx: &mut Cx<'_>, new: PlannedTransfer) {
        let steps = self.transfer.begin(new);
        self.take_steps(cx, steps);
        if self.bridge.status() == CallStatus::Up {
            self.on_transfer(cx, TransferEvent::Acknowledged);
        }
    }

    /// Passes the transfer an event, and carries out its steps.
    pub(crate) fn on_transfer(&mut self, cx: &mut Cx<'_>, event: TransferEvent) {
        let facts = CallFacts {
            now: cx.now,
            is_up: self.bridge.status() == CallStatus::Up,
            can_dial: self.bridge.can_dial(),
            pbx: self.bridge.trunk().and_then(|trunk| trunk.abilities.pbx),
        };
        let steps = self.transfer.handle(event, facts);
        self.take_steps(cx, steps);
    }

    /// Carries out the machine's steps in order.
    fn take_steps(&mut self, cx: &mut Cx<'_>, steps: Steps<Box<DestinationRoute>>) {
        let key = self.bridge.key;
        let mut untransferred = None;
        for step in steps {
            match step {
                TransferStep::Record(record) => cx.core.fact(Fact::Transfer(record)),
                TransferStep::Notify {
                    subscription,
                    status,
                    is_last,
                } => self
                    .bridge
                    .notify_runtime(cx, subscription, status, is_last),
                TransferStep::Wait(time) => wait(cx, key, self.transfer.timer_mut(), time),
                TransferStep::WaitOutGlare => {
                    let time = Some(self.bridge.refer_wait(cx));
                    wait(cx, key, self.transfer.timer_mut(), time);
                }
                TransferStep::Refer => {
                    let leg = self.bridge.trunk_id();
                    let (bridge, ids) = (&mut self.bridge, &self.ids);
                    let sent = self.transfer.send_refer(bridge, cx, ids, self.contact);
                    let event = match sent {
                        Some(cseq) => TransferEvent::ReferSent { leg, cseq },
                        None => TransferEvent::ReferUnsent,
                    };
                    self.on_transfer(cx, event);
                }
                TransferStep::Probe => {
                    if !self.bridge.probe(cx) {
                        self.on_transfer(cx, TransferEvent::ProbeUnsent);
                    }
                }
                TransferStep::Dial(route) => {
                    let (bridge, ids) = (&mut self.bridge, &self.ids);
                    let begun = self
                        .transfer
                        .begin_bridge(bridge, cx, ids, self.hops, *route);
                    match begun {
                        Ok(()) => self.with_dialing(cx, |client, cx, text| client.begin(cx, text)),
                        Err(event) => self.on_transfer(cx, event),
                    }
                }
                TransferStep::Resume => {
                    // The caller stays with the agent. A call that can't be resumed now stays held until the API or the PBX resumes it.
                    if self.holding.hold.is_held() {
                        let is_transferring = self.transfer.is_under_way();
                        let hindrance = is_transferring.then_some(HoldError::Transferring);
                        let bridge = &mut self.bridge;
                        let _ = self.holding.request(bridge, cx, false, hindrance);
                    }
                    self.take_turns(cx);
                    untransferred = Some(TransferFailure::Failed);
                }
                TransferStep::Unresolved => untransferred = Some(TransferFailure::Unknown),
                TransferStep::Leave(status, by) => self.leave(cx, CallEnd::of_answered(status, by)),
                TransferStep::HangUp(reason) => self.hang_up(cx, reason),
                TransferStep::CallEnd(ended) => cx.core.fact(Fact::Ended(ended)),
            }
        }

        // The built-in agent's flow may end the call, so the transfer's own steps come first.
        if let Some(why) = untransferred
            && self.bridge.status() == CallStatus::Up
        {
            self.with_bot(cx, |bot, cx, of| bot.on_untransferred(cx, of, why));
        }
    }
}

/// Restarts the timer of a transfer, or stops it.
fn wait(
    cx: &mut Cx<'_>,
    call: CallKey,
    timer: Option<&mut Option<TimerId>>,
    time: Option<Duration>,
) {
    if let Some(timer) = timer {
        cx.cancel_timer(timer);
        *timer = time.map(|time| cx.schedule(call, time, CallTimer::Transfer));
    }
}
