//! The one place where the daemon reads its clocks: one that never jumps, by which everything waits, and the time on the wall, which is
//! recorded and shown.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use trunkline_sip::moment::Moment;

use trunkline_calls::wall::Wall;

/// Both clocks at the first look: later moments are that wall time plus what the monotonic clock has run since.
static START: OnceLock<(Instant, Duration)> = OnceLock::new();
/// By how much the wall clock was stepped since.
static WALL: Wall = Wall::new();
/// A smaller difference is no step: two clocks are never read at one instant.
const STEP: i64 = 20_000;

/// Now, on a clock that never jumps while the process lives: for whatever waits or measures.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> Moment {
    let (instant, wall) = START.get_or_init(|| (Instant::now(), since_epoch()));
    Moment::from_secs(0) + *wall + instant.elapsed()
}

/// Now, on the wall clock: for what is recorded, compared with what others have recorded, or shown.
pub fn wall_time() -> Moment {
    WALL.of(now())
}

/// The time on the wall at a moment of [`now`].
pub fn on_wall(moment: Moment) -> Moment {
    WALL.of(moment)
}

/// The moment of [`now`] at this time on the wall.
pub fn from_wall(time: Moment) -> Moment {
    WALL.back(time)
}

/// The wall clock for those who record.
pub(crate) fn wall() -> &'static Wall {
    &WALL
}

/// Has the time on the wall follow the system's, which somebody may have set, or which went on while the machine was suspended. Returns the
/// microseconds of the step, if it is one.
pub(crate) fn follow() -> Option<i64> {
    let ours = wall_time().as_micros();
    let theirs = since_epoch().as_micros();
    let micros = i64::try_from(theirs)
        .ok()?
        .checked_sub(i64::try_from(ours).ok()?)?;
    if micros.abs() < STEP {
        return None;
    }
    WALL.step(micros);
    Some(micros)
}

/// The system's wall clock itself, which the kernel stamps packets by.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn system() -> SystemTime {
    SystemTime::now()
}

/// The instant at which the monotonic clock will read `moment`.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn instant(moment: Moment) -> Instant {
    Instant::now() + moment.since(now())
}

fn since_epoch() -> Duration {
    system()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
