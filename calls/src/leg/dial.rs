//! A peer that is being dialled: an [`InviteClient`], the text of its INVITE, and its ringing time. Knows nothing of the call.

use std::time::Duration;

use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;

use super::callee::CalleeText;
use super::runtime_chain::RuntimeChain;
use super::runtime_invite::{FIRST_FORK, RuntimeInvite};
use crate::core::context::Cx;
use crate::invite::invite_client::InviteClient;
use crate::parts::dial_failure::reason_line;
use crate::parts::ids::{CallKey, CallTimer};
use crate::parts::refusal::Reason;

/// An INVITE of ours that begins a leg of the call.
#[derive(Debug)]
pub(crate) struct Dialing {
    pub(crate) client: InviteClient,
    pub(crate) peer: DialedPeer,
}

/// The peer that is called.
#[derive(Debug)]
pub(crate) enum DialedPeer {
    /// The callee that an outbound call begins with.
    Callee(DialedCallee),
    /// The destination of a transfer, which takes the agent's place.
    Destination(DialedCallee),
    /// The agent's runtime.
    Runtime(RuntimeInvite),
}

/// A callee or destination.
#[derive(Debug)]
pub(crate) struct DialedCallee {
    pub(crate) text: CalleeText,
    /// Ringing time, from the INVITE on.
    ringing: Option<TimerId>,
}

impl Dialing {
    /// Prepares to dial the callee of an outbound call.
    pub(crate) fn callee(client: InviteClient, text: CalleeText) -> Box<Self> {
        let ringing = None;
        let peer = DialedPeer::Callee(DialedCallee { text, ringing });
        Box::new(Self { client, peer })
    }

    /// Prepares to dial the destination of a transfer.
    pub(crate) fn destination(client: InviteClient, text: CalleeText) -> Box<Self> {
        let ringing = None;
        let peer = DialedPeer::Destination(DialedCallee { text, ringing });
        Box::new(Self { client, peer })
    }

    /// Prepares to dial the agent's runtime.
    pub(crate) fn runtime(client: InviteClient, says: RuntimeInvite) -> Box<Self> {
        let peer = DialedPeer::Runtime(says);
        Box::new(Self { client, peer })
    }

    /// Adds the runtimes that are tried if this one can't be reached and a bot is among them. The first dialog with the caller stays the one in which
    /// we answer for a bot.
    pub(crate) fn leading_to(mut self: Box<Self>, chain: Option<RuntimeChain>) -> Box<Self> {
        let Some(chain) = chain else {
            return self;
        };
        if let DialedPeer::Runtime(says) = &mut self.peer {
            self.client.number_forks_from(FIRST_FORK + 1);
            if chain.has_bot() {
                self.client.lead_on();
                says.then = Some(Box::new(chain));
            }
        }
        self
    }

    /// Notes that a bot was tried before.
    pub(crate) fn following(mut self: Box<Self>) -> Box<Self> {
        self.client.follow();
        self
    }

    pub(crate) const fn is_runtime(&self) -> bool {
        matches!(self.peer, DialedPeer::Runtime(_))
    }

    /// Returns whether a callee lacks only its offer.
    pub(crate) const fn wants_offer(&self) -> bool {
        match &self.peer {
            DialedPeer::Callee(called) => called.ringing.is_none() && !self.client.is_resolving(),
            DialedPeer::Destination(_) | DialedPeer::Runtime(_) => false,
        }
    }

    /// Sets the offer of a callee or destination, which may ring for as long as `patience` says.
    pub(crate) fn offer(
        &mut self,
        cx: &mut Cx<'_>,
        key: CallKey,
        offer: Vec<u8>,
        patience: Duration,
    ) {
        match &mut self.peer {
            DialedPeer::Callee(called) | DialedPeer::Destination(called) => {
                called.text.offering(offer.into());
                called.ringing = Some(cx.schedule(key, patience, CallTimer::Ringing));
            }
            // A runtime's offer is the caller's or the callee's.
            DialedPeer::Runtime(_) => {}
        }
    }

    /// The timers that run for it.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> {
        let ringing = match &self.peer {
            DialedPeer::Callee(called) | DialedPeer::Destination(called) => called.ringing,
            DialedPeer::Runtime(_) => None,
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

    pub(crate) fn stop_ringing(&mut self, cx: &mut Cx<'_>) {
        match &mut self.peer {
            DialedPeer::Callee(called) | DialedPeer::Destination(called) => {
                cx.cancel_timer(&mut called.ringing);
            }
            DialedPeer::Runtime(_) => {}
        }
    }
}
