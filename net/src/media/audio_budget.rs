//! Memory for the audio that bots send ahead: bounds of the node, and of each account, so that one account's bots can't take it from others.
//!
//! A call may always queue [`FREE`] octets. Beyond that its queue reserves blocks. The queue keeps its memory until it is empty, and gives
//! the blocks back only then. Unfinished messages count as a queue of their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Octets that each call may queue without a reservation: 8 s.
pub(super) const FREE: usize = 64 * 1_024;

/// Size of reservations in octets.
const BLOCK: usize = 64 * 1_024;

/// Octets that all calls of a node may reserve, and those of one account: a quarter. A growing queue takes up to twice as much memory.
const OF_NODE: usize = 256 << 20;
const OF_ACCOUNT: usize = OF_NODE / 4;

/// Reservations of a node.
#[derive(Debug, Default)]
pub(super) struct AudioBudget {
    node: Arc<AtomicUsize>,
    accounts: Mutex<HashMap<Box<str>, Weak<AtomicUsize>>>,
}

impl AudioBudget {
    /// Returns the share of a call of this account, with nothing reserved.
    pub(super) fn share(&self, account: &str) -> AudioShare {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = accounts.get(account).and_then(Weak::upgrade);
        let of_account = known.unwrap_or_else(|| {
            // Accounts whose calls are over are dropped when another one comes, so the table needs no timer.
            accounts.retain(|_, reserved| reserved.strong_count() > 0);
            let reserved = Arc::default();
            accounts.insert(account.into(), Arc::downgrade(&reserved));
            reserved
        });

        AudioShare {
            node: Arc::clone(&self.node),
            account: of_account,
            reserved: 0,
        }
    }
}

/// Reservation of one call, given back when dropped.
#[derive(Debug, Default)]
pub(super) struct AudioShare {
    node: Arc<AtomicUsize>,
    account: Arc<AtomicUsize>,
    reserved: usize,
}

impl AudioShare {
    /// Returns another share of the same account, with nothing reserved.
    pub(super) fn another(&self) -> Self {
        Self {
            node: Arc::clone(&self.node),
            account: Arc::clone(&self.account),
            reserved: 0,
        }
    }

    /// Reserves memory for a queue of `octets`; returns the number of octets that it may hold.
    pub(super) fn reserve(&mut self, octets: usize) -> usize {
        let needed = octets.saturating_sub(FREE).next_multiple_of(BLOCK);
        if needed > self.reserved {
            let more = needed - self.reserved;
            // The account first: one at its bound takes nothing from the node, not even for a moment.
            if take(&self.account, more, OF_ACCOUNT) {
                if take(&self.node, more, OF_NODE) {
                    self.reserved = needed;
                } else {
                    self.account.fetch_sub(more, Ordering::Relaxed);
                }
            }
        }

        octets.min(FREE + self.reserved)
    }

    /// Gives the reservation back.
    pub(super) fn release(&mut self) {
        self.account.fetch_sub(self.reserved, Ordering::Relaxed);
        self.node.fetch_sub(self.reserved, Ordering::Relaxed);
        self.reserved = 0;
    }
}

impl Drop for AudioShare {
    fn drop(&mut self) {
        self.release();
    }
}

/// Adds to a counter, unless it would pass its bound.
fn take(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    let add = |sum: usize| sum.checked_add(more).filter(|sum| *sum <= most);
    counter
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN_MINUTES: usize = 4_800_000;

    #[test]
    fn another_share_of_a_call_counts_for_its_account() {
        let budget = AudioBudget::default();
        let mut queue = budget.share("a");
        let mut unfinished = queue.another();
        assert_eq!(queue.reserve(OF_ACCOUNT), OF_ACCOUNT);
        assert_eq!(unfinished.reserve(2 * FREE), 2 * FREE, "the last block");
        assert_eq!(unfinished.reserve(4 * FREE), 2 * FREE);
        queue.release();
        assert_eq!(unfinished.reserve(4 * FREE), 4 * FREE);
    }

    #[test]
    fn one_account_leaves_room_for_others() {
        let budget = AudioBudget::default();
        let mut greedy: Vec<_> = (0..1_000).map(|_| budget.share("greedy")).collect();
        let granted: usize = greedy
            .iter_mut()
            .map(|share| share.reserve(TEN_MINUTES))
            .sum();
        assert!(granted <= OF_ACCOUNT + 1_000 * FREE, "{granted}");
        assert_eq!(greedy[999].reserve(TEN_MINUTES), FREE, "nothing is left");

        let mut honest = budget.share("honest");
        assert_eq!(honest.reserve(TEN_MINUTES), TEN_MINUTES);
    }

    #[test]
    fn the_node_is_bounded_whatever_the_accounts() {
        let budget = AudioBudget::default();
        let mut shares: Vec<_> = (0..1_000)
            .map(|account| budget.share(&account.to_string()))
            .collect();
        let granted: usize = shares
            .iter_mut()
            .map(|share| share.reserve(TEN_MINUTES))
            .sum();
        assert!(granted <= OF_NODE + 1_000 * FREE, "{granted}");

        shares.clear();
        assert_eq!(budget.share("0").reserve(TEN_MINUTES), TEN_MINUTES);
    }
}
