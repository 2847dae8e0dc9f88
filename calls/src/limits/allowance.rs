//! Rates that peers and orgs are held to: so many at once, then one after each interval.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;

/// A rate: a burst, and the time after which one more is allowed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rate {
    pub(crate) burst: u32,
    pub(crate) interval: Duration,
}

/// Rest of a rate, as the moment from which the whole burst is allowed again.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Allowance(Moment);

impl Allowance {
    /// Takes one; false, without taking it, if the rate is used up.
    pub(crate) fn take(&mut self, rate: Rate, now: Moment) -> bool {
        // One moment serves as counter and clock: each one taken moves it by an interval, and time alone gives it back.
        let whole_again = self.0.max(now) + rate.interval;
        let has_room = whole_again.since(now) <= rate.interval * rate.burst;
        if has_room {
            self.0 = whole_again;
        }
        has_room
    }

    /// Returns whether the whole burst is allowed.
    pub(crate) fn is_whole(&self, now: Moment) -> bool {
        self.0 <= now
    }
}

/// Requests that the peer of a leg may have answered in transactions: over UDP an answer stays for 32 seconds in a table that all calls
/// share. Further ones get a stateless 503.
const REQUESTS: Rate = Rate {
    burst: 200,
    interval: Duration::from_millis(250),
};
/// The same with BYEs: a peer that has sent too much can still hang up.
const REQUESTS_AND_BYES: Rate = Rate {
    burst: REQUESTS.burst + 8,
    ..REQUESTS
};

/// Requests that the peer of a leg may send.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct RequestAllowance(Allowance);

impl RequestAllowance {
    /// Counts a request; false if the peer has to wait.
    pub(crate) fn take(&mut self, method: Method, now: Moment) -> bool {
        let rate = match method == Method::Bye {
            true => REQUESTS_AND_BYES,
            false => REQUESTS,
        };
        self.0.take(rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_has_a_burst_then_four_requests_a_second_and_can_always_hang_up() {
        let mut allowance = RequestAllowance::default();
        let start = Moment::from_secs(1_790_000_000);
        let mut accepted = |method, after: u64| {
            let now = start + Duration::from_millis(after);
            (0..1_000).filter(|_| allowance.take(method, now)).count()
        };

        assert_eq!(accepted(Method::Options, 0), 200);
        assert_eq!(accepted(Method::Options, 249), 0);
        assert_eq!(accepted(Method::Update, 500), 2);
        assert_eq!(accepted(Method::Bye, 500), 8);
        assert_eq!(accepted(Method::Options, 2_500), 0, "BYEs are paid for");
        assert_eq!(accepted(Method::Options, 60_000), 200);
    }
}
