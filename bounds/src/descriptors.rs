//! File descriptors of what peers and calls open. The rest of what the process may open is in reserve for HTTP, the database and files, so that the
//! API and health checks answer when calls have used theirs up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Part of the descriptors that is free when a shortage is over.
const FREE_AGAIN: u64 = 10;

/// Descriptors of SIP connections, RTP sockets and WebSockets of bots, over all threads.
#[derive(Debug)]
pub struct Descriptors {
    most: u64,
    held: AtomicU64,
    is_short: AtomicBool,
}

impl Default for Descriptors {
    /// Without a bound.
    fn default() -> Self {
        Self {
            most: u64::MAX,
            held: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
        }
    }
}

impl Descriptors {
    /// Counts up to `most` descriptors.
    #[must_use]
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            most,
            ..Self::default()
        })
    }

    /// Takes one, until it is dropped; `None` if all are taken.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Descriptor> {
        let another = |held: u64| (held < self.most).then_some(held + 1);
        let before = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, another)
            .ok()?;
        if before < self.most - self.most / FREE_AGAIN {
            self.is_short.store(false, Ordering::Relaxed);
        }
        Some(Descriptor(Arc::clone(self)))
    }

    /// Takes one in place of another that is about to be dropped, also beyond the bound.
    #[must_use]
    pub fn take_over(self: &Arc<Self>) -> Descriptor {
        self.held.fetch_add(1, Ordering::Relaxed);
        Descriptor(Arc::clone(self))
    }

    /// Notes that one was missing; true for the first time since there were plenty, which is worth a line in the log.
    #[must_use]
    pub fn begins_shortage(&self) -> bool {
        !self.is_short.swap(true, Ordering::Relaxed)
    }

    /// Returns the number that may be held.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// Returns whether all are taken.
    pub fn is_used_up(&self) -> bool {
        self.held() >= self.most
    }

    /// Returns the number that is held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

/// One descriptor, which is released by drop.
#[derive(Debug)]
pub struct Descriptor(Arc<Descriptors>);

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_taken_up_to_their_bound_and_given_back() {
        let descriptors = Descriptors::new(100);
        let mut held: Vec<_> = (0..200).filter_map(|_| descriptors.take()).collect();
        assert_eq!((held.len(), descriptors.held()), (100, 100));
        assert!(descriptors.begins_shortage() && !descriptors.begins_shortage());

        let instead = descriptors.take_over();
        held.truncate(99);
        assert!(descriptors.take().is_none(), "one is beyond the bound");
        drop(instead);
        assert!(descriptors.take().is_some());
        assert!(!descriptors.begins_shortage(), "few are free");
        held.truncate(50);
        assert!(descriptors.take().is_some() && descriptors.begins_shortage());

        let without_bound = Arc::<Descriptors>::default();
        assert!(without_bound.take().is_some());
    }
}
