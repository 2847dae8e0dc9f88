//! Hold and resume by the daemon: a re-INVITE shows each side in turn that the other only sends (RFC 3264 §8.4), and later that it receives
//! again. The agent's side is first: runtimes refuse more often than PBXs, and then nothing has changed for the caller. The agent's answer
//! is the offer to the caller, so that media which the agent changes in it aren't lost. If one side refuses, the call stays as it was, and
//! the other side's change is undone.
//!
//! While a call is held, its peers may change it and refresh their sessions. SDP that crosses during a hold is made `inactive`, whatever
//! the peers offer. When the call is resumed, the caller is asked for its direction again.
//!
//! A state machine that knows neither the call nor its dialogs (`holding` does): it gets descriptions and returns the next step (`HoldProgress`).

use std::borrow::Cow;
use std::time::Duration;

use trunkline_sip::dialog::compared::is_same_media;
use trunkline_sip::dialog::direction::{self, rewritten};
use trunkline_sip::dialog::sdp::Direction;
use trunkline_sip::moment::Moment;

use crate::parts::role::LegRole;

/// Time in which a change may begin its re-INVITEs; then it counts as refused. Undoing it, or following the caller's changed media, gets as
/// much again. A re-INVITE that is out is cancelled after 32 s (`requests`).
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why a call is neither held nor resumed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HoldError {
    /// The call is over, was never here, or is no longer with its agent.
    #[error("the call is not up")]
    NotUp,
    /// The call has not been answered yet.
    #[error("the call has not been answered yet")]
    NotAnswered,
    /// The call is being transferred.
    #[error("a transfer of the call is under way")]
    Transferring,
    /// The opposite change is under way.
    #[error("the opposite is under way")]
    Opposite,
    /// The caller's SDP can't be repeated.
    #[error("the caller's media can't be read")]
    NoMedia,
}

/// Hold of a call, as the client that requested a change sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HoldStatus {
    /// True if both sides are held.
    pub held: bool,
    /// Number of the last change that has ended.
    pub settled: u32,
    /// Its refusal, if it was refused.
    pub refused: Option<HoldRefusal>,
}

/// Refusal by one side.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HoldRefusal {
    /// Side that refused.
    pub role: LegRole,
    /// The SIP status.
    pub status: u16,
}

/// Step of a change.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum HoldStep {
    /// Re-INVITE to the agent's side.
    Agent,
    /// Re-INVITE to the caller.
    Caller,
    /// Re-INVITE to the agent's side with the caller's changed media.
    Follow,
    /// Re-INVITE to the agent's side that undoes the change, after the caller refused it.
    Undo(HoldRefusal),
    /// Nothing is under way.
    Settled,
}

/// The last change of a call.
#[derive(Debug)]
struct HoldChange {
    /// The change that was last requested: true to hold, false to resume.
    wanted: bool,
    step: HoldStep,
    /// True if both sides are held.
    held: bool,
    /// True if the media that cross are switched off.
    closed: bool,
    /// Number of the change.
    number: u32,
    /// Deadline by which the next re-INVITE has to be sent.
    until: Moment,
    /// The agent's answer, which is to be offered to the caller.
    answer: Option<Box<[u8]>>,
}

/// Hold of a call that the API orders.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    change: Option<Box<HoldChange>>,
}

/// Meaning of a request to hold or to resume.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum HoldRequest {
    /// The call is in that state, or will be by the change of that number.
    Already(Option<u32>),
    /// The change under way is withdrawn before either side has heard of it.
    Withdrawn(HoldProgress),
    /// A change is to begin.
    New,
}

/// The next step of a hold.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum HoldProgress {
    /// A re-INVITE is to be queued, with that deadline.
    Ask(Moment),
    /// Another re-INVITE is to be queued, with that deadline; the change counts as made, with this status.
    Follow(HoldStatus, Moment),
    /// The change has ended.
    Settled(HoldStatus),
    /// Nothing.
    Nothing,
}

impl HoldChange {
    /// Returns whether neither side has agreed to any of the change so far.
    const fn is_unsaid(&self) -> bool {
        let is_first = matches!(self.step, HoldStep::Agent | HoldStep::Caller);
        is_first && self.answer.is_none() && self.wanted != self.held
    }

    const fn status(&self, refused: Option<HoldRefusal>) -> HoldStatus {
        HoldStatus {
            held: self.held,
            settled: self.number,
            refused,
        }
    }

    fn settle(&mut self, refused: Option<HoldRefusal>) -> HoldProgress {
        self.step = HoldStep::Settled;
        self.closed = self.held;
        self.answer = None;
        HoldProgress::Settled(self.status(refused))
    }

    const fn ask(&mut self, step: HoldStep) -> HoldProgress {
        self.step = step;
        HoldProgress::Ask(self.until)
    }
}

impl Hold {
    /// Returns the meaning of a request. `is_waiting`: the next re-INVITE has not been sent.
    pub(crate) fn request(
        &mut self,
        wanted: bool,
        is_waiting: bool,
    ) -> Result<HoldRequest, HoldError> {
        let Some(change) = self.change.as_deref_mut() else {
            return Ok(if wanted {
                HoldRequest::New
            } else {
                HoldRequest::Already(None)
            });
        };

        if change.step == HoldStep::Settled {
            let is_so = change.held == wanted;
            return Ok(if is_so {
                HoldRequest::Already(None)
            } else {
                HoldRequest::New
            });
        }

        if change.wanted == wanted {
            return Ok(HoldRequest::Already(Some(change.number)));
        }

        match change.is_unsaid() && is_waiting {
            true => Ok(HoldRequest::Withdrawn(change.settle(None))),
            false => Err(HoldError::Opposite),
        }
    }

    /// Begins a change. Returns its number.
    pub(crate) fn begin(&mut self, wanted: bool, now: Moment) -> (u32, HoldProgress) {
        let before = self.change.as_deref();
        let number = before.map_or(0, |change| change.number).wrapping_add(1);
        let held = before.is_some_and(|change| change.held);
        let until = now + PATIENCE;
        self.change = Some(Box::new(HoldChange {
            wanted,
            step: HoldStep::Agent,
            held,
            closed: held,
            number,
            until,
            answer: None,
        }));
        (number, HoldProgress::Ask(until))
    }

    /// Sends a side that has accepted an obsolete SDP the other side's current one. If that side is the caller, a re-INVITE first gets the
    /// agent's SDP, which isn't kept.
    pub(crate) fn restore(&mut self, role: LegRole, now: Moment) -> HoldProgress {
        let (_, progress) = self.begin(self.is_held(), now);
        if let Some(change) = self.change.as_deref_mut() {
            change.step = match role {
                LegRole::Trunk => HoldStep::Agent,
                LegRole::Agent | LegRole::Destination => HoldStep::Follow,
            };
        }
        progress
    }

    /// Returns whether both sides are held.
    pub(crate) fn is_held(&self) -> bool {
        self.change.as_deref().is_some_and(|change| change.held)
    }

    /// Returns whether the call is being held or resumed at this moment.
    pub(crate) fn is_turning(&self) -> bool {
        let turns = |change: &HoldChange| change.step != HoldStep::Settled;
        self.change.as_deref().is_some_and(turns)
    }

    /// Returns whether neither side may send.
    pub(crate) fn is_closed(&self) -> bool {
        self.change.as_deref().is_some_and(|change| change.closed)
    }

    /// Deadline of the change under way.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.change.as_deref().map(|change| change.until)
    }

    /// Returns the side of the next re-INVITE.
    pub(crate) fn asked(&self) -> LegRole {
        match self.change.as_deref().map(|change| change.step) {
            Some(HoldStep::Caller) => LegRole::Trunk,
            Some(HoldStep::Agent | HoldStep::Follow | HoldStep::Undo(_) | HoldStep::Settled)
            | None => LegRole::Agent,
        }
    }

    /// Returns an SDP as it crosses: `inactive` while the call is held. An answer may narrow the offer (RFC 3264 §6.1).
    pub(crate) fn crossing_sdp<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        if self.is_closed() && body.starts_with(b"v=") {
            rewritten(body, Direction::Inactive).into()
        } else {
            body.into()
        }
    }

    /// Returns the caller's SDP to keep: `sendrecv` while the call is held, when its direction is a consequence of the hold.
    pub(crate) fn heard_sdp<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        if self.is_closed() && body.starts_with(b"v=") {
            rewritten(body, Direction::SendRecv).into()
        } else {
            body.into()
        }
    }

    /// Restarts the change at the first side, since a peer's own change has crossed between two re-INVITEs of ours.
    pub(crate) fn disturb(&mut self) {
        if let Some(change) = self.change.as_deref_mut()
            && change.step == HoldStep::Caller
        {
            change.step = HoldStep::Agent;
        }
    }

    /// Ends all holding: the call, or its agent, is gone.
    pub(crate) fn take(&mut self) -> Option<HoldStatus> {
        let change = self.change.take()?;
        let refused = HoldRefusal {
            role: LegRole::Agent,
            status: 487,
        };
        Some(HoldStatus {
            held: false,
            ..change.status(Some(refused))
        })
    }

    /// Returns the next side and its offer. `heard` is the caller's SDP.
    pub(crate) fn next_offer(&self, heard: &[u8]) -> Option<(LegRole, Vec<u8>)> {
        let change = self.change.as_deref()?;
        let offer = match change.step {
            HoldStep::Agent => rewritten(heard, towards(change.wanted)),
            HoldStep::Undo(_) => rewritten(heard, towards(!change.wanted)),
            HoldStep::Follow if change.held => rewritten(heard, towards(true)),
            HoldStep::Follow => heard.to_vec(),
            HoldStep::Caller if change.wanted => {
                rewritten(change.answer.as_deref()?, towards(true))
            }
            HoldStep::Caller => change.answer.as_deref()?.to_vec(),
            HoldStep::Settled => return None,
        };
        Some((self.asked(), offer))
    }

    /// Returns the offer of media of our own to the caller, which is the only side that gets a re-INVITE then.
    pub(crate) fn own_offer(&mut self, offer: &[u8]) -> Option<(LegRole, Vec<u8>)> {
        let change = self.change.as_deref_mut()?;
        change.step = HoldStep::Caller;
        Some((LegRole::Trunk, rewritten(offer, towards(change.wanted))))
    }

    /// Takes the acceptance of a re-INVITE and its SDP. `heard` is the caller's SDP before; `None` with media of our own.
    pub(crate) fn accepted(
        &mut self,
        answer: Option<&[u8]>,
        heard: Option<&[u8]>,
        now: Moment,
    ) -> HoldProgress {
        let Some(change) = self.change.as_deref_mut() else {
            return HoldProgress::Nothing;
        };

        match (change.step, answer) {
            (HoldStep::Agent, Some(answer)) => {
                // Until the caller has agreed as well the two sides differ, and SDP that crosses is made `inactive`.
                change.closed = true;
                change.answer = Some(answer.into());
                change.ask(HoldStep::Caller)
            }

            // Without an SDP there is no offer for the caller.
            (HoldStep::Agent, None) => change.ask(HoldStep::Undo(HoldRefusal {
                role: LegRole::Agent,
                status: 488,
            })),

            (HoldStep::Caller, answer) => {
                change.held = change.wanted;
                change.closed = change.wanted;
                let is_news = |(answer, heard)| !change.closed && !is_known(heard, answer);
                if !answer.zip(heard).is_some_and(is_news) {
                    return change.settle(None);
                }
                change.step = HoldStep::Follow;
                change.until = now + PATIENCE;
                HoldProgress::Follow(change.status(None), change.until)
            }

            (HoldStep::Follow, _) => change.settle(None),
            (HoldStep::Undo(refused), _) => change.settle(Some(refused)),
            (HoldStep::Settled, _) => HoldProgress::Nothing,
        }
    }

    /// Takes the refusal of a re-INVITE, or its deadline.
    pub(crate) fn refused(&mut self, refused: HoldRefusal, now: Moment) -> HoldProgress {
        let Some(change) = self.change.as_deref_mut() else {
            return HoldProgress::Nothing;
        };
        match change.step {
            // The agent's side has accepted already.
            HoldStep::Caller if change.answer.is_some() => {
                // Time of its own: the refusal may have taken nearly all of the change's.
                change.until = now + PATIENCE;
                change.ask(HoldStep::Undo(refused))
            }
            HoldStep::Agent | HoldStep::Caller => change.settle(Some(refused)),
            // The agent's side keeps the direction that it has agreed to. The client learns of the first refusal.
            HoldStep::Undo(first) => change.settle(Some(first)),
            // The call goes on, with the agent on older media.
            HoldStep::Follow => change.settle(None),
            HoldStep::Settled => HoldProgress::Nothing,
        }
    }
}

const fn towards(held: bool) -> Direction {
    match held {
        true => Direction::SendOnly,
        false => Direction::SendRecv,
    }
}

/// Returns whether the caller answers with the same media that the agent's side was offered on resume.
fn is_known(heard: &[u8], answer: &[u8]) -> bool {
    let [offered, plain] = [heard, answer].map(|sdp| rewritten(sdp, Direction::SendRecv));
    let sends_and_receives = |direction| direction == Direction::SendRecv;
    direction::of(answer).into_iter().all(sends_and_receives) && is_same_media(&offered, &plain)
}

#[cfg(test)]
mod tests;
