//! Timers: one queue for each duration, first in, first out, so that setting and firing cost a push and a pop.
//! No timer is cancelled: one that fires for a call in a later state is ignored.

use std::collections::VecDeque;

use crate::calls::CallRef;

/// RFC 3261 §17.1.1.1, in microseconds.
pub const T1: u64 = 500_000;
/// 64·T1: the time after which a transaction gives up (Timers B, F, H).
pub const GIVE_UP: u64 = 64 * T1;

/// Action of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DueAction {
    /// Timer A: send the INVITE with this CSeq again.
    Invite { cseq: u8 },
    /// Timer E: send the BYE again.
    Bye,
    /// §13.3.1.4: send the 2xx again until its ACK has come.
    Ok,
    /// Send an OPTIONS again.
    Probe,
    /// Answer a phone that has rung long enough.
    Answer,
    /// Hang up after the talk time.
    HangUp,
}

/// A timer that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Due time, in microseconds.
    pub at: u64,
    /// Number of times that the action was done before.
    pub round: u8,
    /// The call of the timer.
    pub call: CallRef,
    /// The action that is due.
    pub what: DueAction,
}

/// Queues of timers, by their duration.
#[derive(Debug)]
pub struct Schedule {
    queues: Vec<(u64, VecDeque<Due>)>,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            queues: Vec::with_capacity(16),
        }
    }
}

impl Schedule {
    /// Sets a timer that fires `after` microseconds from `now`.
    pub fn push(&mut self, after: u64, round: u8, call: CallRef, what: DueAction, now: u64) {
        let due = Due {
            at: now + after,
            round,
            call,
            what,
        };
        match self.queues.iter_mut().find(|(wait, _)| *wait == after) {
            Some((_, queue)) => queue.push_back(due),
            None => self.queues.push((after, VecDeque::from([due]))),
        }
    }

    /// Takes a timer that is due at `now`.
    pub fn pop(&mut self, now: u64) -> Option<Due> {
        self.queues
            .iter_mut()
            .find(|(_, queue)| queue.front().is_some_and(|due| due.at <= now))?
            .1
            .pop_front()
    }

    /// Returns the earliest due time.
    pub fn next(&self) -> Option<u64> {
        self.queues
            .iter()
            .filter_map(|(_, queue)| queue.front())
            .map(|due| due.at)
            .min()
    }
}

/// Returns the wait in microseconds after a retransmission; `round` is the number of retransmissions before it. The wait doubles from T1
/// up to `most`, and the last wait ends 64·T1 after the first transmission. `None` once that time is over.
pub fn next_wait(round: u8, most: u64) -> Option<u64> {
    // More doublings than six would exceed 64·T1 anyway.
    let wait = |round: u8| (T1 << round.min(6)).min(most);
    let passed: u64 = (0..=round).map(wait).sum();
    (passed < GIVE_UP).then(|| wait(round + 1).min(GIVE_UP - passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fires_at_its_time_and_not_before() {
        let call = CallRef::from_bits(7);
        let mut schedule = Schedule::default();
        schedule.push(1_000, 0, call, DueAction::Bye, 0);
        schedule.push(500, 0, call, DueAction::Ok, 100);
        assert_eq!(schedule.next(), Some(600));
        assert_eq!(schedule.pop(599), None);
        assert_eq!(schedule.pop(600).map(|due| due.what), Some(DueAction::Ok));
        assert_eq!(
            schedule.pop(1_000).map(|due| due.what),
            Some(DueAction::Bye)
        );
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn waits_double_up_to_their_cap_and_end_after_64_t1() {
        let waits = |most| {
            (0..)
                .map_while(move |round| next_wait(round, most))
                .map(|wait| wait / 1_000)
                .collect::<Vec<_>>()
        };
        assert_eq!(waits(u64::MAX), [1_000, 2_000, 4_000, 8_000, 16_000, 500]);
        assert_eq!(
            waits(4_000_000),
            [
                1_000, 2_000, 4_000, 4_000, 4_000, 4_000, 4_000, 4_000, 4_000, 500
            ]
        );
    }
}
