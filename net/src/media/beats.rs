//! Turns of the media threads, so that one that hangs is noticed: its calls would be silent, and stay up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use trunkline_sip::moment::Moment;

/// Time without a turn after which a thread hangs. An idle one has a turn each second.
const HANGS: Duration = Duration::from_secs(10);

/// The last turn of each thread, in microseconds; 0 before the first.
#[derive(Debug)]
pub(super) struct Beats(Box<[AtomicU64]>);

impl Beats {
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes that a thread has a turn.
    pub(super) fn note(&self, thread: usize, now: Moment) {
        if let Some(beat) = self.0.get(thread) {
            beat.store(now.as_micros(), Ordering::Relaxed);
        }
    }

    /// Returns whether a thread hangs.
    pub(super) fn is_one_missing(&self, now: Moment) -> bool {
        let last = self.0.iter().map(|beat| beat.load(Ordering::Relaxed));
        // A thread that hasn't begun is only starting.
        let mut begun = last.filter(|last| *last > 0);
        begun.any(|last| now.since(Moment::from_micros(last)) > HANGS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_turns_hangs() {
        let beats = Beats::new(2);
        let at = Moment::from_secs;
        assert!(!beats.is_one_missing(at(100)), "none has begun");
        beats.note(0, at(100));
        beats.note(1, at(100));
        beats.note(1, at(110));
        assert!(!beats.is_one_missing(at(110)));
        assert!(beats.is_one_missing(at(111)), "the first has had no turn");
    }
}
