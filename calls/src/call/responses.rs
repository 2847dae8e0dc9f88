//! Answers to requests of ours, and requests that nobody answers: each goes to the feature that has sent the request.

use trunkline_sip::dialog::sdp;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::{Message, Method};

use super::Call;
use crate::core::context::Cx;
use crate::dialog::reoffer::ReofferProgress;
use crate::dialog::{challenge, in_dialog, reoffer, repeat};
use crate::features::transfer::TransferEvent;
use crate::invite::attempts::NoAnswer;
use crate::invite::late_answer::refuse_late_answer;
use crate::leg::call_status::CallStatus;
use crate::leg::own_request::{Pending, Purpose};
use crate::media::local_media;
use crate::{has_sdp, sdp_of, session};

impl Call {
    /// Handles an answer to a request of ours.
    pub(crate) fn on_response(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        client: ClientTx,
        message: &Message<'_>,
    ) {
        if self.bridge.dials_by(client) {
            return self.with_dialing(cx, |client, cx, text| {
                client.handle_response(cx, text, flow, message)
            });
        }

        // Nothing follows from a 1xx in a dialog. The exchange's timer ends a re-INVITE that only rings.
        if message.status() < 200 {
            return;
        }

        let accepted = message.method() == Method::Invite && message.status() < 300;
        // The ACK to this 2xx waited for the address of the peer's Contact, and can't wait any longer.
        if accepted && cx.release_ack(client, message.to_tag().unwrap_or_default()) {
            return;
        }

        if let Some(pending) = self.bridge.requests.take(cx, client) {
            let leg = pending.leg;
            self.on_in_dialog_answer(cx, flow, pending, message);
            return self.bridge.forget_left(leg, self.joining.arriving());
        }

        let is_awaited = self.bridge.awaits(client) || self.joining.waits_by(client);
        // A fork that has lost, or a request that was given up. A 2xx that waits for its ACK on purpose isn't late.
        if accepted && !is_awaited && !self.bridge.is_winner(message) {
            refuse_late_answer(cx, flow, client, message);
        }
    }

    /// Handles a transaction of ours that timed out, or whose flow broke.
    pub(crate) fn on_no_answer(&mut self, cx: &mut Cx<'_>, client: ClientTx, why: NoAnswer) {
        let status = why.status();
        if self.bridge.dials_by(client) {
            return self.with_dialing(cx, |client, cx, text| {
                client.handle_no_answer(cx, text, &why)
            });
        }

        let Some(pending) = self.bridge.requests.take(cx, client) else {
            return;
        };

        // A broken flow counts as 503 (RFC 3261 §8.1.3.1), which fails the request and not its dialog: only 408 and 481 end that (§12.2.1.2).
        let broken = status == 503;
        let unsent = match broken {
            true => repeat::send_by_connection(&mut self.bridge, cx, pending),
            false => Some(pending),
        };
        let Some(pending) = unsent else { return };
        let leg = pending.leg;
        match pending.purpose {
            Purpose::Relay(server) if self.answer_for_lost(cx, server, &pending, status) => {}
            Purpose::Relay(server) => {
                self.bridge.legs.fail_successor(server);
                cx.respond(server, status, None, |_| {}, b"");
                let lost = in_dialog::lost_by(&self.bridge, &pending, status);
                self.end_if_lost(cx, pending.leg, lost);
            }

            Purpose::Transfer => {
                let event = TransferEvent::ReferUnanswered {
                    cseq: pending.cseq,
                    status,
                    was_connected: pending.connected,
                };
                self.on_transfer(cx, event);
            }

            // The transfer's own timer covers this.
            Purpose::Probe => {}
            Purpose::Refresh => {
                let leg = self.bridge.at(pending.leg);
                let lost = leg.and_then(|mut leg| {
                    session::on_refresh_unanswered(&mut leg, cx, &pending, status)
                });
                self.end_if_lost(cx, pending.leg, lost);
            }

            Purpose::Join(_) => {
                let bridge = &mut self.bridge;
                match self.joining.on_unanswered(bridge, cx, &pending, status) {
                    Ok(progress) => self.apply_join_progress(cx, progress, None),
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
            }

            Purpose::Hold => {
                let bridge = &mut self.bridge;
                let lost = self.hold.on_unanswered(bridge, cx, &pending, status);
                self.end_if_lost(cx, pending.leg, lost);
            }

            Purpose::Stale => {
                let lost = in_dialog::lost_by(&self.bridge, &pending, status);
                self.end_if_lost(cx, pending.leg, lost);
            }

            // The peer may never have read the BYE. A second one opens a new connection; a third is never sent.
            Purpose::Own if broken && pending.connected && pending.method == Method::Bye => {
                self.bridge.send_bye_again(cx, pending);
            }
            // The peer's session timer or media time-out ends its side.
            Purpose::Own | Purpose::SecondBye => {}
        }

        let arriving = self.joining.arriving();
        self.bridge.forget_left(leg, arriving);
    }

    /// Handles the final answer to a request of ours inside the call.
    fn on_in_dialog_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: Pending,
        message: &Message<'_>,
    ) {
        let may_stay =
            !self.bridge.has_left(pending.leg) || self.joining.arriving() == Some(pending.leg);
        // A 408 may be a proxy's, 481 denies the dialog. Any other answer, a refusal too, shows that the peer is up.
        let is_life = !matches!(message.status(), 408 | 481) && may_stay;
        if is_life {
            self.bridge.legs.hear(pending.leg, cx.now);
        }

        // A challenge that can be answered is no answer yet: the request is out again with credentials.
        let (org, direction) = (self.ids.org, self.direction());
        let unproven = challenge::prove(&mut self.bridge, cx, org, direction, pending, message);
        let Some(mut pending) = unproven else {
            return;
        };
        reoffer::refuse_other_profile(&mut self.relay(), cx, &mut pending, message);

        match (pending.purpose, pending.method) {
            (Purpose::Relay(server), _)
                if self.answer_for_lost(cx, server, &pending, message.status()) => {}

            // An abandoned re-INVITE. RFC 3261 §13.2.2.4 requires the ACK to its 2xx all the same.
            (Purpose::Own, Method::Invite) => {
                if let Some(leg) = self.bridge.legs.get_mut(pending.leg) {
                    leg.settle_late(cx, &pending, message);
                }
            }

            // The 481 to a NOTIFY ends its subscription (RFC 6665 §4.2.2), not the call.
            (Purpose::Own, Method::Notify) if message.status() == 481 => {
                self.on_transfer(cx, TransferEvent::Unsubscribed);
            }
            (Purpose::Own | Purpose::SecondBye, _) => {}

            (Purpose::Stale, method) => {
                if let Some(mut leg) = self.bridge.at(pending.leg) {
                    if method == Method::Invite {
                        leg.leg.settle_late(cx, &pending, message);
                    }
                    if message.status() < 300 {
                        leg.note_refresh(cx, &pending, message);
                    }
                }

                if message.status() < 300 {
                    // The peer has taken media that are obsolete by now, so it is offered those in use.
                    self.hold.restore(&mut self.bridge, cx, pending.leg);
                }
                let lost = in_dialog::lost_by(&self.bridge, &pending, message.status());
                self.end_if_lost(cx, pending.leg, lost);
            }

            (Purpose::Join(_), _) => {
                let sdp = has_sdp(message).then(|| sdp_of(message.body()));
                let bridge = &mut self.bridge;
                match self.joining.on_answer(bridge, cx, flow, &pending, message) {
                    Ok(progress) => self.apply_join_progress(cx, progress, sdp),
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
                // This end has accepted media that the other can't use. Where both go on, it is offered those in use.
                if pending.is_misanswered(message) && self.bridge.status() == CallStatus::Up {
                    self.hold.restore(&mut self.bridge, cx, pending.leg);
                }
            }

            (Purpose::Hold, _) => {
                let bridge = &mut self.bridge;
                match self.hold.on_answer(bridge, cx, flow, &pending, message) {
                    Ok(audio) => local_media::update_media(&mut self.relay(), cx, audio),
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
            }

            (Purpose::Transfer, _) => {
                let (org, direction) = (self.ids.org, self.direction());
                let challenger = challenge::challenger(&self.bridge, pending.leg, org, direction);
                let bridge = &self.bridge;
                let event = self
                    .transfer
                    .on_refer_answer(bridge, cx, challenger, &pending, message);
                self.on_transfer(cx, event);
            }

            (Purpose::Probe, _) => {
                if let Some(mut leg) = self
                    .bridge
                    .at(pending.leg)
                    .filter(|_| message.status() < 300)
                {
                    leg.note_refresh(cx, &pending, message);
                }
                self.on_transfer(cx, TransferEvent::of_probe(message.status()));
            }

            (Purpose::Refresh, _) => {
                let leg = self.bridge.at(pending.leg);
                let lost = leg.and_then(|mut leg| {
                    session::on_refresh_answer(&mut leg, cx, flow, &pending, message)
                });
                self.end_if_lost(cx, pending.leg, lost);

                // A hold or a transfer that is under way negotiates the media itself.
                let hold = &self.hold;
                let is_free = !hold.is_held() && !hold.is_turning() && !self.transfer.goes_on();
                let is_usable = message.status() < 300 && !pending.is_misanswered(message);
                if is_free && pending.method == Method::Invite && is_usable {
                    let sdp = has_sdp(message).then(|| sdp_of(message.body()));
                    // Codec, address and direction may differ from the last answer's (RFC 3264 §8).
                    if self.bridge.is_local() && pending.leg == self.bridge.trunk_id() {
                        let offer = local_media::told_to_trunk(&self.bridge);
                        let audio = sdp.and_then(|sdp| sdp::read_answer(&offer, sdp));
                        local_media::update_media(&mut self.relay(), cx, audio);
                    }
                    let bridge = &self.bridge;
                    let progress = self.joining.on_refreshed(bridge, pending.leg, sdp, cx.now);
                    self.apply_join_progress(cx, progress, sdp);
                }
            }

            (Purpose::Relay(_), Method::Invite) => {
                let mut relay = self.relay();
                match reoffer::on_reinvite_answer(&mut relay, cx, flow, &pending, message) {
                    Ok(ReofferProgress::Nothing) => {}
                    Ok(ReofferProgress::AgentReplaced) => {
                        self.hold.give_up(&mut self.bridge);
                        if let Some(permit) = &mut self.permit {
                            permit.release(self.ids.agent);
                        }
                    }
                    Ok(ReofferProgress::TrunkOffered) => {
                        // The re-INVITE of the peer on the trunk has brought both ends each other's media, so our own join isn't needed.
                        if self.joining.arriving().is_none() {
                            let progress = self.joining.on_crossed();
                            self.apply_join_progress(cx, progress, None);
                        }
                    }
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
            }

            (Purpose::Relay(server), _) => {
                self.relay().answer(cx, &pending, server, message);
                let lost = in_dialog::lost_by(&self.bridge, &pending, message.status());
                self.end_if_lost(cx, pending.leg, lost);
            }
        }
    }
}
