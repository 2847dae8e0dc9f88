//! Hold and resume by the daemon: a re-INVITE shows each side in turn that the other only sends (RFC 3264 §8.4), and later that it receives again.
//! The agent's side is first: runtimes refuse more often than PBXs, and then nothing has changed for the caller. The agent's answer is the offer to
//! the caller, so that a change of media meanwhile isn't lost. If one side refuses, the call stays as it was, and the other side's change is undone.
//!
//! While a call is held, its peers may change it and refresh their sessions. SDP that crosses then is made `inactive`, whatever they offer, and the
//! caller is asked for its direction again when the call is resumed.
//!
//! A state machine that knows neither the call nor its dialogs (`holding` does): it gets descriptions and returns the next step (`HoldProgress`).

use std::borrow::Cow;
use std::time::Duration;

use trunkline_sip::dialog::compared::is_same_media;
use trunkline_sip::dialog::direction::{self, rewritten};
use trunkline_sip::dialog::sdp::Direction;
use trunkline_sip::moment::Moment;

use super::role::LegRole;

/// Longest time of a change, each way, before it is given up.
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
    /// Its destination is being changed.
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
    /// Last request: hold or resume.
    wanted: bool,
    step: HoldStep,
    /// True if both sides are held.
    held: bool,
    /// True if the media that cross are switched off.
    closed: bool,
    /// Number of the change.
    number: u32,
    until: Moment,
    /// SDP to offer the caller.
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
    /// A re-INVITE in its turn, up to that moment.
    Ask(Moment),
    /// Another re-INVITE in its turn; the change counts as made, with this status.
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

    /// Sends a side that has accepted an obsolete SDP the other side's current one. The agent's SDP isn't kept, so a re-INVITE gets it.
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

    /// Returns the built-in agent's offer to the caller, the only side with a re-INVITE then.
    pub(crate) fn own_offer(&mut self, offer: &[u8]) -> Option<(LegRole, Vec<u8>)> {
        let change = self.change.as_deref_mut()?;
        change.step = HoldStep::Caller;
        Some((LegRole::Trunk, rewritten(offer, towards(change.wanted))))
    }

    /// Takes the acceptance of a re-INVITE and its SDP. `heard` is the caller's SDP before; `None` with the built-in agent.
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
                change.until = now + PATIENCE;
                change.ask(HoldStep::Undo(refused))
            }
            HoldStep::Agent | HoldStep::Caller => change.settle(Some(refused)),
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
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(1_790_000_000);
    const CALLER: &[u8] = b"v=0\r\no=c 1 1 IN IP4 h\r\nm=audio 1 RTP/AVP 0\r\n";
    const AGENT: &[u8] = b"v=0\r\no=a 1 1 IN IP4 h\r\nm=audio 2 RTP/AVP 0\r\n";
    const MOVED: &[u8] = b"v=0\r\no=c 1 2 IN IP4 h\r\nm=audio 3 RTP/AVP 0\r\n";

    /// Answer to a re-INVITE: the SDP of a 2xx, if any, or the status of a refusal.
    type Answer = Result<Option<&'static [u8]>, u16>;

    fn answer(hold: &mut Hold, answer: Answer) -> HoldProgress {
        let role = hold.asked();
        match answer {
            Ok(sdp) => hold.accepted(sdp, Some(CALLER), NOW),
            Err(status) => hold.refused(HoldRefusal { role, status }, NOW),
        }
    }

    /// Returns the next side, and the direction of its offer.
    fn offer(hold: &Hold) -> Option<(LegRole, Direction)> {
        let (role, sdp) = hold.next_offer(CALLER)?;
        Some((role, direction::of(&sdp)[0]))
    }

    #[test]
    fn a_change_turns_the_call_until_it_is_settled() {
        let mut hold = Hold::default();
        assert_eq!((hold.is_turning(), hold.until()), (false, None));

        let (_, progress) = hold.begin(true, NOW);
        let until = NOW + PATIENCE;
        assert_eq!(progress, HoldProgress::Ask(until));
        assert_eq!((hold.is_turning(), hold.until()), (true, Some(until)));

        let _ = answer(&mut hold, Ok(Some(AGENT)));
        assert!(hold.is_turning() && !hold.is_held());
        let _ = answer(&mut hold, Ok(Some(CALLER)));
        assert!(!hold.is_turning() && hold.is_held());

        let ended = hold.take().expect("a status");
        assert!(!ended.held, "with its call");
        assert!(!hold.is_held());
    }

    #[test]
    fn what_crosses_a_held_call_is_inactive_and_the_callers_sdp_is_kept_open() {
        let directions = |hold: &Hold, sdp: &[u8]| {
            let of = |sdp: &[u8]| direction::of(sdp)[0];
            (of(&hold.crossing_sdp(sdp)), of(&hold.heard_sdp(sdp)))
        };
        let paused = rewritten(CALLER, Direction::SendOnly);
        let mut hold = Hold::default();
        let open = directions(&hold, &paused);
        assert_eq!(open, (Direction::SendOnly, Direction::SendOnly));

        let _ = hold.begin(true, NOW);
        let _ = answer(&mut hold, Ok(Some(AGENT)));
        let _ = answer(&mut hold, Ok(Some(CALLER)));
        let held = directions(&hold, &paused);
        assert_eq!(held, (Direction::Inactive, Direction::SendRecv));
        let other = b"Signal=5".as_slice();
        assert_eq!(*hold.crossing_sdp(other), *other);
        assert_eq!(*hold.heard_sdp(other), *other);
    }

    #[test]
    fn each_answer_leads_to_the_next_offer_or_the_end() {
        use Direction::{SendOnly, SendRecv};
        use LegRole::{Agent, Trunk};
        let accepts = Ok(Some(AGENT));
        let refused = |role, status| Some(HoldRefusal { role, status });
        let [hold, resume] = [true, false];
        let agent_held = Some((Agent, SendOnly));
        let agent_open = Some((Agent, SendRecv));
        let caller_held = Some((Trunk, SendOnly));
        let caller_open = Some((Trunk, SendRecv));
        // Whether the call is held before, and the request; each answer and the offer that follows it; at the end the refusing side.
        type Row<'a> = (
            &'a str,
            bool,
            bool,
            &'a [(Answer, Option<(LegRole, Direction)>)],
            bool,
            Option<HoldRefusal>,
        );
        let rows: [Row<'_>; 8] = [
            (
                "held",
                resume,
                hold,
                &[(accepts, caller_held), (Ok(Some(CALLER)), None)],
                true,
                None,
            ),
            (
                "the agent refuses",
                resume,
                hold,
                &[(Err(488), None)],
                false,
                refused(Agent, 488),
            ),
            (
                "the agent answers with nothing",
                resume,
                hold,
                &[(Ok(None), agent_open), (accepts, None)],
                false,
                refused(Agent, 488),
            ),
            (
                "the caller refuses",
                resume,
                hold,
                &[
                    (accepts, caller_held),
                    (Err(486), agent_open),
                    (accepts, None),
                ],
                false,
                refused(Trunk, 486),
            ),
            (
                "nor does the agent take that back",
                resume,
                hold,
                &[
                    (accepts, caller_held),
                    (Err(486), agent_open),
                    (Err(500), None),
                ],
                false,
                refused(Trunk, 486),
            ),
            (
                "resumed",
                hold,
                resume,
                &[(accepts, caller_open), (Ok(Some(CALLER)), None)],
                false,
                None,
            ),
            (
                "the caller has moved",
                hold,
                resume,
                &[
                    (accepts, caller_open),
                    (Ok(Some(MOVED)), agent_open),
                    (accepts, None),
                ],
                false,
                None,
            ),
            (
                "and the agent won't follow",
                hold,
                resume,
                &[
                    (accepts, caller_open),
                    (Ok(Some(MOVED)), agent_open),
                    (Err(488), None),
                ],
                false,
                None,
            ),
        ];
        for (case, before, wanted, answers, held, refused) in rows {
            let mut hold = Hold::default();
            if before {
                let _ = hold.begin(true, NOW);
                let _ = answer(&mut hold, accepts);
                let _ = answer(&mut hold, Ok(Some(CALLER)));
            }
            let (number, progress) = hold.begin(wanted, NOW);
            assert_eq!(progress, HoldProgress::Ask(NOW + PATIENCE), "{case}");
            let first = if wanted { agent_held } else { agent_open };
            assert_eq!(offer(&hold), first, "{case}");

            let mut last = HoldProgress::Nothing;
            for (reply, next) in answers {
                last = answer(&mut hold, *reply);
                assert_eq!(offer(&hold), *next, "{case}: {reply:?}");
            }
            let status = HoldStatus {
                held,
                settled: number,
                refused,
            };
            assert_eq!(last, HoldProgress::Settled(status), "{case}");
            assert_eq!((hold.is_held(), hold.is_closed()), (held, held), "{case}");
        }
    }

    #[test]
    fn a_request_is_measured_by_what_is_under_way() {
        let mut hold = Hold::default();
        assert_eq!(hold.request(false, false), Ok(HoldRequest::Already(None)));
        assert_eq!(hold.request(true, false), Ok(HoldRequest::New));
        let (number, _) = hold.begin(true, NOW);
        assert_eq!(
            hold.request(true, true),
            Ok(HoldRequest::Already(Some(number)))
        );
        assert_eq!(
            hold.request(false, false),
            Err(HoldError::Opposite),
            "it is asked"
        );
        let Ok(HoldRequest::Withdrawn(HoldProgress::Settled(status))) = hold.request(false, true)
        else {
            panic!("neither side has heard of it");
        };
        assert!(!status.held && status.refused.is_none());

        let _ = hold.begin(true, NOW);
        let _ = answer(&mut hold, Ok(Some(AGENT)));
        let said = hold.request(false, true);
        assert_eq!(said, Err(HoldError::Opposite), "the agent has agreed");
        let _ = answer(&mut hold, Ok(Some(CALLER)));
        assert_eq!(hold.request(true, false), Ok(HoldRequest::Already(None)));
        assert_eq!(hold.request(false, false), Ok(HoldRequest::New));
    }

    #[test]
    fn what_crosses_meanwhile_is_switched_off_and_a_change_has_both_asked_anew() {
        let mut hold = Hold::default();
        let _ = hold.begin(true, NOW);
        assert_eq!(*hold.crossing_sdp(CALLER), *CALLER);
        let _ = answer(&mut hold, Ok(Some(AGENT)));
        let crosses = hold.crossing_sdp(CALLER);
        assert_eq!(direction::of(&crosses), [Direction::Inactive]);
        hold.disturb();
        assert_eq!(offer(&hold), Some((LegRole::Agent, Direction::SendOnly)));
    }

    #[test]
    fn the_built_in_agent_has_the_caller_alone_asked() {
        for (reply, held) in [(Ok(Some(CALLER)), true), (Err(488), false)] {
            let mut hold = Hold::default();
            let _ = hold.begin(true, NOW);
            let own = hold.own_offer(AGENT).map(|(role, _)| role);
            assert_eq!(own, Some(LegRole::Trunk));
            let role = hold.asked();
            let progress = match reply {
                Ok(sdp) => hold.accepted(sdp, None, NOW),
                Err(status) => hold.refused(HoldRefusal { role, status }, NOW),
            };
            assert!(matches!(progress, HoldProgress::Settled(status) if status.held == held));
        }
    }
}
