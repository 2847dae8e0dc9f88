//! Keeps the view up to date with the change feed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_store::feed::Signal;
use trunkline_store::{Store, feed};

use super::Directory;
use super::book::{Book, Progress};

/// How often rows of the feed that everybody has read are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// Runs until the directory is dropped.
pub(super) async fn follow(
    store: Store,
    directory: Weak<Directory>,
    mut book: Book,
    mut signal: Signal,
    clock: fn() -> Moment,
) {
    let mut pruned = clock();
    let mut more = false;
    loop {
        if !std::mem::take(&mut more) {
            signal.wait().await;
        }
        let Some(directory) = directory.upgrade() else {
            return;
        };
        match book.catch_up(&store).await {
            Ok(progress) => {
                if progress != Progress::Nothing {
                    directory.view.store(Arc::new(book.view()));
                }
                more = progress == Progress::Some;
                // Those who have written go on: what shards load from now on has their change.
                directory.follower.applied(book.seq());
                if !directory.current.swap(true, Ordering::Relaxed) {
                    tracing::info!("the directory follows the database again");
                }
            }
            Err(error) => {
                if directory.current.swap(false, Ordering::Relaxed) {
                    tracing::warn!(%error, "the directory can't follow the database: calls go on with what is known");
                }
            }
        }
        if clock().since(pruned) >= PRUNE_EVERY {
            pruned = clock();
            let done = store.write(move |tx| feed::prune(tx, pruned));
            if let Err(error) = done.await {
                tracing::warn!(%error, "the change feed can't be pruned");
            }
        }
    }
}
