//! Limits on the calls that an org and a trunk may begin: bounds against toll fraud (a stolen key that calls expensive numbers all night). Shared by
//! all shards; `limits` counts concurrent calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Claim;
use crate::parts::refusal::Reason;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Window of the daily limit.
pub const DAY: Duration = Duration::from_secs(86_400);
/// Number of orgs and trunks kept before idle ones are removed.
const SWEEP: usize = 4_096;

/// An org's limits on outbound calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundBounds {
    /// Outbound calls at once.
    pub at_once: u32,
    /// New ones in a minute.
    pub per_minute: u32,
    /// New ones in 24 hours.
    pub per_day: u32,
    /// Prefixes of numbers that may be called; empty: any number may be called.
    pub prefixes: Vec<Box<str>>,
}

/// Refusal of a new call, with the seconds until another may begin.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct OutboundRefusal {
    /// The limit that is reached, or the rule that forbids the call.
    pub reason: Reason,
    /// Seconds until a retry may succeed, where known.
    pub wait_s: Option<u64>,
}

impl From<Reason> for OutboundRefusal {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            wait_s: None,
        }
    }
}

/// Starts of calls, by org and trunk.
#[derive(Debug)]
pub struct OutboundLimits {
    bounds: OutboundBounds,
    began: Mutex<HashMap<Uuid, VecDeque<Moment>>>,
}

impl OutboundLimits {
    /// Makes limits that no call has been counted against.
    pub fn new(bounds: OutboundBounds) -> Arc<Self> {
        Arc::new(Self {
            bounds,
            began: Mutex::default(),
        })
    }

    /// The bounds of every org.
    pub const fn bounds(&self) -> &OutboundBounds {
        &self.bounds
    }

    /// Key under which an org's outbound calls are counted, beside all its calls.
    pub(crate) fn claim(&self, org: Uuid) -> Claim {
        Claim {
            id: apart(org),
            max: Some(self.bounds.at_once),
        }
    }

    /// Adds starts from before this process, oldest first. Must be called before any other start is counted.
    pub fn seed(&self, earlier: impl IntoIterator<Item = (Uuid, Moment)>) {
        let mut began = self.began();
        for (org, at) in earlier {
            began.entry(org).or_default().push_back(at);
        }
    }

    /// Returns whether this number may be called at all.
    pub fn allows(&self, number: E164) -> bool {
        let prefixes = &self.bounds.prefixes;
        prefixes.is_empty()
            || prefixes
                .iter()
                .any(|prefix| number.as_str().starts_with(&**prefix))
    }

    /// Counts a call that begins now, against both org and trunk or neither.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn begin(
        &self,
        org: Uuid,
        trunk: Uuid,
        per_second: Option<u32>,
        now: Moment,
    ) -> Result<(), OutboundRefusal> {
        let denied = |reason, wait: Duration| OutboundRefusal {
            reason,
            wait_s: Some(wait.as_secs().max(1)),
        };
        let mut began = self.began();
        if began.len() > SWEEP {
            began.retain(|_, times| times.back().is_some_and(|last| now.since(*last) < DAY));
        }

        if let Some(limit) = per_second {
            let times = began.entry(trunk).or_default();
            if let Err(wait) = room(times, SECOND, limit, now) {
                return Err(denied(Reason::TrunkRate, wait));
            }
        }

        let times = began.entry(org).or_default();
        while times.front().is_some_and(|first| now.since(*first) >= DAY) {
            times.pop_front();
        }

        // No start is counted before all windows have room, so that a refusal uses nothing up.
        let windows = [(MINUTE, self.bounds.per_minute), (DAY, self.bounds.per_day)];
        for (window, limit) in windows {
            room(times, window, limit, now).map_err(|wait| denied(Reason::OutboundRate, wait))?;
        }

        times.push_back(now);
        if let Some(limit) = per_second {
            let times = began.entry(trunk).or_default();
            times.push_back(now);
            // A window of one second needs no more starts than its limit.
            while times.len() > limit as usize {
                times.pop_front();
            }
        }

        Ok(())
    }

    fn began(&self) -> MutexGuard<'_, HashMap<Uuid, VecDeque<Moment>>> {
        // The counts are consistent whenever the lock is free, also after a panic.
        self.began.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Id of a separate count for an org: its bits inverted, so that it is no other org's id.
const fn apart(org: Uuid) -> Uuid {
    Uuid::from_u128(!org.as_u128())
}

/// Returns whether fewer than `limit` starts are in the window; if not, the time until one leaves it.
fn room(
    times: &VecDeque<Moment>,
    window: Duration,
    limit: u32,
    now: Moment,
) -> Result<(), Duration> {
    let within = times
        .iter()
        .rev()
        .take_while(|at| now.since(**at) < window)
        .count();
    if within < limit as usize {
        return Ok(());
    }
    let leaving = times.len() - within + (within - limit as usize);
    let oldest = times.get(leaving).map_or(window, |at| now.since(*at));
    // Whole seconds are reported, so a second is added to what they cut off.
    Err(window.saturating_sub(oldest) + SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: Uuid = Uuid::from_u128(1);
    const TRUNK: Uuid = Uuid::from_u128(2);

    fn outbound_limits(per_minute: u32, per_day: u32, prefixes: &[&str]) -> Arc<OutboundLimits> {
        OutboundLimits::new(OutboundBounds {
            at_once: 1,
            per_minute,
            per_day,
            prefixes: prefixes.iter().copied().map(Into::into).collect(),
        })
    }

    fn at(secs: u64) -> Moment {
        Moment::from_secs(1_790_000_000 + secs)
    }

    #[test]
    fn a_minute_and_a_day_hold_so_many() {
        let outbound_limits = outbound_limits(2, 3, &[]);
        let rate = |wait_s| {
            Err(OutboundRefusal {
                reason: Reason::OutboundRate,
                wait_s: Some(wait_s),
            })
        };

        for (secs, expected) in [
            (0, Ok(())),
            (1, Ok(())),
            (2, rate(59)),
            (61, Ok(())),
            (200, rate(86_201)),
            (86_402, Ok(())),
        ] {
            let begun = outbound_limits.begin(ORG, TRUNK, None, at(secs));
            assert_eq!(begun, expected, "at {secs} s");
        }
    }

    #[test]
    fn what_was_begun_before_a_restart_counts() {
        let outbound_limits = outbound_limits(9, 2, &[]);
        outbound_limits.seed([(ORG, at(0)), (TRUNK, at(0)), (ORG, at(1))]);
        assert!(outbound_limits.begin(ORG, TRUNK, None, at(100)).is_err());
    }

    #[test]
    fn a_trunk_holds_so_many_a_second() {
        let outbound_limits = outbound_limits(9, 9, &[]);
        let begin = |secs| outbound_limits.begin(ORG, TRUNK, Some(1), at(secs)).is_ok();
        assert_eq!([begin(0), begin(0), begin(1)], [true, false, true]);
    }

    #[test]
    fn numbers_are_allowed_by_their_prefix() {
        let number = E164::parse("+14155550100").unwrap();
        for (prefixes, allowed) in [(&[][..], true), (&["+44", "+1"], true), (&["+44"], false)] {
            assert_eq!(
                outbound_limits(1, 1, prefixes).allows(number),
                allowed,
                "{prefixes:?}"
            );
        }
    }
}
