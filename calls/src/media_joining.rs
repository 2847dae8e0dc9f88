//! The call's part of a join of both ends' media (`joining`): a step of it may end a leg, a transfer or the call.

use std::time::Duration;

use super::call::Call;
use super::context::Cx;
use super::delayed_ack::Delayed;
use super::ids::LegId;
use super::join::JoinProgress;
use super::leg::Lost;
use super::own_request::RequestKind;
use super::transfer::TransferEvent;

impl Call {
    /// Ends a leg whose peer is lost, and the call with it if the leg is one of the two connected ones.
    pub(crate) fn end_if_lost(&mut self, cx: &mut Cx<'_>, id: LegId, lost: Option<Lost>) {
        let Some(lost) = lost else {
            return;
        };
        if !self.bridge.has_left(id) {
            return self.hang_up(cx, lost.reason);
        }
        if self.joining.arriving() == Some(id) && self.joining.reject(&mut self.bridge, cx) {
            self.on_transfer(cx, TransferEvent::DestinationRefused(lost.status));
        }
    }

    /// Carries out the machine's step. `answer`: the SDP of the 2xx that led to it.
    pub(crate) fn apply_join_progress(
        &mut self,
        cx: &mut Cx<'_>,
        progress: JoinProgress<Delayed>,
        answer: Option<&[u8]>,
    ) {
        match progress {
            JoinProgress::Nothing => {}
            JoinProgress::Ask(_) => self.joining.later(&mut self.bridge, cx, Duration::ZERO),
            JoinProgress::Joined { arrived, asks } => {
                self.bridge.requests.withdraw(RequestKind::Join);
                if let Some(destination) = arrived {
                    self.hand_over(cx, destination);
                }
                // Both ends have each other's media.
                let outbound = self.outbound.as_deref_mut();
                if outbound.is_some_and(|outbound| outbound.media.take().is_some()) {
                    let closed = self.bridge.closed_media(&self.ids);
                    cx.core.effects.push_back(closed);
                }
                if let Some(answer) = answer {
                    self.holding.hold_state.take_answer(answer);
                    self.bridge.set_heard(answer);
                }
                match asks {
                    Some(_) => self.joining.later(&mut self.bridge, cx, Duration::ZERO),
                    None => self.joining.end(),
                }
            }
            JoinProgress::Acknowledge { delayed, answer } => {
                self.joining.end();
                let trunk = self.bridge.trunk_id();
                self.bridge.legs.remember_sdp(trunk, delayed.fork, &answer);
                if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                    leg.send_ack(cx, &delayed.ack().answering(&answer));
                }
                self.holding.hold_state.take_offer(&delayed.offer);
                self.bridge.set_heard(&delayed.offer);
            }
            JoinProgress::Reject(delayed) => {
                let trunk = self.bridge.trunk_id();
                if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                    leg.reject_offer(cx, &delayed);
                }
            }
            JoinProgress::SendAway {
                destination,
                status,
            } => {
                self.joining.leave(&mut self.bridge, cx, destination);
                self.on_transfer(cx, TransferEvent::DestinationRefused(status));
            }
            JoinProgress::Refused(reason) => self.hang_up(cx, reason),
            JoinProgress::Settled => self.joining.end(),
        }
    }
}
