//! A leg of a call: one peer, and what has been agreed on with it.

use std::net::SocketAddr;

use smallvec::SmallVec;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::flow::Flow;
use trunkline_sip::wheel::TimerId;

use super::context::Cx;
use super::credentials::LegCredentials;
use super::origin::Origin;
use super::pbx::Pbx;
use super::places::Places;
use super::provisional_relay::Reliability;
use super::session::Presence;
use super::verification::SpokenCode;

/// A leg within its call. No other leg of the call ever has the same.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LegId(u8);

impl LegId {
    /// The leg that every call begins with, on its trunk.
    pub(crate) const FIRST: Self = Self(0);
    /// The agent's first.
    pub(crate) const SECOND: Self = Self(1);
}

/// The part of a leg's peer in the call.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum LegRole {
    /// The phone system or carrier: the caller, or the callee of an outbound call.
    Trunk,
    /// The agent: its runtime, or the built-in echo agent.
    Agent,
    /// The destination of a transfer, connected with the caller in the agent's stead.
    Destination,
}

/// A leg of a call.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) id: LegId,
    pub(crate) role: LegRole,
    pub(crate) peer: Peer,
}

/// The far end of a leg.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every leg's peer is one over SIP"
)]
pub(crate) enum Peer {
    /// Nothing has been sent to it yet.
    Unknown,
    /// A user agent over SIP.
    Sip(SipPeer),
    /// The built-in agent: media of our own.
    Media(LocalMedia),
}

/// One dialog of a leg: every fork or attempt of the runtime has a pair of them with the same number.
#[derive(Debug)]
pub(crate) struct ForkDialog {
    pub(crate) fork: u8,
    pub(crate) dialog: Dialog,
}

/// What a peer said that it can do.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Abilities {
    pub(crate) update: bool,
    pub(crate) reliable: Reliability,
    /// It has said what it takes, and REFER isn't among it.
    pub(crate) no_refer: bool,
    /// The kind of phone system that it says it is.
    pub(crate) pbx: Option<Pbx>,
}

/// The peer of a leg over SIP.
#[derive(Debug)]
pub(crate) struct SipPeer {
    /// The way to it for the next request.
    pub(crate) flow: Flow,
    pub(crate) dialogs: SmallVec<[ForkDialog; 1]>,
    pub(crate) abilities: Abilities,
    /// Whether a `sips:` URI began it.
    pub(crate) is_sips: bool,
    pub(crate) session: Option<SessionTimer>,
    pub(crate) session_timer: Option<TimerId>,
    /// Runs where the peer is behind NAT and its way is UDP.
    pub(crate) keep_alive: Option<TimerId>,
    /// Whether the peer still answers.
    pub(crate) presence: Presence,
    /// The SDP last sent on this leg, for a refresh of our own.
    pub(crate) sdp: Option<Box<[u8]>>,
    /// What this peer's challenges are answered with.
    pub(crate) credentials: Option<Box<LegCredentials>>,
    /// Whose session this peer takes every SDP of ours for.
    pub(crate) origin: Option<Box<Origin>>,
    /// The origin line of the SDP that the peer has of us.
    pub(crate) told_origin: Option<Box<[u8]>>,
    /// The caller's SDP as it was agreed on, for a leg that takes the agent's place.
    pub(crate) heard: Option<Box<[u8]>>,
    /// Where its requests may come from.
    pub(crate) places: Places,
}

impl SipPeer {
    /// A peer that something has been sent to, or has come from, by this flow.
    pub(crate) fn begun(flow: Flow) -> Self {
        Self {
            flow,
            dialogs: SmallVec::new(),
            abilities: Abilities::default(),
            is_sips: false,
            session: None,
            session_timer: None,
            keep_alive: None,
            presence: Presence::default(),
            sdp: None,
            credentials: None,
            origin: None,
            told_origin: None,
            heard: None,
            places: Places::of(&flow),
        }
    }

    /// Stops what runs while the leg is up.
    pub(crate) fn stop_timers(&mut self, cx: &mut Cx<'_>) {
        cx.cancel_timer(&mut self.session_timer);
        cx.cancel_timer(&mut self.keep_alive);
    }

    /// The dialog of a leg that is up.
    pub(crate) fn first_dialog(&self) -> Option<&Dialog> {
        self.dialogs.first().map(|held| &held.dialog)
    }

    pub(crate) fn dialog(&mut self, fork: u8) -> Option<&mut Dialog> {
        self.dialogs
            .iter_mut()
            .find(|held| held.fork == fork)
            .map(|held| &mut held.dialog)
    }

    pub(crate) fn dialog_ref(&self, fork: u8) -> Option<&Dialog> {
        self.dialogs
            .iter()
            .find(|held| held.fork == fork)
            .map(|held| &held.dialog)
    }

    pub(crate) fn fork_of(&self, remote_tag: &[u8]) -> Option<u8> {
        self.dialogs
            .iter()
            .find(|held| held.dialog.remote_tag() == remote_tag)
            .map(|held| held.fork)
    }
}

/// The built-in agent's media.
#[derive(Debug, Default)]
pub(crate) struct LocalMedia {
    /// Our RTP address once the media is open.
    pub(crate) local: Option<SocketAddr>,
    /// `sess-version` of our last SDP.
    pub(crate) version: u64,
    /// The trunk allows RTP from another address than those of SDP and signalling.
    pub(crate) from_any: bool,
    /// Our own offer waits for its answer in the caller's ACK.
    pub(crate) offered: bool,
    /// Spoken to a callee once it has answered.
    pub(crate) code: Option<SpokenCode>,
}

impl LocalMedia {
    /// Media for a caller whose RTP comes from other addresses as well, if the trunk allows it.
    pub(crate) fn new(from_any: bool) -> Self {
        Self {
            from_any,
            ..Self::default()
        }
    }
}

/// The legs of a call.
#[derive(Debug)]
pub(crate) struct Legs {
    legs: SmallVec<[Leg; 2]>,
    next: u8,
}

impl Legs {
    /// The legs of a call that begins with this peer on its trunk.
    pub(crate) fn beginning_with(peer: Peer) -> Self {
        let mut legs = Self {
            legs: SmallVec::new(),
            next: 0,
        };
        legs.add(LegRole::Trunk, peer);
        legs
    }

    /// Adds a leg.
    pub(crate) fn add(&mut self, role: LegRole, peer: Peer) -> LegId {
        let mut id = LegId(self.next);
        while self.get(id).is_some() {
            id = LegId(id.0.wrapping_add(1));
        }
        self.next = id.0.wrapping_add(1);
        self.legs.push(Leg { id, role, peer });
        id
    }

    pub(crate) fn get(&self, id: LegId) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.id == id)
    }

    pub(crate) fn get_mut(&mut self, id: LegId) -> Option<&mut Leg> {
        self.legs.iter_mut().find(|leg| leg.id == id)
    }

    pub(crate) fn sip(&self, id: LegId) -> Option<&SipPeer> {
        self.get(id)?.sip()
    }

    pub(crate) fn sip_mut(&mut self, id: LegId) -> Option<&mut SipPeer> {
        self.get_mut(id)?.sip_mut()
    }

    pub(crate) fn local_mut(&mut self, id: LegId) -> Option<&mut LocalMedia> {
        self.get_mut(id)?.local_mut()
    }

    /// Notes the peer of a leg, from which or to which something has come.
    pub(crate) fn meet(&mut self, id: LegId, peer: SipPeer) {
        if let Some(leg) = self.get_mut(id) {
            leg.peer = Peer::Sip(peer);
        }
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Leg> {
        self.legs.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        self.legs.iter_mut()
    }
}

impl Leg {
    /// The peer, if it is one over SIP that something has been sent to.
    pub(crate) const fn sip(&self) -> Option<&SipPeer> {
        match &self.peer {
            Peer::Sip(peer) => Some(peer),
            Peer::Unknown | Peer::Media(_) => None,
        }
    }

    pub(crate) const fn sip_mut(&mut self) -> Option<&mut SipPeer> {
        match &mut self.peer {
            Peer::Sip(peer) => Some(peer),
            Peer::Unknown | Peer::Media(_) => None,
        }
    }

    /// Notes that something has been sent to the peer by this flow. What was known of it before stays known.
    pub(crate) fn reached_by(&mut self, flow: Flow) -> Option<&mut SipPeer> {
        match &mut self.peer {
            Peer::Sip(peer) => {
                peer.flow = flow;
                peer.places.begin(&flow);
            }
            Peer::Unknown | Peer::Media(_) => self.peer = Peer::Sip(SipPeer::begun(flow)),
        }
        self.sip_mut()
    }

    pub(crate) const fn local(&self) -> Option<&LocalMedia> {
        match &self.peer {
            Peer::Media(media) => Some(media),
            Peer::Unknown | Peer::Sip(_) => None,
        }
    }

    pub(crate) const fn local_mut(&mut self) -> Option<&mut LocalMedia> {
        match &mut self.peer {
            Peer::Media(media) => Some(media),
            Peer::Unknown | Peer::Sip(_) => None,
        }
    }
}
