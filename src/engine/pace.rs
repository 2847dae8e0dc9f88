//! How a busy shard gathers: it rests a moment between turns, so that what comes meanwhile is received, worked on and
//! sent together. To wake up for each datagram costs as much as the work on it; a busy shard isn't woken at all, it looks for itself.

use std::time::Duration;

use trunkline_sip::moment::Moment;

/// From one turn to the next when busy, and when very busy; what it adds to a message's way is half of it on average.
const STEP: Duration = Duration::from_micros(500);
const LONG_STEP: Duration = Duration::from_millis(1);

/// How long datagrams are counted before the count says how busy the shard is.
const WINDOW: Duration = Duration::from_millis(10);

/// Datagrams in a window that make a shard busy: some 500 calls a second; and very busy: some 2,000.
const BUSY: usize = 50;
const VERY_BUSY: usize = 200;

/// When a shard turns.
#[derive(Debug)]
pub(crate) struct Pace {
    turned_at: Moment,
    window: Moment,
    /// Datagrams since the window began.
    counted: usize,
    /// `None` unless it is busy.
    step: Option<Duration>,
}

impl Pace {
    pub(crate) const fn new(now: Moment) -> Self {
        Self {
            turned_at: now,
            window: now,
            counted: 0,
            step: None,
        }
    }

    /// Notes a turn that begins.
    pub(crate) fn turn(&mut self, now: Moment) {
        self.turned_at = now;
        let elapsed = now.since(self.window);
        if elapsed >= WINDOW {
            // A turn may be longer than a window, and so may be the time that a shard slept.
            let rate = self.counted as u128 * WINDOW.as_micros() / elapsed.as_micros();
            self.step = match usize::try_from(rate).unwrap_or(usize::MAX) {
                VERY_BUSY.. => Some(LONG_STEP),
                BUSY.. => Some(STEP),
                _ => None,
            };
            self.window = now;
            self.counted = 0;
        }
    }

    /// Notes datagrams that were received.
    pub(crate) const fn received(&mut self, count: usize) {
        self.counted += count;
    }

    /// Whether the next turn comes by itself.
    pub(crate) const fn is_busy(&self) -> bool {
        self.step.is_some()
    }

    /// How long a busy shard rests before its next turn, nothing if the last one took long; `None` unless it is busy: something is
    /// to be waited for.
    pub(crate) fn rest(&self, now: Moment) -> Option<Duration> {
        let step = self.step?;
        Some(step.saturating_sub(now.since(self.turned_at)))
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
        assert_eq!(pace.rest(now + STEP), Some(Duration::ZERO));
        assert_eq!(pace.rest(now + 2 * STEP), Some(Duration::ZERO));
    }

    #[test]
    fn who_is_very_busy_rests_longer() {
        let (pace, now) = paced(100, 30);
        assert_eq!(pace.rest(now), Some(LONG_STEP));
        assert_eq!(pace.rest(now + STEP), Some(LONG_STEP - STEP));
    }

    #[test]
    fn a_turn_longer_than_a_window_is_busy() {
        let mut pace = Pace::new(START);
        pace.received(2_048);
        let now = START + WINDOW * 6;
        pace.turn(now);
        assert_eq!(pace.rest(now), Some(LONG_STEP));
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
