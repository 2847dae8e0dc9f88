//! The live, in-memory view of every org that routing and digest read, following the change feed.
//!
//! Shards read it without a lock. An edit made by this process is in the view before the store says that it is done; one made
//! anywhere else is seen within a second. While the database is away the view stays as it was.

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

/// The newest view, followed for as long as somebody holds it.
#[derive(Debug)]
pub struct Directory(Arc<Newest>);

impl Directory {
    /// Reads everything, and follows it on the current runtime for as long as somebody holds the directory.
    ///
    /// # Errors
    /// The store can't be read.
    pub async fn start(
        store: Store,
        defaults: Defaults,
        clock: fn() -> Moment,
    ) -> Result<Arc<Self>, trunkline_store::Error> {
        let signal = store.follow_changes().await;
        let follower = store.follower();
        let builder = DirectoryBuilder::read(&store, defaults).await?;
        let newest = Arc::new(Newest::new(builder.view(), builder.seq(), follower));
        let followed = Arc::downgrade(&newest);
        tokio::spawn(follow::follow(store, followed, builder, signal, clock));
        Ok(Arc::new(Self(newest)))
    }

    /// The newest view.
    pub fn load(&self) -> Arc<View> {
        self.0.load()
    }

    /// Waits until the view shows the change of this number, and with it all before.
    pub async fn reaches(&self, seq: i64) {
        self.0.reaches(seq).await;
    }

    /// Whether the change feed could be read when it was looked at last.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }
}
