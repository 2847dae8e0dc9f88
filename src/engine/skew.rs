//! Difference between this machine's clock and the database's.
//!
//! Nodes that share a database compare times that others have written (calls, keys, links). A node with a clock that is
//! far off doesn't start; one whose clock drifts while it serves is reported.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_store::Store;

use super::clock;
use crate::telemetry::metrics;

/// Difference beyond which a serving node logs a warning, and `trunkline doctor` reports a problem.
pub(crate) const REPORTED: Duration = Duration::from_secs(1);
/// Difference beyond which a node refuses to start.
pub(super) const REFUSED: Duration = Duration::from_secs(5);

/// Difference of this machine's clock from the database's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Off {
    /// This machine is ahead.
    Ahead(Duration),
    /// This machine is behind.
    Behind(Duration),
}

impl Off {
    /// Compares the database's time with two readings of ours around it. The duration of the query counts as no
    /// difference.
    fn between(before: Moment, theirs: Moment, after: Moment) -> Self {
        if before > theirs {
            Self::Ahead(before.since(theirs))
        } else {
            Self::Behind(theirs.since(after))
        }
    }

    /// Measures the difference; `None` if the database is embedded.
    pub(crate) async fn measure(store: &Store) -> Result<Option<Self>, trunkline_store::Error> {
        // The wall clock is otherwise followed once a second, which is too coarse here.
        clock::follow();
        let before = clock::wall_time();
        let theirs = store.read(trunkline_store::clock::now).await?;
        let after = clock::wall_time();
        Ok(theirs.map(|theirs| Self::between(before, theirs, after)))
    }

    /// Size of the difference.
    pub(crate) const fn by(self) -> Duration {
        match self {
            Self::Ahead(by) | Self::Behind(by) => by,
        }
    }

    /// Seconds, negative if this machine is behind.
    pub(crate) fn seconds(self) -> f64 {
        match self {
            Self::Ahead(by) => by.as_secs_f64(),
            Self::Behind(by) => -by.as_secs_f64(),
        }
    }
}

impl std::fmt::Display for Off {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.by().as_secs_f64();
        match self {
            Self::Ahead(_) => write!(f, "{seconds:.1} s ahead of"),
            Self::Behind(_) => write!(f, "{seconds:.1} s behind"),
        }
    }
}

/// Difference while a node serves: measured, and logged when it begins and when it ends.
#[derive(Debug, Default)]
pub(super) struct Skew {
    is_reported: bool,
}

impl Skew {
    pub(super) async fn look(&mut self, store: &Store) -> Result<(), trunkline_store::Error> {
        let Some(off) = Off::measure(store).await? else {
            return Ok(());
        };
        metrics::clock_skew(off.seconds());
        let is_off = off.by() > REPORTED;
        if is_off && !self.is_reported {
            tracing::warn!(
                skew_s = off.seconds(),
                "this machine's clock is {off} the database's: set both by NTP"
            );
        }

        if !is_off && self.is_reported {
            tracing::info!("this machine's clock agrees with the database's again");
        }

        self.is_reported = is_off;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_question_took_is_no_difference() {
        let at = Moment::from_secs;
        let ahead = |secs| Off::Ahead(Duration::from_secs(secs));
        let behind = |secs| Off::Behind(Duration::from_secs(secs));
        for (name, before, theirs, after, off) in [
            ("within the question", 10, 12, 14, behind(0)),
            ("at its end", 10, 14, 14, behind(0)),
            ("at its beginning", 10, 10, 14, behind(0)),
            ("ahead", 10, 4, 14, ahead(6)),
            ("behind", 10, 20, 14, behind(6)),
        ] {
            assert_eq!(
                Off::between(at(before), at(theirs), at(after)),
                off,
                "{name}"
            );
        }

        assert_eq!(ahead(6).to_string(), "6.0 s ahead of");
        assert_eq!(behind(6).to_string(), "6.0 s behind");
    }
}
