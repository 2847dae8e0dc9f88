//! Events that wake a peer, and the context that it works with while it is awake.

use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::network::Datagram;

/// 64*T1: how long a peer waits for an answer or an ACK.
pub(crate) const PATIENCE: Duration = Duration::from_secs(32);

/// Event that wakes a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Alarm {
    /// A request is sent again, unless it was answered.
    Resend(usize),
    /// A request has waited long enough.
    GiveUp(usize),
    /// The CANCEL of an INVITE has waited long enough.
    GiveUpCancelled(usize),
    /// A final answer to an INVITE is sent again, unless it was acknowledged.
    Repeat(usize),
    /// A reliable provisional answer is sent again, unless it was acknowledged.
    RepeatReliable(usize, u32),
    /// A step of the peer's own plan.
    Step(Step),
}

/// A step of a peer's plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The caller begins.
    Dial,
    /// The caller sends its INVITE again, with credentials for the last challenge.
    LogIn,
    /// The caller has had enough.
    Cancel,
    /// The caller hangs up while it rings.
    ByeEarly,
    /// The caller sends an offer while it rings.
    UpdateEarly,
    /// The runtime sends its next provisional answer.
    Ring(usize),
    /// The runtime sends its final answer.
    Finish,
    /// Another fork of the runtime answers as well.
    FinishFork(usize),
    /// The PBX's answer to a REFER that it takes its time for: in which session, to which request, with which status.
    Referred(usize, usize, u16),
    /// A NOTIFY of the PBX: in which session, which of its plan, about the REFER of which CSeq.
    News(usize, usize, u32),
    /// The PBX has taken the caller away from this session.
    Leave(usize),
    /// The next thing to do inside the call.
    Act(usize),
    /// An answer that the peer takes its time for: which request, with which status.
    Answer(usize, u16),
    /// The peer cancels a re-INVITE of its own.
    CancelReinvite(usize),
    /// Its own refresh of the session is due, if it hasn't been refreshed since.
    Refresh(u32),
    /// The session was not refreshed in time, if it hasn't been refreshed since.
    Expire(u32),
    /// No call is meant to last this long.
    TooLong,
    /// The peer is gone from one moment to the next.
    Vanish,
}

/// Context of a peer while it handles one event.
pub(crate) struct Hands<'a> {
    pub(crate) now: Moment,
    pub(crate) out: &'a mut Vec<Datagram>,
    pub(crate) alarms: &'a mut Vec<(Moment, Alarm)>,
}

impl Hands<'_> {
    pub(crate) fn wake(&mut self, after: Duration, alarm: Alarm) {
        self.alarms.push((self.now + after, alarm));
    }

    pub(crate) fn step(&mut self, after: Duration, step: Step) {
        self.wake(after, Alarm::Step(step));
    }
}
