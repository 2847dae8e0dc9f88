//! The wall clock as the core sees it: an offset from the clock of timers. Timers never jump; the wall clock is stepped by NTP, by hand, or by a
//! suspended machine, and recorded times follow it.

use std::sync::atomic::{AtomicI64, Ordering};

use trunkline_model::attempt::Attempt;
use trunkline_model::record::{Ended, Fact, Started};
use trunkline_model::transfer::Transfer;
use trunkline_sip::moment::Moment;

/// Offset of the wall clock from the clock of timers, in microseconds. All shards share one.
#[derive(Debug, Default)]
pub struct WallClock(AtomicI64);

/// A wall clock that never moved.
pub static STEADY: WallClock = WallClock::new();

impl WallClock {
    /// Makes one without an offset.
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Steps it by so many microseconds, forward or back.
    pub fn step(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the wall-clock time of a moment on the clock of timers.
    pub fn of(&self, moment: Moment) -> Moment {
        self.offset().of(moment)
    }

    /// Returns the moment on the clock of timers of a wall-clock time.
    pub fn back(&self, time: Moment) -> Moment {
        self.offset().back(time)
    }

    /// Returns its offset at present.
    pub fn offset(&self) -> WallOffset {
        WallOffset(self.0.load(Ordering::Relaxed))
    }
}

/// Offset of the wall clock at one time. All times of a call are on the offset at its beginning: a clock that is set while the call is up
/// changes none of its durations, so nobody is billed for the step.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct WallOffset(i64);

impl WallOffset {
    /// Returns the wall-clock time of a moment on the clock of timers.
    pub const fn of(self, moment: Moment) -> Moment {
        Moment::from_micros(moment.as_micros().saturating_add_signed(self.0))
    }

    /// Returns the moment on the clock of timers of a wall-clock time.
    pub const fn back(self, time: Moment) -> Moment {
        Moment::from_micros(
            time.as_micros()
                .saturating_add_signed(self.0.saturating_neg()),
        )
    }
}

/// Returns a fact with wall-clock times.
#[must_use]
pub(crate) fn fact_on(fact: Fact, wall: WallOffset) -> Fact {
    // The usual case, in which no fact is copied.
    if wall == WallOffset::default() {
        return fact;
    }

    match fact {
        Fact::Started(started) => {
            let at = wall.of(started.at);
            let started = Started {
                at,
                clock_offset: wall.0,
                ..std::sync::Arc::unwrap_or_clone(started)
            };
            Fact::Started(started.into())
        }

        Fact::Ringing { call, org, at } => Fact::Ringing {
            call,
            org,
            at: wall.of(at),
        },
        Fact::Answered {
            call,
            org,
            at,
            runtime_call_id,
        } => Fact::Answered {
            call,
            org,
            at: wall.of(at),
            runtime_call_id,
        },

        Fact::Transfer(transfer) => Fact::Transfer(Box::new(transfer_on(*transfer, wall))),
        Fact::Attempt(attempt) => {
            let (began_at, ended_at) = (wall.of(attempt.began_at), wall.of(attempt.ended_at));
            Fact::Attempt(Box::new(Attempt {
                began_at,
                ended_at,
                ..*attempt
            }))
        }

        Fact::Media(mut media) => {
            for step in &mut media.steps {
                step.at = wall.of(step.at);
            }
            Fact::Media(media)
        }

        Fact::Ended(ended) => {
            let at = wall.of(ended.at);
            Fact::Ended(Box::new(Ended { at, ..*ended }))
        }
        // These have no times.
        Fact::Contact { .. } | Fact::Joined { .. } | Fact::Held { .. } => fact,
    }
}

/// Returns a transfer with wall-clock times.
#[must_use]
pub(crate) fn transfer_on(transfer: Transfer, wall: WallOffset) -> Transfer {
    let of = |moment: Option<Moment>| moment.map(|moment| wall.of(moment));
    Transfer {
        requested_at: wall.of(transfer.requested_at),
        accepted_at: of(transfer.accepted_at),
        ringing_at: of(transfer.ringing_at),
        ended_at: of(transfer.ended_at),
        counted_at: of(transfer.counted_at),
        ..transfer
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_recorded_follows_the_wall_clock() {
        let wall = WallClock::new();
        let rings = |secs| Fact::Ringing {
            call: Uuid::nil(),
            org: Uuid::nil(),
            at: Moment::from_secs(secs),
        };
        for (name, step, at) in [
            ("steady", 0, 100),
            ("ahead", 60, 160),
            ("back again", -90, 70),
        ] {
            wall.step(step * 1_000_000);
            assert_eq!(fact_on(rings(100), wall.offset()), rings(at), "{name}");
        }

        let far_back = WallClock::new();
        far_back.step(i64::MIN);
        assert_eq!(far_back.of(Moment::from_secs(1)), Moment::from_micros(0));
    }
}
