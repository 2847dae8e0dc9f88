//! A peer that is being dialled for this call: an [`InviteClient`] and its purpose. Events of the INVITE are handled by the part of the call that
//! waits for them.

use std::sync::Arc;
use std::time::Duration;

use trunkline_model::attempt::AttemptLeg;
use trunkline_sip::dialog::session_timer::SessionTimer;

use super::attempts::AttemptOwner;
use super::bot_state::Bot;
use super::bridge::Bridge;
use super::call::Call;
use super::call_end::{CallEnd, Refusal};
use super::callee::{Callee, CalleeLeg};
use super::context::{Config, Cx, allows, lacks_refer};
use super::dial::{self, Dialing};
use super::ids::CallRef;
use super::invite_client::{
    Accepted, DialledLeg, Failed, InviteClient, InviteEvent, InviteText, Patience,
};
use super::late_answer::refuse_late_answer;
use super::leg::{ForkDialog, LegPeer, LegState, Session, SipPeer};
use super::pbx::Pbx;
use super::refusal::Reason;
use super::role::LegRole;
use super::runtime_invite::{HeaderSource, RuntimeCallFacts, RuntimeInvite, RuntimeText};
use super::sips::is_sips;
use super::transfer;
use super::uas_invite::UasInvite;
use super::{has_sdp, ip_family, sdp_of};

impl Bridge {
    /// Adds the leg of a destination, and makes ready to dial it.
    pub(crate) fn add_destination(
        &mut self,
        cx: &mut Cx<'_>,
        ids: &CallRef,
        hops: u8,
        callee: Callee,
        patience: Patience,
    ) {
        let role = LegRole::Destination;
        let id = self.legs.add(role, LegPeer::Unknown, LegState::Gone);
        let leg = DialledLeg {
            key: self.key,
            slot: ids.slot,
            id,
            owner: AttemptOwner {
                call: ids.call,
                org: ids.org,
                leg: AttemptLeg::Destination,
            },
        };

        let callee_leg = CalleeLeg {
            role,
            hops,
            call_id: cx.core.minter.call_id(ids.slot, cx.endpoint.entropy()),
        };

        let (plan, text) = callee.split(callee_leg, patience);
        let client = InviteClient::new(leg, plan);
        self.legs
            .set_state(id, LegState::Dialing(Dialing::destination(client, text)));
    }

    /// Sets the offer of the callee or destination, which may ring for as long as `patience` says.
    pub(crate) fn set_offer(&mut self, cx: &mut Cx<'_>, offer: Vec<u8>, patience: Duration) {
        let key = self.key;
        if let Some(dialing) = self.dialing_mut() {
            dialing.offer(cx, key, offer, patience);
        }
    }

    /// Returns the reason why the caller can't use the runtime's 2xx, if there is one. `heard`: the callee's SDP, in an outbound call.
    fn why_unusable(&self, heard: Option<&[u8]>, accepted: &Accepted<'_>) -> Option<Reason> {
        let incoming = self.incoming();
        let invite = incoming.map(UasInvite::invite);
        let offer = match invite.filter(|invite| has_sdp(invite)) {
            Some(invite) => Some(invite.body()),
            None => heard,
        };
        if let (Some(trunk), Some(answer)) = (self.trunk(), accepted.sdp())
            && ip_family::is_out_of_reach(answer, offer.map(sdp_of), trunk.flow.peer.ip())
        {
            return Some(Reason::MediaFamilies);
        }
        let is_agreed = |incoming: &UasInvite| incoming.relay.is_agreed(accepted.fork);
        let lacks_sdp =
            accepted.sdp().is_none() && incoming.is_some_and(|incoming| !is_agreed(incoming));
        lacks_sdp.then_some(Reason::NoCommonMedia)
    }

    /// Hangs up on a 2xx of the runtime. True if its INVITE has another target.
    fn turn_down(
        &mut self,
        cx: &mut Cx<'_>,
        dialing: Box<Dialing>,
        accepted: &Accepted<'_>,
    ) -> bool {
        let (flow, client) = (accepted.flow, Some(accepted.client));
        refuse_late_answer(cx, flow, client, accepted.message);
        let has_another = dialing.client.has_another();
        if has_another {
            let id = dialing.client.leg();
            self.legs.set_state(id, LegState::Dialing(dialing));
        }
        has_another
    }

    /// Handles a change of the runtime's INVITE: early dialogs end with their transaction (RFC 3261 §12.3). Those towards the caller stay until the
    /// call is answered.
    fn on_runtime_invited(&mut self, cx: &mut Cx<'_>, client: &InviteClient) {
        if let Some(incoming) = self.incoming_mut() {
            incoming.relay.drop_queued();
            if let Some(sent) = client.sent() {
                incoming.runtime_cseq = sent.cseq;
            }
        }

        let agent = self.agent_id();
        if let Some(peer) = self.legs.sip_mut(agent) {
            peer.dialogs.clear();
        }
        self.abandon_dropped(cx);

        let leg = self.legs.get_mut(agent);
        let (Some(leg), Some(sent)) = (leg, client.sent()) else {
            return;
        };
        let Some(peer) = leg.reached_by(sent.flow) else {
            return;
        };
        peer.is_sips = is_sips(sent.uri.as_bytes());
        client
            .addresses()
            .for_each(|ip| peer.known_addresses.learn(ip));
    }
}

impl Call {
    /// Runs the client and handles its event.
    pub(crate) fn with_dialing<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut InviteClient, &mut Cx<'_>, &dyn InviteText) -> InviteEvent<'m>,
    ) {
        let Some((id, mut dialing)) = self.bridge.legs.take_dialing() else {
            return;
        };
        let Dialing { client, peer } = &mut *dialing;
        let before = client.transaction();
        let event = match peer {
            dial::DialedPeer::Callee(called) | dial::DialedPeer::Destination(called) => {
                act(client, cx, &called.text)
            }
            dial::DialedPeer::Runtime(says) => {
                let config = Arc::clone(&cx.core.config);
                match self.runtime_text(says, config) {
                    Some(text) => act(client, cx, &text),
                    // Without a caller or callee there is no call for it.
                    None => InviteEvent::Waits,
                }
            }
        };
        self.bridge.tags.extend(client.take_tags());
        if dialing.is_runtime() && dialing.client.transaction() != before {
            self.bridge.on_runtime_invited(cx, &dialing.client);
        }

        match event {
            InviteEvent::Waits => self.bridge.legs.set_state(id, LegState::Dialing(dialing)),
            InviteEvent::Provisional(heard) => {
                self.bridge.legs.set_state(id, LegState::Dialing(dialing));
                match self.bridge.role(id) {
                    LegRole::Trunk if heard.is_first => {
                        cx.note_ringing(&self.ids);
                        self.with_bot(cx, Bot::wake);
                    }
                    LegRole::Destination if heard.is_first => {
                        self.on_transfer(cx, transfer::TransferEvent::DestinationRings)
                    }
                    LegRole::Trunk | LegRole::Destination => {}
                    LegRole::Agent => self.relaying().provisional(cx, heard),
                }
            }
            InviteEvent::Accepted(accepted) => self.on_accepted(cx, dialing, *accepted),
            InviteEvent::Failed(failed) => self.on_failed(cx, *dialing, failed),
        }
    }

    fn on_accepted(&mut self, cx: &mut Cx<'_>, mut dialing: Box<Dialing>, accepted: Accepted<'_>) {
        dialing.stop_ringing(cx);
        match dialing.peer {
            dial::DialedPeer::Callee(called) => {
                self.on_callee_answers(cx, accepted, called.text.into_offer());
            }
            dial::DialedPeer::Destination(called) => {
                let leg = dialing.client.leg();
                self.on_destination_answers(cx, leg, accepted, called.text.into_offer());
            }
            dial::DialedPeer::Runtime(_) => {
                let heard = self.joining.heard();
                match self.bridge.why_unusable(heard, &accepted) {
                    Some(reason) => match self.bridge.turn_down(cx, dialing, &accepted) {
                        true => {
                            self.with_dialing(cx, |client, cx, text| client.pass_over(cx, text))
                        }
                        false => self.refuse(cx, reason),
                    },
                    None if self.outbound.is_some() => {
                        let (ids, bridge) = (&self.ids, &mut self.bridge);
                        let progress = self.joining.on_runtime(bridge, cx, ids, accepted);
                        self.lifetime
                            .limit(cx, self.bridge.key, self.outbound.as_deref());
                        self.apply_join_progress(cx, progress, None);
                    }
                    None => {
                        let (slot, message) = (self.ids.slot, accepted.message);
                        if let Some(won) = self.bridge.accept_runtime(cx, slot, accepted) {
                            self.take_answer(cx, won, message);
                        }
                    }
                }
            }
        }
    }

    /// Text of the INVITE to this call's runtime.
    fn runtime_text<'a>(
        &'a self,
        says: &'a RuntimeInvite,
        config: Arc<Config>,
    ) -> Option<RuntimeText<'a>> {
        let words = match (self.bridge.incoming(), self.outbound.as_deref()) {
            (Some(incoming), _) => HeaderSource::Relayed(incoming.invite()),
            (None, Some(outbound)) => HeaderSource::Ours {
                parties: &outbound.parties,
                offer: self.joining.heard()?,
            },
            (None, None) => return None,
        };

        let facts = RuntimeCallFacts {
            org: self.ids.org,
            session: self.ids.session,
            agent: self.ids.agent,
            contact: self.contact,
            identity: &self.identity,
            reliable: self.bridge.trunk().map(|trunk| trunk.abilities.reliable),
        };
        Some(RuntimeText::new(facts, words, says, config))
    }

    fn on_failed(&mut self, cx: &mut Cx<'_>, mut dialing: Dialing, failed: Failed<'_>) {
        dialing.stop_ringing(cx);
        match dialing.peer {
            dial::DialedPeer::Callee(_) => self.end(cx, CallEnd::of_callee(failed.failure)),
            dial::DialedPeer::Destination(_) => {
                self.bridge.legs.remove(dialing.client.leg());
                self.on_transfer(cx, transfer::TransferEvent::DestinationLost(failed.failure));
            }
            // A runtime that has answered by a refusal of its own ends the call.
            dial::DialedPeer::Runtime(says) => match says.then.filter(|_| failed.message.is_none())
            {
                Some(chain) => {
                    dialing.client.pass_on(cx);
                    self.return_to_bot(cx, *chain);
                }
                None => self.refuse(cx, Refusal::of_runtime(&failed)),
            },
        }
    }
}

impl Accepted<'_> {
    /// Makes the session of a leg.
    pub(crate) fn session(&self, cx: &Cx<'_>) -> Session {
        let asked = Some(cx.core.config.session_expires);
        Session::accepted(SessionTimer::for_uac(self.message, asked))
    }

    /// Makes the peer of a leg, which was offered `offer`. Its one dialog has the number 0.
    pub(crate) fn into_peer(self, offer: Box<[u8]>) -> SipPeer {
        let message = self.message;
        let mut leg = SipPeer::begun(self.flow);
        for ip in self.addresses.as_slice() {
            leg.known_addresses.learn(*ip);
        }
        leg.is_sips = is_sips(self.uri.as_bytes());
        leg.abilities.update = allows(message, "UPDATE");
        leg.abilities.no_refer = lacks_refer(message);
        leg.abilities.pbx = Pbx::of_message(message);
        leg.credentials = self.credentials;
        leg.dialogs
            .push(ForkDialog::new(0, self.dialog, Some(offer.into())));
        leg
    }
}
