//! Join of both ends' media (`join`): a step of one may end a leg, a transfer or the call.

use std::time::Duration;

use super::Call;
use crate::core::context::Cx;
use crate::features::join::JoinProgress;
use crate::features::transfer::TransferEvent;
use crate::leg::media_profile;
use crate::leg::own_request::RequestKind;
use crate::media::local_media;
use crate::parts::refusal::Reason;

impl Call {
    /// Carries out the machine's step. `answer`: the SDP of the 2xx that led to it.
    pub(super) fn apply_join_progress(
        &mut self,
        cx: &mut Cx<'_>,
        progress: JoinProgress,
        answer: Option<&[u8]>,
    ) {
        match progress {
            JoinProgress::Nothing => {}
            // Queued, not sent: another offer may be open in either dialog (RFC 3261 §14.1).
            JoinProgress::Ask(_) => self.joining.later(&mut self.bridge, cx, Duration::ZERO),
            JoinProgress::Joined { arrived, asks } => {
                self.bridge.requests.withdraw(RequestKind::Join);
                if let Some(destination) = arrived {
                    // First, while the agent's leg is connected: the runtime's last NOTIFY goes out in its dialog.
                    self.on_transfer(cx, TransferEvent::DestinationConnected);
                    self.hand_over(cx, destination);
                    if let Some(permit) = &mut self.permit {
                        // The agent may take its next call, while this one still counts for org and trunk.
                        permit.release(self.ids.agent);
                    }
                }

                // Both ends have each other's media.
                let outbound = self.outbound.as_deref_mut();
                if outbound.is_some_and(|outbound| outbound.media.take().is_some()) {
                    let closed = local_media::closed_media(&self.bridge, &self.ids);
                    cx.core.effects.push_back(closed);
                }

                if let Some(answer) = answer {
                    self.bridge.held.take_answer(answer);
                    self.bridge.set_trunk_sdp(answer);
                }

                match asks {
                    Some(_) => self.joining.later(&mut self.bridge, cx, Duration::ZERO),
                    None => self.joining.end(),
                }
            }
            JoinProgress::Acknowledge { delayed, answer } => {
                self.joining.end();
                let trunk = self.bridge.trunk_id();
                // Where the agent's answer can't be used, its last SDP is taken instead, which may not answer this offer either.
                if media_profile::differ(&delayed.offer, &answer) {
                    if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                        leg.reject_offer(cx, &delayed);
                    }
                    return self.hang_up(cx, Reason::NoCommonMedia);
                }
                self.bridge.legs.remember_sdp(trunk, delayed.fork, &answer);
                if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                    leg.send_ack(cx, &delayed.ack().answering(&answer));
                }

                self.bridge.held.take_offer(&delayed.offer);
                self.bridge.set_trunk_sdp(&delayed.offer);
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
