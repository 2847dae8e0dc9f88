//! Bound on the refused INVITEs that are recorded for one org: records of all orgs share the journal, and its spool is finite.

use std::time::Duration;

use dashmap::DashMap;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::allowance::{Allowance, Rate};

/// Refusals of one org that are recorded: far more than a dialler with a wrong number makes. The log has the number of those that are left
/// out.
const RATE: Rate = Rate {
    burst: 10_000,
    interval: Duration::from_millis(5),
};
/// Time between log lines for one org.
const LOGGED: Duration = Duration::from_secs(60);
/// Number of orgs kept before those that have their whole burst are removed.
const SWEEP: usize = 1_024;

/// Refusals recorded lately, of every org that has any, over all shards.
#[derive(Debug, Default)]
pub(crate) struct RefusalRecords(DashMap<Uuid, OrgRefusals>);

#[derive(Debug, Default)]
struct OrgRefusals {
    allowance: Allowance,
    /// Refusals left out since the last log line, and its time.
    left_out: u64,
    logged_at: Moment,
}

impl RefusalRecords {
    /// Counts a refusal of an org; false if it isn't to be recorded.
    pub(crate) fn take(&self, org: Uuid, now: Moment) -> bool {
        if self.0.len() >= SWEEP {
            self.0.retain(|_, held| !held.allowance.is_whole(now));
        }

        let mut held = self.0.entry(org).or_default();
        if held.allowance.take(RATE, now) {
            return true;
        }
        held.left_out += 1;
        if now.since(held.logged_at) >= LOGGED {
            held.logged_at = now;
            let left_out = std::mem::take(&mut held.left_out);
            tracing::warn!(org.id = %org, left_out, "refused calls come too fast to be recorded");
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_org_has_a_burst_of_recorded_refusals_then_200_a_second() {
        let records = RefusalRecords::default();
        let [flooding, other] = [1, 2].map(Uuid::from_u128);
        let start = Moment::from_secs(1_790_000_000);
        let recorded = |org, after: u64| {
            let now = start + Duration::from_secs(after);
            (0..20_000).filter(|_| records.take(org, now)).count()
        };

        assert_eq!(recorded(flooding, 0), 10_000);
        assert_eq!(recorded(flooding, 1), 200);
        assert_eq!(recorded(other, 1), 10_000);
        assert_eq!(recorded(flooding, 101), 10_000);
    }

    #[test]
    fn orgs_that_refuse_nothing_any_more_are_forgotten() {
        let records = RefusalRecords::default();
        for number in 0..10_000_u32 {
            let now = Moment::from_secs(1_790_000_000 + u64::from(number));
            assert!(records.take(Uuid::from_u128(number.into()), now));
        }
        assert!(records.0.len() <= SWEEP, "{}", records.0.len());
    }
}
