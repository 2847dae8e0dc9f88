//! The generator's clock: microseconds since it was started. All other code takes `now` as an argument.

use std::time::Instant;

/// A clock that starts at zero.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at zero.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the generator reads the time"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Microseconds since the start.
    pub fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Seconds as microseconds.
pub const fn seconds(count: u64) -> u64 {
    count * 1_000_000
}
