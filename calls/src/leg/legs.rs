//! The legs of a call, and the two of them that are connected.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::moment::Moment;

use super::{Leg, LegPeer, LegState, Session, SipPeer};
use crate::core::context::Cx;
use crate::leg::dial::Dialing;
use crate::leg::uas_invite::UasInvite;
use crate::limits::allowance::RequestAllowance;
use crate::parts::ids::LegId;
use crate::parts::role::LegRole;

/// Most legs of a call: the two that are connected, one that is to replace one of these, and one that was replaced and has a BYE to answer.
/// At this number an INVITE with Replaces is refused.
const MOST: usize = 4;

/// The legs of a call.
#[derive(Debug)]
pub(crate) struct Legs {
    legs: SmallVec<[Leg; 2]>,
    /// Id that the next leg gets, unless a leg still has it.
    next: LegId,
    /// The two legs that are connected, the trunk's first, once the call has been answered.
    pair: Option<(LegId, LegId)>,
}

impl Legs {
    /// The legs of a call that begins with this peer on its trunk.
    pub(crate) fn beginning_with(peer: LegPeer, state: LegState) -> Self {
        let mut legs = Self {
            legs: SmallVec::new(),
            next: LegId::FIRST,
            pair: None,
        };
        legs.add(LegRole::Trunk, peer, state);
        legs
    }

    /// Adds a leg.
    pub(crate) fn add(&mut self, role: LegRole, peer: LegPeer, state: LegState) -> LegId {
        let mut id = self.next;
        // The number wraps around after many transfers, and a leg that is there keeps its own.
        while self.get(id).is_some() {
            id = id.next();
        }
        self.next = id.next();
        self.legs.push(Leg {
            id,
            role,
            peer,
            state,
            allowance: RequestAllowance::default(),
        });
        id
    }

    /// The two that are connected, the trunk's first.
    pub(crate) const fn pair(&self) -> Option<(LegId, LegId)> {
        self.pair
    }

    /// Connects a leg on the trunk with the one that faces it.
    pub(crate) const fn connect(&mut self, trunk: LegId, agent: LegId) {
        self.pair = Some((trunk, agent));
    }

    /// Takes the connection apart; true if there was one.
    pub(crate) fn disconnect(&mut self) -> bool {
        self.pair.take().is_some()
    }

    /// Puts leg `by` in the place of leg `replaced` in the connected pair, if that leg is in it.
    pub(crate) fn put_in_place_of(&mut self, replaced: LegId, by: LegId) {
        let of = |id| if id == replaced { by } else { id };
        self.pair = self.pair.map(|(trunk, agent)| (of(trunk), of(agent)));
    }

    /// Returns whether there is no room for another leg.
    pub(crate) fn is_full(&self) -> bool {
        self.legs.len() >= MOST
    }

    pub(crate) fn get(&self, id: LegId) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: LegId) -> Option<&mut Leg> {
        self.legs.iter_mut().find(|leg| leg.id == id)
    }

    pub(crate) fn session(&self, id: LegId) -> Option<&Session> {
        self.get(id)?.session()
    }

    pub(crate) fn session_mut(&mut self, id: LegId) -> Option<&mut Session> {
        self.get_mut(id)?.session_mut()
    }

    pub(crate) fn sip(&self, id: LegId) -> Option<&SipPeer> {
        self.get(id)?.sip()
    }

    pub(crate) fn sip_mut(&mut self, id: LegId) -> Option<&mut SipPeer> {
        self.get_mut(id)?.sip_mut()
    }

    /// Returns a body as the peer of a leg is to get it: an SDP under the origin line that this peer knows.
    pub(crate) fn with_origin<'b>(&mut self, id: LegId, body: &'b [u8]) -> Cow<'b, [u8]> {
        match self.sip_mut(id) {
            Some(peer) => peer.with_origin(body),
            None => body.into(),
        }
    }

    /// Returns an offer as the peer of a leg is to get it (`SipPeer::with_streams`).
    pub(crate) fn with_streams<'b>(&self, id: LegId, fork: u8, offer: &'b [u8]) -> Cow<'b, [u8]> {
        match self.sip(id) {
            Some(peer) => peer.with_streams(fork, offer),
            None => offer.into(),
        }
    }

    /// Stores the SDP that the peer of a leg has from us in a dialog.
    pub(crate) fn remember_sdp(&mut self, id: LegId, fork: u8, body: &[u8]) {
        if let Some(peer) = self.sip_mut(id) {
            peer.remember_sdp(fork, body);
        }
    }

    /// Forgets the dialogs of all other forks, on every leg.
    pub(crate) fn keep_only(&mut self, fork: u8) {
        for peer in self.legs.iter_mut().filter_map(Leg::sip_mut) {
            peer.dialogs.retain(|held| held.fork == fork);
        }
    }

    /// Has each further SDP to a leg's peer continue the session that the peer knows (`SipPeer::keep_origin`).
    pub(crate) fn keep_origin(&mut self, id: LegId) {
        if let Some(peer) = self.sip_mut(id) {
            peer.keep_origin();
        }
    }

    /// Session timer of a leg.
    pub(crate) fn session_timer(&self, id: LegId) -> Option<SessionTimer> {
        self.session(id)?.timer
    }

    /// Notes that a message of a leg's peer has arrived in its dialog, which shows that the peer is there.
    pub(crate) fn hear(&mut self, id: LegId, now: Moment) {
        if let Some(session) = self.session_mut(id) {
            session.liveness.hear(now);
        }
    }

    /// Stops the session timer and the keep-alives of a leg.
    pub(crate) fn stop_timers(&mut self, cx: &mut Cx<'_>, id: LegId) {
        if let Some(leg) = self.get_mut(id) {
            leg.stop_timers(cx);
        }
    }

    /// Sets the peer of a leg, at the first message from it or to it.
    pub(crate) fn meet(&mut self, id: LegId, peer: SipPeer) {
        if let Some(leg) = self.get_mut(id) {
            leg.peer = LegPeer::Sip(peer);
        }
    }

    pub(crate) fn set_state(&mut self, id: LegId, state: LegState) {
        if let Some(leg) = self.get_mut(id) {
            leg.state = state;
        }
    }

    /// Takes our INVITE out of the leg that it is for.
    pub(crate) fn take_dialing(&mut self) -> Option<(LegId, Box<Dialing>)> {
        let leg = self.legs.iter_mut().find(|leg| leg.dialing().is_some())?;
        let LegState::Dialing(dialing) = std::mem::replace(&mut leg.state, LegState::Gone) else {
            return None;
        };
        Some((leg.id, dialing))
    }

    /// Takes the peer's INVITE that begins the call.
    pub(crate) fn take_incoming(&mut self, id: LegId) -> Option<Box<UasInvite>> {
        let leg = self.get_mut(id).filter(|leg| leg.incoming().is_some())?;
        let LegState::Incoming(incoming) = std::mem::replace(&mut leg.state, LegState::Gone) else {
            return None;
        };
        Some(incoming)
    }

    pub(crate) fn set_role(&mut self, id: LegId, role: LegRole) {
        if let Some(leg) = self.get_mut(id) {
            leg.role = role;
        }
    }

    /// Forgets a leg.
    pub(crate) fn remove(&mut self, id: LegId) {
        self.legs.retain(|leg| leg.id != id);
    }

    /// Removes closed connections from the legs' flows. `lost` has the number of the name that each connection's peer had proved.
    pub(crate) fn leave_connections(&mut self, lost: &HashMap<u32, u32>) {
        for peer in self.legs.iter_mut().filter_map(Leg::sip_mut) {
            if let Some(proved) = lost.get(&peer.flow.connection) {
                // `proved` is 0, which names no connection, or over TLS the number of the name that the peer of the next connection has to
                // prove.
                peer.flow.connection = *proved;
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Leg> {
        self.legs.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.legs.iter_mut()
    }
}
