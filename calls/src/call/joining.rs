//! Join of both ends' media: the runtime's 2xx begins one in an outbound call, and a step of one may end a leg, a transfer or the call.

use std::time::Duration;

use trunkline_model::record::Fact;

use super::Call;
use crate::bridge::Bridge;
use crate::context::Cx;
use crate::delayed_ack::Delayed;
use crate::ids::CallRef;
use crate::invite_client::Accepted;
use crate::join::JoinProgress;
use crate::joining::Joining;
use crate::leg::{Ack, ForkDialog, LegState, Session};
use crate::own_request::RequestKind;
use crate::refusal::Reason;
use crate::transfer::TransferEvent;

impl Joining {
    /// Connects the callee with the runtime, which has accepted our INVITE, and offers the callee the runtime's SDP.
    pub(crate) fn on_runtime(
        &mut self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        ids: &CallRef,
        accepted: Accepted<'_>,
    ) -> JoinProgress<Delayed> {
        let message = accepted.message;
        let sdp: Option<Box<[u8]>> = accepted.sdp().map(Into::into);
        let heard = self.heard().unwrap_or_default();
        if let Some(peer) = bridge.agent_mut() {
            peer.dialogs
                .push(ForkDialog::new(0, accepted.dialog, Some(heard.into())));
            peer.credentials = accepted.credentials;
        }

        let (trunk, agent) = (bridge.trunk_id(), bridge.agent_id());
        let ready = LegState::Ready(Session::default());
        bridge.legs.set_state(agent, ready);
        if let Some(mut leg) = bridge.at(agent) {
            leg.open(cx, accepted.flow, message);
            let ack = Ack {
                client: accepted.client,
                fork: 0,
                cseq: accepted.cseq,
                lines: &accepted.ack_lines,
                body: b"",
            };
            leg.leg.send_ack(cx, &ack);
        }
        bridge.legs.connect(trunk, agent);
        if let Some(mut leg) = bridge.at(agent) {
            leg.start_session(cx);
        }
        cx.core.fact(Fact::Joined {
            call: ids.call,
            org: ids.org,
            runtime_call_id: String::from_utf8_lossy(message.call_id()).into(),
        });

        bridge.legs.with_origin(agent, heard);
        match sdp {
            Some(sdp) => self.begin(&sdp, cx.now),
            None => JoinProgress::Refused(Reason::NoCommonMedia),
        }
    }
}

impl Call {
    /// Carries out the machine's step. `answer`: the SDP of the 2xx that led to it.
    pub(super) fn apply_join_progress(
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
                    self.on_transfer(cx, TransferEvent::DestinationConnected);
                    self.relaying().hand_over(cx, destination);
                    if let Some(permit) = &mut self.permit {
                        permit.release(self.ids.agent);
                    }
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
