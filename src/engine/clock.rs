//! Clocks of the daemon; nothing else reads the system's.
//!
//! [`now`] is monotonic: everything that waits or measures uses it. [`wall_time`] is what records and the API show; it
//! follows the system's clock, which may be stepped.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use trunkline_sip::moment::Moment;

use trunkline_calls::parts::wall_clock::WallClock;

/// Both clocks at the first reading. Every later moment is that wall time plus the monotonic time since.
static START: OnceLock<(Instant, Duration)> = OnceLock::new();
/// Sum of the wall clock's steps since [`START`].
static WALL: WallClock = WallClock::new();
/// Microseconds of difference that count as a step; smaller ones come from reading two clocks one after the other.
const MIN_STEP_MICROS: i64 = 20_000;

/// Returns the monotonic time, for timers and measurements.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> Moment {
    let (instant, wall) = START.get_or_init(|| (Instant::now(), since_epoch()));
    Moment::from_secs(0) + *wall + instant.elapsed()
}

/// Returns the wall-clock time, for records, for comparisons with other machines, and for display.
pub fn wall_time() -> Moment {
    WALL.of(now())
}

/// Converts a moment of [`now`] to wall-clock time.
pub fn on_wall(moment: Moment) -> Moment {
    WALL.of(moment)
}

/// Converts a wall-clock time to a moment of [`now`].
pub fn from_wall(time: Moment) -> Moment {
    WALL.back(time)
}

/// Wall clock, for code that stores times.
pub(crate) fn wall() -> &'static WallClock {
    &WALL
}

/// Adopts the system's wall clock, which may have been set or may have run on while the machine was suspended. Returns
/// the step in microseconds, if there was one.
pub(crate) fn follow() -> Option<i64> {
    let ours = wall_time().as_micros();
    let theirs = since_epoch().as_micros();
    let micros = i64::try_from(theirs)
        .ok()?
        .checked_sub(i64::try_from(ours).ok()?)?;
    if micros.abs() < MIN_STEP_MICROS {
        return None;
    }
    WALL.step(micros);
    Some(micros)
}

/// Returns the system's wall clock as it is; the kernel stamps packets with it.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn system() -> SystemTime {
    SystemTime::now()
}

/// Returns the [`Instant`] at which [`now`] will be `moment`.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn instant(moment: Moment) -> Instant {
    Instant::now() + moment.since(now())
}

fn since_epoch() -> Duration {
    system()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
