//! Makes a writer wait until its change is in force in this process: each follower of the change feed reports its progress, and a commit
//! waits for all of them.
//!
//! Followers in other processes are not waited for. Nor is a slow one for longer than [`PATIENCE`]: the change is committed, and a follower
//! that can't read the database must not block requests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Longest wait of a writer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Metric: writers that stopped waiting.
const LATE: &str = "trunkline_changes_late_total";

/// Followers of the change feed in this process.
#[derive(Debug, Default)]
pub(crate) struct Followers(Mutex<Vec<watch::Receiver<i64>>>);

/// Handle by which a follower reports its progress. A dropped follower isn't waited for.
#[derive(Debug)]
pub struct Follower(watch::Sender<i64>);

impl Follower {
    /// Reports that everything up to the change of this number is in force.
    pub fn applied(&self, seq: i64) {
        self.0.send_replace(seq);
    }

    /// Returns the number of the last change that was applied.
    pub fn position(&self) -> i64 {
        *self.0.borrow()
    }

    /// Waits until the change of this number, and all before it, have been applied. Sets no limit of its own; the caller bounds the wait.
    pub async fn reaches(&self, seq: i64) {
        // The sender is `self`, so it is alive.
        let _ = self.0.subscribe().wait_for(|applied| *applied >= seq).await;
    }
}

impl Followers {
    pub(crate) fn add(&self) -> Follower {
        // Before the first report, no change counts as applied.
        let (applied, seen) = watch::channel(i64::MIN);
        let mut followers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Followers that were dropped go here, so that the list doesn't grow with each reconnection.
        followers.retain(|follower| follower.has_changed().is_ok());
        followers.push(seen);
        Follower(applied)
    }

    /// Waits until all followers have applied the change of this number.
    pub(crate) async fn reach(&self, seq: i64) {
        if self.reach_within(PATIENCE, seq).await {
            return;
        }
        metrics::counter!(LATE).increment(1);
        tracing::warn!(
            change.seq = seq,
            waited_s = PATIENCE.as_secs(),
            "a change is answered before it is in force on this node"
        );
    }

    /// Returns false if the time ran out first.
    async fn reach_within(&self, patience: Duration, seq: i64) -> bool {
        let followers = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let all = async {
            for mut follower in followers {
                // A dropped follower has nothing to apply.
                let _ = follower.wait_for(|applied| *applied >= seq).await;
            }
        };
        tokio::time::timeout(patience, all).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_writer_waits_for_every_follower_but_not_for_ever() {
        const LONG: Duration = Duration::from_secs(60);
        const SHORT: Duration = Duration::from_millis(20);
        let followers = Arc::new(Followers::default());
        assert!(followers.reach_within(LONG, 7).await, "nobody follows");

        let (one, two) = (followers.add(), followers.add());
        one.applied(7);
        assert!(!followers.reach_within(SHORT, 7).await, "one says nothing");
        two.applied(6);
        assert!(!followers.reach_within(SHORT, 7).await, "one is behind");

        let waiting = Arc::clone(&followers);
        let writer = tokio::spawn(async move { waiting.reach_within(LONG, 7).await });
        tokio::task::yield_now().await;
        two.applied(8);
        assert!(writer.await.expect("no panic"), "both have it");

        one.applied(9);
        drop(two);
        assert!(followers.reach_within(LONG, 9).await, "one is gone");
    }
}
