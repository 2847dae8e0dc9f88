//! Time limits of a call: the deadline of its set-up, and its longest duration from the answer on.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;

use crate::core::context::Cx;
use crate::dial::outbound::Outbound;
use crate::parts::ids::{CallKey, CallTimer};

/// Time of a call's answer, and the timer that ends the call.
#[derive(Debug, Default)]
pub(crate) struct Lifetime {
    answered: Option<Moment>,
    /// The set-up deadline, then the longest duration.
    deadline: Option<TimerId>,
}

impl Lifetime {
    /// Gives the set-up this long, from now on.
    pub(crate) fn await_answer(&mut self, cx: &mut Cx<'_>, key: CallKey, patience: Duration) {
        self.restart(cx, key, patience);
    }

    /// Notes that the call is answered.
    pub(crate) const fn begin(&mut self, now: Moment) {
        self.answered = Some(now);
    }

    /// Starts the timer of the longest duration, from the answer on. An outbound call has its own.
    pub(crate) fn limit(&mut self, cx: &mut Cx<'_>, key: CallKey, outbound: Option<&Outbound>) {
        let longest = match outbound {
            Some(outbound) => outbound.max_duration,
            None => cx.core.config.max_duration,
        };
        let spent = self.answered.map_or(Duration::ZERO, |at| cx.now.since(at));
        self.restart(cx, key, longest.saturating_sub(spent));
    }

    fn restart(&mut self, cx: &mut Cx<'_>, key: CallKey, after: Duration) {
        cx.cancel_timer(&mut self.deadline);
        self.deadline = Some(cx.schedule(key, after, CallTimer::Deadline));
    }

    /// Time of the answer.
    pub(crate) const fn answered(&self) -> Option<Moment> {
        self.answered
    }

    /// Notes that the timer is over.
    pub(crate) const fn expire(&mut self) {
        self.deadline = None;
    }

    /// Stops the timer.
    pub(crate) fn stop(&mut self, cx: &mut Cx<'_>) {
        cx.cancel_timer(&mut self.deadline);
    }

    /// The timer that runs.
    pub(crate) const fn timer(&self) -> Option<TimerId> {
        self.deadline
    }
}
