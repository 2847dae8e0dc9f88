//! Keeps the view up to date with the change feed.

use std::sync::Weak;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_store::Signal;
use trunkline_store::{Store, feed};

use super::builder::{DirectoryBuilder, Progress};
use super::newest::Newest;

/// Interval at which rows of the feed that every reader has passed are deleted.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);

/// Runs until the view is dropped.
pub(super) async fn follow(
    store: Store,
    newest: Weak<Newest>,
    mut builder: DirectoryBuilder,
    mut signal: Signal,
    clock: fn() -> Moment,
) {
    let mut pruned = clock();
    let mut more = false;
    loop {
        if !std::mem::take(&mut more) {
            signal.wait().await;
        }

        // Looked for after each wait, which `Signal::POLL` bounds: the task ends soon after the directory is dropped.
        let Some(newest) = newest.upgrade() else {
            return;
        };

        match builder.catch_up(&store).await {
            Ok(progress) => {
                if progress != Progress::Nothing {
                    // Before `applied`, on which writers wait: what a 2xx says has to be in the view by then.
                    newest.replace(builder.view());
                }
                more = progress == Progress::Some;
                // Also without news for the view: writers of other kinds of changes wait for their numbers as well.
                newest.applied(builder.seq());
                if !newest.note_current(true) {
                    tracing::info!("the directory follows the database again");
                }
            }
            Err(error) => {
                if newest.note_current(false) {
                    tracing::warn!(%error, "the directory can't follow the database: calls continue with the known state");
                }
            }
        }

        if clock().since(pruned) >= PRUNE_INTERVAL {
            pruned = clock();
            let done = store.write(move |tx| feed::prune(tx, pruned));
            if let Err(error) = done.await {
                tracing::warn!(%error, "the change feed can't be pruned");
            }
        }
    }
}
