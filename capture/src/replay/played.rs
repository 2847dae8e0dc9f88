//! Result of a replayed call, message by message.

use super::Difference;
use crate::flow::Entry;

/// Outcome of one message of the script.
#[derive(Copy, Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Sent.
    Sent,
    /// Received as expected.
    #[serde(rename = "came")]
    Received,
    /// Received, with a difference.
    Differs,
    /// Not received, but optional.
    Absent,
    /// Not received.
    Missing,
    /// Received, without a counterpart in the capture.
    Unexpected,
    /// Needed in the live call but not captured, or the other way round.
    Adapted,
    /// Not reached, since the call had taken another course.
    NotReached,
    /// A consequence of something that a replay can't reproduce.
    OutOfReach,
}

/// One line of the ladder diagram.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Step {
    /// Number of the message within the captured call, from 1.
    pub message: Option<usize>,
    /// Sender.
    pub from: &'static str,
    /// Receiver.
    pub to: &'static str,
    /// Label of the captured message.
    pub captured: Option<String>,
    /// Its time in seconds since the call's beginning.
    pub captured_at_s: Option<f64>,
    /// Label of the live message.
    pub replayed: Option<String>,
    /// Its time in seconds since the replay's beginning.
    pub replayed_at_s: Option<f64>,
    /// Outcome.
    pub outcome: Outcome,
}

/// A replayed call.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Played {
    /// Title for people.
    pub title: String,
    /// No difference was found.
    pub passed: bool,
    /// Lines of the ladder diagram.
    pub steps: Vec<Step>,
    /// Differences, in order.
    pub differences: Vec<Difference>,
    /// Reason why the call couldn't be played at all.
    pub error: Option<String>,
    /// Reason why the call wasn't played to its end: a replay can't cause what follows, such as a request of the API.
    pub out_of_reach: Option<String>,
    /// Messages sent and received.
    #[serde(skip)]
    pub messages: Vec<Entry>,
}
