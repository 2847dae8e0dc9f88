//! Shares of orgs in the failed log-ins that wait and that are stored: an attacker who tries passwords of one org takes nothing from the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trunkline_sip::flow::source;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Failed log-ins stored for one org within a minute, and of these from one source: in IPv6 a /64.
const STORED_OF_ORG: u32 = 300;
const STORED_OF_SOURCE: u32 = 60;
/// Seconds of a minute.
const MINUTE: u64 = 60;

/// Places in the queue that each org has taken; clones share them.
#[derive(Clone, Debug)]
pub(super) struct QueueShares {
    taken: Arc<Mutex<HashMap<Uuid, usize>>>,
    of_one: usize,
}

impl QueueShares {
    /// Shares of so many places each.
    pub(super) fn new(of_one: usize) -> Self {
        Self {
            taken: Arc::default(),
            of_one,
        }
    }

    /// Takes a place for an org; false if its share is used up.
    pub(super) fn take(&self, org: Uuid) -> bool {
        let mut taken = self.taken();
        let of_org = taken.entry(org).or_default();
        let has_room = *of_org < self.of_one;
        *of_org += usize::from(has_room);
        has_room
    }

    /// Gives a place back.
    pub(super) fn leave(&self, org: Uuid) {
        let mut taken = self.taken();
        if let Some(of_org) = taken.get_mut(&org) {
            *of_org = of_org.saturating_sub(1);
            if *of_org == 0 {
                taken.remove(&org);
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Failed log-ins stored in this minute.
#[derive(Debug, Default)]
pub(super) struct StoredLogIns {
    minute: u64,
    of_org: HashMap<Uuid, u32>,
    of_source: HashMap<(Uuid, IpAddr), u32>,
}

impl StoredLogIns {
    /// Counts a failed log-in of an org; false if it isn't to be stored.
    pub(super) fn admits(&mut self, org: Uuid, from: IpAddr, at: Moment) -> bool {
        let minute = at.as_secs() / MINUTE;
        if self.minute != minute {
            *self = Self {
                minute,
                ..Self::default()
            };
        }

        let of_org = self.of_org.entry(org).or_default();
        // Before the source is looked up, so that an attacker with many sources can't fill the table of sources.
        if *of_org >= STORED_OF_ORG {
            return false;
        }
        let of_source = self.of_source.entry((org, source(from))).or_default();
        if *of_source >= STORED_OF_SOURCE {
            return false;
        }
        *of_org += 1;
        *of_source += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_org_has_a_share_of_the_queue() {
        let shares = QueueShares::new(256);
        let [flooded, other] = [1, 2].map(Uuid::from_u128);
        assert_eq!((0..1_000).filter(|_| shares.take(flooded)).count(), 256);
        assert!(shares.take(other));
        shares.leave(flooded);
        assert!(shares.take(flooded));
        assert!(!shares.take(flooded));

        (0..256).for_each(|_| shares.leave(flooded));
        shares.leave(other);
        assert!(shares.taken().is_empty());
    }

    #[test]
    fn failures_are_stored_within_bounds_for_each_org_and_source() {
        let mut stored = StoredLogIns::default();
        let [flooded, other] = [1, 2].map(Uuid::from_u128);
        let mut storing = |org, host: u8, second: u64| {
            let at = Moment::from_secs(6_000 + second);
            let from = IpAddr::from([192, 0, 2, host]);
            (0..1_000).filter(|_| stored.admits(org, from, at)).count()
        };

        assert_eq!(storing(flooded, 1, 0), 60);
        assert_eq!(storing(flooded, 2, 1), 60);
        let more: usize = (3..100).map(|host| storing(flooded, host, 2)).sum();
        assert_eq!(more, 180);
        assert_eq!(storing(other, 1, 3), 60);
        assert_eq!(storing(flooded, 1, 60), 60, "the next minute");
    }
}
