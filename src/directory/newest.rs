//! Newest view: one task replaces it, all threads read it without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use trunkline_model::view::View;
use trunkline_store::Follower;

/// Newest view, with the position that it shows.
#[derive(Debug)]
pub(super) struct Newest {
    view: ArcSwap<View>,
    is_current: AtomicBool,
    /// Position that the view has reached; writers wait for it.
    follower: Follower,
}

impl Newest {
    /// Begins with a view that includes the change of number `seq`.
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

    /// Number of the last change that the view has.
    pub(super) fn position(&self) -> i64 {
        self.follower.position()
    }

    pub(super) fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }

    pub(super) fn replace(&self, view: View) {
        self.view.store(Arc::new(view));
    }

    /// Notes that the view has this change, and wakes the writers that wait for it.
    pub(super) fn applied(&self, seq: i64) {
        self.follower.applied(seq);
    }

    /// Notes whether the change feed can be read. Returns whether it could before.
    pub(super) fn note_current(&self, is_current: bool) -> bool {
        self.is_current.swap(is_current, Ordering::Relaxed)
    }
}
