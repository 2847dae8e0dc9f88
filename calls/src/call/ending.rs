//! End of the call: CANCEL, BYE from either side, our own refusals and deadlines, the loss of a peer (RFC 3261 §9, §15).

use std::sync::Arc;

use trunkline_model::record::{Ended, HangupBy, Status};
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::Call;
use crate::core::context::Cx;
use crate::dial::calling;
use crate::dialog::in_dialog::answer_alone;
use crate::dialog::{in_dialog, successor};
use crate::features::transfer::{AgentEnd, TransferEvent};
use crate::inbound::provisional;
use crate::leg::call_end::{CallEnd, CallRefusal, DetailedEnd};
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::Pending;
use crate::leg::uas_invite::{UasInvite, patience};
use crate::leg::{LegState, Lost, uas_invite};
use crate::media::local_media;
use crate::parts::bye::ByeContent;
use crate::parts::crossing::CrossingKind;
use crate::parts::dial_failure::reasons;
use crate::parts::ids::{LegId, owner_of};
use crate::parts::refusal::Reason;

impl Call {
    /// Handles CANCEL of an INVITE of this call; the endpoint has answered it.
    pub(crate) fn on_cancel(&mut self, cx: &mut Cx<'_>, invite: ServerTx, message: &Message<'_>) {
        if successor::cancel_successor(&mut self.bridge, cx, invite) {
            return;
        }
        let begins = |incoming: &UasInvite| incoming.server() == invite;
        if !self.bridge.incoming().is_some_and(begins) {
            // A re-INVITE was cancelled. Its 487 comes from the other leg, in answer to the CANCEL sent there.
            return self
                .bridge
                .requests
                .cancel_relayed(cx, invite, &reasons_of(message));
        }
        self.refuse(cx, CallRefusal::canceled(reasons_of(message)));
    }

    /// Handles BYE from either side; its cause crosses.
    pub(super) fn on_bye(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        // Answered first: the BYE ends its dialog whatever the call does next (RFC 3261 §15.1.2).
        cx.respond(server, 200, None, |_| {}, b"");

        match (self.bridge.status(), self.bridge.is_trunk(id)) {
            (CallStatus::Over, true) => {
                // This BYE has crossed our end of the call. If a BYE of ours waits for this peer's ACK, it isn't owed any more.
                self.bridge.drop_awaited_acks(cx, id);
                self.bridge.legs.set_state(id, LegState::Gone);
            }
            // This BYE has crossed ours, whose answer is still awaited.
            (CallStatus::Over, false) => {}

            // The callee has answered, so the call is completed although its runtime hasn't.
            (CallStatus::SettingUp, true) if self.outbound.is_some() => {
                self.bridge.cancel_runtime(cx, b"");
                self.abandon(cx);
                self.end(
                    cx,
                    CallEnd::of_answered(Status::Completed, HangupBy::Callee),
                );
            }

            (CallStatus::SettingUp, true) => {
                if !provisional::end_early_dialog(&mut self.relay(), cx, fork, message) {
                    self.refuse(cx, CallRefusal::canceled(reasons_of(message)));
                }
            }

            (CallStatus::SettingUp, false) => {
                // RFC 3261 §15: a callee "MUST NOT send a BYE on early dialogs". A runtime that does refuses the call.
                let relay = self.bridge.incoming().map(|incoming| &incoming.relay);
                if relay.is_some_and(|relay| relay.held_fork() == Some(fork)) {
                    // The ACK to the runtime's 2xx need not wait for the caller's PRACK any more. Without an ACK the 2xx is retransmitted.
                    self.bridge.acknowledge_held(cx);
                }
                self.refuse(cx, Reason::RuntimeRefused);
            }

            (CallStatus::Answered | CallStatus::Up, false) if self.transfer.goes_on() => {
                self.on_agent_end(cx, id, AgentEnd::HungUp);
            }

            (CallStatus::Answered | CallStatus::Up, is_trunk) => {
                self.bridge.drop_awaited_acks(cx, id);
                // RFC 3261 §15.1.2: a UAS "MUST still respond to any pending requests received for that dialog".
                self.abandon(cx);
                let by = match is_trunk {
                    true if self.outbound.is_some() => HangupBy::Callee,
                    true => HangupBy::Caller,
                    false => HangupBy::Agent,
                };

                let prefix = &cx.core.config.header_prefix;
                let content = ByeContent::of(
                    message,
                    self.relay().crossing(id, CrossingKind::InDialog, prefix),
                );
                self.bridge.send_bye(cx, self.bridge.other(id), content);
                self.end(cx, CallEnd::of_answered(Status::Completed, by));
            }
        }
    }

    /// Handles the end of the agent's leg while its caller is being transferred: the transfer goes on without it.
    fn on_agent_end(&mut self, cx: &mut Cx<'_>, id: LegId, end: AgentEnd) {
        self.bridge.drop_awaited_acks(cx, id);
        match self.joining.arriving() {
            // The caller doesn't have the destination's media yet. Our re-INVITE that brings them goes on.
            Some(_) => self.agent_goes(cx),
            None => self.abandon(cx),
        }
        // Without a dialog the leg gets no further BYE of ours, and counts as left (`LastTransfer::has_agent_left`).
        self.bridge.end_dialogs(id);
        self.bridge.legs.stop_timers(cx, id);
        self.bridge.legs.set_state(id, LegState::Gone);
        self.on_transfer(cx, TransferEvent::AgentLeft(end));
    }

    /// Handles the set-up deadline, or the longest duration.
    pub(crate) fn on_deadline(&mut self, cx: &mut Cx<'_>) {
        self.lifetime.expire();
        match self.bridge.status() {
            CallStatus::SettingUp => {
                let longest = cx.core.config.setup_timeout;
                let own = |incoming: &UasInvite| patience(incoming.invite(), longest).1;
                let reason = self.bridge.incoming().map_or(Reason::SetupTimeout, own);
                // Before the refusal takes our INVITE back, which would be recorded as cancelled.
                if let Some(dialing) = self.bridge.dialing_mut() {
                    dialing.client.note_silence(cx);
                }
                self.refuse(cx, reason);
            }
            CallStatus::Answered | CallStatus::Up => self.hang_up(cx, Reason::MaxDuration),
            CallStatus::Over => {}
        }
    }

    /// Answers a request that was relayed to an agent that has lost the dialog, while its caller is being transferred: the agent's 408 or 481
    /// would end the caller's dialog too (RFC 3261 §12.2.1.2). Returns whether this is such a request.
    pub(super) fn answer_for_lost(
        &mut self,
        cx: &mut Cx<'_>,
        server: ServerTx,
        pending: &Pending,
        status: u16,
    ) -> bool {
        let lost = in_dialog::lost_by(&self.bridge, pending, status);
        if lost.is_none() || !self.transfer.outlives(&self.bridge, pending.leg) {
            return false;
        }

        self.bridge.legs.fail_successor(server);
        if let Method::Info | Method::Message = pending.method {
            answer_alone(cx, server, pending.method);
        } else {
            // The caller may retry its offer after the destination's own exchange, unless it has cancelled it.
            let status = if pending.is_canceled { 487 } else { 491 };
            cx.respond(server, status, None, |_| {}, b"");
        }
        self.end_if_lost(cx, pending.leg, lost);

        true
    }

    /// Ends a leg whose peer is lost, and the call with it if the leg is one of the two connected ones.
    pub(crate) fn end_if_lost(&mut self, cx: &mut Cx<'_>, id: LegId, lost: Option<Lost>) {
        let Some(lost) = lost else {
            return;
        };
        if self.transfer.outlives(&self.bridge, id) {
            // RFC 3261 §12.2.1.2: the dialog is to be ended by BYE.
            self.bridge.send_bye(cx, id, ByeContent::ours(lost.reason));
            return self.on_agent_end(cx, id, AgentEnd::Lost(lost.reason));
        }
        // A leg that was replaced has no part in the call any more.
        if !self.bridge.has_left(id) {
            return self.hang_up(cx, lost.reason);
        }
        if self.joining.arriving() == Some(id) && self.joining.reject(&mut self.bridge, cx) {
            self.on_transfer(cx, TransferEvent::DestinationRefused(lost.status));
        }
    }

    /// Ends the call, in any state.
    pub(crate) fn hang_up(&mut self, cx: &mut Cx<'_>, reason: Reason) {
        let status = self.bridge.status();

        match status {
            CallStatus::SettingUp => self.refuse(cx, reason),
            CallStatus::Answered | CallStatus::Up => {
                // A call that was up stays a call, even if a later 2xx isn't acknowledged.
                let lacks_ack = matches!(reason, Reason::NoAck | Reason::UnprovenSource);
                let never_up = lacks_ack && status == CallStatus::Answered;
                let status = match never_up {
                    true => Status::Failed,
                    false => Status::Completed,
                };
                let end = CallEnd::of_answered(status, HangupBy::Platform);
                let reason = Some(reason);
                self.leave(cx, CallEnd { reason, ..end });
            }
            // The legs have ended, but a transfer may still hold the record open for its last NOTIFY.
            CallStatus::Over => self.on_transfer(cx, TransferEvent::Stopped),
        }
    }

    /// The agent has hung up. A transfer of its caller goes on without it.
    pub(crate) fn agent_hangs_up(&mut self, cx: &mut Cx<'_>) {
        match self.transfer.goes_on() {
            true => self.on_agent_end(cx, self.bridge.agent_id(), AgentEnd::HungUp),
            false => self.leave(cx, CallEnd::of_answered(Status::Completed, HangupBy::Agent)),
        }
    }

    /// Ends both legs, for our reason if there is one.
    pub(super) fn leave(&mut self, cx: &mut Cx<'_>, end: CallEnd) {
        if self.bridge.status() == CallStatus::Over {
            return;
        }

        self.abandon(cx);
        // A transfer whose outcome isn't confirmed is a matter of the record, and no cause of the BYE.
        let cause = end.reason.filter(|why| *why != Reason::TransferUnconfirmed);
        for id in [self.bridge.trunk_id(), self.bridge.agent_id()] {
            let content = cause.map(ByeContent::ours).unwrap_or_default();
            self.bridge.send_bye(cx, id, content);
        }

        self.end(cx, end);
    }

    /// Ends a call that isn't answered: refuses the caller's INVITE, or ends an outbound call.
    pub(crate) fn refuse<'r>(&mut self, cx: &mut Cx<'_>, refusal: impl Into<CallRefusal<'r>>) {
        // The INVITE has its final answer, and a timer or an answer that comes after it refuses nothing.
        if self.bridge.status() != CallStatus::SettingUp {
            return;
        }

        let refusal = refusal.into();
        self.bridge.cancel_runtime(cx, refusal.cancel_lines());
        self.abandon(cx);
        let end = refusal.end;
        let Some(invite) = self.bridge.incoming().map(UasInvite::server) else {
            let end = calling::end_outbound(&mut self.bridge, cx, end);
            return self.end(cx, end);
        };

        // The To-tag is that of earlier responses, including the one to CANCEL (RFC 3261 §9.2).
        let config = Arc::clone(&cx.core.config);
        let (phrase, body) = (refusal.phrase(), refusal.body());
        let reason_detail = refusal.reason_detail();
        let lines = |head: &mut Head<'_>| refusal.write(head, &config);
        cx.respond_as(invite, end.sip_code, phrase.as_deref(), None, lines, body);
        // The transaction goes on alone until the ACK: a CANCEL that comes now changes nothing (RFC 3261 §9.2).
        cx.endpoint.set_owner(invite, owner_of(None));
        self.end(cx, DetailedEnd { end, reason_detail });
    }

    /// Stops all crossing, and rejects an open offer.
    fn abandon(&mut self, cx: &mut Cx<'_>) {
        self.hold.give_up(&mut self.bridge);
        self.joining.abandon(&mut self.bridge, cx);
        self.bridge.requests.abandon(cx);

        self.bridge.reject_delayed(cx);
    }

    /// Closes the record and releases what the call held.
    pub(super) fn end(&mut self, cx: &mut Cx<'_>, end: impl Into<DetailedEnd>) {
        let DetailedEnd { end, reason_detail } = end.into();
        // Released before the BYEs are answered: the agent, trunk and org may begin another call at once.
        self.permit = None;
        if let Some(mut proof) = self.proof.take() {
            cx.cancel_timer(&mut proof.timer);
        }
        if let Some(incoming) = self.bridge.legs.take_incoming(self.bridge.trunk_id()) {
            uas_invite::release_incoming(cx, &incoming);
        }

        local_media::close_media(&mut self.bridge, cx, &self.ids);
        self.bridge.held.end();
        self.hold
            .report(&mut self.bridge, cx.core, self.ids.call, self.ids.org);
        if let Some((_, mut dialing)) = self.bridge.legs.take_dialing() {
            dialing.cancel(cx, end.reason.unwrap_or(Reason::CallerCanceled));
        }

        self.bridge.requests.end(cx);
        self.lifetime.stop(cx);

        for leg in self.bridge.legs.iter_mut() {
            leg.stop_timers(cx);
            // A leaving leg keeps the BYE that it may still owe. `Call::is_done` waits for it.
            if !matches!(leg.state, LegState::Leaving(..)) {
                leg.state = LegState::Gone;
            }
        }

        // For the record, a caller that was connected with a destination stays transferred.
        let is_completed = end.status == Status::Completed;
        let status = match is_completed && self.bridge.is_with_destination() {
            true => Status::Transferred,
            false => end.status,
        };
        let ended = Ended {
            call: self.ids.call,
            org: self.ids.org,
            at: cx.now,
            status,
            sip_code: end.sip_code,
            reason: end.reason.map(|reason| reason.code().into()),
            reason_detail,
            hangup_by: end.by,
            cause: end.cause,
        };
        // A transfer whose outcome is open holds this fact back until its last NOTIFY, or a timer.
        self.on_transfer(cx, TransferEvent::CallEnded(Box::new(ended)));
    }
}

fn reasons_of(message: &Message<'_>) -> Vec<u8> {
    let mut lines = Vec::new();
    reasons(&mut Head::new(&mut lines), message);
    lines
}
