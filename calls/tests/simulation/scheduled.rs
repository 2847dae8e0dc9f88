//! Events to come in the world, ordered by time and, within a moment, by when they were planned.

use std::cmp::Reverse;

use trunkline_sip::moment::Moment;

use crate::world::Occasion;

#[derive(Debug)]
pub(crate) struct Scheduled {
    pub(crate) at: Moment,
    pub(crate) order: u64,
    pub(crate) what: Occasion,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Scheduled {
    fn key(&self) -> Reverse<(Moment, u64)> {
        Reverse((self.at, self.order))
    }
}
