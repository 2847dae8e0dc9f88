//! Calls that were played, message by message.

use super::Difference;
use crate::flow::Entry;

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
