//! In-memory view of every org, from which routing and digest are decided. It follows the change feed.
//!
//! Shards read it without a lock. A change made by this process is in the view before the store reports it as done; one
//! made by another process is seen within a second. While the database is away, the view stays as it was.

mod builder;
mod defaults;
mod entry;
mod follow;
mod newest;

use std::sync::Arc;

use trunkline_model::view::View;
use trunkline_sip::moment::Moment;
use trunkline_store::Store;

pub use defaults::Defaults;

use builder::DirectoryBuilder;
use newest::Newest;

/// Newest view, followed until the directory is dropped.
#[derive(Debug)]
pub struct Directory(Arc<Newest>);

impl Directory {
    /// Reads everything, and follows it on the current runtime until the directory is dropped.
    ///
    /// # Errors
    /// The store can't be read.
    pub async fn start(
        store: Store,
        defaults: Defaults,
        clock: fn() -> Moment,
    ) -> Result<Arc<Self>, trunkline_store::Error> {
        // Both before the first read: a change that commits during it wakes the signal, and its writer waits for this
        // follower.
        let signal = store.follow_changes().await;
        let follower = store.follower();
        let builder = DirectoryBuilder::read(&store, defaults).await?;
        let newest = Arc::new(Newest::new(builder.view(), builder.seq(), follower));
        let followed = Arc::downgrade(&newest);
        tokio::spawn(follow::follow(store, followed, builder, signal, clock));
        Ok(Arc::new(Self(newest)))
    }

    /// Returns the newest view.
    pub fn load(&self) -> Arc<View> {
        self.0.load()
    }

    /// Waits until the view has the change of this number and all before it.
    pub async fn reaches(&self, seq: i64) {
        self.0.reaches(seq).await;
    }

    /// Returns the number of the last change that the view has.
    pub fn position(&self) -> i64 {
        self.0.position()
    }

    /// Returns true if the change feed could be read at the last attempt.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }
}
