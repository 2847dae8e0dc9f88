//! Transfers of the call: passes events to the state machine (`transfer`) and carries out its steps.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_model::transfer as record;
use trunkline_model::view::OrgView;
use trunkline_sip::wheel::TimerId;

use super::Call;
use crate::core::context::Cx;
use crate::features::hold::HoldError;
use crate::features::transfer::{
    CallFacts, NewTransfer, Steps, TransferError, TransferEvent, TransferRequest, TransferStep,
    Transferee, bridge, notify, refer, runtime,
};
use crate::flow::TransferFailure;
use crate::leg::call_status::CallStatus;
use crate::media::{bot, local_media};
use crate::parts::bye::ByeContent;
use crate::parts::ids::{CallKey, CallTimer, LegId};

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

    /// Gives the built-in agent a key, or hands the caller of the echo agent to the destination that a digit selects.
    pub(crate) fn press(&mut self, cx: &mut Cx<'_>, org: Option<&OrgView>, digit: u8) {
        self.with_bot(cx, |bot, cx, of| bot::on_key(bot, cx, of, digit));

        let may_begin = self.bridge.is_echo() && self.transfer.may_begin(&self.bridge).is_ok();
        let new = org
            .filter(|_| may_begin)
            .and_then(|org| self.transferee().by_digit(cx, org, digit));
        if let Some(new) = new {
            self.begin_transfer(cx, new);
        }
    }

    pub(super) fn transferee(&self) -> Transferee<'_> {
        Transferee {
            trunk: self.bridge.trunk(),
            identity: &self.identity,
            is_outbound: self.outbound.is_some(),
            ids: &self.ids,
            contact: self.contact,
        }
    }

    /// Begins a transfer.
    pub(super) fn begin_transfer(&mut self, cx: &mut Cx<'_>, new: NewTransfer) {
        let steps = self.transfer.begin(new);
        self.take_steps(cx, steps);
        // A transfer waits for the ACK of the call's INVITE, which then gives it this event (`Call::on_ack`).
        if self.bridge.status() == CallStatus::Up {
            self.on_transfer(cx, TransferEvent::Acknowledged);
        }
    }

    /// Passes the transfer an event, and carries out its steps.
    pub(crate) fn on_transfer(&mut self, cx: &mut Cx<'_>, event: TransferEvent) {
        let facts = CallFacts {
            now: cx.now,
            is_up: self.bridge.status() == CallStatus::Up,
            can_dial: bridge::can_dial(&self.bridge),
            pbx: self.bridge.trunk().and_then(|trunk| trunk.abilities.pbx),
        };
        let steps = self.transfer.handle(event, facts);
        self.take_steps(cx, steps);
    }

    /// Carries out the machine's steps in order.
    fn take_steps(&mut self, cx: &mut Cx<'_>, steps: Steps) {
        let key = self.bridge.key;
        let mut untransferred = None;
        for step in steps {
            match step {
                TransferStep::Record(record) => cx.core.fact(Fact::Transfer(record)),
                TransferStep::Notify {
                    subscription,
                    status,
                    is_last,
                } => runtime::notify_runtime(&mut self.bridge, cx, subscription, status, is_last),
                TransferStep::Wait(time) => wait(cx, key, self.transfer.timer_mut(), time),
                TransferStep::WaitOutGlare => {
                    let time = Some(refer::refer_wait(&self.bridge, cx));
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
                    // The steps that follow from this event are taken before the rest of these.
                    self.on_transfer(cx, event);
                }

                TransferStep::Probe => {
                    if !notify::probe(&mut self.bridge, cx) {
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
                    if self.hold.is_held() {
                        let is_transferring = self.transfer.is_under_way();
                        let hindrance = is_transferring.then_some(HoldError::Transferring);
                        let bridge = &mut self.bridge;
                        let _ = self.hold.request(bridge, cx, false, hindrance);
                    }

                    self.take_turns(cx);
                    untransferred = Some(TransferFailure::Failed);
                }

                TransferStep::Unresolved => untransferred = Some(TransferFailure::Unknown),
                TransferStep::Leave(end) => self.leave(cx, end),
                TransferStep::HangUp(reason) => self.hang_up(cx, reason),
                TransferStep::CallEnd(ended) => cx.core.fact(Fact::Ended(ended)),
            }
        }

        // The built-in agent's flow may end the call, so the transfer's own steps come first.
        if let Some(why) = untransferred
            && self.bridge.status() == CallStatus::Up
        {
            self.with_bot(cx, |bot, cx, of| bot::on_untransferred(bot, cx, of, why));
        }
    }
}

impl Call {
    /// Ends what is pending with the agent, as at the end of a call. Our own requests to the caller go on.
    pub(super) fn agent_goes(&mut self, cx: &mut Cx<'_>) {
        let agent = self.bridge.agent_id();
        if let Some(bot) = self.bridge.bot_mut() {
            bot::stop_builtin(bot, cx);
        }
        self.bridge.drop_awaited_acks(cx, agent);
        self.bridge.reject_delayed(cx);
        self.bridge.requests.abandon_agent(cx, agent);
        self.hold.give_up(&mut self.bridge);
        self.bridge.legs.stop_timers(cx, agent);
    }

    /// Ends the agent's leg: the caller has the destination's media (RFC 3725 §4.4).
    pub(super) fn hand_over(&mut self, cx: &mut Cx<'_>, destination: LegId) {
        self.agent_goes(cx);
        let (agent, is_local) = (self.bridge.agent_id(), self.bridge.is_local());
        self.bridge.legs.put_in_place_of(agent, destination);
        match is_local {
            true => {
                self.bridge.legs.remove(agent);
                let closed = local_media::closed_media(&self.bridge, &self.ids);
                cx.core.effects.push_back(closed);
            }
            false => self.bridge.send_bye(cx, agent, ByeContent::default()),
        }
        self.bridge.forget_left(agent, None);
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
