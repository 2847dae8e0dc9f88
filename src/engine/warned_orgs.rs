//! Orgs that the log has warned about in the last minute, so that an org whose fault repeats gets one line a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Time between two warnings about an org.
const INTERVAL: Duration = Duration::from_secs(60);
/// Orgs whose last warning is remembered. With more at once, further ones get no line.
const MOST: usize = 1_024;

/// Times of the last warnings. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct WarnedOrgs(Arc<Mutex<HashMap<Uuid, Moment>>>);

impl WarnedOrgs {
    /// Returns whether a warning about the org may be logged now, and notes that it is.
    pub(super) fn is_due(&self, org: Uuid, now: Moment) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Moment| now.since(*at) < INTERVAL;
        if warned.get(&org).is_some_and(is_recent) {
            return false;
        }

        if warned.len() >= MOST {
            warned.retain(|_, at| is_recent(at));
        }
        let is_due = warned.len() < MOST;
        if is_due {
            warned.insert(org, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_org_is_warned_about_once_a_minute() {
        let warned = WarnedOrgs::default();
        let start = Moment::from_secs(1_000);
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for (org, seconds, is_due) in [
            (one, 0, true),
            (one, 59, false),
            (other, 59, true),
            (one, 60, true),
            (one, 61, false),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(warned.is_due(org, now), is_due, "{org} {seconds}");
        }
    }

    #[test]
    fn so_many_orgs_are_remembered() {
        let warned = WarnedOrgs::default();
        let start = Moment::from_secs(1_000);
        let due = (0..MOST as u128 + 1).filter(|org| warned.is_due(Uuid::from_u128(*org), start));
        assert_eq!(due.count(), MOST);
        assert!(warned.is_due(Uuid::from_u128(9_999), start + INTERVAL));
    }
}
