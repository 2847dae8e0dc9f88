//! The newest view: one task replaces it, and everybody reads it without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use trunkline_model::view::View;
use trunkline_store::Follower;

/// See the module.
#[derive(Debug)]
pub(super) struct Newest {
    view: ArcSwap<View>,
    is_current: AtomicBool,
    /// The change that the view has come to; who writes waits for it.
    follower: Follower,
}

impl Newest {
    /// What was read first, up to and with the change of this number.
    pub(super) fn new(view: View, seq: i64, follower: Follower) -> Self {
        follower.applied(seq);
        Self {
            view: ArcSwap::from_pointee(view),
            is_current: AtomicBool::new(true),
            follower,
        }
    }

    pub(super) fn load(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(super) async fn reaches(&self, seq: i64) {
        self.follower.reaches(seq).await;
    }

    pub(super) fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }

    pub(super) fn replace(&self, view: View) {
        self.view.store(Arc::new(view));
    }

    /// Those who have written up to and with this change go on: what shards load from now on has it.
    pub(super) fn applied(&self, seq: i64) {
        self.follower.applied(seq);
    }

    /// Notes whether the change feed can be read; gives whether it could before.
    pub(super) fn note_current(&self, is_current: bool) -> bool {
        self.is_current.swap(is_current, Ordering::Relaxed)
    }
}
