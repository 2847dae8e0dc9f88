//! Proof that a call over UDP owes (`dialog_proof`): carries its steps out, and gives it those inputs of the call that it needs.

use trunkline_sip::endpoint::{Request, ServerTx};
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::Call;
use crate::core::context::Cx;
use crate::core::effect::{Effect, ProofOutcome, ProvenBy};
use crate::dialog::reoffer;
use crate::inbound::dialog_proof::{DialogProof, ProofEvent, ProofStep, Wake};
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::provisional_relay::Delivery;
use crate::leg::uas_invite::UasInvite;
use crate::media::bot;
use crate::parts::ids::{CallRef, CallTimer, LegId};
use crate::parts::refusal::Reason;

/// The proof of a call, and the legs that it is about.
pub(crate) struct Proving<'c> {
    ids: &'c CallRef,
    bridge: &'c mut Bridge,
    proof: &'c mut Option<Box<DialogProof>>,
}

/// Consequence for the call.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ProofProgress {
    Nothing,
    /// The runtime is invited, once all else is ready.
    BeginsRuntime,
    /// The call ends, for that reason.
    Ends(Reason),
}

impl<'c> From<&'c mut Call> for Proving<'c> {
    fn from(call: &'c mut Call) -> Self {
        Self {
            ids: &call.ids,
            bridge: &mut call.bridge,
            proof: &mut call.proof,
        }
    }
}

impl Proving<'_> {
    /// Begins an inbound call: its agent is called, unless the call has to be proven first.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>) -> ProofProgress {
        match self.is_crowded(cx) {
            Some(is_crowded) => self.advance(cx, ProofEvent::Begins { is_crowded }),
            None => self.call_agent(cx),
        }
    }

    /// Handles the timer of the proof.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) -> ProofProgress {
        match self.is_crowded(cx) {
            Some(is_crowded) => self.advance(cx, ProofEvent::TimedOut { is_crowded }),
            None => ProofProgress::Nothing,
        }
    }

    /// Handles a message of the call's dialog with that leg that carries our tag.
    pub(crate) fn prove(&mut self, cx: &mut Cx<'_>, id: LegId, by: ProvenBy) -> ProofProgress {
        let Some(proof) = self.proof.as_deref_mut().filter(|_| id == LegId::FIRST) else {
            return ProofProgress::Nothing;
        };

        let (source, server) = (proof.source(), proof.server);
        let mut may_begin = false;
        if proof.is_owed() {
            cx.cancel_timer(&mut proof.timer);
            may_begin = proof.prove();
            cx.endpoint.trust(server, cx.now);
            cx.core.source_probes.proven.answered(source, cx.now);
            settle(cx, ProofOutcome::Proven(by));
        }
        if by == ProvenBy::Ack {
            cx.core.limits.acknowledge(source, cx.now);
            *self.proof = None;
        }
        match may_begin && self.bridge.status() == CallStatus::SettingUp {
            true => self.call_agent(cx),
            false => ProofProgress::Nothing,
        }
    }

    /// Handles the answer to an OPTIONS inside the caller's early dialog.
    pub(crate) fn on_question_answered(
        &mut self,
        cx: &mut Cx<'_>,
        flow: &Flow,
        message: &Message<'_>,
    ) -> ProofProgress {
        let is_from_source = self.proof.as_ref().is_some_and(|proof| {
            proof.source() == flow.peer.ip().to_canonical()
                && proof.flow.transport.admits(flow.transport)
        });
        let caller = self.bridge.legs.sip(LegId::FIRST);
        let is_of_dialog = caller.is_some_and(|caller| {
            let mut dialogs = caller.dialogs.iter().map(|held| &held.dialog);
            dialogs.any(|dialog| {
                dialog.call_id() == message.call_id()
                    && Some(dialog.local_tag()) == message.from_tag()
            })
        });
        match is_from_source && is_of_dialog && message.status() == 481 {
            true => {
                let cseq = message.cseq().number;
                self.advance(cx, ProofEvent::Denied { cseq })
            }
            false => ProofProgress::Nothing,
        }
    }

    /// Notes that the caller may have got its first 18x. Nothing follows for the call.
    pub(super) fn note_ringing(&mut self, cx: &mut Cx<'_>) {
        let incoming = self.bridge.incoming();
        if incoming.is_some_and(|incoming| !incoming.relay.is_silent()) {
            let _ = self.advance(cx, ProofEvent::Rings);
        }
    }

    /// Notes that the caller has got a 2xx. Nothing follows for the call.
    pub(super) fn note_answer(&mut self, cx: &mut Cx<'_>) {
        let _ = self.advance(cx, ProofEvent::Answered);
    }

    /// Handles a 2xx of ours without an ACK.
    pub(crate) fn on_no_ack(&mut self, cx: &mut Cx<'_>, server: ServerTx) -> ProofProgress {
        let proof = self.proof.as_ref();
        let is_unproven = proof.is_some_and(|proof| proof.is_owed() && proof.server == server);
        // RFC 3261 §13.3.1.4: without an ACK for 64*T1, "the session SHOULD be terminated", by a BYE.
        match (reoffer::on_no_ack(self.bridge, cx, server), is_unproven) {
            (true, true) => {
                settle(cx, ProofOutcome::Silent);
                ProofProgress::Ends(Reason::UnprovenSource)
            }
            (true, false) => ProofProgress::Ends(Reason::NoAck),
            (false, _) => ProofProgress::Nothing,
        }
    }

    /// Returns whether the source of a call that owes a proof has too many such calls; `None` for a call that owes none.
    fn is_crowded(&self, cx: &Cx<'_>) -> Option<bool> {
        let proof = self.proof.as_ref().filter(|proof| proof.is_owed())?;
        Some(cx.core.limits.is_crowded(proof.source(), cx.now))
    }

    /// Calls the agent: its runtime is invited, or media of our own are opened first.
    fn call_agent(&mut self, cx: &mut Cx<'_>) -> ProofProgress {
        if self.bridge.is_local() {
            bot::open_media(self.bridge, cx);
            return ProofProgress::Nothing;
        }
        ProofProgress::BeginsRuntime
    }

    fn advance(&mut self, cx: &mut Cx<'_>, event: ProofEvent) -> ProofProgress {
        let Some(proof) = self.proof.as_deref_mut() else {
            return ProofProgress::Nothing;
        };
        let (step, wake) = proof.handle(event);
        match wake {
            Wake::Same => {}
            Wake::Never => cx.cancel_timer(&mut proof.timer),
            Wake::After(after) => {
                cx.cancel_timer(&mut proof.timer);
                proof.timer = Some(cx.schedule(self.bridge.key, after, CallTimer::Proof));
            }
        }

        match step {
            ProofStep::Nothing => {}
            ProofStep::CallAgent => return self.call_agent(cx),
            ProofStep::Hold => settle(cx, ProofOutcome::Held),
            ProofStep::Ring if !self.ring(cx) => return ProofProgress::Ends(Reason::BadRequest),
            ProofStep::Ring => {}
            ProofStep::Ask => self.ask(cx),
            ProofStep::RingAgain => {
                if let Some(server) = self.bridge.incoming().map(UasInvite::server) {
                    cx.endpoint.repeat_provisional(server, cx.now);
                }
            }
            ProofStep::Count => return self.count(cx),
            ProofStep::End(outcome) => {
                settle(cx, outcome);
                return ProofProgress::Ends(Reason::UnprovenSource);
            }
        }
        ProofProgress::Nothing
    }

    /// Sends the caller the reliable 18x whose PRACK proves the call. An agent that answers at once has its caller hear no ringing.
    fn ring(&mut self, cx: &mut Cx<'_>) -> bool {
        let bot = self.bridge.bot();
        let answers_at_once =
            self.bridge.is_echo() || bot.is_some_and(|bot| bot.chain.is_builtin_next());
        let status = if answers_at_once { 183 } else { 180 };
        let delivery = Delivery::UntilPrack { rseq: None };
        bot::ring(self.bridge, cx, self.ids, status, delivery)
    }

    /// Sends one OPTIONS inside the early dialog to the source of the INVITE. It is sent once: without an answer it decides nothing.
    fn ask(&mut self, cx: &mut Cx<'_>) {
        let caller = self.bridge.legs.sip_mut(LegId::FIRST);
        let dialog = caller.and_then(|caller| caller.dialogs.first_mut());
        let (Some(held), Some(proof)) = (dialog, self.proof.as_deref_mut()) else {
            return;
        };

        let (flow, dialog) = (proof.flow, &mut held.dialog);
        let uri = dialog.request_uri().to_vec();
        let mut cseq = 0;
        let write = |head: &mut Head<'_>| cseq = dialog.begin("OPTIONS", 70, head);
        cx.with_head(write, |cx, head| {
            let request = Request {
                method: Method::Options,
                token: "OPTIONS",
                uri: &uri,
                head,
                body: b"",
            };
            cx.endpoint.request_once(flow, &request);
        });
        proof.note_question(cseq);
    }

    /// Counts the call among those that aren't proven in time; ends it if its org has too many.
    fn count(&mut self, cx: &mut Cx<'_>) -> ProofProgress {
        let Some(proof) = self.proof.as_deref_mut() else {
            return ProofProgress::Nothing;
        };
        let source = proof.counts_for_source().then(|| proof.source());
        let holder = self.ids.holder();
        proof.counted = cx.core.limits.count_unproven(holder, source);
        if proof.counted.is_some() {
            return ProofProgress::Nothing;
        }

        let server = proof.server;
        settle(cx, ProofOutcome::Crowded);
        // Without a 2xx the INVITE is refused.
        if source.is_none() {
            return ProofProgress::Ends(Reason::UnprovenSource);
        }
        cx.endpoint.acknowledged(server);
        match reoffer::on_no_ack(self.bridge, cx, server) {
            true => ProofProgress::Ends(Reason::UnprovenSource),
            false => ProofProgress::Nothing,
        }
    }
}

/// Has an outcome counted.
fn settle(cx: &mut Cx<'_>, outcome: ProofOutcome) {
    cx.core.effects.push_back(Effect::Proof(outcome));
}
