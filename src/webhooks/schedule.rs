//! Retry schedule of deliveries: soon at first, then over two and a half days.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
/// Seconds between two attempts.
const PAUSES: [u64; 13] = [
    5,
    30,
    2 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    8 * HOUR,
    12 * HOUR,
    12 * HOUR,
    12 * HOUR,
    12 * HOUR,
];
/// Longest delay that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * HOUR);

/// Returns the time of the next attempt after this number of attempts; `None` if there is none. `wished` is the delay that the receiver asked
/// for.
pub(super) fn next_attempt(
    attempts: u32,
    delivery: Uuid,
    wished: Option<Duration>,
    now: Moment,
) -> Option<Moment> {
    let place = usize::try_from(attempts.max(1) - 1).unwrap_or(usize::MAX);
    let pause = Duration::from_secs(*PAUSES.get(place)?);
    // Jitter of up to a tenth, so that deliveries that failed together aren't retried together. The last octet of an id
    // is random.
    let share = u32::from(delivery.as_bytes()[15]);
    let pause = pause + pause / 10 * share / 255;
    let wished = wished.unwrap_or_default().min(MAX_RETRY_AFTER);
    Some(now + pause.max(wished))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(1_000_000);
    const EARLY: Uuid = Uuid::from_u128(0);
    const LATE: Uuid = Uuid::from_u128(0xff);

    #[test]
    fn attempts_are_spread_over_days_and_end() {
        let mut now = NOW;
        let mut attempts = 1;
        while let Some(next) = next_attempt(attempts, EARLY, None, now) {
            let late = next_attempt(attempts, LATE, None, now).unwrap();
            assert!(next > now && late >= next, "{attempts}");
            assert!(late.since(now) <= next.since(now) * 11 / 10, "{attempts}");
            now = next;
            attempts += 1;
        }
        assert_eq!(attempts, 14);
        let hours = now.since(NOW).as_secs() / HOUR;
        assert!((60..72).contains(&hours), "{hours}");
    }

    #[test]
    fn a_receiver_may_ask_for_a_day() {
        let wish = |hours| next_attempt(1, EARLY, Some(Duration::from_secs(hours * HOUR)), NOW);
        assert_eq!(wish(1), Some(NOW + Duration::from_secs(HOUR)));
        assert_eq!(wish(1_000), Some(NOW + Duration::from_secs(24 * HOUR)));
        assert_eq!(wish(0), Some(NOW + Duration::from_secs(5)));
    }
}
