//! Measures how long transactions take, the wait for a thread included.
//!
//! The store has no clock of its own; without one nothing is measured.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Histogram, histogram};
use trunkline_sip::moment::Moment;

/// Metric: duration of transactions, by `kind`.
const SECONDS: &str = "trunkline_database_transaction_seconds";

/// Histograms of reads and writes, once there is a clock.
#[derive(Debug, Default)]
pub(crate) struct Latency(OnceLock<Measured>);

#[derive(Debug)]
struct Measured {
    clock: fn() -> Moment,
    reads: Histogram,
    writes: Histogram,
}

/// Transaction in progress. Its duration is recorded when this is dropped, so that a failed one counts too.
#[derive(Debug)]
#[must_use]
pub(crate) struct Timer<'l> {
    clock: fn() -> Moment,
    histogram: &'l Histogram,
    began: Moment,
}

impl Latency {
    /// Measures from now on, by this monotonic clock.
    pub(crate) fn measure(&self, clock: fn() -> Moment) {
        let kind = |kind: &'static str| histogram!(SECONDS, "kind" => kind);
        self.0.get_or_init(|| Measured {
            clock,
            reads: kind("read"),
            writes: kind("write"),
        });
    }

    pub(crate) fn read(&self) -> Option<Timer<'_>> {
        let measured = self.0.get()?;
        Some(Timer::start(measured.clock, &measured.reads))
    }

    pub(crate) fn write(&self) -> Option<Timer<'_>> {
        let measured = self.0.get()?;
        Some(Timer::start(measured.clock, &measured.writes))
    }
}

impl<'l> Timer<'l> {
    fn start(clock: fn() -> Moment, histogram: &'l Histogram) -> Self {
        Self {
            clock,
            histogram,
            began: clock(),
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let took: Duration = (self.clock)().since(self.began);
        self.histogram.record(took);
    }
}
