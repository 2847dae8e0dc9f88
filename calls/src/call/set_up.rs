//! Set-up of a call: the contact of its far end, our own media, and the answer to the caller. The runtime is called once the contact is known or its
//! lookup has timed out.

use std::net::SocketAddr;

use trunkline_bounds::NoShare;
use trunkline_model::record::Fact;
use uuid::Uuid;

use super::Call;
use super::proving::Proving;
use crate::core::context::Cx;
use crate::dial::dialing;
use crate::inbound::dialog_proof::DialogProof;
use crate::leg::call_end::AnswerProgress;
use crate::leg::call_status::CallStatus;
use crate::media::{bot, local_media};
use crate::parts::refusal::Reason;

impl Call {
    /// Calls the runtime, unless it waits for the contact or the call has to be proven first.
    pub(crate) fn begin_runtime(&mut self, cx: &mut Cx<'_>) {
        let proof = self.proof.as_deref();
        let holds_agent = proof.is_some_and(DialogProof::holds_agent);
        let incoming = self.bridge.incoming().filter(|_| !holds_agent);
        if incoming.is_some_and(|incoming| !incoming.is_looking_up()) {
            self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
            self.with_bot(cx, bot::dial);
        }
    }

    /// Handles the result of the contact lookup, or its timeout.
    pub(crate) fn on_contact(&mut self, cx: &mut Cx<'_>, contact: Option<Uuid>) {
        let (counts, begins) = match self.outbound.as_deref_mut() {
            Some(outbound) => (outbound.end_look_up(contact), false),
            None => {
                let incoming = self.bridge.incoming_mut();
                // False if the call was answered first.
                (
                    true,
                    incoming.is_some_and(|incoming| incoming.end_look_up(cx, contact)),
                )
            }
        };

        // No fact may follow the end of the call.
        let is_over = self.bridge.status() == CallStatus::Over;
        if let (Some(contact), None) = (contact.filter(|_| counts && !is_over), self.contact) {
            self.contact = Some(contact);
            cx.core.fact(Fact::Contact {
                call: self.ids.call,
                org: self.ids.org,
                contact,
            });
        }
        if begins {
            self.begin_runtime(cx);
        }
    }

    /// Handles our RTP address: the callee is called, or the caller answered; refuses the call if there was no port for it.
    pub(crate) fn on_media_open(&mut self, cx: &mut Cx<'_>, local: Result<SocketAddr, NoShare>) {
        match self.bridge.status() {
            // The port was opened for a call that has ended meanwhile, and nothing else would close it.
            CallStatus::Over if local.is_ok() => {
                let closed = local_media::closed_media(&self.bridge, &self.ids);
                return cx.core.effects.push_back(closed);
            }
            CallStatus::Over | CallStatus::Answered | CallStatus::Up => return,
            CallStatus::SettingUp => {}
        }

        let local = match local {
            Ok(local) => local,
            Err(none) => return self.refuse(cx, Reason::from(none)),
        };
        let media = self.bridge.local_mut();
        if let Some(outbound) = self.outbound.as_deref_mut() {
            let (offer, patience) = (
                outbound.offer(self.ids.call, media, local),
                outbound.ringing_timeout,
            );
            dialing::set_offer(&mut self.bridge, cx, offer, patience);
            return self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
        }

        let Some(media) = media else {
            return;
        };
        media.local = Some(local);
        match self.bridge.bot().is_some() {
            // A bot has to be dialled first, while the caller hears ringing. Echo answers at once.
            true => match bot::ring_for_bot(&mut self.relay(), cx) {
                Ok(()) => {
                    Proving::from(&mut *self).note_ringing(cx);
                    self.begin_runtime(cx);
                }
                Err(refusal) => self.refuse(cx, refusal),
            },
            false => {
                let progress = local_media::answer_with_media(&mut self.relay(), cx);
                self.apply_answer(cx, progress);
            }
        }
    }

    /// Carries out the consequence of a final answer to the caller.
    pub(super) fn apply_answer(&mut self, cx: &mut Cx<'_>, progress: AnswerProgress) {
        let runtime_call_id = match progress {
            AnswerProgress::Nothing => return,
            AnswerProgress::Refused(refusal) => return self.refuse(cx, refusal),
            AnswerProgress::Accepted { runtime_call_id } => runtime_call_id,
        };

        Proving::from(&mut *self).note_answer(cx);
        self.lifetime.begin(cx.now);
        cx.note_answered(&self.ids, runtime_call_id);
        if let Some(permit) = &mut self.permit {
            permit.end_setup();
        }
        self.lifetime
            .limit(cx, self.bridge.key, self.outbound.as_deref());
        for id in [self.bridge.trunk_id(), self.bridge.agent_id()] {
            if let Some(mut leg) = self.bridge.at(id) {
                leg.start_session(cx);
            }
        }
    }
}
