//! Provisional responses to the caller's INVITE (RFC 3261 §13.3.1.1, RFC 3262 §3). Each fork counts its RSeq, has one reliable response
//! out, retransmits it until it is acknowledged or 64*T1 are over, and queues later ones. A 2xx waits while an SDP of its fork is
//! unacknowledged.
//!
//! Knows neither the client that the responses come from nor the leg that they go to ([`ProvisionalSink`]): a fork is a number.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;
use trunkline_sip::dialog::body::has_sdp;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::header::rack::RAck;
use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::{HeaderName, Message, OwnedMessage};

use super::delayed_ack::Delayed;

/// T1 of RFC 3262 §3; the interval doubles.
const T1: Duration = Duration::from_millis(500);
/// 64*T1: longest wait for a PRACK.
const PATIENCE: Duration = Duration::from_secs(32);
/// Reliable answers of one call that may wait behind unacknowledged ones; further ones are dropped.
const MAX_QUEUED: usize = 8;

/// Use of reliable provisional answers by a caller (RFC 3262 §3).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) enum Reliability {
    /// It doesn't support 100rel.
    #[default]
    Unknown,
    /// It supports 100rel.
    Supported,
    /// It requires 100rel for every provisional response.
    Required,
}

impl Reliability {
    /// Reads it from an INVITE.
    pub(crate) fn of(invite: &Message<'_>) -> Self {
        match (
            invite.has_token(HeaderName::Require, "100rel"),
            invite.has_token(HeaderName::Supported, "100rel"),
        ) {
            (true, _) => Self::Required,
            (false, true) => Self::Supported,
            (false, false) => Self::Unknown,
        }
    }

    const fn delivery(self, rseq: Option<u32>) -> Delivery {
        match (self, rseq) {
            (Self::Required, rseq) | (Self::Supported, rseq @ Some(_)) => {
                Delivery::UntilPrack { rseq }
            }
            (Self::Supported, None) | (Self::Unknown, _) => Delivery::Once,
        }
    }
}

/// Delivery of a provisional response to the caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// Sent once, without an acknowledgement.
    Once,
    /// Retransmitted until the caller's PRACK. The other leg gets a PRACK too if it gave an RSeq.
    UntilPrack { rseq: Option<u32> },
}

/// A provisional response for the caller.
#[derive(Debug)]
pub(crate) struct Provisional {
    pub(crate) status: u16,
    /// `body` is or has an SDP.
    pub(crate) has_sdp: bool,
    /// Crossing header lines.
    pub(crate) head: Box<[u8]>,
    pub(crate) body: Box<[u8]>,
}

/// Connection to the caller.
pub(crate) trait ProvisionalSink {
    /// The time now.
    fn now(&self) -> Moment;
    /// Sends an answer of a fork.
    fn send(&mut self, fork: u8, answer: &Provisional, rseq: Option<u32>);
    /// Schedules [`ProvisionalRelay::handle_timer`] for a fork.
    fn wake(&mut self, fork: u8, after: Duration) -> TimerId;
    /// Cancels the timer.
    fn cancel(&mut self, timer: TimerId);
}

/// A reliable response.
#[derive(Debug)]
struct Reliable {
    answer: Provisional,
    /// RSeq of the other leg's response.
    theirs: Option<u32>,
}

/// A response that the caller has acknowledged.
#[derive(Debug)]
pub(crate) struct AcknowledgedProvisional {
    /// RSeq of the other leg's answer, if that was reliable.
    pub(crate) rseq: Option<u32>,
    /// SDP in it that the PRACK has to answer: the INVITE had no offer.
    pub(crate) offer: Option<Box<[u8]>>,
}

/// The runtime's 2xx by which the call goes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct WinningAnswer {
    pub(crate) client: ClientTx,
    pub(crate) flow: Flow,
    pub(crate) fork: u8,
    /// CSeq number of our INVITE.
    pub(crate) cseq: u32,
    /// Its ACK has been sent and needs nothing from the caller.
    pub(crate) acknowledged: bool,
}

impl WinningAnswer {
    /// Returns the 2xx with that offer, whose ACK waits.
    pub(crate) fn delayed(&self, offer: &[u8]) -> Delayed {
        Delayed {
            client: self.client,
            fork: self.fork,
            cseq: self.cseq,
            offer: offer.into(),
        }
    }
}

/// A 2xx that waits for the caller's PRACK (RFC 3262 §5). Without a PRACK in 64*T1 the call is refused.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    pub(crate) won: WinningAnswer,
    pub(crate) answer: OwnedMessage,
}

/// A reliable response without a PRACK at the time of the 2xx (RFC 3262 §3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct LatePrack {
    fork: u8,
    rseq: u32,
}

impl LatePrack {
    /// Returns whether this is the missing PRACK. One with an offer comes too late.
    pub(crate) fn is_brought_by(self, fork: u8, prack: &Message<'_>) -> bool {
        let rack = prack.first(HeaderName::RAck).and_then(RAck::parse);
        self.fork == fork && !has_sdp(prack) && rack.is_some_and(|rack| names(&rack, self.rseq))
    }
}

/// Result of a retransmission timer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Retransmission {
    /// It was retransmitted, or has been acknowledged.
    GoesOn,
    /// It has been retransmitted for 64*T1 without a PRACK.
    GivenUp,
}

/// A reliable answer that the caller hasn't acknowledged.
#[derive(Debug)]
struct Unacknowledged {
    reliable: Reliable,
    rseq: u32,
    /// Time at which it was sent first.
    sent: Moment,
    /// Wait before its next retransmission.
    interval: Duration,
    timer: TimerId,
}

/// Responses of one fork, which is a user agent of its own for the caller.
#[derive(Debug)]
struct CallerFork {
    number: u8,
    /// RSeq of the last reliable answer; 0 before the first.
    rseq: u32,
    /// The reliable response that is out. Those in `queued` wait for its PRACK.
    unacknowledged: Option<Unacknowledged>,
    queued: VecDeque<Reliable>,
    /// The caller has hung up on it.
    has_ended: bool,
    /// Both sides have negotiated media before the 2xx (in a reliable response or its PRACK).
    agreed: bool,
}

impl CallerFork {
    const fn new(number: u8) -> Self {
        Self {
            number,
            rseq: 0,
            unacknowledged: None,
            queued: VecDeque::new(),
            has_ended: false,
            agreed: false,
        }
    }

    fn owes_answer(&self) -> bool {
        let sent = self.unacknowledged.iter().map(|sent| &sent.reliable);
        sent.chain(&self.queued)
            .any(|reliable| reliable.answer.has_sdp)
    }

    fn send(&mut self, to: &mut impl ProvisionalSink, reliable: Reliable) {
        let timer = to.wake(self.number, T1);
        // RFC 3262 §3: the first RSeq "MUST be between 1 and 2**31 - 1"; a random one is only RECOMMENDED.
        self.rseq += 1;
        to.send(self.number, &reliable.answer, Some(self.rseq));
        self.unacknowledged = Some(Unacknowledged {
            reliable,
            rseq: self.rseq,
            sent: to.now(),
            interval: T1,
            timer,
        });
    }
}

/// Provisional responses to one INVITE of a caller.
#[derive(Debug)]
pub(crate) struct ProvisionalRelay {
    /// CSeq number of the INVITE.
    cseq: u32,
    /// The INVITE had an offer.
    offered: bool,
    caller: Reliability,
    forks: SmallVec<[CallerFork; 1]>,
    /// The runtime's 2xx, while it waits for a PRACK.
    held: Option<HeldAnswer>,
}

impl ProvisionalRelay {
    pub(crate) fn new(invite: &Message<'_>) -> Self {
        Self {
            cseq: invite.cseq().number,
            offered: has_sdp(invite),
            caller: Reliability::of(invite),
            forks: SmallVec::new(),
            held: None,
        }
    }

    /// Returns the delivery of a response of the other leg. `rseq`: its RSeq, if the other leg sends it reliably.
    pub(crate) const fn delivery(&self, rseq: Option<u32>) -> Delivery {
        self.caller.delivery(rseq)
    }

    /// Returns whether the caller has got no provisional response but our 100.
    pub(crate) fn is_silent(&self) -> bool {
        self.forks.is_empty()
    }

    /// Returns whether a response is sent without its SDP. If the INVITE had no offer, an SDP that the other leg sends unreliably is no
    /// offer either, but our reliable response would make it one. The 2xx brings the offer.
    pub(crate) fn is_bare(&self, delivery: Delivery) -> bool {
        delivery == (Delivery::UntilPrack { rseq: None }) && !self.offered
    }

    /// Sends a provisional response of a fork to the caller, or queues it.
    pub(crate) fn handle_provisional(
        &mut self,
        to: &mut impl ProvisionalSink,
        fork: u8,
        delivery: Delivery,
        answer: Provisional,
    ) {
        // One bound for the whole call: a bound for each fork would grow with the forks of the runtime.
        let queued: usize = self.forks.iter().map(|fork| fork.queued.len()).sum();
        let fork = self.fork(fork);
        if fork.has_ended {
            return;
        }
        let theirs = match delivery {
            Delivery::Once => return to.send(fork.number, &answer, None),
            Delivery::UntilPrack { rseq } => rseq,
        };

        let reliable = Reliable { answer, theirs };
        if fork.unacknowledged.is_none() {
            fork.send(to, reliable);
        } else if queued < MAX_QUEUED {
            fork.queued.push_back(reliable);
        }
        // One beyond the bound is never acknowledged; its sender gives up after 64*T1 (RFC 3262 §3).
    }

    /// Handles the timer of a fork's unacknowledged response: retransmits it, doubling the interval, until 64*T1.
    pub(crate) fn handle_timer(
        &mut self,
        to: &mut impl ProvisionalSink,
        fork: u8,
    ) -> Retransmission {
        let Some(fork) = self.find_mut(fork) else {
            return Retransmission::GoesOn;
        };
        let Some(sent) = &mut fork.unacknowledged else {
            return Retransmission::GoesOn;
        };
        let waited = to.now().since(sent.sent);
        // RFC 3262 §3: after 64*T1 without a PRACK "the UAS SHOULD reject the original request with a 5xx response".
        // The caller of this function does, unless another fork is left.
        if waited >= PATIENCE {
            fork.unacknowledged = None;
            fork.queued.clear();
            return Retransmission::GivenUp;
        }

        to.send(fork.number, &sent.reliable.answer, Some(sent.rseq));
        sent.interval *= 2;
        // The last wait is cut, so that the end comes at 64*T1 and not with the next doubled interval.
        sent.timer = to.wake(fork.number, sent.interval.min(PATIENCE - waited));
        Retransmission::GoesOn
    }

    /// Takes a PRACK in a fork; `None` if it matches no response that is out.
    pub(crate) fn handle_prack(
        &mut self,
        to: &mut impl ProvisionalSink,
        fork: u8,
        prack: &Message<'_>,
    ) -> Option<AcknowledgedProvisional> {
        let rack = RAck::parse(prack.first(HeaderName::RAck)?)?;
        if rack.cseq != self.cseq {
            return None;
        }
        let offered = self.offered;
        let fork = self.find_mut(fork)?;
        let is_named = |sent: &mut Unacknowledged| names(&rack, sent.rseq);
        let sent = fork.unacknowledged.take_if(is_named)?;
        to.cancel(sent.timer);
        // With an offer in the INVITE this SDP is the answer; without one it is an offer, and the PRACK has the answer.
        fork.agreed |= sent.reliable.answer.has_sdp && (offered || has_sdp(prack));
        let Reliable { answer, theirs } = sent.reliable;
        let is_offer = answer.has_sdp && !offered;
        Some(AcknowledgedProvisional {
            rseq: theirs,
            offer: is_offer.then_some(answer.body),
        })
    }

    /// Continues after a PRACK in a fork: returns the 2xx that was held, or sends the fork's next response.
    pub(crate) fn go_on(&mut self, to: &mut impl ProvisionalSink, fork: u8) -> Option<HeldAnswer> {
        let won = self.held.as_ref().map(|held| held.won.fork);
        if won.is_some_and(|won| !self.owes_answer(won)) {
            // What is still queued has no SDP, and the 2xx supersedes it.
            return self.held.take();
        }
        // Once a fork has won, the caller gets no more responses of the others.
        if won.is_none_or(|won| won == fork) {
            let fork = self.find_mut(fork)?;
            if let Some(next) = fork.queued.pop_front() {
                fork.send(to, next);
            }
        }
        None
    }

    /// Returns whether an SDP to the caller is unacknowledged that a 2xx of the same fork must not overtake (RFC 3262 §3).
    pub(crate) fn owes_answer(&self, fork: u8) -> bool {
        self.find(fork).is_some_and(CallerFork::owes_answer)
    }

    /// Returns whether both sides have negotiated media in a fork before its 2xx.
    pub(crate) fn is_agreed(&self, fork: u8) -> bool {
        self.find(fork).is_some_and(|fork| fork.agreed)
    }

    /// Keeps a 2xx back until [`Self::go_on`] gives it.
    pub(crate) fn hold_back(&mut self, held: HeldAnswer) {
        self.held = Some(held);
    }

    /// The fork whose 2xx is held back.
    pub(crate) fn held_fork(&self) -> Option<u8> {
        self.held.as_ref().map(|held| held.won.fork)
    }

    /// Returns whether a 2xx of that transaction is held back.
    pub(crate) fn holds(&self, client: ClientTx) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.won.client == client)
    }

    /// Takes the 2xx that is held back, without sending it.
    pub(crate) const fn take_held(&mut self) -> Option<HeldAnswer> {
        self.held.take()
    }

    /// Drops the queued responses of a failed attempt. Those that are out continue until they are acknowledged.
    pub(crate) fn drop_queued(&mut self) {
        for fork in &mut self.forks {
            fork.queued.clear();
        }
    }

    /// Ends a fork that the caller has hung up on: it gets nothing more of that fork.
    pub(crate) fn end_fork(&mut self, to: &mut impl ProvisionalSink, fork: u8) {
        let fork = self.fork(fork);
        fork.has_ended = true;
        fork.queued.clear();
        if let Some(sent) = fork.unacknowledged.take() {
            to.cancel(sent.timer);
        }
    }

    /// Returns whether the caller has hung up on a fork.
    pub(crate) fn has_ended(&self, fork: u8) -> bool {
        self.find(fork).is_some_and(|fork| fork.has_ended)
    }

    /// Returns the PRACK that is still missing in a fork.
    pub(crate) fn late_prack(&self, fork: u8) -> Option<LatePrack> {
        let rseq = self.find(fork)?.unacknowledged.as_ref()?.rseq;
        Some(LatePrack { fork, rseq })
    }

    /// The timers that run for it.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> + '_ {
        let sent = |fork: &CallerFork| fork.unacknowledged.as_ref().map(|sent| sent.timer);
        self.forks.iter().filter_map(sent)
    }

    fn find(&self, number: u8) -> Option<&CallerFork> {
        self.forks.iter().find(|fork| fork.number == number)
    }

    fn find_mut(&mut self, number: u8) -> Option<&mut CallerFork> {
        self.forks.iter_mut().find(|fork| fork.number == number)
    }

    fn fork(&mut self, number: u8) -> &mut CallerFork {
        let known = self.forks.iter().position(|fork| fork.number == number);
        let at = known.unwrap_or_else(|| {
            self.forks.push(CallerFork::new(number));
            self.forks.len() - 1
        });
        &mut self.forks[at]
    }
}

/// Returns whether a RAck names the provisional response with that RSeq.
fn names(rack: &RAck<'_>, rseq: u32) -> bool {
    rack.rseq == rseq && rack.is_invite()
}

#[cfg(test)]
mod tests;
