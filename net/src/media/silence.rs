//! Silence of a call's peer: how long nothing has come from it, and when that is reported. Pure.
//!
//! A report has the peer asked whether it is still there (`calls`). A peer that answers and stays silent is reported again after twice the
//! time, so that a muted phone isn't asked every half minute for hours.

use std::time::Duration;

use trunkline_sip::moment::Moment;

/// Longest time between two reports of one silence, unless the first report takes longer.
const LONGEST: Duration = Duration::from_secs(300);

/// Clock of a peer's silence.
#[derive(Debug, Default)]
pub(super) struct SilenceClock {
    /// Time at which the peer was last heard, or from which it should be heard.
    heard_at: Moment,
    /// Time from which the next report counts: `heard_at` or the last report, and later by each time for which the clock stood still.
    since: Moment,
    /// Reports since the peer was heard.
    reports: u32,
}

impl SilenceClock {
    /// Notes a packet of the peer, or that it should be heard from now on.
    pub(super) const fn hear(&mut self, now: Moment) {
        self.heard_at = now;
        self.since = now;
        self.reports = 0;
    }

    /// Returns whether the silence is to be reported, and counts the report. `patience` is the time before the first one.
    pub(super) fn report(&mut self, patience: Duration, now: Moment) -> bool {
        let wait = patience.saturating_mul(1 << self.reports.min(16));
        if now.since(self.since) < wait.min(LONGEST.max(patience)) {
            return false;
        }
        self.since = now;
        self.reports += 1;
        true
    }

    /// Lets the clock stand still for `time`.
    pub(super) fn stand_still(&mut self, time: Duration) {
        self.since = self.since + time;
    }

    /// Takes the reports back, and begins the time before the first one anew.
    pub(super) const fn withdraw(&mut self, now: Moment) {
        self.since = now;
        self.reports = 0;
    }

    /// Returns whether a report is out and nothing has come since.
    pub(super) const fn is_reported(&self) -> bool {
        self.reports > 0
    }

    /// Returns the time since the peer was heard.
    pub(super) fn lasts(&self, now: Moment) -> Duration {
        now.since(self.heard_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Moment {
        Moment::from_secs(1_000 + seconds)
    }

    /// Returns the seconds at which a silence is reported.
    fn reports(clock: &mut SilenceClock, patience: Duration, until: u64) -> Vec<u64> {
        (0..until)
            .filter(|second| clock.report(patience, at(*second)))
            .collect()
    }

    #[test]
    fn a_silence_that_goes_on_is_reported_less_and_less_often() {
        for (patience, expected) in [
            (PATIENCE, vec![30, 90, 210, 450, 750]),
            (Duration::from_secs(400), vec![400, 800]),
        ] {
            let mut clock = SilenceClock::default();
            clock.hear(at(0));
            assert_eq!(reports(&mut clock, patience, 1_000), expected);
            clock.hear(at(1_000));
            assert!(!clock.is_reported());
            assert!(!clock.report(patience, at(999) + patience));
            assert!(clock.report(patience, at(1_000) + patience), "as at first");
        }
    }

    #[test]
    fn a_report_that_is_taken_back_comes_again_in_its_time() {
        let mut clock = SilenceClock::default();
        clock.hear(at(0));
        assert!(clock.report(PATIENCE, at(30)));
        clock.withdraw(at(35));
        assert!(!clock.is_reported());
        assert!(!clock.report(PATIENCE, at(64)));
        assert!(clock.report(PATIENCE, at(65)));
        assert_eq!(clock.lasts(at(65)), Duration::from_secs(65));
    }

    #[test]
    fn a_clock_that_stands_still_reports_later() {
        let mut clock = SilenceClock::default();
        clock.hear(at(0));
        for second in 5..25 {
            clock.stand_still(Duration::from_secs(1));
            assert!(!clock.report(PATIENCE, at(second)));
        }
        assert_eq!(clock.lasts(at(25)), Duration::from_secs(25));
        assert!(!clock.report(PATIENCE, at(49)));
        assert!(clock.report(PATIENCE, at(50)));
    }
}
