//! The legs of a call, the two of them that are connected, and the requests of ours in their dialogs.
//!
//! Plain state, which knows neither the call nor what it is about: routing, records, limits and transfers are the call's.

use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::slot::{Slot, Tag};
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::bot_state::Bot;
use super::call_status::CallStatus;
use super::delayed_ack::Delayed;
use super::dial::Dialing;
use super::held_media::HeldMedia;
use super::own_request::{Pending, Purpose, RequestKind};
use super::provisional_relay::HeldAnswer;
use super::requests::Requests;
use super::uas_invite::UasInvite;
use super::{
    ActiveLeg, AwaitedAck, Bye, ForkDialog, Leg, LegState, Legs, LocalAgent, LocalMedia,
    NewRequest, Session, SipPeer,
};
use crate::core::context::{Core, Cx};
use crate::core::effect::Effect;
use crate::core::traced::{DialogIdentity, TracedLeg, Untraced};
use crate::leg::exchange::{Exchange, OwnRequest};
use crate::leg::own_request::JoinPhase;
use crate::leg::request_queue::NextRequest;
use crate::parts::allow::to_peer;
use crate::parts::bye::ByeContent;
use crate::parts::ids::{CallKey, CallRef, LegId, TagOwner};
use crate::parts::role::LegRole;
use crate::{has_sdp, sdp_of};

/// The legs of a call, and what is in flight on them.
#[derive(Debug)]
pub(crate) struct Bridge {
    /// The call, as timers and transactions name it.
    pub(crate) key: CallKey,
    /// Keys into the tag index, to be freed with the call.
    pub(crate) tags: SmallVec<[u64; 2]>,
    pub(crate) legs: Legs,
    pub(crate) requests: Requests,
    /// Holds, as far as they change SDP that crosses.
    pub(crate) held: HeldMedia,
}

impl Bridge {
    /// Legs of a call that has not been answered.
    pub(crate) fn new(key: CallKey, legs: Legs) -> Self {
        Self {
            key,
            tags: SmallVec::new(),
            legs,
            requests: Requests::default(),
            held: HeldMedia::default(),
        }
    }

    /// Status of the call.
    pub(crate) fn status(&self) -> CallStatus {
        let trunk = self.legs.get(self.trunk_id());
        match trunk.map(|leg| &leg.state) {
            Some(LegState::Leaving(..) | LegState::Gone) | None => CallStatus::Over,
            Some(LegState::Incoming(_) | LegState::Replacing(_) | LegState::Dialing(_)) => {
                CallStatus::SettingUp
            }
            Some(LegState::Ready(_)) if self.legs.pair().is_none() => CallStatus::SettingUp,
            Some(LegState::Ready(session)) if session.is_acknowledged() => CallStatus::Up,
            Some(LegState::Ready(_)) => CallStatus::Answered,
        }
    }

    /// Makes a local tag for the dialog that a peer's INVITE makes on a leg.
    pub(crate) fn mint_tag(
        &mut self,
        cx: &mut Cx<'_>,
        slot: Slot,
        leg: LegId,
        invite: &Message<'_>,
    ) -> Tag {
        let owner = TagOwner { key: self.key, leg };
        let tag = cx.mint_tag(slot, owner);
        cx.trace(owner, DialogIdentity::with_peer(tag, invite));
        self.tags.push(tag.bits());
        tag
    }

    /// Makes a local tag for a dialog with the caller, whose INVITE has no final answer yet. Returns it with the dialog.
    pub(crate) fn mint_caller_dialog(&mut self, cx: &mut Cx<'_>, slot: Slot) -> Option<Dialog> {
        let leg = self.trunk_id();
        let owner = TagOwner { key: self.key, leg };
        let incoming = self.incoming()?;
        let tag = cx.mint_tag(slot, owner);
        let dialog = incoming.dialog(&tag);
        cx.trace(owner, DialogIdentity::with_peer(tag, incoming.invite()));
        self.tags.push(tag.bits());
        dialog
    }

    /// The caller's INVITE until it has its final answer.
    pub(crate) fn incoming(&self) -> Option<&UasInvite> {
        self.legs.get(self.trunk_id())?.incoming()
    }

    pub(crate) fn incoming_mut(&mut self) -> Option<&mut UasInvite> {
        self.legs.get_mut(self.trunk_id())?.incoming_mut()
    }

    /// Our INVITE that has no final answer yet.
    pub(crate) fn dialing(&self) -> Option<&Dialing> {
        self.legs.iter().find_map(Leg::dialing)
    }

    pub(crate) fn dialing_mut(&mut self) -> Option<&mut Dialing> {
        self.legs.iter_mut().find_map(Leg::dialing_mut)
    }

    /// The 2xx of ours that have not been acknowledged, and the legs that owe us their ACKs.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (LegId, &AwaitedAck)> {
        self.legs.iter().flat_map(|leg| {
            let session = leg.session().into_iter();
            session.flat_map(|session| session.awaited().iter().map(|ack| (leg.id, ack)))
        })
    }

    /// The leg on the trunk.
    pub(crate) fn trunk_id(&self) -> LegId {
        self.legs.pair().map_or(LegId::FIRST, |(trunk, _)| trunk)
    }

    /// The leg that faces the trunk's: the agent's, or that of a destination in its stead.
    pub(crate) fn agent_id(&self) -> LegId {
        self.legs.pair().map_or(LegId::SECOND, |(_, agent)| agent)
    }

    /// The leg that this one is connected with.
    pub(crate) fn other(&self, id: LegId) -> LegId {
        match self.is_trunk(id) {
            true => self.agent_id(),
            false => self.trunk_id(),
        }
    }

    /// Methods for the peer on this leg.
    pub(crate) fn methods(&self, id: LegId) -> &'static [u8] {
        to_peer(self.role(id))
    }

    /// Returns whether a leg is on the trunk.
    pub(crate) fn is_trunk(&self, id: LegId) -> bool {
        self.role(id) == LegRole::Trunk
    }

    /// Role of a leg's peer.
    pub(crate) fn role(&self, id: LegId) -> LegRole {
        self.legs.get(id).map_or(LegRole::Agent, |leg| leg.role)
    }

    /// Gives traces the identities of the call's legs that are new.
    pub(crate) fn report_traced(&self, core: &mut Core, ids: &CallRef) {
        for Untraced { owner, identity } in core.untraced.drain(..) {
            // An input is one call's: tags are made for no other while it is handled. Should one be, its messages are in no trace rather than
            // in that of another org.
            if owner.key != self.key {
                continue;
            }
            let leg = TracedLeg {
                org: ids.org,
                call: ids.call,
                leg: owner.leg.number(),
                role: self.role(owner.leg),
            };
            core.effects
                .push_back(Effect::Traced(leg, ids.partner, Box::new(identity)));
        }
    }

    /// Returns whether a destination has taken the agent's place.
    pub(crate) fn is_with_destination(&self) -> bool {
        self.role(self.agent_id()) == LegRole::Destination
    }

    /// Returns whether a leg isn't one of the two that are connected: it was replaced, or doesn't replace another yet.
    pub(crate) fn has_left(&self, id: LegId) -> bool {
        let is_another = |(trunk, agent)| id != trunk && id != agent;
        self.legs.pair().is_some_and(is_another)
    }

    /// Forgets a leg that was replaced, once nothing is awaited from it any more. `arriving`: the leg that is to replace the agent's.
    pub(crate) fn forget_left(&mut self, id: LegId, arriving: Option<LegId>) {
        if self.has_left(id) && !self.requests.awaits(id) && arriving != Some(id) {
            self.legs.remove(id);
        }
    }

    pub(crate) fn trunk(&self) -> Option<&SipPeer> {
        self.legs.sip(self.trunk_id())
    }

    pub(crate) fn trunk_mut(&mut self) -> Option<&mut SipPeer> {
        self.legs.sip_mut(self.trunk_id())
    }

    pub(crate) fn agent(&self) -> Option<&SipPeer> {
        self.legs.sip(self.agent_id())
    }

    pub(crate) fn agent_mut(&mut self) -> Option<&mut SipPeer> {
        self.legs.sip_mut(self.agent_id())
    }

    /// Media of our own on the agent's side, if it has them.
    pub(crate) fn local(&self) -> Option<&LocalMedia> {
        self.legs.get(self.agent_id())?.local()
    }

    pub(crate) fn local_mut(&mut self) -> Option<&mut LocalMedia> {
        self.legs.get_mut(self.agent_id())?.local_mut()
    }

    /// Returns whether the agent's audio flows by way of us.
    pub(crate) fn is_local(&self) -> bool {
        self.local().is_some()
    }

    /// Returns whether the agent is the built-in one that echoes.
    pub(crate) fn is_echo(&self) -> bool {
        let echoes = |media: &LocalMedia| matches!(media.agent, LocalAgent::Echo);
        self.local().is_some_and(echoes)
    }

    /// Fork number of the dialogs that the call goes by, which is the same on both legs.
    pub(crate) fn fork(&self) -> Option<u8> {
        let held = self.trunk()?.dialogs.first()?;
        Some(held.fork)
    }

    /// The caller's SDP as it was agreed on.
    pub(crate) fn trunk_sdp(&self) -> Option<&[u8]> {
        self.trunk()?.remote_sdp.as_deref()
    }

    /// Stores the caller's SDP as it was agreed on. If the agent was sent an equal SDP, both share one allocation.
    pub(crate) fn set_trunk_sdp(&mut self, sdp: &[u8]) {
        let shared = self.agent().and_then(SipPeer::shared_local_sdp);
        let shared = shared.filter(|shared| ***shared == *sdp).map(Arc::clone);
        if let Some(trunk) = self.trunk_mut() {
            trunk.remote_sdp = Some(shared.unwrap_or_else(|| sdp.into()));
        }
    }

    /// Returns whether a leg has a dialog with that peer.
    pub(crate) fn has_dialog(&self, call_id: &[u8], remote_tag: &[u8]) -> bool {
        self.legs.iter().filter_map(Leg::sip).any(|leg| {
            leg.dialogs.iter().any(|held| {
                held.dialog.call_id() == call_id && held.dialog.remote_tag() == remote_tag
            })
        })
    }

    /// Returns whether a leg has a dialog of that number.
    pub(crate) fn has_fork(&self, id: LegId, fork: u8) -> bool {
        let peer = self.legs.sip(id);
        peer.is_some_and(|peer| peer.dialog_ref(fork).is_some())
    }

    /// Drops all dialogs but those of the fork that has won.
    pub(crate) fn keep_only(&mut self, cx: &mut Cx<'_>, fork: u8) {
        self.legs.keep_only(fork);
        self.abandon_dropped(cx);
    }

    /// Ends the requests that were relayed between two dialogs of which one is gone: that of a fork that has lost, or of an attempt that is
    /// over.
    pub(crate) fn abandon_dropped(&mut self, cx: &mut Cx<'_>) {
        let (trunk, agent) = (self.trunk_id(), self.agent_id());
        let (from, to) = (self.legs.sip(trunk), self.legs.sip(agent));
        let is_held = |fork| {
            let mut ends = [from, to].into_iter();
            ends.all(|peer| peer.is_some_and(|peer| peer.dialog_ref(fork).is_some()))
        };
        self.requests.abandon_dropped(cx, is_held);
    }

    /// Returns whether the ACK with that CSeq number has to bring an SDP answer.
    pub(crate) fn awaits_sdp_of(&self, id: LegId, cseq: u32) -> bool {
        let session = self.legs.session(id);
        let mut awaited = session.into_iter().flat_map(Session::awaited);
        let ack = awaited.find(|ack| ack.cseq == cseq);
        ack.is_some_and(|ack| ack.delayed.is_some() || self.local_awaits_answer())
    }

    fn local_awaits_answer(&self) -> bool {
        self.local().is_some_and(|media| media.offered)
    }

    /// Sends a request on one leg, with these lines of its own. `None` if there is no such dialog or no room.
    pub(crate) fn send(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        request: &NewRequest<'_>,
        lines: impl FnOnce(&mut Head<'_>),
    ) -> Option<&mut Pending> {
        let leg = self.legs.get_mut(id)?;
        let pending = leg.send(cx, self.key, request, lines)?;
        self.requests.add(cx, self.key, pending)
    }

    /// Sends BYE on one leg. If the leg began with the peer's INVITE, the BYE waits until the ACK to our 2xx has arrived, or hasn't come
    /// within 64*T1 (RFC 3261 §15).
    pub(crate) fn send_bye(&mut self, cx: &mut Cx<'_>, id: LegId, content: ByeContent) {
        let Some(leg) = self.legs.get_mut(id) else {
            return;
        };

        if leg.session().is_some_and(Session::defers_bye) {
            return leg.leave(Bye::AfterAck(Box::new(content)));
        }

        let Some(dialog) = leg.sip().and_then(|peer| peer.dialogs.first()) else {
            return;
        };

        let bye = NewRequest {
            body: &content.body,
            ..NewRequest::bare(dialog.fork, Method::Bye, Purpose::Own)
        };
        leg.leave(Bye::Sent);
        self.send(cx, id, &bye, |head| head.raw(&content.lines));
    }

    /// Sends another BYE over a new connection: the first one's connection broke or was stale.
    pub(crate) fn send_bye_again(&mut self, cx: &mut Cx<'_>, lost: Pending) {
        let last = lost.last_dialog.map(|dialog| (lost.fork, *dialog));
        let is_last = last.is_some();
        if let (Some((fork, dialog)), Some(peer)) = (last, self.legs.sip_mut(lost.leg)) {
            peer.dialogs.push(ForkDialog::new(fork, dialog, None));
        }

        let bye = NewRequest::bare(lost.fork, Method::Bye, Purpose::SecondBye);
        self.send(cx, lost.leg, &bye, |_| {});
        if let Some(peer) = self.legs.sip_mut(lost.leg).filter(|_| is_last) {
            peer.dialogs.clear();
        }
    }

    /// Ends the dialogs of a leg that has left: its peer has hung up, or is lost and has been sent BYE, which keeps the dialog that it needs.
    pub(crate) fn end_dialogs(&mut self, id: LegId) {
        let peer = self.legs.sip_mut(id);
        let ended = peer.map(|peer| std::mem::take(&mut peer.dialogs));
        if let Some(held) = ended.into_iter().flatten().next() {
            self.requests.keep_for_bye(id, held.dialog);
        }
    }

    /// Rejects the offers, on either leg, whose answers would come in an ACK of the other leg.
    pub(crate) fn reject_delayed(&mut self, cx: &mut Cx<'_>) {
        while let Some((id, delayed)) = self.take_delayed() {
            let other = self.other(id);
            if let Some(leg) = self.legs.get_mut(other) {
                leg.reject_offer(cx, &delayed);
            }
        }
    }

    fn take_delayed(&mut self) -> Option<(LegId, Delayed)> {
        let mut legs = self.legs.iter_mut();
        legs.find_map(|leg| Some((leg.id, leg.session_mut()?.take_delayed()?)))
    }

    /// Drops the ACKs still awaited from a leg that sent BYE. An offer on the other leg that waited for one of them is rejected.
    pub(crate) fn drop_awaited_acks(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let session = self.legs.session_mut(id);
        let awaited = session.map(Session::take_awaited).unwrap_or_default();
        for ack in &awaited {
            cx.endpoint.acknowledged(ack.server);
        }
        let other = self.other(id);
        for delayed in awaited.iter().filter_map(|ack| ack.delayed.as_ref()) {
            if let Some(leg) = self.legs.get_mut(other) {
                leg.reject_offer(cx, delayed);
            }
        }
    }

    /// One leg, to work on the dialogs with its peer.
    pub(crate) fn at(&mut self, id: LegId) -> Option<ActiveLeg<'_>> {
        let status = self.status();
        Some(ActiveLeg {
            call: self.key,
            status,
            leg: self.legs.get_mut(id)?,
            requests: &mut self.requests,
        })
    }

    /// Takes the first request whose turn has come.
    pub(crate) fn next_turn(&mut self, cx: &Cx<'_>, joining: JoinPhase) -> Option<NextRequest> {
        let longest = cx.core.config.dead_peer;
        let exchange = self.exchange(joining);
        let may_hold = self.status() == CallStatus::Up && joining == JoinPhase::Idle;
        let Self { legs, requests, .. } = self;
        requests.next_turn(cx.now, |request| match request {
            RequestKind::Hold => may_hold && exchange.admits(OwnRequest::Offer),
            RequestKind::Join => exchange.admits(OwnRequest::Join),
            RequestKind::Refresh(id) => {
                let leg = legs.get(id);
                let offers = leg.is_some_and(|leg| leg.refreshes_by_offer(cx.now, longest));
                exchange.admits(match offers {
                    true => OwnRequest::Offer,
                    false => OwnRequest::Bare,
                })
            }
        })
    }

    /// Returns whether this is the transaction of the dialling INVITE.
    pub(crate) fn dials_by(&self, client: ClientTx) -> bool {
        let owns = |dialing: &Dialing| dialing.client.owns(client);
        self.dialing().is_some_and(owns)
    }

    /// Returns whether the 2xx of that transaction is known, and its ACK waits for an ACK or a PRACK of the other side. Until then another
    /// fork's 2xx in that transaction gets no ACK either, and is retransmitted.
    pub(crate) fn awaits(&self, client: ClientTx) -> bool {
        let is_it = |delayed: &Delayed| delayed.client == client;
        let mut awaited = self.awaited();
        awaited.any(|(_, ack)| ack.delayed.as_ref().is_some_and(is_it))
            || self
                .incoming()
                .is_some_and(|incoming| incoming.relay.holds(client))
    }

    /// Returns whether a 2xx is of the fork that the call goes by.
    pub(crate) fn is_winner(&self, message: &Message<'_>) -> bool {
        let Some(agent) = self.agent() else {
            return false;
        };
        let fork = agent.fork_of(message.to_tag().unwrap_or_default());
        let dialog = fork.and_then(|fork| agent.dialog_ref(fork));
        self.status() != CallStatus::SettingUp && dialog.is_some_and(Dialog::is_confirmed)
    }

    /// Returns the status that refuses an offer of a leg's peer now; `None` if it may begin.
    pub(crate) fn refusal_of_offer(&self, id: LegId, fork: u8, joining: JoinPhase) -> Option<u16> {
        let first = self.first_offerer(fork).map(Exchange::Offered);
        first.unwrap_or_else(|| self.exchange(joining)).refusal(id)
    }

    /// Returns whether an UPDATE of that side has no final response yet.
    pub(crate) fn is_update_open(&self, id: LegId, fork: u8) -> bool {
        self.requests.relays_update(self.other(id), fork)
    }

    /// Returns the side whose offer, the call's first in that fork, is unanswered.
    fn first_offerer(&self, fork: u8) -> Option<LegId> {
        match self.incoming() {
            Some(incoming) if incoming.relay.is_agreed(fork) => None,
            Some(incoming) if has_sdp(incoming.invite()) => Some(self.trunk_id()),
            Some(_) => Some(self.agent_id()),
            // In an outbound call the runtime is offered the callee's SDP.
            None => {
                let offers = self.dialing().is_some_and(Dialing::is_runtime);
                offers.then_some(self.trunk_id())
            }
        }
    }

    /// Sends CANCEL to the runtime, with these lines; the endpoint holds it back until a 1xx has come. If its 2xx waits for the caller's
    /// PRACK, that 2xx is acknowledged instead, and its dialog ended by BYE.
    pub(crate) fn cancel_runtime(&mut self, cx: &mut Cx<'_>, lines: &[u8]) {
        let is_runtime = self.dialing().is_some_and(Dialing::is_runtime);
        if is_runtime && let Some((_, mut dialing)) = self.legs.take_dialing() {
            dialing.client.cancel(cx, lines);
        }
        if let Some(fork) = self.acknowledge_held(cx) {
            let agent = self.agent_id();
            let bye = NewRequest::bare(fork, Method::Bye, Purpose::Own);
            self.send(cx, agent, &bye, |_| {});
        }
    }

    /// Acknowledges the runtime's 2xx that waits for the caller's PRACK, unless that was done before. Returns the fork number of its
    /// dialog, which is kept; `None` if no 2xx waits.
    pub(crate) fn acknowledge_held(&mut self, cx: &mut Cx<'_>) -> Option<u8> {
        let HeldAnswer { won, answer } = self.incoming_mut()?.relay.take_held()?;
        if !won.acknowledged {
            let delayed = won.delayed(sdp_of(answer.message().body()));
            let agent = self.agent_id();
            if let Some(leg) = self.legs.get_mut(agent) {
                leg.reject_offer(cx, &delayed);
            }
        }
        Some(won.fork)
    }

    /// The bot, if the agent is one.
    pub(crate) fn bot(&self) -> Option<&Bot> {
        match &self.local()?.agent {
            LocalAgent::Bot(bot) => Some(bot),
            LocalAgent::Echo | LocalAgent::Code(_) => None,
        }
    }

    pub(crate) fn bot_mut(&mut self) -> Option<&mut Bot> {
        match &mut self.local_mut()?.agent {
            LocalAgent::Bot(bot) => Some(bot),
            LocalAgent::Echo | LocalAgent::Code(_) => None,
        }
    }

    /// The exchange that is open once the call is up. `joining` may keep the caller's offer open.
    pub(crate) fn exchange(&self, joining: JoinPhase) -> Exchange {
        if let Some(pending) = self.requests.offering() {
            return match matches!(pending.purpose, Purpose::Relay(_)) {
                true => Exchange::Offered(self.other(pending.leg)),
                false => Exchange::Ours,
            };
        }
        if joining == JoinPhase::Asking {
            return Exchange::Asking;
        }

        let mut awaited = self.awaited();
        if let Some((from, _)) = awaited.find(|(_, ack)| ack.delayed.is_some()) {
            return Exchange::AwaitsAnswer(from);
        }
        match (self.awaited().next(), self.requests.theirs()) {
            (Some((from, _)), _) => Exchange::AwaitsAck(from),
            (None, Some(_)) => Exchange::Refused,
            (None, None) => Exchange::Idle,
        }
    }
}
