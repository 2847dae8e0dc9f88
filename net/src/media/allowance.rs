//! Rate limit on packets or messages of a peer or a bot: a burst, and a rate after it.

use trunkline_sip::moment::Moment;

/// Rate limit: `at_once` packets or messages in a burst, and `a_second` per second after that.
#[derive(Debug)]
pub(super) struct Allowance {
    at_once: u32,
    a_second: u32,
    left: u32,
    filled_at: Moment,
}

/// Result of taking one packet or message from an allowance.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    Within,
    Exceeded,
}

impl Allowance {
    pub(super) fn new(at_once: u32, a_second: u32) -> Self {
        Self {
            at_once,
            a_second,
            left: at_once,
            filled_at: Moment::default(),
        }
    }

    /// Takes one packet or message.
    pub(super) fn take(&mut self, now: Moment) -> Taken {
        self.take_many(1, now)
    }

    /// Takes `count` packets or messages at once, or none of them.
    pub(super) fn take_many(&mut self, count: u32, now: Moment) -> Taken {
        let gained = now.since(self.filled_at).as_millis() * u128::from(self.a_second) / 1_000;
        if gained > 0 {
            self.filled_at = now;
            let gained = u32::try_from(gained).unwrap_or(self.at_once);
            self.left = self.left.saturating_add(gained).min(self.at_once);
        }

        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Taken::Within
            }
            None => Taken::Exceeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn so_much_at_once_and_so_much_a_second() {
        let mut allowance = Allowance::new(10, 100);
        let at = |milliseconds| Moment::from_secs(1_000) + Duration::from_millis(milliseconds);
        let mut taken = |milliseconds| {
            (0..1_000)
                .take_while(|_| allowance.take(at(milliseconds)) == Taken::Within)
                .count()
        };
        assert_eq!(taken(0), 10);
        assert_eq!(taken(5), 0, "half of one");
        assert_eq!(taken(50), 5);
        assert_eq!(taken(60_000), 10, "no more than at once");
    }
}
