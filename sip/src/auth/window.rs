//! Nonce counts that have been used, each of which is accepted once (RFC 7616 §3.4.5, §5.12).
//!
//! One window serves all shards, since a client may use a nonce on whichever shard its next request reaches. Only clients that have
//! proved a password enter it. It is bounded, and drops nonces by age. When it is full, its oldest nonces are given up and count as
//! stale from then on: their clients ask for a new one, and nothing can be replayed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::nonce::Issued;
use crate::moment::Moment;

const SHARDS: usize = 16;
/// Number of spans of issue that a lifetime is cut into. Nonces are dropped one span at a time.
const SPANS: u32 = 8;

/// The nonces used within one lifetime.
#[derive(Debug)]
pub struct NonceWindow {
    shards: [Mutex<Shard>; SHARDS],
    lifetime: Duration,
    capacity: usize, // of one shard
}

#[derive(Debug, Default)]
struct Shard {
    spans: VecDeque<Span>, // oldest first
    closed: u64,           // nonces issued in this span or before it are refused
    length: usize,
}

/// The nonces that were issued in one eighth of a lifetime, by fingerprint.
#[derive(Debug)]
struct Span {
    number: u64,
    used: HashMap<u64, Used>,
}

/// The highest count seen, and a bit for each of the 32 counts below it, because requests overtake one another.
#[derive(Copy, Clone, Debug)]
struct Used {
    highest: u32,
    below: u32,
}

impl NonceWindow {
    /// A window for nonces of that lifetime. It remembers `capacity` of them, about 30 octets each.
    pub fn new(lifetime: Duration, capacity: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            lifetime,
            capacity: (capacity / SHARDS).max(1),
        }
    }

    /// Returns true if this use of a nonce is its first. The nonce must have been found fresh before.
    pub fn accept(&self, nonce: &[u8], nc: u32, now: Moment) -> bool {
        let Some(issued) = Issued::read(nonce) else {
            return false;
        };
        let fingerprint = issued.fingerprint();
        // The fingerprint is part of a verified MAC, so no client can direct its nonces at one shard.
        let mut shard = self.lock((fingerprint % SHARDS as u64) as usize);
        shard.expire(self.first_live(now));
        shard.enter(self.span_of(issued.at), fingerprint, nc, self.capacity)
    }

    /// Returns true if this use of a nonce would be another than its first, or can't be told from one. Nothing is counted.
    pub fn has_used(&self, nonce: &[u8], nc: u32) -> bool {
        let Some(issued) = Issued::read(nonce) else {
            return true;
        };
        let fingerprint = issued.fingerprint();
        let shard = self.lock((fingerprint % SHARDS as u64) as usize);
        shard.has_used(self.span_of(issued.at), fingerprint, nc)
    }

    /// Frees expired nonces. `accept` does so for the shard that it uses; call this so that idle shards are freed too.
    pub fn sweep(&self, now: Moment) {
        let first_live = self.first_live(now);
        for index in 0..SHARDS {
            self.lock(index).expire(first_live);
        }
    }

    /// Number of nonces in the window.
    pub fn len(&self) -> usize {
        (0..SHARDS).map(|index| self.lock(index).length).sum()
    }

    /// Returns true if the window is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks a shard, also after a panic in a thread that held the lock: each change to a shard is complete once made.
    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn span_of(&self, at: Moment) -> u64 {
        let width = (self.lifetime / SPANS)
            .max(Duration::from_millis(1))
            .as_micros();
        at.as_micros() / u64::try_from(width).unwrap_or(u64::MAX)
    }

    fn first_live(&self, now: Moment) -> u64 {
        self.span_of(now - self.lifetime)
    }
}

impl Shard {
    fn expire(&mut self, first_live: u64) {
        while self
            .spans
            .front()
            .is_some_and(|span| span.number < first_live)
        {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(span) = self.spans.pop_front() {
            // Its counts are forgotten from here on, so any later use of its nonces could be a replay.
            self.closed = span.number;
            self.length -= span.used.len();
        }
    }

    fn has_used(&self, number: u64, fingerprint: u64, nc: u32) -> bool {
        if number <= self.closed {
            return true;
        }
        let span = self.spans.binary_search_by_key(&number, |span| span.number);
        let used = span
            .ok()
            .and_then(|at| self.spans[at].used.get(&fingerprint));
        // On a copy, which notes the use in place of the window.
        used.is_some_and(|used| {
            let mut copy = *used;
            !copy.accept(nc)
        })
    }

    fn enter(&mut self, number: u64, fingerprint: u64, nc: u32, capacity: usize) -> bool {
        if number <= self.closed {
            return false;
        }

        let found = self.spans.binary_search_by_key(&number, |span| span.number);
        if let Ok(at) = found
            && let Some(used) = self.spans[at].used.get_mut(&fingerprint)
        {
            return used.accept(nc);
        }
        // With no older span to give up, the nonce counts as stale. Accepting it unrecorded would let it be replayed.
        if self.length >= capacity && !self.give_up_before(number) {
            return false;
        }

        self.span(number).used.insert(
            fingerprint,
            Used {
                highest: nc,
                below: 0,
            },
        );
        self.length += 1;
        true
    }

    /// Drops the oldest span if it is older than `number`; returns whether there was one. The new nonce's own span is never dropped, since it
    /// has the nonces in use now.
    fn give_up_before(&mut self, number: u64) -> bool {
        let is_older = self.spans.front().is_some_and(|span| span.number < number);
        if is_older {
            self.drop_oldest();
        }
        is_older
    }

    /// Returns the span of that number; adds it if it is missing. There are at most ten: those of one lifetime, and the two at its edges.
    fn span(&mut self, number: u64) -> &mut Span {
        let at = self.spans.partition_point(|span| span.number < number);
        if self.spans.get(at).is_none_or(|span| span.number != number) {
            self.spans.insert(
                at,
                Span {
                    number,
                    used: HashMap::new(),
                },
            );
        }
        &mut self.spans[at]
    }
}

impl Used {
    fn accept(&mut self, nc: u32) -> bool {
        if nc > self.highest {
            let step = nc - self.highest;
            // The old highest becomes the bit `step - 1` below the new one.
            // A leap of more than 32 counts pushes all bits out.
            self.below = self.below.checked_shl(step).unwrap_or(0)
                | 1_u32.checked_shl(step - 1).unwrap_or(0);
            self.highest = nc;
            return true;
        }

        let Some(bit) = (self.highest - nc)
            .checked_sub(1)
            .and_then(|below| 1_u32.checked_shl(below))
        else {
            return false; // the highest itself, or too far below it to know
        };

        let is_new = self.below & bit == 0;
        self.below |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::nonce::{LIFETIME, Nonce, NonceKeys, NonceSource, Nonces};
    use super::*;
    use crate::entropy::Entropy;
    use crate::flow::{Flow, Transport};

    const START: Moment = Moment::from_secs(1_790_000_000);

    fn source() -> NonceSource {
        let peer = ([192, 0, 2, 1], 5060).into();
        NonceSource::of(&Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: peer,
            peer,
        })
    }

    struct Issuer(Nonces, Entropy);

    impl Issuer {
        fn new() -> Self {
            Self(
                Nonces::new(
                    NonceKeys {
                        node: [1; 32],
                        deployment: [0; 32],
                    },
                    LIFETIME,
                ),
                Entropy::from_seed([2; 32]),
            )
        }

        fn issue(&mut self, at: Moment) -> Nonce {
            self.0.issue(0, source(), &mut self.1, at)
        }
    }

    fn window(capacity: usize) -> NonceWindow {
        NonceWindow::new(LIFETIME, capacity)
    }

    #[test]
    fn a_count_is_accepted_once_even_out_of_order() {
        let window = window(1000);
        let nonce = Issuer::new().issue(START);
        for (step, (nc, accepted)) in [
            (1, true),
            (1, false),
            (3, true),
            (2, true),
            (2, false),
            (3, false),
            (40, true),
            (8, true),
            (7, false), // past the bitmap
            (8, false),
            (39, true),
            (4_000_000_000, true),
            (40, false),
            (3_999_999_968, true),
            (3_999_999_967, false),
            (0, false),
        ]
        .into_iter()
        .enumerate()
        {
            for _ in 0..2 {
                let has_used = window.has_used(nonce.as_bytes(), nc);
                assert_eq!(has_used, !accepted, "step {step}, nc {nc}, looked up");
            }
            assert_eq!(
                window.accept(nonce.as_bytes(), nc, START),
                accepted,
                "step {step}, nc {nc}"
            );
        }

        assert_eq!(window.len(), 1);
    }

    #[test]
    fn nonces_count_apart() {
        let (window, mut issuer) = (window(1000), Issuer::new());
        let (one, other) = (issuer.issue(START), issuer.issue(START));
        assert!(window.accept(one.as_bytes(), 1, START));
        assert!(window.accept(other.as_bytes(), 1, START));
        assert!(!window.accept(b"not a nonce", 1, START));
    }

    #[test]
    fn what_has_expired_is_freed() {
        let (window, mut issuer) = (window(100_000), Issuer::new());
        for second in 0..1000 {
            let now = START + Duration::from_secs(second);
            assert!(window.accept(issuer.issue(now).as_bytes(), 1, now));
        }
        let most = LIFETIME.as_secs() + 2 * LIFETIME.as_secs() / u64::from(SPANS);
        assert!(window.len() as u64 <= most, "{} remembered", window.len());
        window.sweep(START + Duration::from_secs(999) + LIFETIME + LIFETIME / SPANS * 2);
        assert!(window.is_empty());
    }

    #[test]
    fn a_full_window_gives_up_the_oldest_and_replays_nothing() {
        let (window, mut issuer) = (window(16 * 10), Issuer::new());
        let width = LIFETIME / SPANS;
        let old: Vec<_> = (0..150).map(|_| issuer.issue(START)).collect();
        for nonce in &old {
            window.accept(nonce.as_bytes(), 1, START);
        }

        let later = START + width * 2;
        let fresh: Vec<_> = (0..400).map(|_| issuer.issue(later)).collect();
        let accepted = fresh
            .iter()
            .filter(|nonce| window.accept(nonce.as_bytes(), 1, later))
            .count();

        assert!(accepted > 100, "{accepted} of 400 accepted");
        assert!(window.len() <= 16 * 10);

        let replayed = old
            .iter()
            .chain(&fresh)
            .filter(|nonce| window.accept(nonce.as_bytes(), 1, later));

        // A use that was refused for lack of room may be accepted later, but none is accepted twice.
        let newcomers = replayed.count();
        assert!(accepted + newcomers <= 400 + 150);

        let third = old
            .iter()
            .filter(|nonce| window.accept(nonce.as_bytes(), 1, later))
            .count();

        assert_eq!(third, 0);
    }

    proptest! {
        // A window of any size accepts no use twice, though it may refuse uses that an unbounded set would accept.
        #[test]
        fn nothing_is_accepted_twice(uses in proptest::collection::vec((0_usize..40, 1_u32..80, 0_u64..400), 1..400)) {
            let mut uses = uses;
            uses.sort_by_key(|(_, _, second)| *second);
            let (window, mut issuer) = (window(16), Issuer::new());
            let nonces: Vec<_> = (0..40).map(|index| issuer.issue(START + Duration::from_secs(index * 7))).collect();
            let mut seen = std::collections::HashSet::new();
            for (index, nc, second) in uses {
                let now = START + Duration::from_secs(second);
                if issuer.0.check(nonces[index].as_bytes(), source(), now) == super::super::nonce::NonceState::Fresh
                    && window.accept(nonces[index].as_bytes(), nc, now)
                {
                    prop_assert!(seen.insert((index, nc)), "nonce {index} nc {nc} twice");
                }
            }
        }
    }
}
