//! How a busy shard gathers: it rests a moment between turns, so that what comes meanwhile is received, worked on and
//! sent together. To wake up for each datagram costs as much as the work on it.

use std::time::Duration;

use trunkline_sip::moment::Moment;

/// From one turn to the next when busy; what it adds to a message's way is half of it on average.
const STEP: Duration = Duration::from_micros(500);

/// How long datagrams are counted before the count says how busy the shard is.
const WINDOW: Duration = Duration::from_millis(10);

/// Datagrams in a window that make a shard busy: some 500 calls a second.
const BUSY: usize = 50;

/// When a shard turns.
#[derive(Debug)]
pub(crate) struct Pace {
    turned_at: Moment,
    window: Moment,
    /// Datagrams since the window began.
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

    /// Notes a turn that begins.
    pub(crate) fn turn(&mut self, now: Moment) {
        self.turned_at = now;
        let elapsed = now.since(self.window);
        if elapsed >= WINDOW {
            // A shard that slept through the next window wasn't busy.
            self.is_busy = self.counted >= BUSY && elapsed < 2 * WINDOW;
            self.window = now;
            self.counted = 0;
        }
    }

    /// Notes datagrams that were received.
    pub(crate) const fn received(&mut self, count: usize) {
        self.counted += count;
    }

    /// How long to rest before the next turn: not at all unless busy, or when the last turn itself took long.
    pub(crate) fn rest(&self, now: Moment) -> Option<Duration> {
        let rest = STEP.checked_sub(now.since(self.turned_at))?;
        (self.is_busy && !rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_secs(1);

    /// Turns every millisecond for a while, with so many datagrams each.
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
    fn who_has_little_to_do_never_rests() {
        let (pace, now) = paced(100, 4);
        assert_eq!(pace.rest(now), None);
    }

    #[test]
    fn who_is_busy_rests_until_the_step_is_over() {
        let (pace, now) = paced(100, 10);
        assert_eq!(pace.rest(now), Some(STEP));
        assert_eq!(pace.rest(now + STEP / 5), Some(STEP * 4 / 5));
        assert_eq!(pace.rest(now + STEP), None);
        assert_eq!(pace.rest(now + 2 * STEP), None);
    }

    #[test]
    fn a_rush_is_over_with_its_window() {
        let (mut pace, now) = paced(100, 10);
        let quiet = now + 2 * WINDOW;
        pace.turn(quiet);
        assert_eq!(pace.rest(quiet), None, "nothing came for a window");
        let (mut pace, now) = paced(100, 10);
        for later in 1..=2 {
            pace.turn(now + WINDOW * later);
        }
        assert_eq!(pace.rest(now + WINDOW * 2), None, "an empty window");
    }
}
