//! Rate limits on packets or messages of a peer or a bot: a burst, and a rate after it.

use std::net::SocketAddr;

use trunkline_sip::moment::Moment;

use super::source_filter::SourceFilter;

/// Parts of a packet or message that are counted: a rate of one per second gains one part each microsecond.
const UNIT: u64 = 1_000_000;

/// Packets that may come at once, and per second after that. The bound holds for the peer, for all other sources together, and for RTCP,
/// each apart. Further packets are discarded. The rate is that of four streams of 20 ms, each with the packets of keys beside it. The burst
/// is what a network may have held up for a second.
const PACKETS_AT_ONCE: u32 = 200;
const PACKETS_A_SECOND: u32 = 400;

/// Rate limits of a call's sockets. Neither packets of other sources nor RTCP use up what the peer may send.
#[derive(Debug)]
pub(super) struct PacketAllowances {
    peer: Allowance,
    others: Allowance,
    rtcp: Allowance,
}

/// Cause of an exceeded rate limit on a call's RTP socket.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Flood {
    /// The peer, or nothing has been negotiated yet.
    Peer,
    /// Sources other than these.
    OtherThan(SourceFilter),
}

impl Default for PacketAllowances {
    fn default() -> Self {
        let allowance = || Allowance::new(PACKETS_AT_ONCE, PACKETS_A_SECOND);
        Self {
            peer: allowance(),
            others: allowance(),
            rtcp: allowance(),
        }
    }
}

impl PacketAllowances {
    /// Takes a packet of the RTP socket. `expected` are the sources that may be the peer; `None` before anything is negotiated.
    pub(super) fn take_rtp(
        &mut self,
        expected: Option<SourceFilter>,
        source: SocketAddr,
        now: Moment,
    ) -> Result<(), Flood> {
        let (allowance, flood) = match expected {
            Some(expected) if !expected.admits(source) => {
                (&mut self.others, Flood::OtherThan(expected))
            }
            Some(_) | None => (&mut self.peer, Flood::Peer),
        };
        match allowance.take(now) {
            Taken::Within => Ok(()),
            Taken::Exceeded => Err(flood),
        }
    }

    /// Takes a packet of the RTCP socket.
    pub(super) fn take_rtcp(&mut self, now: Moment) -> Taken {
        self.rtcp.take(now)
    }
}

/// Rate limit: `at_once` packets or messages in a burst, and `a_second` per second after that.
#[derive(Debug)]
pub(super) struct Allowance {
    at_once: u32,
    a_second: u32,
    /// In parts of [`UNIT`].
    left: u64,
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
            left: u64::from(at_once) * UNIT,
            filled_at: Moment::default(),
        }
    }

    /// Takes one packet or message.
    pub(super) fn take(&mut self, now: Moment) -> Taken {
        self.take_many(1, now)
    }

    /// Takes `count` packets or messages at once, or none of them.
    pub(super) fn take_many(&mut self, count: u32, now: Moment) -> Taken {
        self.refill(now);
        match self.left.checked_sub(u64::from(count) * UNIT) {
            Some(left) => {
                self.left = left;
                Taken::Within
            }
            None => Taken::Exceeded,
        }
    }

    fn refill(&mut self, now: Moment) {
        let elapsed = now.since(self.filled_at).as_micros();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        // Exact: each microsecond gains a whole number of parts, so that frequent calls lose no fractions.
        let gained = elapsed.saturating_mul(self.a_second.into());
        self.left = self.left.saturating_add(gained).min(self.full());
        self.filled_at = now;
    }

    const fn full(&self) -> u64 {
        self.at_once as u64 * UNIT
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn other_sources_use_up_nothing_of_the_peer() {
        let [peer, other] = ["192.0.2.1:4000", "192.0.2.1:4002"].map(|of| of.parse().unwrap());
        let expected = SourceFilter::Learnt(peer);
        let now = Moment::from_secs(1_000);
        let mut allowances = PacketAllowances::default();
        let mut taken = |source| {
            let mut take = || allowances.take_rtp(Some(expected), source, now);
            let within = std::iter::from_fn(|| take().ok()).count();
            (within, take())
        };

        assert_eq!(taken(other), (200, Err(Flood::OtherThan(expected))));
        assert_eq!(taken(peer), (200, Err(Flood::Peer)));
        assert_eq!(allowances.take_rtcp(now), Taken::Within);
    }

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

    #[test]
    fn the_rate_is_kept_however_often_it_is_asked() {
        for (a_second, step) in [(400, 4), (400, 7), (100, 19), (3, 1)] {
            let mut allowance = Allowance::new(10, a_second);
            let mut taken = 0;
            for milliseconds in (0..=10_000).step_by(step) {
                let now = Moment::from_secs(1_000) + Duration::from_millis(milliseconds);
                while allowance.take(now) == Taken::Within {
                    taken += 1;
                }
            }
            let expected = 10 + 10 * a_second;
            assert!(
                (expected - step as u32 * a_second / 1_000 - 1..=expected).contains(&taken),
                "{taken} at {a_second} a second, each {step} ms"
            );
        }
    }
}
