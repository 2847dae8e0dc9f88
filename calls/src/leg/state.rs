//! States of a leg, each with the data that is valid in it. A call has up to four legs; its own status is computed from theirs.
//!
//! ```text
//!    INVITE of the peer    INVITE with Replaces        our INVITE: n forks, one
//!            │                      │                  attempt after another
//!        Incoming               Replacing                        │
//!            │                      │                         Dialing
//!            ├───── 200 ───────┐    │ 200     ┌───── 200 ────────┤
//!   refused, │                 ▼    ▼         ▼                  │ refused, silent,
//!   CANCEL   │              ┌───────────────────┐                │ cancelled
//!            │              │       Ready       │                │
//!            │              └──┬─────────────┬──┘                │
//!            │      BYE of the │             │ we hang up, or another leg takes its place
//!            │            peer │             ▼                   │
//!            │                 │          Leaving: the BYE waits for the ACK, then for its answer
//!            ▼                 ▼             ▼                   ▼
//!            └──────────────────────── Gone ─────────────────────┘
//! ```

use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::wheel::TimerId;

use crate::core::context::Cx;
use crate::invite::invite_client::Accepted;
use crate::leg::delayed_ack::Delayed;
use crate::leg::dial::Dialing;
use crate::leg::peer_liveness::PeerLiveness;
use crate::leg::provisional_relay::LatePrack;
use crate::leg::uas_invite::UasInvite;
use crate::parts::bye::ByeContent;
use crate::parts::ids::LegId;

/// State of a leg. Each ends without the peer as well, by the timer or transaction that its variant names.
#[derive(Debug)]
pub(crate) enum LegState {
    /// The peer's INVITE, which begins the call, has no final answer yet. The set-up deadline of the call ends this (`lifetime`).
    Incoming(Box<UasInvite>),
    /// The peer's INVITE with Replaces has no final answer yet. It gets 408 if the other end doesn't answer the new media in 32 s
    /// (`CallTimer::Exchange`).
    Replacing(Replacing),
    /// Our INVITE has no final answer yet. Its client tries further targets or fails; the ringing time or the set-up deadline bounds it.
    Dialing(Box<Dialing>),
    /// The INVITE has been accepted. A silent SIP peer is probed, if `dead_peer` isn't 0 (`session`); the call's longest duration ends the
    /// leg at the latest.
    Ready(Session),
    /// We hang up. Without an answer the BYE's transaction ends after 64*T1. Then the call is dropped, or the leg if it was replaced.
    Leaving(Session, Bye),
    /// The leg has ended, or its INVITE is being worked on (`Legs::take_dialing`, `Legs::take_incoming`).
    Gone,
}

/// An INVITE with Replaces that has no final answer yet (RFC 3891).
#[derive(Copy, Clone, Debug)]
pub(crate) struct Replacing {
    pub(crate) server: ServerTx,
    /// The leg to replace.
    pub(crate) replaces: LegId,
    /// The INVITE came through a NAT, so the leg gets keep-alives once it is ready.
    pub(crate) is_behind_nat: bool,
}

/// Our BYE to a leg.
#[derive(Debug)]
pub(crate) enum Bye {
    /// It is sent once the ACK of the INVITE has arrived, or hasn't come within 64*T1 (RFC 3261 §15).
    AfterAck(Box<ByeContent>),
    /// It has been sent.
    Sent,
}

/// Session with the peer of a leg that has been accepted.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Session timer that was agreed on (RFC 4028).
    pub(crate) timer: Option<SessionTimer>,
    /// Runs until the session has to be refreshed, its peer probed, or the session ended.
    pub(crate) due: Option<TimerId>,
    /// Signs that the peer is still there.
    pub(crate) liveness: PeerLiveness,
    /// The peer's INVITE that began the leg, until our 2xx to it is acknowledged.
    begun_by: Option<ServerTx>,
    /// Our 2xx that have no ACK yet. Keeps no allocation while it is empty.
    awaited: Vec<AwaitedAck>,
    /// PRACK that was still missing when our 2xx went out. Nothing waits for it: it gets 200 if it comes.
    pub(crate) late_prack: Option<LatePrack>,
}

/// A 2xx that we sent and that has not been acknowledged. The endpoint retransmits it, and reports it after 64*T1 without an ACK.
#[derive(Debug)]
pub(crate) struct AwaitedAck {
    /// CSeq of the INVITE.
    pub(crate) cseq: u32,
    pub(crate) server: ServerTx,
    /// With a delayed offer: the 2xx on the other leg whose ACK waits for the SDP answer in this one.
    pub(crate) delayed: Option<Delayed>,
}

impl Session {
    /// Makes the session of a leg that has accepted our INVITE.
    pub(crate) fn of_accepted(accepted: &Accepted<'_>, cx: &Cx<'_>) -> Self {
        let asked = Some(cx.core.config.session_expires);
        Self::accepted(SessionTimer::for_uac(accepted.message, asked))
    }

    /// A leg whose peer has accepted our INVITE.
    pub(crate) fn accepted(timer: Option<SessionTimer>) -> Self {
        Self {
            timer,
            ..Self::default()
        }
    }

    /// A leg whose peer's INVITE we accept.
    pub(crate) fn begun_by(server: ServerTx) -> Self {
        Self {
            begun_by: Some(server),
            ..Self::default()
        }
    }

    /// Returns whether the INVITE that began the leg is acknowledged, or was our own.
    pub(crate) const fn is_acknowledged(&self) -> bool {
        self.begun_by.is_none()
    }

    /// Returns whether a BYE has to wait for the ACK of the INVITE that began the leg.
    pub(crate) fn defers_bye(&self) -> bool {
        let begun_by = |ack: &AwaitedAck| Some(ack.server) == self.begun_by;
        self.awaited.iter().any(begun_by)
    }

    pub(crate) fn awaited(&self) -> &[AwaitedAck] {
        &self.awaited
    }

    /// Notes a 2xx that was sent.
    pub(crate) fn await_ack(&mut self, ack: AwaitedAck) {
        self.awaited.push(ack);
    }

    /// Takes the 2xx that this ACK acknowledges.
    pub(crate) fn take_acknowledged(&mut self, cseq: u32) -> Option<AwaitedAck> {
        self.take_ack(|ack| ack.cseq == cseq)
    }

    /// Takes the 2xx of this INVITE, whose ACK never came.
    pub(crate) fn take_overdue(&mut self, server: ServerTx) -> Option<AwaitedAck> {
        self.take_ack(|ack| ack.server == server)
    }

    fn take_ack(&mut self, is_meant: impl FnMut(&AwaitedAck) -> bool) -> Option<AwaitedAck> {
        let at = self.awaited.iter().position(is_meant)?;
        let ack = self.awaited.remove(at);
        if self.awaited.is_empty() {
            self.awaited = Vec::new();
        }
        Some(ack)
    }

    /// Returns whether that was the 2xx to the INVITE that began the leg, and notes that it is acknowledged.
    pub(crate) fn confirm(&mut self, server: ServerTx) -> bool {
        self.begun_by
            .take_if(|begun_by| *begun_by == server)
            .is_some()
    }

    /// Takes the other leg's 2xx that waits for an SDP in an ACK of this one.
    pub(crate) fn take_delayed(&mut self) -> Option<Delayed> {
        self.awaited.iter_mut().find_map(|ack| ack.delayed.take())
    }

    /// Takes all that is awaited.
    pub(crate) fn take_awaited(&mut self) -> Vec<AwaitedAck> {
        std::mem::take(&mut self.awaited)
    }
}
