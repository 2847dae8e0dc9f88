//! Pace at which calls begin.

use crate::engine::Engine;

/// Most calls that begin before the sockets are read again; the others begin after that.
const BURST: u32 = 64;

/// The rule by which calls begin.
#[derive(Clone, Debug)]
pub enum Pace {
    /// A number of calls at once: when one ends, the next begins. Set-up times run from the sending.
    Closed {
        /// Calls at once.
        concurrency: usize,
    },
    /// Calls per second, whatever their outcome. The set-up time of a call that begins late runs from its due time, so that a
    /// stalled server doesn't hide in a generator that waits for it.
    Rate {
        /// Calls a second.
        per_second: f64,
        /// Due time of the next call, in microseconds.
        next: f64,
        /// Number of calls that may still begin.
        left: u64,
        /// Greatest lateness of the generator itself, in microseconds.
        lag: u64,
    },
    /// A number of OPTIONS at once.
    Probes {
        /// Requests at once.
        concurrency: usize,
    },
    /// No calls.
    Idle,
}

impl Pace {
    /// A rate from `now` on, without end.
    pub fn rate(per_second: f64, now: u64) -> Self {
        Self::Rate {
            per_second,
            next: now as f64,
            left: u64::MAX,
            lag: 0,
        }
    }

    /// Begins the calls that are due; returns the time to call again.
    pub fn feed(&mut self, engine: &mut Engine) -> u64 {
        let now = engine.now();
        match self {
            Self::Idle => u64::MAX,
            Self::Closed { concurrency } => {
                let room = concurrency.saturating_sub(engine.exchange.live());
                for _ in 0..room.min(BURST as usize) {
                    engine.exchange.begin_call(now, now);
                }
                u64::MAX
            }

            Self::Probes { concurrency } => {
                let room = concurrency.saturating_sub(engine.exchange.live());
                for _ in 0..room.min(BURST as usize) {
                    engine.exchange.begin_probe(now);
                }
                u64::MAX
            }

            Self::Rate {
                per_second,
                next,
                left,
                lag,
            } => {
                let mut begun = 0;
                // A generator that is late makes up for it: the daemon gets the load that the rate names.
                while *next <= now as f64 && begun < BURST && *left > 0 {
                    engine.exchange.begin_call(*next as u64, now);
                    *lag = (*lag).max(now - *next as u64);
                    *next += 1e6 / *per_second;
                    *left -= 1;
                    begun += 1;
                }

                if *left == 0 { u64::MAX } else { *next as u64 }
            }
        }
    }
}
