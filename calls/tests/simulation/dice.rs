//! Randomness of the simulation: a number decides everything that happens, so that any run can be repeated.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Dice of their own for one part, so that what it throws moves nobody else's luck.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.bits())
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to `end`, which is left out.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.bits() % end.max(1)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let at = self.below(choices.len() as u64) as usize;
        choices[at].clone()
    }

    /// `percent` of the time a time between the two, in milliseconds.
    pub(crate) fn maybe(&mut self, percent: u64, from: u64, to: u64) -> Option<Duration> {
        let chosen = self.percent(percent);
        let time = self.millis(from, to);
        chosen.then_some(time)
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
}
