//! One call as data: its legs, its set-up while it lasts, what is in flight between the legs.
//!
//! Plain values only: no instant of a clock, no handle, no channel.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_sip::endpoint::{ClientTx, ServerTx};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use super::allow::to_peer;
use super::crossing::{Crossing, Identity, Place};
use super::destination_route::DestinationRoute;
use super::dial::Dialing;
use super::held::Held;
use super::hold::Hold;
use super::ids::CallKey;
use super::ids::LegId;
use super::join::Join;
use super::leg::{
    AwaitedAck, Delayed, Leg, LegState, Legs, LocalAgent, LocalMedia, Session, SipPeer,
};
use super::limits::Permit;
use super::outbound::Outbound;
use super::own_request::{Pending, QueuedRequest};
use super::privacy::{CallerIdentity, withheld_if};
use super::request_queue::RequestQueue;
use super::role::LegRole;
use super::transfer::LastTransfer;
use super::uas_invite::UasInvite;
use super::{has_sdp, sdp_of};

/// Status of a call, as its legs have it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum CallStatus {
    /// One of the two legs has not been accepted yet.
    SettingUp,
    /// Our 2xx is out, the caller's ACK is not in.
    Answered,
    /// Acknowledged.
    Up,
    /// Over; what is left waits for the answers to our BYEs.
    Over,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: CallKey,
    pub(crate) id: Uuid,
    pub(crate) session: Uuid,
    pub(crate) org: Uuid,
    pub(crate) agent: Uuid,
    /// Contact of the caller, once looked up.
    pub(crate) contact: Option<Uuid>,
    /// The caller as others may know of it.
    pub(crate) identity: CallerIdentity,
    pub(crate) slot: Slot,
    /// Max-Forwards of whatever INVITE follows from the caller's.
    pub(crate) hops: u8,
    /// CSeq of our INVITE to the runtime.
    pub(crate) runtime_cseq: u32,
    pub(crate) answered: Option<Moment>,
    /// State of a call that we began.
    pub(crate) outbound: Option<Box<Outbound>>,
    /// Both ends are being given each other's media by us, or have been.
    pub(crate) joining: Option<Box<Join<Delayed>>>,
    /// The caller's offer that nobody has answered.
    pub(crate) proposed: Option<Box<[u8]>>,
    pub(crate) legs: Legs,
    /// The two legs that are connected, the trunk's first, once the call has been answered.
    pub(crate) bridge: Option<(LegId, LegId)>,
    /// Keys into the tag index, to be freed with the call.
    pub(crate) tags: SmallVec<[u64; 2]>,
    /// Requests of ours that wait for their answers. Most calls that are up have none, and keep no room for any.
    pub(crate) pending: Vec<Pending>,
    /// Requests of ours that wait for their turn.
    pub(crate) queue: RequestQueue<QueuedRequest>,
    pub(crate) turn: Option<TimerId>,
    /// The last INVITE of a peer inside the call.
    pub(crate) theirs: Option<ServerTx>,
    pub(crate) permit: Option<Permit>,
    /// A re-INVITE of ours waits for its final answer.
    pub(crate) exchange: Option<TimerId>,
    /// The set-up deadline, then the longest duration.
    pub(crate) deadline: Option<TimerId>,
    /// The last transfer, under way or settled.
    pub(crate) transfer: LastTransfer<Box<DestinationRoute>>,
    /// Hold that was asked for by the API.
    pub(crate) hold: Hold,
    /// Hold of the call, by us and by its phone system.
    pub(crate) held: Held,
}

impl Call {
    /// Status of the call.
    pub(crate) fn status(&self) -> CallStatus {
        let trunk = self.legs.get(self.trunk_id());
        match trunk.map(|leg| &leg.state) {
            Some(LegState::Leaving(..) | LegState::Gone) | None => CallStatus::Over,
            Some(LegState::Incoming(_) | LegState::Replacing(_) | LegState::Dialing(_)) => {
                CallStatus::SettingUp
            }
            Some(LegState::Ready(_)) if self.bridge.is_none() => CallStatus::SettingUp,
            Some(LegState::Ready(session)) if session.is_acknowledged() => CallStatus::Up,
            Some(LegState::Ready(_)) => CallStatus::Answered,
        }
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
        self.bridge.map_or(LegId::FIRST, |(trunk, _)| trunk)
    }

    /// The leg that faces the trunk's: the agent's, or that of a destination in its stead.
    pub(crate) fn agent_id(&self) -> LegId {
        self.bridge.map_or(LegId::SECOND, |(_, agent)| agent)
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

    /// Rule for headers that name the sender of a message on this leg.
    pub(crate) fn identity_from(&self, sender: LegId) -> Identity {
        match self.is_trunk(sender) {
            true => withheld_if(self.identity.is_withheld()),
            false => Identity::Crosses,
        }
    }

    /// Crossing of a message that came on this leg.
    pub(crate) fn crossing<'p>(
        &self,
        sender: LegId,
        place: Place,
        prefix: &'p str,
    ) -> Crossing<'p> {
        Crossing {
            place,
            identity: self.identity_from(sender),
            prefix,
        }
    }

    /// Returns whether a leg is on the trunk.
    pub(crate) fn is_trunk(&self, id: LegId) -> bool {
        self.role(id) == LegRole::Trunk
    }

    /// The part of a leg's peer.
    pub(crate) fn role(&self, id: LegId) -> LegRole {
        self.legs.get(id).map_or(LegRole::Agent, |leg| leg.role)
    }

    /// Returns whether somebody else has taken the agent's place.
    pub(crate) fn is_with_destination(&self) -> bool {
        self.role(self.agent_id()) == LegRole::Destination
    }

    /// Returns whether another leg has taken the place of this one.
    pub(crate) fn has_left(&self, id: LegId) -> bool {
        let is_another = |(trunk, agent)| id != trunk && id != agent;
        self.bridge.is_some_and(is_another)
    }

    /// Forgets a leg whose place is taken, once nothing is awaited from it any more.
    pub(crate) fn forget_left(&mut self, id: LegId) {
        let is_awaited = self.pending.iter().any(|pending| pending.leg == id);
        if self.has_left(id) && !is_awaited && self.arriving() != Some(id) {
            self.legs.remove(id);
        }
    }

    /// The peer of a leg; `None` for the built-in agent.
    pub(crate) fn leg(&mut self, id: LegId) -> Option<&mut SipPeer> {
        self.legs.sip_mut(id)
    }

    pub(crate) fn trunk(&self) -> Option<&SipPeer> {
        self.legs.sip(self.trunk_id())
    }

    pub(crate) fn trunk_mut(&mut self) -> Option<&mut SipPeer> {
        self.leg(self.trunk_id())
    }

    pub(crate) fn agent(&self) -> Option<&SipPeer> {
        self.legs.sip(self.agent_id())
    }

    pub(crate) fn agent_mut(&mut self) -> Option<&mut SipPeer> {
        self.leg(self.agent_id())
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

    /// The number of the pair of dialogs that the call goes by.
    pub(crate) fn fork(&self) -> Option<u8> {
        let held = self.trunk()?.dialogs.first()?;
        Some(held.fork)
    }

    /// The caller's SDP as it was agreed on.
    pub(crate) fn heard(&self) -> Option<&[u8]> {
        self.trunk()?.heard.as_deref()
    }

    pub(crate) fn set_heard(&mut self, sdp: &[u8]) {
        let told = self.agent().and_then(SipPeer::shared_told);
        let told = told.filter(|told| ***told == *sdp).map(Arc::clone);
        if let Some(trunk) = self.trunk_mut() {
            trunk.heard = Some(told.unwrap_or_else(|| sdp.into()));
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

    /// A message of a peer holds its side of what is agreed on.
    pub(crate) fn hear(&mut self, id: LegId, message: &Message<'_>) {
        if self.is_trunk(id) && has_sdp(message) {
            let sdp = sdp_of(message.body());
            self.held.take_answer(sdp);
            let heard = self.hold.heard_sdp(sdp);
            self.set_heard(&heard);
        }
    }

    /// A peer offers to change what was agreed on, or asks for an offer.
    pub(crate) fn note_proposal(&mut self, id: LegId, message: &Message<'_>) {
        if self.is_trunk(id) {
            self.proposed = has_sdp(message).then(|| sdp_of(message.body()).into());
        }
    }

    /// And that was accepted.
    pub(crate) fn hear_proposed(&mut self, id: LegId) {
        if self.is_trunk(id)
            && let Some(sdp) = self.proposed.take()
        {
            self.held.take_offer(&sdp);
            let heard = self.hold.heard_sdp(&sdp);
            self.set_heard(&heard);
        }
    }

    /// Returns whether the ACK of that CSeq number is to bring an SDP answer.
    pub(crate) fn awaits_sdp_of(&self, id: LegId, cseq: u32) -> bool {
        let session = self.legs.session(id);
        let mut awaited = session.into_iter().flat_map(Session::awaited);
        let ack = awaited.find(|ack| ack.cseq == cseq);
        ack.is_some_and(|ack| ack.delayed.is_some() || self.local_awaits_answer())
    }

    fn local_awaits_answer(&self) -> bool {
        self.local().is_some_and(|media| media.offered)
    }

    /// Returns whether audio flows by way of us.
    pub(crate) fn has_own_media(&self) -> bool {
        let outbound = self.outbound.as_deref();
        self.is_local() || outbound.is_some_and(Outbound::has_media)
    }

    /// The legs forget connections that are gone.
    pub(crate) fn leave_connections(&mut self, lost: &HashMap<u32, u32>) {
        for peer in self.legs.iter_mut().filter_map(Leg::sip_mut) {
            if let Some(proved) = lost.get(&peer.flow.connection) {
                peer.flow.connection = *proved;
            }
        }
    }

    /// Returns whether nothing is awaited any more and the call may be forgotten.
    pub(crate) fn is_done(&self) -> bool {
        self.status() == CallStatus::Over
            && self.pending.is_empty()
            && !self.legs.iter().any(Leg::owes_bye)
            && !self.transfer.is_parting()
    }

    pub(crate) fn take_pending(&mut self, client: ClientTx) -> Option<Pending> {
        let at = self
            .pending
            .iter()
            .position(|pending| pending.client == client)?;
        let pending = self.pending.remove(at);
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes are asserted so that they grow by intent alone. Two legs are inside a call, further ones in a block of their own.
    #[test]
    fn a_call_and_a_leg_are_small() {
        assert_eq!([size_of::<Call>(), size_of::<Leg>()], [1256, 416]);
    }
}
