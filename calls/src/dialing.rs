//! A peer that is being called for this call: an [`InviteClient`] and its purpose. What comes of the INVITE goes to the part of the call that waits
//! for it.

use std::sync::Arc;
use std::time::Duration;

use trunkline_model::attempt::AttemptLeg;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;

use super::attempts::{Found, Whose};
use super::call::{Call, CallKey};
use super::callee::{Callee, CalleeLeg, CalleeText};
use super::context::{CallTimer, Cx, allows, lacks_refer};
use super::crossing::{Refusal, refusal};
use super::hangup;
use super::invite_client::{
    Accepted, DialledLeg, Event, Failed, InviteClient, InviteText, Patience,
};
use super::leg::{self, ForkDialog, LegId, LegState, Session, SipPeer};
use super::pbx::Pbx;
use super::refusal::Reason;
use super::role::LegRole;
use super::runtime_chain::RuntimeChain;
use super::runtime_invite::{FIRST_FORK, RuntimeInvite};
use super::secure::is_sips;
use super::uas_invite::UasInvite;
use super::unanswered::reason_line;

/// An INVITE of ours that begins a leg of the call.
#[derive(Debug)]
pub(crate) struct Dialing {
    pub(crate) client: InviteClient,
    peer: Peer,
}

/// The peer that is called.
#[derive(Debug)]
enum Peer {
    /// The callee that an outbound call begins with.
    Callee(Called),
    /// The destination of a transfer, which takes the agent's place.
    Destination(Called),
    /// The agent's runtime.
    Runtime(RuntimeInvite),
}

/// A callee or destination.
#[derive(Debug)]
struct Called {
    text: CalleeText,
    /// Runs from the INVITE on.
    ringing: Option<TimerId>,
}

impl Dialing {
    /// The callee of an outbound call is to be called.
    pub(crate) fn callee(client: InviteClient, text: CalleeText) -> Box<Self> {
        let ringing = None;
        let peer = Peer::Callee(Called { text, ringing });
        Box::new(Self { client, peer })
    }

    /// The destination of a transfer is to be called.
    fn destination(client: InviteClient, text: CalleeText) -> Box<Self> {
        let ringing = None;
        let peer = Peer::Destination(Called { text, ringing });
        Box::new(Self { client, peer })
    }

    /// The agent's runtime is to be called.
    pub(crate) fn runtime(client: InviteClient, says: RuntimeInvite) -> Box<Self> {
        let peer = Peer::Runtime(says);
        Box::new(Self { client, peer })
    }

    /// The same; where the runtime can't be reached, these are tried. The first dialog with the caller stays the one in which we answer.
    pub(crate) fn leading_to(mut self: Box<Self>, chain: RuntimeChain) -> Box<Self> {
        if let Peer::Runtime(says) = &mut self.peer {
            says.then = Some(Box::new(chain));
            self.client.number_from(FIRST_FORK + 1);
        }
        self
    }

    pub(crate) const fn is_runtime(&self) -> bool {
        matches!(self.peer, Peer::Runtime(_))
    }

    /// Returns whether a callee waits for its offer, and for nothing else.
    pub(crate) const fn wants_offer(&self) -> bool {
        match &self.peer {
            Peer::Callee(called) => called.ringing.is_none() && !self.client.is_resolving(),
            Peer::Destination(_) | Peer::Runtime(_) => false,
        }
    }

    /// Gives the offer of a callee or destination, which may ring for as long as `patience` says.
    fn offer(&mut self, cx: &mut Cx<'_>, key: CallKey, offer: Vec<u8>, patience: Duration) {
        match &mut self.peer {
            Peer::Callee(called) | Peer::Destination(called) => {
                called.text.offering(offer.into());
                called.ringing = Some(cx.schedule(key, patience, CallTimer::Ringing));
            }
            // Its offer is the caller's or the callee's.
            Peer::Runtime(_) => {}
        }
    }

    /// The timers that run for it.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> {
        let ringing = match &self.peer {
            Peer::Callee(called) | Peer::Destination(called) => called.ringing,
            Peer::Runtime(_) => None,
        };
        [self.client.timer(), ringing].into_iter().flatten()
    }

    /// Takes the INVITE back.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, reason: Reason) {
        let mut lines = Vec::new();
        reason_line(&mut Head::new(&mut lines), reason);
        self.client.cancel(cx, &lines);
        self.stop_ringing(cx);
    }

    fn stop_ringing(&mut self, cx: &mut Cx<'_>) {
        match &mut self.peer {
            Peer::Callee(called) | Peer::Destination(called) => {
                cx.cancel_timer(&mut called.ringing);
            }
            Peer::Runtime(_) => {}
        }
    }
}

impl Call {
    /// Makes ready to dial a destination.
    pub(crate) fn dial_destination(&mut self, cx: &mut Cx<'_>, callee: Callee, patience: Patience) {
        let role = LegRole::Destination;
        let id = self.legs.add(role, leg::Peer::Unknown, LegState::Gone);
        let leg = DialledLeg {
            key: self.key,
            slot: self.slot,
            id,
            whose: Whose {
                call: self.id,
                org: self.org,
                leg: AttemptLeg::Destination,
            },
        };

        let callee_leg = CalleeLeg {
            role,
            hops: self.hops,
            call_id: cx.core.minter.call_id(self.slot, cx.endpoint.entropy()),
        };

        let (plan, text) = callee.split(callee_leg, patience);
        let client = InviteClient::new(leg, plan, self.recorded);
        self.dials(id, Dialing::destination(client, text));
    }

    /// Offers `offer` to whom the call dials, and lets that ring for as long as `patience` says.
    pub(crate) fn dial(&mut self, cx: &mut Cx<'_>, offer: Vec<u8>, patience: Duration) {
        let key = self.key;
        if let Some(dialing) = self.dialing_mut() {
            dialing.offer(cx, key, offer, patience);
        }
        self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
    }

    /// Has a leg wait for the answer to our INVITE.
    pub(crate) fn dials(&mut self, id: LegId, dialing: Box<Dialing>) {
        self.legs.set_state(id, LegState::Dialing(dialing));
    }

    /// Returns whether this is the transaction of the INVITE that dials.
    pub(crate) fn dials_by(&self, client: ClientTx) -> bool {
        let owns = |dialing: &Dialing| dialing.client.owns(client);
        self.dialing().is_some_and(owns)
    }

    /// Lets the client go on, and hands on what comes of it.
    pub(crate) fn with_dialing<'m>(
        &mut self,
        cx: &mut Cx<'_>,
        act: impl FnOnce(&mut InviteClient, &mut Cx<'_>, &dyn InviteText) -> Event<'m>,
    ) {
        let Some((id, mut dialing)) = self.legs.take_dialing() else {
            return;
        };
        let Dialing { client, peer } = &mut *dialing;
        let before = client.transaction();
        let event = match peer {
            Peer::Callee(called) | Peer::Destination(called) => act(client, cx, &called.text),
            Peer::Runtime(says) => {
                let config = Arc::clone(&cx.core.config);
                match self.runtime_text(says, config) {
                    Some(text) => act(client, cx, &text),
                    // Without a caller or callee there is nobody to call it for.
                    None => Event::Waits,
                }
            }
        };
        self.tags.extend(client.take_tags());
        self.recorded = client.recorded();
        if dialing.is_runtime() && dialing.client.transaction() != before {
            self.on_runtime_invited(&dialing.client);
        }

        match event {
            Event::Waits => self.dials(id, dialing),
            Event::Provisional(heard) => {
                self.dials(id, dialing);
                match self.role(id) {
                    LegRole::Trunk if heard.is_first => self.on_callee_rings(cx),
                    LegRole::Destination if heard.is_first => self.on_destination_rings(cx),
                    LegRole::Trunk | LegRole::Destination => {}
                    LegRole::Agent => self.on_runtime_provisional(cx, heard),
                }
            }
            Event::Accepted(accepted) => self.on_accepted(cx, dialing, *accepted),
            Event::Failed(failed) => self.on_failed(cx, *dialing, failed),
        }
    }

    fn on_accepted(&mut self, cx: &mut Cx<'_>, mut dialing: Box<Dialing>, accepted: Accepted<'_>) {
        dialing.stop_ringing(cx);
        match dialing.peer {
            Peer::Callee(called) => {
                self.on_callee_answers(cx, accepted, called.text.into_offer());
            }
            Peer::Destination(called) => {
                let leg = dialing.client.leg();
                self.on_destination_answers(cx, leg, accepted, called.text.into_offer());
            }
            Peer::Runtime(_) => match self.why_unusable(&accepted) {
                Some(reason) => self.turn_down(cx, dialing, &accepted, reason),
                None if self.outbound.is_some() => self.on_runtime_joins(cx, accepted),
                None => self.on_runtime_accepted(cx, accepted),
            },
        }
    }

    /// Why the runtime's 2xx is of no use to the caller, if it is of none.
    fn why_unusable(&self, accepted: &Accepted<'_>) -> Option<Reason> {
        if self.is_out_of_reach(accepted.message) {
            return Some(Reason::MediaFamilies);
        }
        let incoming = self.incoming();
        let is_agreed = |incoming: &UasInvite| incoming.relay.is_agreed(accepted.fork);
        let lacks_sdp =
            accepted.sdp().is_none() && incoming.is_some_and(|incoming| !is_agreed(incoming));
        lacks_sdp.then_some(Reason::NoCommonMedia)
    }

    /// Hangs up on a 2xx of the runtime; the next place is tried, if there is one.
    fn turn_down(
        &mut self,
        cx: &mut Cx<'_>,
        dialing: Box<Dialing>,
        accepted: &Accepted<'_>,
        reason: Reason,
    ) {
        let (flow, client) = (accepted.flow, Some(accepted.client));
        hangup::refuse_late_answer(cx, flow, client, accepted.message);
        if !dialing.client.has_more() {
            return self.refuse(cx, reason);
        }
        self.dials(dialing.client.leg(), dialing);
        self.with_dialing(cx, |client, cx, text| client.pass_over(cx, text));
    }

    fn on_failed(&mut self, cx: &mut Cx<'_>, mut dialing: Dialing, failed: Failed<'_>) {
        dialing.stop_ringing(cx);
        match dialing.peer {
            Peer::Callee(_) => self.on_callee_lost(cx, failed.failure),
            Peer::Destination(_) => {
                self.legs.remove(dialing.client.leg());
                self.on_destination_lost(cx, failed.failure);
            }
            Peer::Runtime(says) => match says.then.filter(|chain| follows(chain, &failed)) {
                Some(chain) => self.return_to_bot(cx, *chain),
                None => self.on_runtime_lost(cx, failed),
            },
        }
    }

    /// The resolver has answered.
    pub(crate) fn on_resolved(&mut self, cx: &mut Cx<'_>, found: Found) {
        self.with_dialing(cx, |client, cx, text| {
            client.handle_resolved(cx, text, found)
        });
        self.on_callee_found(cx);
    }

    /// Another INVITE is out to the runtime, or none any more: early dialogs are over with the transaction of theirs (RFC 3261 §12.3). Those
    /// towards the caller stay until the call has its answer.
    fn on_runtime_invited(&mut self, client: &InviteClient) {
        if let Some(incoming) = self.incoming_mut() {
            incoming.relay.drop_queued();
        }

        let agent = self.agent_id();
        let Some(leg) = self.legs.get_mut(agent) else {
            return;
        };

        if let Some(peer) = leg.sip_mut() {
            peer.dialogs.clear();
        }
        if let Some(sent) = client.sent() {
            self.runtime_cseq = sent.cseq;
            let Some(peer) = leg.reached_by(sent.flow) else {
                return;
            };
            peer.is_sips = is_sips(sent.uri.as_bytes());
            client.addresses().for_each(|ip| peer.places.learn(ip));
        }
    }

    /// Gives up dialling: the ringing time is over.
    pub(crate) fn on_ringing_timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some((_, mut dialing)) = self.legs.take_dialing() {
            let failed = dialing.client.give_up(cx);
            self.recorded = dialing.client.recorded();
            self.on_failed(cx, *dialing, failed);
        }
    }
}

/// Returns whether a bot is tried after runtimes over SIP: not where one of them has refused the call itself.
fn follows(chain: &RuntimeChain, failed: &Failed<'_>) -> bool {
    let refused_itself = failed
        .message
        .is_some_and(|message| refusal(message.status()) == Refusal::Same);
    chain.has_bot() && !refused_itself
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
            leg.places.learn(*ip);
        }
        leg.is_sips = is_sips(self.uri.as_bytes());
        leg.abilities.update = allows(message, "UPDATE");
        leg.abilities.no_refer = lacks_refer(message);
        leg.abilities.pbx = Pbx::of_message(message);
        leg.credentials = self.credentials;
        leg.dialogs
            .push(ForkDialog::new(0, self.dialog, Some(offer)));
        leg
    }
}
