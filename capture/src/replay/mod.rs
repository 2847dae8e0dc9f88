//! Plays captured calls again: the caller's side, and on request the runtime's, against a live daemon, and compares what comes back
//! with what was captured or with what the flow states.
//!
//! `script` says what is sent and what is expected, `rewrite` makes a captured message fit for today, `compare` finds the first
//! difference, `reach` knows what can't be played, `wire` carries them and `link` holds the sockets, `recorder` remembers them, `announce` says that they are open, `session` plays one call, `ladder` and `report` show what happened.

mod announce;
mod closing;
pub mod compare;
pub mod ladder;
mod link;
mod reach;
mod recorder;
pub mod report;
mod rewrite;
mod script;
mod session;
mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::Transport;
use super::flow::{Call, Entry, Role};
pub use announce::announce;
pub use compare::Difference;
pub use reach::ENDED_ON_REQUEST;
pub use session::{captured_on, play, play_over};
pub use wire::{Gone, Incoming, Wire};

/// How calls are played.
#[derive(Clone)]
pub struct Options {
    /// Where the daemon listens.
    pub target: SocketAddr,
    /// Instead of what each message was captured on.
    pub transport: Option<Transport>,
    /// To answer challenges with; without them credentials are left out, as from a dedicated address.
    pub credentials: Option<(String, String)>,
    /// Where the runtime's side is played.
    pub runtime: Option<SocketAddr>,
    /// Where the side is played of whoever else is called.
    pub other: Option<SocketAddr>,
    /// How many times faster than captured; `None` is without any waiting.
    pub speed: Option<f64>,
    /// How much later or earlier than captured an answer may come.
    pub tolerance: Duration,
    /// How long an answer is waited for beyond what was captured.
    pub patience: Duration,
    /// Text of the capture and what stands for it today.
    pub replace: Vec<(String, String)>,
    /// The clock.
    pub now: fn() -> Moment,
}

impl Options {
    /// What a call is played on that was captured on this.
    pub fn transport_for(&self, captured: Transport) -> Transport {
        match self.transport.unwrap_or(captured) {
            Transport::Tls => Transport::Tcp,
            other @ (Transport::Udp | Transport::Tcp) => other,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("target", &self.target)
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}

/// What became of one message of the script.
#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was sent.
    Sent,
    /// It came as expected.
    Came,
    /// It came, and differs.
    Differs,
    /// It didn't come, and needn't.
    Absent,
    /// It didn't come.
    Missing,
    /// It came, and nothing like it was captured.
    Unexpected,
    /// It had to be said today and wasn't in the capture, or the other way round.
    Adapted,
    /// The call had gone another way by then.
    NotReached,
    /// It follows from something that a replay can't bring about.
    OutOfReach,
}

/// One rung of the ladder.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Step {
    /// Which message of the captured call, from 1 on.
    pub message: Option<usize>,
    /// Who sends.
    pub from: &'static str,
    /// Who receives.
    pub to: &'static str,
    /// What was captured, in a few words.
    pub captured: Option<String>,
    /// When, in seconds since the call's beginning.
    pub captured_at_s: Option<f64>,
    /// What was seen, in a few words.
    pub replayed: Option<String>,
    /// When, in seconds since the replay's beginning.
    pub replayed_at_s: Option<f64>,
    /// What became of it.
    pub outcome: Outcome,
}

/// A call that was played.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Played {
    /// What a person recognises it by.
    pub title: String,
    /// Whether everything was as expected.
    pub passed: bool,
    /// The ladder.
    pub steps: Vec<Step>,
    /// What differs, the first first.
    pub differences: Vec<Difference>,
    /// Why it couldn't be played at all.
    pub error: Option<String>,
    /// Why it wasn't played to its end, though nothing went differently: the API began what follows.
    pub out_of_reach: Option<String>,
    /// The messages that were sent and came.
    #[serde(skip)]
    pub messages: Vec<Entry>,
}

/// Why a call can't be played, or `None`.
pub fn unplayable(call: &Call) -> Option<&'static str> {
    let first = call.entries.first()?;
    if first.from != Role::Caller || first.to != Role::Us {
        return Some(
            "the capture begins in the middle of the call: there is no first request of the caller's",
        );
    }
    None
}
