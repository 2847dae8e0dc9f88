//! A peer that is being dialled for the call, and consequences of its INVITE for the call: of a callee, of the destination of a transfer, or of a runtime.

use trunkline_sip::dialog::sdp;

use super::Call;
use super::proving::Proving;
use crate::core::context::Cx;
use crate::dial::dialing::{DialProgress, DialingCall};
use crate::dial::{calling, dialing};
use crate::features::join::{Join, JoinProgress};
use crate::features::transfer::{DestinationAnswer, TransferEvent, bridge};
use crate::inbound::{answer, provisional};
use crate::invite::invite_client::{Accepted, InviteClient, InviteEvent, InviteText};
use crate::leg::call_end::{CallEnd, CallRefusal};
use crate::leg::dial::Dialing;
use crate::leg::runtime_invite::InvitedCall;
use crate::leg::{LegPeer, LegState, runtime_invite};
use crate::media::{bot, local_media, verification};
use crate::parts::ids::LegId;
use crate::parts::origin::OwnOrigin;
use crate::parts::refusal::Reason;
use crate::parts::role::LegRole;

impl Call {
    /// Runs the client of the peer that is being dialled, and carries out the consequence for the call.
    pub(crate) fn with_dialing<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut InviteClient, &mut Cx<'_>, &dyn InviteText) -> InviteEvent<'m>,
    ) {
        let of = DialingCall {
            ids: &self.ids,
            contact: self.contact,
            identity: &self.identity,
            parties: self.outbound.as_deref().map(|outbound| &outbound.parties),
            heard: self.joining.heard(),
        };
        let progress = dialing::dial(&mut self.bridge, cx, &of, act);
        self.apply_dial_progress(cx, progress);
    }

    fn apply_dial_progress(&mut self, cx: &mut Cx<'_>, progress: DialProgress<'_>) {
        match progress {
            DialProgress::Nothing => {}
            DialProgress::CalleeRings => {
                cx.note_ringing(&self.ids);
                self.with_bot(cx, bot::wake);
            }
            DialProgress::CalleeAnswers(accepted, offer) => {
                self.on_callee_answers(cx, *accepted, offer);
            }
            DialProgress::CalleeLost(failure) => self.end(cx, CallEnd::of_callee(failure)),
            DialProgress::DestinationRings => {
                self.on_transfer(cx, TransferEvent::DestinationRings);
            }
            DialProgress::DestinationAnswers(leg, accepted, offer) => {
                match bridge::meet_destination(&mut self.bridge, cx, leg, *accepted, &offer) {
                    DestinationAnswer::Late => {}
                    DestinationAnswer::Unusable(reason) => {
                        let event = TransferEvent::DestinationRefused(reason.status());
                        self.on_transfer(cx, event);
                    }
                    DestinationAnswer::Usable(sdp) => {
                        self.joining.wait_with(Join::arriving(offer, leg));
                        self.on_transfer(cx, TransferEvent::DestinationAnswered);
                        let progress = self.joining.begin(&sdp, cx.now);
                        self.apply_join_progress(cx, progress, None);
                    }
                }
            }
            DialProgress::DestinationLost(failure) => {
                self.on_transfer(cx, TransferEvent::DestinationLost(failure));
            }
            DialProgress::RuntimeRings(heard) => {
                provisional::provisional(&mut self.relay(), cx, heard);
                Proving::from(&mut *self).note_ringing(cx);
            }
            DialProgress::RuntimeAnswers(accepted) if self.outbound.is_some() => {
                let heard = self.joining.heard().unwrap_or_default();
                let progress = match calling::meet_runtime(
                    &mut self.bridge,
                    cx,
                    &self.ids,
                    *accepted,
                    heard,
                ) {
                    Some(sdp) => self.joining.begin(&sdp, cx.now),
                    None => JoinProgress::Refused(Reason::NoCommonMedia),
                };
                // Ends the deadline of the runtime's answer, which shares its timer with the longest duration.
                self.lifetime
                    .limit(cx, self.bridge.key, self.outbound.as_deref());
                self.apply_join_progress(cx, progress, None);
            }
            DialProgress::RuntimeAnswers(accepted) => {
                let (slot, message) = (self.ids.slot, accepted.message);
                if let Some(won) = answer::accept_runtime(&mut self.bridge, cx, slot, *accepted) {
                    let progress = answer::pass_answer(&mut self.relay(), cx, won, message);
                    self.apply_answer(cx, progress);
                }
            }
            DialProgress::Unusable(Reason::CallerCanceled) => {
                self.refuse(cx, CallRefusal::canceled(Vec::new()));
            }
            DialProgress::Unusable(reason) => self.refuse(cx, reason),
            DialProgress::RuntimeFollows(chain) => self.return_to_bot(cx, *chain),
            DialProgress::RuntimeLost(failed) => self.refuse(cx, CallRefusal::of_runtime(&failed)),
        }
    }

    /// Acknowledges the callee's 2xx. An agent with media of ours is connected at once; a runtime over SIP is invited with the callee's SDP.
    fn on_callee_answers(&mut self, cx: &mut Cx<'_>, accepted: Accepted<'_>, offer: Box<[u8]>) {
        let media = self.outbound.as_deref().and_then(|outbound| outbound.media);
        let origin = media.map(|local| OwnOrigin::of_call(self.ids.call, local));
        // First: every 2xx gets its ACK, and one whose media can't be used a BYE after it (RFC 3261 §13.2.2.4).
        let sdp = calling::meet_callee(&mut self.bridge, cx, accepted, offer, origin);
        self.lifetime.begin(cx.now);
        cx.note_answered(&self.ids, Box::default());

        let offer = local_media::told_to_trunk(&self.bridge);
        let Some(audio) = sdp::read_answer(&offer, &sdp) else {
            // Before it is connected with media of ours: the call was never up.
            return self.refuse(cx, Reason::NoCommonMedia);
        };
        if !self.bridge.is_local() {
            return self.invite_runtime(cx, sdp);
        }

        self.lifetime
            .limit(cx, self.bridge.key, self.outbound.as_deref());
        let (trunk, agent) = (self.bridge.trunk_id(), self.bridge.agent_id());
        self.bridge.legs.connect(trunk, agent);
        local_media::update_media(&mut self.relay(), cx, Some(audio));
        verification::speak_code(&mut self.bridge, cx);
        // A bot that was woken while the callee rang gets the call. One that was to wait is dialled now.
        self.with_bot(cx, bot::start);
        self.with_bot(cx, bot::dial);
    }

    /// Invites the runtime with the callee's SDP.
    pub(super) fn invite_runtime(&mut self, cx: &mut Cx<'_>, offer: Box<[u8]>) {
        let Some(outbound) = self.outbound.as_deref() else {
            return;
        };

        let [called, caller] = outbound.users();
        let (key, krisp) = (self.bridge.key, outbound.krisp);
        let to = InvitedCall::new(key, &self.ids, [called, caller], krisp);

        let invite = outbound.runtime.as_deref().and_then(|runtime| {
            runtime_invite::invite(runtime, &outbound.namer, &cx.core.config, &to)
        });
        // This runtime takes over the leg of a bot, if there is one.
        let follows = self.bridge.legs.get(LegId::SECOND).is_some();
        let chain = self.outbound.as_deref_mut().and_then(|it| it.chain.take());
        let dialing = invite.map(|(client, says)| {
            let dialing = Dialing::runtime(client, says).leading_to(chain.map(|chain| *chain));
            match follows {
                true => dialing.following(),
                false => dialing,
            }
        });
        let state = dialing.map_or(LegState::Gone, LegState::Dialing);
        match follows {
            true => self.bridge.legs.set_state(LegId::SECOND, state),
            false => {
                self.bridge
                    .legs
                    .add(LegRole::Agent, LegPeer::Unknown, state);
            }
        }

        // Before the INVITE is written, which takes its offer from here (`DialingCall::heard`).
        self.joining.wait_with(Join::with(offer));

        // The callee has answered and hears nothing yet: this ends its wait for a runtime that stays silent.
        let patience = cx.core.config.setup_timeout;
        self.lifetime.await_answer(cx, self.bridge.key, patience);
        self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
    }
}
