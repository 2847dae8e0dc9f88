//! One call as data: its legs, its set-up while it lasts, what is in flight between the legs.
//!
//! Plain values only: no instant of a clock, no handle, no channel. Leg 0 faces the caller, leg 1 the
//! agent's runtime; with the built-in echo agent leg 1 has no dialog.

use std::collections::HashMap;
use std::net::IpAddr;

use smallvec::SmallVec;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::{ClientTx, ServerTx};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::{Message, Method};
use uuid::Uuid;

use super::attempts::Recorded;
use super::credentials::LegCredentials;
use super::dialing::Dialing;
use super::hangup::Farewell;
use super::held::Held;
use super::hold::Hold;
use super::joining::Joining;
use super::limits::Permit;
use super::origin::Origin;
use super::outbound::Outbound;
use super::pbx::Pbx;
use super::places::Places;
use super::privacy::CallerIdentity;
use super::proofs::Again;
use super::provisional_relay::{LatePrack, Reliability};
use super::replaces::Successor;
use super::request_origin::RequestOrigin;
use super::request_queue::RequestQueue;
use super::session::Presence;
use super::transfer::{Bridged, Transfer};
use super::uas_invite::UasInvite;
use super::{has_sdp, sdp_of};

/// Where a call stands in this shard's slab.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct CallKey {
    /// Its place in the slab.
    pub index: u32,
    /// Which of the calls that had this place.
    pub generation: u32,
}

/// Which leg.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The PBX, or the callee of an outbound call.
    Caller,
    /// The agent's runtime.
    Agent,
}

impl Side {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Caller => Self::Agent,
            Self::Agent => Self::Caller,
        }
    }
}

/// How far a call has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The runtime has not accepted yet.
    Setup,
    /// Our 2xx is out, the caller's ACK is not in.
    Answered,
    /// Acknowledged.
    Confirmed,
    /// Over; what is left waits for the answers to our BYEs.
    Over,
}

/// One dialog of a leg: every fork or attempt of the runtime has a pair of them with the same number.
#[derive(Debug)]
pub(crate) struct ForkDialog {
    pub(crate) fork: u8,
    pub(crate) dialog: Dialog,
}

/// The number of the dialog with whoever has given its place to somebody else: all that is left to it is the end.
pub(crate) const LEFT: u8 = u8::MAX;

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

/// One side of the call.
#[derive(Debug)]
pub(crate) struct Leg {
    /// The way to the peer for the next request.
    pub(crate) flow: Flow,
    pub(crate) dialogs: SmallVec<[ForkDialog; 1]>,
    pub(crate) abilities: Abilities,
    /// Whether a `sips:` URI began it.
    pub(crate) is_sips: bool,
    pub(crate) session: Option<SessionTimer>,
    pub(crate) session_timer: Option<TimerId>,
    /// Runs where the peer is behind NAT and its way is UDP.
    pub(crate) keep_alive: Option<TimerId>,
    /// Whether the peer is still there.
    pub(crate) presence: Presence,
    /// The SDP last sent on this leg, for a refresh of our own.
    pub(crate) sdp: Option<Box<[u8]>>,
    /// What this peer's challenges are answered with.
    pub(crate) credentials: Option<Box<LegCredentials>>,
    /// Whose session this peer takes every SDP of ours for.
    pub(crate) origin: Option<Box<Origin>>,
    /// The origin line of the SDP that the peer has of us.
    pub(crate) told_origin: Option<Box<[u8]>>,
    /// The caller's SDP as it was agreed on, for whoever takes the agent's place.
    pub(crate) heard: Option<Box<[u8]>>,
    /// Where its requests may come from.
    pub(crate) places: Places,
}

impl Leg {
    pub(crate) fn new(flow: Flow) -> Self {
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
            places: Places::default(),
        }
    }

    /// The same, once something has been sent or has come by its flow.
    pub(crate) fn begun(flow: Flow) -> Self {
        Self {
            places: Places::of(&flow),
            ..Self::new(flow)
        }
    }

    /// Where requests in a dialog may come from.
    pub(crate) fn places_of(&self, fork: u8) -> &Places {
        match &self.places.left {
            Some(left) if fork == LEFT => &left.places,
            Some(_) | None => &self.places,
        }
    }

    /// Requests in a dialog may come from this IP as well.
    pub(crate) fn learn_place(&mut self, fork: u8, ip: IpAddr) {
        match &mut self.places.left {
            Some(left) if fork == LEFT => left.places.learn(ip),
            Some(_) | None => self.places.learn(ip),
        }
    }

    /// The way to the peer of a dialog.
    pub(crate) fn flow_of(&self, fork: u8) -> Flow {
        match &self.places.left {
            Some(left) if fork == LEFT => left.flow,
            Some(_) | None => self.flow,
        }
    }

    /// A message has come in a dialog by this way.
    pub(crate) fn came_by(&mut self, fork: u8, flow: Flow) {
        match &mut self.places.left {
            Some(left) if fork == LEFT => left.flow = flow,
            Some(_) | None => self.flow = flow,
        }
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

/// Who speaks for the agent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every call has a runtime")]
pub(crate) enum Speaker {
    /// A runtime over SIP: leg 1.
    Runtime(Leg),
    /// The built-in echo agent.
    Echo(Echo),
}

/// The built-in agent's side of the call.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// Our RTP address once the media is open.
    pub(crate) local: Option<std::net::SocketAddr>,
    /// `sess-version` of our last SDP.
    pub(crate) version: u64,
    /// The trunk allows RTP from another address than those of SDP and signalling.
    pub(crate) from_any: bool,
    /// Our own offer waits for its answer in the caller's ACK. A callee hears `code` once it has answered.
    pub(crate) offered: bool,
    pub(crate) code: Option<super::verification::SpokenCode>,
}

impl Echo {
    /// One whose caller's RTP comes from other addresses as well, if the trunk allows it.
    pub(crate) fn new(from_any: bool) -> Self {
        Self {
            from_any,
            ..Self::default()
        }
    }
}

/// The contact look-up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ContactState {
    /// The answer is awaited.
    Pending,
    /// Known, or known to be unknown.
    Known(Option<Uuid>),
}

/// A client transaction of ours inside the call, and what its answer is for.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) client: ClientTx,
    /// The leg that it went out on.
    pub(crate) side: Side,
    pub(crate) fork: u8,
    pub(crate) method: Method,
    /// CSeq number of our request.
    pub(crate) cseq: u32,
    pub(crate) origin: RequestOrigin,
    /// Whether an offer/answer exchange rides on it.
    pub(crate) offers: bool,
    pub(crate) had_sdp: bool,
    /// It went over a connection that was there already.
    pub(crate) connected: bool,
    /// The SDP in it, where the peer's next refresh by us will need it again.
    pub(crate) sdp: Option<Box<[u8]>>,
    /// The session that the requester on the other leg gets once this is accepted.
    pub(crate) renewal: Option<SessionTimer>,
    /// Where that requester is to be found then, if it has moved.
    pub(crate) target: Option<Box<[u8]>>,
    /// What sending it again with credentials takes, where there are any.
    pub(crate) again: Option<Box<Again>>,
    pub(crate) purpose: Purpose,
}

/// What a pending request is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Relays a request of the other leg; its answer goes back there.
    Relay(ServerTx),
    /// Our own session refresh (RFC 4028).
    Refresh,
    /// Our own re-INVITE, which gives the callee the runtime's media.
    Join,
    /// Our own re-INVITE, which gives the runtime what the callee has changed meanwhile.
    Follow,
    /// Our own re-INVITE, which asks the caller for an offer.
    AskOffer,
    /// Our own re-INVITE, which has that offer answered by the agent's side.
    AnswerOffer,
    /// Our own re-INVITE, which holds the call or resumes it.
    Hold,
    /// Our own PRACK or BYE: the answer only ends the wait.
    Own,
    /// A change that whoever has left the call had asked for: what is answered to it is nobody's.
    Stale,
    /// The REFER of a transfer.
    Transfer,
    /// Our own UPDATE or OPTIONS: whether the PBX still knows the call after a transfer failed.
    Probe,
    /// Our BYE once more, after the connection broke with the first.
    Again,
}

/// A request of ours that takes turns, since an offer may ride on it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// The refresh of a leg's session, or a question to its peer.
    Refresh(Side),
    /// The next step of holding or resuming.
    Hold,
    /// The next step of giving both ends each other's media.
    Join,
}

/// A 2xx that we sent and that has not been acknowledged.
#[derive(Debug)]
pub(crate) struct AwaitedAck {
    /// Who owes us the ACK.
    pub(crate) from: Side,
    /// CSeq of the INVITE that is acknowledged.
    pub(crate) cseq: u32,
    pub(crate) server: ServerTx,
    /// With a delayed offer: the 2xx on the other leg whose ACK waits for the SDP answer in this one.
    pub(crate) delayed: Option<Delayed>,
}

/// A 2xx with an offer that we received and have not acknowledged, since the answer is still to come.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) client: ClientTx,
    pub(crate) fork: u8,
    /// Our CSeq on that leg.
    pub(crate) cseq: u32,
    /// The offer, to be rejected if no answer comes.
    pub(crate) offer: Box<[u8]>,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: CallKey,
    pub(crate) id: Uuid,
    pub(crate) session: Uuid,
    pub(crate) org: Uuid,
    pub(crate) agent: Uuid,
    /// Who calls, once known.
    pub(crate) contact: Option<Uuid>,
    /// The caller as others may know of it.
    pub(crate) identity: CallerIdentity,
    pub(crate) slot: Slot,
    /// Max-Forwards of whatever INVITE follows from the caller's.
    pub(crate) hops: u8,
    /// CSeq of our INVITE to the runtime.
    pub(crate) runtime_cseq: u32,
    pub(crate) phase: Phase,
    pub(crate) answered: Option<Moment>,
    /// The caller's INVITE until it has its final answer.
    pub(crate) incoming: Option<Box<UasInvite>>,
    /// The caller's INVITE transaction while it lives; `None` for a call that we began.
    pub(crate) invite: Option<ServerTx>,
    /// Somebody is being called.
    pub(crate) dialing: Option<Box<Dialing>>,
    /// What a call that we began knows besides.
    pub(crate) outbound: Option<Box<Outbound>>,
    /// Both ends are being given each other's media by us, or have been.
    pub(crate) joining: Option<Box<Joining>>,
    /// Somebody whom we have called has taken the agent's place.
    pub(crate) bridged: Option<Bridged>,
    /// What the caller has offered and nobody has answered.
    pub(crate) proposed: Option<Box<[u8]>>,
    /// A new leg is to take the caller's place.
    pub(crate) successor: Option<Box<Successor>>,
    pub(crate) caller: Leg,
    pub(crate) speaker: Speaker,
    /// Keys into the tag index, to be freed with the call.
    pub(crate) tags: SmallVec<[u64; 2]>,
    pub(crate) pending: SmallVec<[Pending; 1]>,
    /// Requests of ours that wait for their turn.
    pub(crate) queue: RequestQueue<Ask>,
    pub(crate) turn: Option<TimerId>,
    /// The last INVITE of a peer inside the call.
    pub(crate) theirs: Option<ServerTx>,
    pub(crate) awaited: SmallVec<[AwaitedAck; 1]>,
    pub(crate) late_prack: Option<LatePrack>,
    /// The agent hung up before the caller's ACK: BYE is owed (RFC 3261 §15).
    pub(crate) bye_owed: Option<Farewell>,
    pub(crate) permit: Option<Permit>,
    /// A re-INVITE of ours waits for its final answer.
    pub(crate) exchange: Option<TimerId>,
    /// The set-up deadline, then the longest duration.
    pub(crate) deadline: Option<TimerId>,
    /// The last transfer, under way or settled.
    pub(crate) transfer: Option<Box<Transfer>>,
    /// Whether it is held from outside.
    pub(crate) hold: Option<Box<Hold>>,
    /// Hold of the call, by us and by its phone system.
    pub(crate) held: Held,
    /// Attempts of the whole call.
    pub(crate) recorded: Recorded,
}

impl Call {
    pub(crate) fn leg(&mut self, side: Side) -> Option<&mut Leg> {
        match (side, &mut self.speaker) {
            (Side::Caller, _) => Some(&mut self.caller),
            (Side::Agent, Speaker::Runtime(leg)) => Some(leg),
            (Side::Agent, Speaker::Echo(_)) => None,
        }
    }

    /// Whether a leg has a dialog with that peer.
    pub(crate) fn has_dialog(&self, call_id: &[u8], remote_tag: &[u8]) -> bool {
        let runtime = match &self.speaker {
            Speaker::Runtime(leg) => Some(leg),
            Speaker::Echo(_) => None,
        };
        let legs = [Some(&self.caller), runtime];
        legs.into_iter().flatten().any(|leg| {
            leg.dialogs.iter().any(|held| {
                held.dialog.call_id() == call_id && held.dialog.remote_tag() == remote_tag
            })
        })
    }

    /// A message of a peer holds its side of what is agreed on.
    pub(crate) fn hear(&mut self, side: Side, message: &Message<'_>) {
        if side == Side::Caller && has_sdp(message) {
            let sdp = sdp_of(message.body());
            self.held.take_answer(sdp);
            self.caller.heard = Some(self.heard_sdp(sdp));
        }
    }

    /// A peer offers to change what was agreed on, or asks for an offer.
    pub(crate) fn note_proposal(&mut self, side: Side, message: &Message<'_>) {
        if side == Side::Caller {
            self.proposed = has_sdp(message).then(|| sdp_of(message.body()).into());
        }
    }

    /// And that was accepted.
    pub(crate) fn hear_proposed(&mut self, side: Side) {
        if side == Side::Caller
            && let Some(sdp) = self.proposed.take()
        {
            self.held.take_offer(&sdp);
            self.caller.heard = Some(self.heard_sdp(&sdp));
        }
    }

    /// Whether the ACK of that CSeq number is to bring an SDP answer.
    pub(crate) fn awaits_sdp_of(&self, side: Side, cseq: u32) -> bool {
        let is_meant = |ack: &AwaitedAck| ack.from == side && ack.cseq == cseq;
        let mut awaited = self.awaited.iter();
        let ack = awaited.find(|ack| is_meant(ack));
        ack.is_some_and(|ack| ack.delayed.is_some() || self.echo_awaits_answer())
    }

    fn echo_awaits_answer(&self) -> bool {
        matches!(&self.speaker, Speaker::Echo(echo) if echo.offered)
    }

    /// Whether audio flows by way of us.
    pub(crate) fn has_own_media(&self) -> bool {
        let outbound = self.outbound.as_deref();
        matches!(self.speaker, Speaker::Echo(_)) || outbound.is_some_and(Outbound::has_media)
    }

    /// The legs forget connections that are gone.
    pub(crate) fn leave_connections(&mut self, lost: &HashMap<u32, u32>) {
        for side in [Side::Caller, Side::Agent] {
            if let Some(leg) = self.leg(side)
                && let Some(proved) = lost.get(&leg.flow.connection)
            {
                leg.flow.connection = *proved;
            }
        }
    }

    /// Whether nothing is awaited any more and the call may be forgotten.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Over
            && self.pending.is_empty()
            && self.bye_owed.is_none()
            && !self.is_parting()
    }

    pub(crate) fn take_pending(&mut self, client: ClientTx) -> Option<Pending> {
        let at = self
            .pending
            .iter()
            .position(|pending| pending.client == client)?;
        Some(self.pending.remove(at))
    }
}
