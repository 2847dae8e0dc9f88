//! The one place where the daemon reads its clocks.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use trunkline_sip::moment::Moment;

/// Both clocks at the first look: later moments are that wall time plus what the monotonic clock has run since.
static START: OnceLock<(Instant, Duration)> = OnceLock::new();

/// Now, on a clock that never steps back while the process lives.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> Moment {
    let (instant, wall) = START.get_or_init(|| (Instant::now(), since_epoch()));
    Moment::from_secs(0) + *wall + instant.elapsed()
}

/// The wall clock itself, which the kernel stamps packets by.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// The instant at which the monotonic clock will read `moment`.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn instant(moment: Moment) -> Instant {
    Instant::now() + moment.since(now())
}

fn since_epoch() -> Duration {
    wall()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
