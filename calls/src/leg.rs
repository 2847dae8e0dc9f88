//! A leg of a call: one peer, and what has been agreed on with it.

mod accept;
mod ack;
mod active;
pub(crate) mod bot_state;
pub(crate) mod bridge;
pub(crate) mod call_end;
pub(crate) mod call_status;
pub(crate) mod callee;
pub(crate) mod caller;
pub(crate) mod delayed_ack;
pub(crate) mod dial;
pub(crate) mod exchange;
pub(crate) mod held_media;
pub(crate) mod keep_alive;
mod legs;
pub(crate) mod media_profile;
pub(crate) mod media_rules;
pub(crate) mod own_request;
pub(crate) mod peer_liveness;
pub(crate) mod provisional_relay;
pub(crate) mod relay;
mod replacing;
pub(crate) mod request_queue;
pub(crate) mod requests;
pub(crate) mod runtime_chain;
pub(crate) mod runtime_invite;
mod send;
mod state;
#[cfg(test)]
mod tests;
pub(crate) mod trunk_sdp;
pub(crate) mod uas_invite;
pub(crate) mod unacceptable_body;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use trunkline_sip::dialog::body::sdp_of;
use trunkline_sip::dialog::{Dialog, streams};
use trunkline_sip::flow::Flow;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Message;
use uuid::Uuid;

use crate::core::context::{Cx, allows, lacks_refer};
use crate::invite::invite_client::Accepted;
use crate::leg::bot_state::Bot;
use crate::leg::dial::Dialing;
use crate::leg::media_rules::MediaRules;
use crate::leg::provisional_relay::Reliability;
use crate::leg::uas_invite::UasInvite;
use crate::limits::allowance::RequestAllowance;
use crate::parts::bye::ByeContent;
use crate::parts::ids::LegId;
use crate::parts::origin::{Origin, OwnOrigin, origin_line, sdp_session};
use crate::parts::pbx::Pbx;
use crate::parts::role::LegRole;
use crate::parts::sips::is_sips;
use crate::parts::spoken_code::SpokenCode;
use crate::trust::credentials::LegCredentials;
use crate::trust::known_addresses::KnownAddresses;

pub(crate) use ack::Ack;
pub(crate) use active::{ActiveLeg, Lost};
pub(crate) use legs::Legs;
pub(crate) use send::NewRequest;
pub(crate) use state::{AwaitedAck, Bye, LegState, Replacing, Session};

/// A leg of a call.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) id: LegId,
    pub(crate) role: LegRole,
    pub(crate) peer: LegPeer,
    pub(crate) state: LegState,
    /// Bound on the rate of requests from its peer.
    pub(crate) allowance: RequestAllowance,
}

/// The far end of a leg.
#[derive(Debug)]
pub(crate) enum LegPeer {
    /// Nothing has come from it or been sent to it yet.
    Unknown,
    /// A user agent over SIP.
    Sip(SipPeer),
    /// An agent whose audio flows by way of us: media of our own.
    Media(LocalMedia),
}

/// One dialog of a leg. Each fork of each attempt at a runtime makes two with one number: one with the runtime, and one with the caller.
#[derive(Debug)]
pub(crate) struct ForkDialog {
    pub(crate) fork: u8,
    pub(crate) dialog: Dialog,
    /// The last SDP that we have sent in this dialog: a refresh may have to repeat it, to a peer that takes no UPDATE (RFC 4028 §7.4). If
    /// it equals the caller's SDP, both share one allocation.
    local_sdp: Option<Arc<[u8]>>,
}

impl ForkDialog {
    /// A dialog in which the peer has got that SDP from us, if any.
    pub(crate) const fn new(fork: u8, dialog: Dialog, local_sdp: Option<Arc<[u8]>>) -> Self {
        Self {
            fork,
            dialog,
            local_sdp,
        }
    }

    /// Keeps the SDP of a message that goes to the peer.
    fn remember_sdp(&mut self, body: &[u8]) {
        if !body.is_empty() {
            self.local_sdp = Some(sdp_of(body).into());
        }
    }
}

/// Abilities that a peer has stated.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Abilities {
    /// It takes UPDATE, as its Allow or its answer to an UPDATE has shown.
    pub(crate) update: bool,
    /// Its use of reliable provisional responses (100rel).
    pub(crate) reliable: Reliability,
    /// It has sent Allow, and REFER isn't in it.
    pub(crate) no_refer: bool,
    /// Kind of phone system, by its User-Agent.
    pub(crate) pbx: Option<Pbx>,
}

impl Abilities {
    /// Abilities that this message of the peer states.
    pub(crate) fn of(message: &Message<'_>) -> Self {
        Self {
            update: allows(message, "UPDATE"),
            reliable: Reliability::of(message),
            no_refer: lacks_refer(message),
            pbx: Pbx::of_message(message),
        }
    }
}

/// The peer of a leg over SIP.
#[derive(Debug)]
pub(crate) struct SipPeer {
    /// Flow by which the peer was reached or heard last.
    pub(crate) flow: Flow,
    pub(crate) dialogs: SmallVec<[ForkDialog; 1]>,
    pub(crate) abilities: Abilities,
    /// True if the leg was begun with a `sips:` URI.
    pub(crate) is_sips: bool,
    /// Timer of the keep-alives, for a peer that is behind NAT and reached by UDP.
    pub(crate) keep_alive: Option<TimerId>,
    /// Credentials for this peer's challenges.
    pub(crate) credentials: Option<Box<LegCredentials>>,
    /// Origin line of the last SDP that we have sent to the peer; `None`: it is the line of `local_sdp`.
    pub(crate) origin: Option<Box<OwnOrigin>>,
    /// The peer's SDP as it was agreed on. The caller's is offered to a leg that takes the agent's place.
    pub(crate) remote_sdp: Option<Arc<[u8]>>,
    /// Sources that its requests may come from.
    pub(crate) known_addresses: KnownAddresses,
    /// It may be called for a transfer: a PBX may, the phone in the console's page may not.
    pub(crate) takes_calls: bool,
}

impl SipPeer {
    /// A peer at the other end of this flow, at the first message to it or from it.
    pub(crate) fn begun(flow: Flow) -> Self {
        Self {
            flow,
            dialogs: SmallVec::new(),
            abilities: Abilities::default(),
            is_sips: false,
            keep_alive: None,
            credentials: None,
            origin: None,
            remote_sdp: None,
            known_addresses: KnownAddresses::of(&flow),
            takes_calls: true,
        }
    }

    /// Makes the peer of a leg that has accepted our INVITE and was offered `offer`. Its one dialog has the number 0.
    pub(crate) fn accepted(accepted: Accepted<'_>, offer: Box<[u8]>) -> Self {
        let message = accepted.message;
        let mut peer = Self::begun(accepted.flow);
        for ip in accepted.addresses.as_slice() {
            peer.known_addresses.learn(*ip);
        }
        // The answer has our tag, which went to that IP with the INVITE.
        if accepted.is_from_target {
            let _ = peer.known_addresses.prove(&accepted.flow);
        }
        peer.is_sips = is_sips(accepted.uri.as_bytes());
        peer.abilities.update = allows(message, "UPDATE");
        peer.abilities.no_refer = lacks_refer(message);
        peer.abilities.pbx = Pbx::of_message(message);
        peer.credentials = accepted.credentials;
        peer.dialogs
            .push(ForkDialog::new(0, accepted.dialog, Some(offer.into())));
        peer
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

    /// Keeps the SDP of a message that goes to the peer in a dialog.
    pub(crate) fn remember_sdp(&mut self, fork: u8, body: &[u8]) {
        let mut dialogs = self.dialogs.iter_mut();
        if let Some(held) = dialogs.find(|held| held.fork == fork) {
            held.remember_sdp(body);
        }
        // Kept beside the dialog only while it differs: most legs then need no allocation for it.
        if let Some(OwnOrigin::LastParty(line)) = self.origin.as_deref()
            && self.origin_in_dialog() == Some(line)
        {
            self.origin = None;
        }
    }

    /// The SDP that the peer has of us in a dialog.
    pub(crate) fn local_sdp(&self, fork: u8) -> Option<&[u8]> {
        let mut dialogs = self.dialogs.iter();
        dialogs.find(|held| held.fork == fork)?.local_sdp.as_deref()
    }

    /// The SDP that the peer has of us, in the dialog of a leg that is up.
    pub(crate) fn first_local_sdp(&self) -> Option<&[u8]> {
        self.dialogs.first()?.local_sdp.as_deref()
    }

    /// The SDP of [`Self::first_local_sdp`], to be shared instead of copied.
    pub(crate) fn shared_local_sdp(&self) -> Option<&Arc<[u8]>> {
        self.dialogs.first()?.local_sdp.as_ref()
    }

    /// Returns a body as the peer is to get it: an SDP under the origin line that it knows.
    pub(crate) fn with_origin<'b>(&mut self, body: &'b [u8]) -> Cow<'b, [u8]> {
        // A body in several parts crosses as it is: only a bare SDP has its origin line changed.
        if !body.starts_with(b"v=") {
            return body.into();
        }
        if let Some(OwnOrigin::Own(origin)) = self.origin.as_deref_mut() {
            return origin.adopt(body).into();
        }
        let line = origin_line(body);
        self.origin = match line == self.origin_in_dialog() {
            true => None,
            false => line.map(|line| Box::new(OwnOrigin::LastParty(line.into()))),
        };
        body.into()
    }

    /// Returns an offer as the peer is to get it: where its session goes on with another party (`keep_origin`), with no fewer media sections than the
    /// SDP that the peer has (RFC 3264 §8).
    pub(crate) fn with_streams<'b>(&self, fork: u8, offer: &'b [u8]) -> Cow<'b, [u8]> {
        let goes_on = matches!(self.origin.as_deref(), Some(OwnOrigin::Own(_)));
        match self.local_sdp(fork) {
            Some(before) if goes_on && offer.starts_with(b"v=") => streams::extended(offer, before),
            Some(_) | None => offer.into(),
        }
    }

    fn origin_in_dialog(&self) -> Option<&[u8]> {
        origin_line(self.first_local_sdp()?)
    }

    /// Has each further SDP to the peer continue the session that the peer knows, as its next version, whichever party the SDP comes from.
    pub(crate) fn keep_origin(&mut self) {
        let line = match self.origin.as_deref() {
            Some(OwnOrigin::Own(_)) => return,
            Some(OwnOrigin::LastParty(line)) => Some(&**line),
            None => self.origin_in_dialog(),
        };
        // RFC 3264 §8: the next SDP's o= "MUST be identical", but for its version, which "MUST increment by one".
        let origin = line.and_then(Origin::after).map(OwnOrigin::Own);
        self.origin = origin.map(Box::new);
    }

    pub(crate) fn fork_of(&self, remote_tag: &[u8]) -> Option<u8> {
        self.dialogs
            .iter()
            .find(|held| held.dialog.remote_tag() == remote_tag)
            .map(|held| held.fork)
    }
}

/// Media of our own, and the agent that speaks by them.
#[derive(Debug, Default)]
pub(crate) struct LocalMedia {
    /// Our RTP address once the media is open.
    pub(crate) local: Option<SocketAddr>,
    /// `sess-id` of our SDP.
    pub(crate) session: u64,
    /// `sess-version` of our last SDP.
    pub(crate) version: u64,
    pub(crate) rules: MediaRules,
    /// Our last SDP was an offer in a 2xx, whose answer comes in the caller's ACK.
    pub(crate) offered: bool,
    pub(crate) agent: LocalAgent,
}

/// The agent that speaks by media of our own.
#[derive(Debug, Default)]
pub(crate) enum LocalAgent {
    /// Echoes its caller.
    #[default]
    Echo,
    /// Speaks a code to a callee once it has answered.
    Code(Option<SpokenCode>),
    /// A bot on a WebSocket, or the built-in agent.
    Bot(Box<Bot>),
}

impl LocalMedia {
    /// Media of that agent in a call.
    pub(crate) fn of(call: Uuid, agent: LocalAgent, rules: MediaRules) -> Self {
        Self {
            session: sdp_session(call),
            rules,
            agent,
            ..Self::default()
        }
    }

    /// The timer that runs for the agent.
    fn timer(&self) -> Option<TimerId> {
        match &self.agent {
            LocalAgent::Bot(bot) => bot.timer(),
            LocalAgent::Echo | LocalAgent::Code(_) => None,
        }
    }
}

impl Leg {
    /// The peer, if it is one over SIP that has been sent to or heard from.
    pub(crate) const fn sip(&self) -> Option<&SipPeer> {
        match &self.peer {
            LegPeer::Sip(peer) => Some(peer),
            LegPeer::Unknown | LegPeer::Media(_) => None,
        }
    }

    pub(crate) const fn sip_mut(&mut self) -> Option<&mut SipPeer> {
        match &mut self.peer {
            LegPeer::Sip(peer) => Some(peer),
            LegPeer::Unknown | LegPeer::Media(_) => None,
        }
    }

    /// Session of a leg that has been accepted.
    pub(crate) const fn session(&self) -> Option<&Session> {
        match &self.state {
            LegState::Ready(session) | LegState::Leaving(session, _) => Some(session),
            LegState::Incoming(_)
            | LegState::Replacing(_)
            | LegState::Dialing(_)
            | LegState::Gone => None,
        }
    }

    pub(crate) const fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            LegState::Ready(session) | LegState::Leaving(session, _) => Some(session),
            LegState::Incoming(_)
            | LegState::Replacing(_)
            | LegState::Dialing(_)
            | LegState::Gone => None,
        }
    }

    /// The peer's INVITE that begins the call.
    pub(crate) const fn incoming(&self) -> Option<&UasInvite> {
        match &self.state {
            LegState::Incoming(incoming) => Some(incoming),
            LegState::Replacing(_)
            | LegState::Dialing(_)
            | LegState::Ready(_)
            | LegState::Leaving(..)
            | LegState::Gone => None,
        }
    }

    pub(crate) const fn incoming_mut(&mut self) -> Option<&mut UasInvite> {
        match &mut self.state {
            LegState::Incoming(incoming) => Some(incoming),
            LegState::Replacing(_)
            | LegState::Dialing(_)
            | LegState::Ready(_)
            | LegState::Leaving(..)
            | LegState::Gone => None,
        }
    }

    /// Our INVITE.
    pub(crate) const fn dialing(&self) -> Option<&Dialing> {
        match &self.state {
            LegState::Dialing(dialing) => Some(dialing),
            LegState::Incoming(_)
            | LegState::Replacing(_)
            | LegState::Ready(_)
            | LegState::Leaving(..)
            | LegState::Gone => None,
        }
    }

    pub(crate) const fn dialing_mut(&mut self) -> Option<&mut Dialing> {
        match &mut self.state {
            LegState::Dialing(dialing) => Some(dialing),
            LegState::Incoming(_)
            | LegState::Replacing(_)
            | LegState::Ready(_)
            | LegState::Leaving(..)
            | LegState::Gone => None,
        }
    }

    /// The INVITE with Replaces, if this leg waits to replace another.
    pub(crate) const fn replacing(&self) -> Option<Replacing> {
        match self.state {
            LegState::Replacing(replacing) => Some(replacing),
            LegState::Incoming(_)
            | LegState::Dialing(_)
            | LegState::Ready(_)
            | LegState::Leaving(..)
            | LegState::Gone => None,
        }
    }

    /// Notes that its BYE is out, or waits for the ACK of the INVITE.
    pub(crate) fn leave(&mut self, bye: Bye) {
        let before = std::mem::replace(&mut self.state, LegState::Gone);
        let session = match before {
            LegState::Ready(session) | LegState::Leaving(session, _) => session,
            LegState::Incoming(_)
            | LegState::Replacing(_)
            | LegState::Dialing(_)
            | LegState::Gone => Session::default(),
        };
        self.state = LegState::Leaving(session, bye);
    }

    /// Returns whether its BYE waits for the ACK of the INVITE.
    pub(crate) const fn owes_bye(&self) -> bool {
        matches!(&self.state, LegState::Leaving(_, Bye::AfterAck(_)))
    }

    /// Takes the BYE that waits for the ACK of the INVITE.
    pub(crate) fn take_owed_bye(&mut self) -> Option<ByeContent> {
        let LegState::Leaving(_, bye) = &mut self.state else {
            return None;
        };
        match std::mem::replace(bye, Bye::Sent) {
            Bye::AfterAck(content) => Some(*content),
            Bye::Sent => None,
        }
    }

    /// The timers that run for the leg, those of its INVITE and of its agent included.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> {
        let keep_alive = self.sip().and_then(|peer| peer.keep_alive);
        let due = self.session().and_then(|session| session.due);
        let dialing = self.dialing().into_iter().flat_map(Dialing::timers);
        let incoming = self.incoming().into_iter().flat_map(UasInvite::timers);
        let agent = self.local().and_then(LocalMedia::timer);
        let running = [keep_alive, due, agent].into_iter().flatten();
        running.chain(dialing).chain(incoming)
    }

    /// Stops the session timer and the keep-alives.
    pub(crate) fn stop_timers(&mut self, cx: &mut Cx<'_>) {
        if let Some(session) = self.session_mut() {
            cx.cancel_timer(&mut session.due);
        }
        if let Some(peer) = self.sip_mut() {
            cx.cancel_timer(&mut peer.keep_alive);
        }
    }

    /// Notes that something has been sent to the peer by this flow. A peer that is known already keeps its dialogs, abilities and
    /// credentials.
    pub(crate) fn reached_by(&mut self, flow: Flow) -> Option<&mut SipPeer> {
        match &mut self.peer {
            LegPeer::Sip(peer) => {
                peer.flow = flow;
                peer.known_addresses.begin(&flow);
            }
            LegPeer::Unknown | LegPeer::Media(_) => self.peer = LegPeer::Sip(SipPeer::begun(flow)),
        }
        self.sip_mut()
    }

    pub(crate) const fn local(&self) -> Option<&LocalMedia> {
        match &self.peer {
            LegPeer::Media(media) => Some(media),
            LegPeer::Unknown | LegPeer::Sip(_) => None,
        }
    }

    pub(crate) const fn local_mut(&mut self) -> Option<&mut LocalMedia> {
        match &mut self.peer {
            LegPeer::Media(media) => Some(media),
            LegPeer::Unknown | LegPeer::Sip(_) => None,
        }
    }
}
