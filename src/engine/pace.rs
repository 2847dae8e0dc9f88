//! Pauses between turns of a busy shard, so that datagrams are received, handled and sent in batches.
//!
//! Up to some thousand calls a second a shard wakes for each datagram: that is when a call is set up soonest, and waiting would save little CPU (at
//! 1,000 calls a second nothing, at 2,500 a twelfth). Beyond, a shard isn't woken but polls once per step, which saves up to a sixth. The step is all
//! that this costs a message, at any rate: a shard with more to do has longer turns, and so larger batches, by itself. It pauses for longer only where
//! traces are behind. `just bench-against` measures it, by the lines `rate:1000`, `rate:2500` and `rate:0.8x`.

use std::time::Duration;

use trunkline_sip::moment::Moment;

/// Step between two turns when busy. A message waits for half a step on average.
const STEP: Duration = Duration::from_micros(200);

/// Pause in which the thread that keeps traces catches up.
const CATCH_UP: Duration = Duration::from_millis(1);

/// Period over which datagrams are counted.
const WINDOW: Duration = Duration::from_millis(10);

/// Datagrams in a period that make a shard busy: about 3,300 calls a second.
const BUSY: usize = 300;

/// Pace of one shard.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Start of the latest turn.
    turned_at: Moment,
    /// Start of the current period.
    window: Moment,
    /// Datagrams since the period began.
    counted: usize,
    is_busy: bool,
}

impl Pace {
    pub(crate) const fn new(now: Moment) -> Self {
        Self {
            turned_at: now,
            window: now,
            counted: 0,
            is_busy: false,
        }
    }

    /// Notes the start of a turn.
    pub(crate) fn turn(&mut self, now: Moment) {
        self.turned_at = now;
        let elapsed = now.since(self.window);
        if elapsed >= WINDOW {
            // A turn, or the time the shard slept, may be longer than a period; so compare rates, not counts.
            let rate = self.counted as u128 * WINDOW.as_micros() / elapsed.as_micros();
            self.is_busy = rate >= BUSY as u128;
            self.window = now;
            self.counted = 0;
        }
    }

    /// Notes received datagrams.
    pub(crate) const fn received(&mut self, count: usize) {
        self.counted += count;
    }

    /// Returns true if the next turn comes without an input.
    pub(crate) const fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Returns how long a busy shard pauses before its next turn, zero if the last turn took long. `None` unless it is
    /// busy: the shard then waits for an input.
    pub(crate) fn rest(&self, now: Moment) -> Option<Duration> {
        let elapsed = now.since(self.turned_at);
        self.is_busy.then(|| STEP.saturating_sub(elapsed))
    }
}

/// Sleeps while datagrams gather, unless INVITEs are queued. Sleeping is fine: the thread serves nothing but this shard.
pub(super) fn gather(rest: Duration, are_traces_behind: bool, has_queued_invites: bool) {
    // On a processor of its own the thread that keeps traces has caught up by the next turn. On a shared one it gets a part of this shard's time: the
    // calls of a flood are what waits, not the traces.
    if are_traces_behind {
        std::thread::sleep(CATCH_UP);
    } else if !has_queued_invites && !rest.is_zero() {
        std::thread::sleep(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_secs(1);

    /// Runs turns a millisecond apart, each with so many datagrams.
    fn paced(turns: u32, datagrams: usize) -> (Pace, Moment) {
        let mut pace = Pace::new(START);
        let mut now = START;
        for _ in 0..turns {
            now = now + Duration::from_millis(1);
            pace.turn(now);
            pace.received(datagrams);
        }
        (pace, now)
    }

    #[test]
    fn a_shard_with_little_to_do_never_rests() {
        let (pace, now) = paced(100, 29);
        assert_eq!(pace.rest(now), None);
    }

    #[test]
    fn a_busy_shard_rests_until_the_step_is_over() {
        let (pace, now) = paced(100, 31);
        assert_eq!(pace.rest(now), Some(STEP));
        assert_eq!(pace.rest(now + STEP / 5), Some(STEP * 4 / 5));
        assert_eq!(pace.rest(now + STEP), Some(Duration::ZERO));
        assert_eq!(pace.rest(now + 2 * STEP), Some(Duration::ZERO));
    }

    #[test]
    fn a_turn_longer_than_a_window_is_busy() {
        let mut pace = Pace::new(START);
        pace.received(2_048);
        let now = START + WINDOW * 6;
        pace.turn(now);
        assert_eq!(pace.rest(now), Some(STEP));
    }

    #[test]
    fn a_rush_is_over_with_its_window() {
        let (mut pace, now) = paced(100, 31);
        let quiet = now + 2 * WINDOW;
        pace.turn(quiet);
        assert_eq!(pace.rest(quiet), None, "nothing came for a window");
        let (mut pace, now) = paced(100, 31);
        for later in 1..=2 {
            pace.turn(now + WINDOW * later);
        }
        assert_eq!(pace.rest(now + WINDOW * 2), None, "an empty window");
    }
}
