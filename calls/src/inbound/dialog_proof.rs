//! Proof that a call over UDP owes whose caller was let in by its address alone.
//!
//! The source of a datagram can be forged, and a real carrier at that address answers whatever it is asked outside of the call. So the call is proven
//! by a message of its own dialog that carries our tag: an ACK to the 2xx, a PRACK, or any other request. Our tag is random, so only a host that
//! gets our responses knows it.
//!
//! - An INVITE with an offer from a peer with 100rel gets a reliable 18x. The agent is called once the call is proven ([`ProofWay::BeforeAgent`]).
//! - After any other INVITE the agent is called. Early on the source gets an OPTIONS inside the dialog, and a source that denies the dialog twice ends
//!   the call. The 2xx is repeated for 6 s, and the call ends 2 s later if nothing has proven it ([`ProofWay::ByAnswer`]).
//! - Where too many calls of one source have been answered and aren't proven, its next INVITE waits for a while.
//!
//! Pure: events and time go in, steps and the time to wait come out. `call::proving` carries the steps out; the endpoint has the times of the
//! 2xx (`Endpoint::accept_unproven`).

use std::net::IpAddr;
use std::time::Duration;

use trunkline_sip::dialog::body::has_sdp;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::{Flow, Transport, is_private};
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Message;

use crate::core::effect::ProofOutcome;
use crate::leg::provisional_relay::Reliability;
use crate::limits::UnprovenCount;

/// Interval at which an INVITE that waits is looked at, and the number of looks: two seconds in all.
const RECHECK: Duration = Duration::from_millis(250);
const RECHECKS: u8 = 8;
/// Time from our first 18x to the OPTIONS.
const BEFORE_FIRST_QUESTION: Duration = Duration::from_millis(200);
/// Times between the first 481 and the second OPTIONS, 500 ms in all. The 18x is repeated at each but the last: it may have been lost, and then
/// the peer knows no such dialog although the call is its own.
const BEFORE_SECOND_QUESTION: [Duration; 5] = [Duration::from_millis(100); 5];
/// Age of a 2xx without an ACK at which its call counts.
const OVERDUE: Duration = Duration::from_secs(2);
/// Age of a reliable 18x without a PRACK at which its call counts: five copies are out by then, of which a bad network lets one through.
const PRACK_OVERDUE: Duration = Duration::from_secs(8);
/// 64*T1: longest wait for the PRACK (RFC 3262 §3).
const PRACK_PATIENCE: Duration = Duration::from_secs(32);

/// Way in which a call is proven.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProofWay {
    /// By the PRACK for a reliable 18x of ours, before the agent is called.
    BeforeAgent,
    /// By the ACK to the 2xx at the latest.
    ByAnswer,
}

impl ProofWay {
    /// The way for an INVITE. The answer to a reliable 18x of ours without an offer in the INVITE would have to be an offer of ours (RFC 3262 §5).
    pub(crate) fn of(invite: &Message<'_>) -> Self {
        match has_sdp(invite) && Reliability::of(invite) != Reliability::Unknown {
            true => Self::BeforeAgent,
            false => Self::ByAnswer,
        }
    }
}

/// Input of a proof.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProofEvent {
    /// The call begins. `is_crowded`: its source has too many calls that aren't proven.
    Begins { is_crowded: bool },
    /// The timer is due.
    TimedOut { is_crowded: bool },
    /// The caller has got its first 18x.
    Rings,
    /// The source has answered an OPTIONS inside the dialog, of that CSeq number, with 481.
    Denied { cseq: u32 },
    /// The caller's INVITE has got a 2xx.
    Answered,
}

/// Step that is due.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum ProofStep {
    Nothing,
    /// The agent is called.
    CallAgent,
    /// The INVITE waits before the agent is called.
    Hold,
    /// The caller gets a reliable 18x of ours.
    Ring,
    /// The source gets an OPTIONS inside the dialog.
    Ask,
    /// The last 18x is repeated.
    RingAgain,
    /// The call counts among those that aren't proven in time.
    Count,
    /// The call ends.
    End(ProofOutcome),
}

/// The timer after a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// It stays as it is.
    Same,
    /// It runs for this long from now on.
    After(Duration),
    /// None runs.
    Never,
}

/// Part of the proof's way that lies behind it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing has happened.
    New,
    /// The INVITE waits; this many looks are left.
    Held {
        looks: u8,
    },
    /// The reliable 18x is out, for more than [`PRACK_OVERDUE`] if `is_overdue`.
    AwaitsPrack {
        is_overdue: bool,
    },
    /// The agent is called.
    SetUp,
    /// The caller has got an 18x.
    Rings,
    /// An OPTIONS is out, with that CSeq number once it is known.
    Asked {
        cseq: Option<u32>,
        is_second: bool,
    },
    /// The first OPTIONS was answered with 481; this many intervals of [`BEFORE_SECOND_QUESTION`] are over.
    DeniedOnce {
        waited: usize,
    },
    /// The 2xx is out.
    Answered,
    Proven,
}

/// Proof that one call owes. A call has one until its ACK.
#[derive(Debug)]
pub(crate) struct DialogProof {
    way: ProofWay,
    stage: Stage,
    /// Flow of the INVITE, whose source may be forged.
    pub(crate) flow: Flow,
    /// Transaction of the INVITE.
    pub(crate) server: ServerTx,
    pub(crate) timer: Option<TimerId>,
    /// Its place among the calls that aren't proven in time.
    pub(crate) counted: Option<UnprovenCount>,
}

impl DialogProof {
    pub(crate) const fn new(way: ProofWay, flow: Flow, server: ServerTx) -> Self {
        Self {
            way,
            stage: Stage::New,
            flow,
            server,
            timer: None,
            counted: None,
        }
    }

    /// The source of the INVITE.
    pub(crate) fn source(&self) -> IpAddr {
        self.flow.peer.ip().to_canonical()
    }

    /// Returns whether the call isn't proven.
    pub(crate) fn is_owed(&self) -> bool {
        self.stage != Stage::Proven
    }

    /// Returns whether the agent may not be called yet.
    pub(crate) const fn holds_agent(&self) -> bool {
        matches!(
            self.stage,
            Stage::New | Stage::Held { .. } | Stage::AwaitsPrack { .. }
        )
    }

    /// Handles an event.
    pub(crate) fn handle(&mut self, event: ProofEvent) -> (ProofStep, Wake) {
        let (stage, step, wake) = match (self.stage, event) {
            (Stage::New, ProofEvent::Begins { is_crowded }) => match (self.way, is_crowded) {
                // It never waits: without its PRACK no agent is called, and with it the call is proven.
                (ProofWay::BeforeAgent, _) => (
                    Stage::AwaitsPrack { is_overdue: false },
                    ProofStep::Ring,
                    Wake::After(PRACK_OVERDUE),
                ),
                (ProofWay::ByAnswer, true) => (
                    Stage::Held { looks: RECHECKS },
                    ProofStep::Hold,
                    Wake::After(RECHECK),
                ),
                (ProofWay::ByAnswer, false) => (Stage::SetUp, ProofStep::CallAgent, Wake::Never),
            },

            (Stage::Held { looks: 2.. }, ProofEvent::TimedOut { is_crowded: true }) => {
                self.look();
                return (ProofStep::Nothing, Wake::After(RECHECK));
            }
            (Stage::Held { .. }, ProofEvent::TimedOut { .. }) => {
                (Stage::SetUp, ProofStep::CallAgent, Wake::Never)
            }

            // Until then it has a place among the calls of its agent, trunk and org.
            (Stage::AwaitsPrack { is_overdue: false }, ProofEvent::TimedOut { .. }) => (
                Stage::AwaitsPrack { is_overdue: true },
                ProofStep::Count,
                Wake::After(PRACK_PATIENCE.saturating_sub(PRACK_OVERDUE)),
            ),
            (Stage::AwaitsPrack { is_overdue: true }, ProofEvent::TimedOut { .. }) => (
                self.stage,
                ProofStep::End(ProofOutcome::Silent),
                Wake::Never,
            ),

            (Stage::SetUp, ProofEvent::Rings) => (
                Stage::Rings,
                ProofStep::Nothing,
                Wake::After(BEFORE_FIRST_QUESTION),
            ),
            (Stage::Rings, ProofEvent::TimedOut { .. }) => (
                Stage::Asked {
                    cseq: None,
                    is_second: false,
                },
                ProofStep::Ask,
                Wake::Never,
            ),

            // A copy of the first 481 doesn't count as the second: each OPTIONS has its own CSeq number.
            (
                Stage::Asked {
                    cseq: Some(asked),
                    is_second,
                },
                ProofEvent::Denied { cseq },
            ) if asked == cseq => match is_second {
                true => (
                    self.stage,
                    ProofStep::End(ProofOutcome::Denied),
                    Wake::Never,
                ),
                false => (
                    Stage::DeniedOnce { waited: 0 },
                    ProofStep::Nothing,
                    Wake::After(BEFORE_SECOND_QUESTION[0]),
                ),
            },
            (Stage::DeniedOnce { waited }, ProofEvent::TimedOut { .. }) => {
                match BEFORE_SECOND_QUESTION.get(waited + 1) {
                    Some(next) => (
                        Stage::DeniedOnce { waited: waited + 1 },
                        ProofStep::RingAgain,
                        Wake::After(*next),
                    ),
                    None => (
                        Stage::Asked {
                            cseq: None,
                            is_second: true,
                        },
                        ProofStep::Ask,
                        Wake::Never,
                    ),
                }
            }

            (
                Stage::SetUp | Stage::Rings | Stage::Asked { .. } | Stage::DeniedOnce { .. },
                ProofEvent::Answered,
            ) => (Stage::Answered, ProofStep::Nothing, Wake::After(OVERDUE)),
            (Stage::Answered, ProofEvent::TimedOut { .. }) => {
                (Stage::Answered, ProofStep::Count, Wake::Never)
            }

            // Any other answer to OPTIONS decides nothing, nor does a 481 after our 2xx.
            (_, _) => return (ProofStep::Nothing, Wake::Same),
        };
        self.stage = stage;
        (step, wake)
    }

    fn look(&mut self) {
        if let Stage::Held { looks } = &mut self.stage {
            *looks -= 1;
        }
    }

    /// Returns whether the call counts for its source too. One that waits for its PRACK has called no agent, and holds up no INVITE of its source.
    pub(crate) fn counts_for_source(&self) -> bool {
        self.stage == Stage::Answered
    }

    /// Notes the CSeq number of the OPTIONS that was sent.
    pub(crate) fn note_question(&mut self, number: u32) {
        if let Stage::Asked { cseq, .. } = &mut self.stage {
            *cseq = Some(number);
        }
    }

    /// Notes that the call is proven; returns whether its agent may be called now.
    pub(crate) fn prove(&mut self) -> bool {
        let may_begin = self.holds_agent();
        self.stage = Stage::Proven;
        self.counted = None;
        may_begin
    }
}

/// Returns whether a call by this flow has to be proven, if its caller was let in by address. A handshake proves the source of a stream. A private
/// source isn't routed to a listener of a private network from outside.
pub(crate) fn is_owed_by(flow: &Flow, public_listeners: &[bool]) -> bool {
    let listener = public_listeners.get(usize::from(flow.listener));
    let is_public = listener.copied().unwrap_or_default() || !is_private(flow.local.ip());
    flow.transport == Transport::Udp && (is_public || !is_private(flow.peer.ip()))
}

#[cfg(test)]
mod tests;
