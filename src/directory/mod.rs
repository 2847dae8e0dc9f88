//! The live, in-memory view of every org that routing and digest read, following the change feed.
//!
//! Shards read it without a lock. An edit made by this process is in the view before the store says that it is done; one made
//! anywhere else is seen within a second. While the database is away the view stays as it was.

mod book;
mod defaults;
mod entry;
mod follow;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use trunkline_model::view::View;
use trunkline_sip::moment::Moment;

pub use defaults::Defaults;

use book::Book;
use trunkline_store::Store;
use trunkline_store::feed::Follower;

/// The newest view.
#[derive(Debug)]
pub struct Directory {
    view: ArcSwap<View>,
    current: AtomicBool,
    /// The change that the view has come to; who writes waits for it.
    follower: Follower,
}

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
        let book = Book::read(&store, defaults).await?;
        follower.applied(book.seq());
        let directory = Arc::new(Self {
            view: ArcSwap::from_pointee(book.view()),
            current: AtomicBool::new(true),
            follower,
        });
        tokio::spawn(follow::follow(
            store,
            Arc::downgrade(&directory),
            book,
            signal,
            clock,
        ));
        Ok(directory)
    }

    /// The newest view.
    pub fn load(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Waits until the view shows the change of this number, and with it all before.
    pub async fn reaches(&self, seq: i64) {
        self.follower.reaches(seq).await;
    }

    /// Whether the change feed could be read when it was looked at last.
    pub fn is_current(&self) -> bool {
        self.current.load(Ordering::Relaxed)
    }
}
