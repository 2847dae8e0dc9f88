//! Routes a CANCEL to the shard that has its INVITE.
//!
//! A CANCEL normally reaches the right shard by its Call-ID. An INVITE with Replaces (RFC 3891) doesn't: it is handled
//! by the shard of the dialog that it replaces. This table remembers such INVITEs for as long as they may be cancelled,
//! bounded in number and in time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::{HeaderName, Message, Method};

/// INVITEs remembered at the same time.
const MAX_ENTRIES: usize = 4_096;
/// Time that an INVITE is remembered: 64·T1. A later CANCEL goes to the shard of its Call-ID, which answers 481.
const LIFETIME: Duration = Duration::from_secs(32);

/// INVITEs that were routed by their Replaces header instead of their Call-ID.
#[derive(Debug, Default)]
pub(super) struct CancelRouter {
    table: Mutex<RouteTable>,
    /// Milliseconds at which the oldest entry expires; 0 while the table is empty. Read without taking the lock.
    oldest: AtomicU64,
    keys: RandomState,
}

#[derive(Debug, Default)]
struct RouteTable {
    places: HashMap<u64, (Slot, Moment)>,
    /// Keys in order of expiry; all entries live equally long.
    order: VecDeque<(u64, Moment)>,
}

impl CancelRouter {
    /// Returns the slot that handles a message. `dispatched` is the slot that the message itself names.
    ///
    /// An INVITE whose slot differs from that of its Call-ID is remembered. Only a peer that knows one of our tags can
    /// cause that, so a flood of INVITEs can't fill the table.
    pub(super) fn route(
        &self,
        message: &Message<'_>,
        dispatched: Slot,
        by_call_id: impl FnOnce() -> Slot,
        now: impl FnOnce() -> Moment,
    ) -> Slot {
        if !message.is_request() || message.to_tag().is_some() {
            return dispatched;
        }

        // Relaxed: the number says whether looking is worth while. What the table holds is ordered by its lock.
        let oldest = self.oldest.load(Ordering::Relaxed);
        let is_invite = message.method() == Method::Invite;
        if is_invite && message.first(HeaderName::Replaces).is_some() && by_call_id() != dispatched
        {
            self.remember(self.key(message), dispatched, now());
            return dispatched;
        }
        if oldest == 0 {
            return dispatched;
        }

        let now = now();
        let is_cancel = message.method() == Method::Cancel;
        let found = is_cancel.then(|| self.find(self.key(message), now));
        if now.as_millis() >= oldest {
            self.table().expire(now, &self.oldest);
        }

        found.flatten().unwrap_or(dispatched)
    }

    fn remember(&self, key: u64, slot: Slot, now: Moment) {
        let mut table = self.table();
        table.expire(now, &self.oldest);
        // Beyond the bound, the CANCEL goes to the shard of its Call-ID, which answers 481.
        if table.order.len() < MAX_ENTRIES {
            table.places.insert(key, (slot, now + LIFETIME));
            table.order.push_back((key, now + LIFETIME));
        }
        table.publish_expiry(&self.oldest);
    }

    fn find(&self, key: u64, now: Moment) -> Option<Slot> {
        let table = self.table();
        let (slot, until) = table.places.get(&key)?;
        (*until > now).then_some(*slot)
    }

    fn table(&self) -> MutexGuard<'_, RouteTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hash of what a CANCEL has in common with its INVITE (RFC 3261 §9.1).
    fn key(&self, message: &Message<'_>) -> u64 {
        let branch = message.top_via().branch.unwrap_or_default();
        // Two INVITEs with one hash misroute a CANCEL at worst. The hash is keyed, so no peer can make such a pair.
        let parts = (message.call_id(), branch, message.cseq().number);
        self.keys.hash_one(parts)
    }
}

impl RouteTable {
    fn expire(&mut self, now: Moment, oldest: &AtomicU64) {
        while let Some((key, until)) = self
            .order
            .front()
            .copied()
            .filter(|(_, until)| *until <= now)
        {
            self.order.pop_front();
            // A retransmitted INVITE has renewed its entry, so this older expiry doesn't remove it.
            if self
                .places
                .get(&key)
                .is_some_and(|(_, last)| *last == until)
            {
                self.places.remove(&key);
            }
        }

        if self.order.is_empty() {
            *self = Self::default();
        }

        self.publish_expiry(oldest);
    }

    fn publish_expiry(&self, oldest: &AtomicU64) {
        let until = self.order.front().map_or(0, |(_, until)| until.as_millis());
        oldest.store(until, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    fn message(method: &str, call_id: u32, lines: &str) -> String {
        format!(
            "{method} sip:a@h SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK{call_id}\r\nFrom: <sip:b@h>;tag=1\r\nTo: <sip:a@h>\r\n\
             Call-ID: {call_id}\r\nCSeq: 1 {method}\r\n{lines}\r\n"
        )
    }

    fn route(cancels: &CancelRouter, text: &str, dispatched: u16, now: u64) -> u16 {
        let by_call_id = || Slot::new(5).expect("a slot");
        let message = lex(text.as_bytes(), Framing::Datagram).expect("a message");
        let slot = Slot::new(dispatched).expect("a slot");
        let now = || Moment::from_secs(now);
        cancels.route(&message, slot, by_call_id, now).index()
    }

    #[test]
    fn a_cancel_follows_its_invite() {
        let cancels = CancelRouter::default();
        const REPLACES: &str = "Replaces: x;to-tag=1;from-tag=2\r\n";

        assert_eq!(
            route(&cancels, &message("CANCEL", 1, ""), 5, 0),
            5,
            "of none"
        );
        assert_eq!(route(&cancels, &message("INVITE", 1, REPLACES), 9, 0), 9);
        assert_eq!(route(&cancels, &message("INVITE", 2, ""), 7, 0), 7);
        assert_eq!(route(&cancels, &message("CANCEL", 1, ""), 5, 1), 9);
        assert_eq!(
            route(&cancels, &message("CANCEL", 2, ""), 7, 1),
            7,
            "of another"
        );

        route(&cancels, &message("INVITE", 3, REPLACES), 5, 0);
        assert_eq!(held(&cancels), 1, "a tag that isn't ours");
    }

    fn held(cancels: &CancelRouter) -> usize {
        let table = cancels.table();
        assert!(
            table.places.len() <= table.order.len(),
            "what is forgotten is forgotten twice"
        );
        table.places.len()
    }

    #[test]
    fn they_are_bounded() {
        let cancels = CancelRouter::default();
        let invite = |number| message("INVITE", number, "Replaces: x;to-tag=1;from-tag=2\r\n");
        for number in 0..MAX_ENTRIES as u32 + 10 {
            route(&cancels, &invite(number), 1, 0);
        }
        assert_eq!(held(&cancels), MAX_ENTRIES);
        route(&cancels, &invite(1_000_000), 1, LIFETIME.as_secs() + 1);
        assert_eq!(held(&cancels), 1, "the old ones have gone");
    }

    #[test]
    fn they_are_forgotten_by_time() {
        let cancels = CancelRouter::default();
        let invite = |number| message("INVITE", number, "Replaces: x;to-tag=1;from-tag=2\r\n");
        route(&cancels, &invite(1), 9, 0);
        route(&cancels, &invite(2), 9, 10);

        // The first comes again.
        route(&cancels, &invite(1), 9, 20);

        let after = |past: u64| LIFETIME.as_secs() + past;
        let other = message("OPTIONS", 7, "");
        for (now, left) in [(after(0), 2), (after(9), 2), (after(10), 1), (after(20), 0)] {
            route(&cancels, &other, 3, now);
            assert_eq!(held(&cancels), left, "at {now}");
        }

        assert_eq!(
            cancels.oldest.load(Ordering::Relaxed),
            0,
            "nothing is looked for any more"
        );
        route(&cancels, &invite(3), 9, 100);

        let late = 100 + LIFETIME.as_secs();
        assert_eq!(
            route(&cancels, &message("CANCEL", 3, ""), 5, late),
            5,
            "too late"
        );
    }
}
