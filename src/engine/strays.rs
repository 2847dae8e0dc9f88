//! CANCELs that have nothing but their Call-ID to be found by, of INVITEs that went elsewhere: one with Replaces is worked on where
//! the call is that it replaces. The place is noted as the INVITE passes, for as long as it may be cancelled.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::wire::{HeaderName, Message, Method};

/// Such INVITEs that are remembered.
const MOST: usize = 4_096;
/// For how long: whoever is asked for a change has no longer to answer (64·T1).
const LASTING: Duration = Duration::from_secs(32);

/// Where INVITEs went that Call-IDs don't lead to.
#[derive(Debug, Default)]
pub(super) struct Strays {
    places: Mutex<HashMap<u64, (Slot, Moment)>>,
    count: AtomicUsize,
    keys: RandomState,
}

impl Strays {
    /// The slot of a message, which `dispatched` is as far as it says itself. Only who knows a tag of ours has anything noted.
    pub(super) fn place(
        &self,
        message: &Message<'_>,
        dispatched: Slot,
        by_call_id: impl FnOnce() -> Slot,
        now: impl FnOnce() -> Moment,
    ) -> Slot {
        if !message.is_request() || message.to_tag().is_some() {
            return dispatched;
        }
        let is_invite = message.method() == Method::Invite;
        if is_invite && message.first(HeaderName::Replaces).is_some() && by_call_id() != dispatched
        {
            self.note(self.key(message), dispatched, now());
        }
        if message.method() == Method::Cancel && self.count.load(Ordering::Relaxed) > 0 {
            return self.find(self.key(message)).unwrap_or(dispatched);
        }
        dispatched
    }

    fn note(&self, key: u64, slot: Slot, now: Moment) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST {
            places.retain(|_, (_, until)| *until > now);
        }
        if places.len() < MOST {
            places.insert(key, (slot, now + LASTING));
        }
        self.count.store(places.len(), Ordering::Relaxed);
    }

    fn find(&self, key: u64) -> Option<Slot> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(&key).map(|(slot, _)| *slot)
    }

    /// What a CANCEL has in common with its INVITE (RFC 3261 §9.1).
    fn key(&self, message: &Message<'_>) -> u64 {
        let branch = message.top_via().branch.unwrap_or_default();
        let parts = (message.call_id(), branch, message.cseq().number);
        self.keys.hash_one(parts)
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

    fn place(strays: &Strays, text: &str, dispatched: u16, now: u64) -> u16 {
        let by_call_id = || Slot::new(5).expect("a slot");
        let message = lex(text.as_bytes(), Framing::Datagram).expect("a message");
        let slot = Slot::new(dispatched).expect("a slot");
        let now = || Moment::from_secs(now);
        strays.place(&message, slot, by_call_id, now).index()
    }

    #[test]
    fn a_cancel_follows_its_invite() {
        let strays = Strays::default();
        const REPLACES: &str = "Replaces: x;to-tag=1;from-tag=2\r\n";
        assert_eq!(
            place(&strays, &message("CANCEL", 1, ""), 5, 0),
            5,
            "of none"
        );
        assert_eq!(place(&strays, &message("INVITE", 1, REPLACES), 9, 0), 9);
        assert_eq!(place(&strays, &message("INVITE", 2, ""), 7, 0), 7);
        assert_eq!(place(&strays, &message("CANCEL", 1, ""), 5, 1), 9);
        assert_eq!(
            place(&strays, &message("CANCEL", 2, ""), 7, 1),
            7,
            "of another"
        );
        place(&strays, &message("INVITE", 3, REPLACES), 5, 0);
        assert_eq!(
            strays.count.load(Ordering::Relaxed),
            1,
            "a tag that isn't ours"
        );
    }

    #[test]
    fn they_are_bounded() {
        let strays = Strays::default();
        let invite = |number| message("INVITE", number, "Replaces: x;to-tag=1;from-tag=2\r\n");
        for number in 0..MOST as u32 + 10 {
            place(&strays, &invite(number), 1, 0);
        }
        assert_eq!(strays.count.load(Ordering::Relaxed), MOST);
        place(&strays, &invite(1_000_000), 1, LASTING.as_secs() + 1);
        assert_eq!(
            strays.count.load(Ordering::Relaxed),
            1,
            "the old ones have gone"
        );
    }
}
