//! Tombstone of a finished server transaction: enough to recognise its retransmissions, and to answer them by printing
//! the same status and To-tag once more (RFC 3261 §17.2, RFC 6026 §7.1).
//!
//! A tombstone has 64 octets. Their number is bounded. When there is no room, the oldest one of an acknowledged refusal is removed; if
//! there is none, the oldest of the others.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashTable;

use crate::entropy::Entropy;
use crate::flow::Transport;
use crate::moment::Moment;
use crate::slot::{Minter, Slot};

use super::timer::{Timer, Times};

/// Lifetime of a tombstone, by the last timer of its transaction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum TombstoneLifetime {
    /// Timer I: an INVITE refused, its ACK received.
    T4,
    /// Timers J and L: a non-INVITE answered, or an INVITE accepted.
    Patience,
}

/// A To-tag in few octets: our own is stored as its slot and random part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum ToTag {
    /// The request carried one, or no answer with a tag was sent.
    #[default]
    None,
    Ours {
        slot: Slot,
        bits: u64,
    },
    Other(Box<[u8]>),
}

impl ToTag {
    pub(crate) fn new(tag: &[u8], minter: &Minter) -> Self {
        match minter.read_tag(tag) {
            // `with` prints under this node's number, so another node's tag has to be kept as text.
            Some(key) if key.node == minter.node() => Self::Ours {
                slot: key.slot,
                bits: key.bits,
            },
            Some(_) | None => Self::Other(tag.into()),
        }
    }

    /// A new tag of ours.
    pub(crate) fn own(slot: Slot, entropy: &mut Entropy) -> Self {
        Self::Ours {
            slot,
            bits: entropy.bits64(),
        }
    }

    /// Calls `print` with the tag in its original form.
    pub(crate) fn with<R>(&self, minter: &Minter, print: impl FnOnce(Option<&[u8]>) -> R) -> R {
        match self {
            Self::None => print(None),
            Self::Ours { slot, bits } => print(Some(&minter.tag_of(*slot, *bits))),
            Self::Other(tag) => print(Some(tag)),
        }
    }
}

/// A finished server transaction.
#[derive(Debug)]
pub(crate) struct Tombstone {
    pub(crate) key: u128,
    /// The hash under which merged requests meet; 0 if there is none.
    pub(crate) merged: u64,
    pub(crate) status: u16,
    pub(crate) tag: ToTag,
    deadline: Moment,
}

impl Tombstone {
    /// A tombstone of the transaction with `key`; [`Tombstones::raise`] sets its expiry.
    pub(crate) fn new(key: u128, merged: u64, status: u16, tag: ToTag) -> Self {
        Self {
            key,
            merged,
            status,
            tag,
            deadline: Moment::default(),
        }
    }
}

/// All tombstones of a shard.
#[derive(Debug)]
pub(crate) struct Tombstones {
    t4: Ring,
    patience: Ring,
    by_key: HashTable<TombstoneIndex>,
    max: usize,
}

/// Tombstones with the same lifetime, so that the first in is the first out.
#[derive(Debug)]
struct Ring {
    lasts: Duration,
    queue: VecDeque<Tombstone>,
    /// Number of the first tombstone in the queue. The numbers increase and wrap around.
    first: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct TombstoneIndex {
    lifetime: TombstoneLifetime,
    number: u32,
}

impl Tombstones {
    pub(crate) fn new(times: Times, max: usize) -> Self {
        let ring = |timer: Timer| Ring {
            lasts: timer.length(0, times, Transport::Udp),
            queue: VecDeque::new(),
            first: 0,
        };
        Self {
            t4: ring(Timer::I),
            patience: ring(Timer::L),
            by_key: HashTable::new(),
            max: max.max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Adds a tombstone. Returns the one that was removed to make room, if any.
    pub(crate) fn raise(
        &mut self,
        mut tombstone: Tombstone,
        lifetime: TombstoneLifetime,
        now: Moment,
    ) -> Option<Tombstone> {
        let yielded = if self.len() >= self.max {
            self.yield_oldest()
        } else {
            None
        };

        let ring = self.ring_mut(lifetime);
        tombstone.deadline = now + ring.lasts;
        let key = tombstone.key;
        // A position would shift when the front is removed; a number doesn't.
        let number = ring.first.wrapping_add(ring.queue.len() as u32);
        ring.queue.push_back(tombstone);

        let (t4, patience) = (&self.t4, &self.patience);
        self.by_key
            .insert_unique(key as u64, TombstoneIndex { lifetime, number }, |place| {
                ring_of(t4, patience, place.lifetime).at(place.number).key as u64
            });
        yielded
    }

    /// The tombstone of that key, if it hasn't expired at `now`.
    pub(crate) fn find(&self, key: u128, now: Moment) -> Option<&Tombstone> {
        let place = self
            .by_key
            .find(key as u64, |place| self.at(*place).key == key)?;
        // The sweep may come a second late (`next_sweep`). An expired tombstone counts as removed even before it.
        Some(self.at(*place)).filter(|tombstone| tombstone.deadline > now)
    }

    /// Takes a tombstone that has expired by `now`; `None` once there are no more.
    pub(crate) fn sweep(&mut self, now: Moment) -> Option<Tombstone> {
        let lifetime = [TombstoneLifetime::T4, TombstoneLifetime::Patience]
            .into_iter()
            .find(|&lifetime| {
                self.ring(lifetime)
                    .queue
                    .front()
                    .is_some_and(|front| front.deadline <= now)
            })?;
        self.take_first(lifetime)
    }

    /// Moment to sweep next: within the second after a tombstone expires, since none of them is urgent.
    pub(crate) fn next_sweep(&self) -> Option<Moment> {
        let first = |ring: &Ring| ring.queue.front().map(|front| front.deadline);
        let earliest = first(&self.t4)
            .into_iter()
            .chain(first(&self.patience))
            .min()?;
        Some(Moment::from_secs(earliest.as_secs() + 1))
    }

    fn yield_oldest(&mut self) -> Option<Tombstone> {
        // A repeated request without its tombstone counts as a new one. That does least harm behind an acknowledged
        // refusal; after a 2xx it would begin a second call.
        self.take_first(TombstoneLifetime::T4)
            .or_else(|| self.take_first(TombstoneLifetime::Patience))
    }

    fn take_first(&mut self, lifetime: TombstoneLifetime) -> Option<Tombstone> {
        let number = self.ring(lifetime).first;
        let key = self.ring(lifetime).queue.front()?.key;
        let place = TombstoneIndex { lifetime, number };
        // Found by number, since two tombstones may share a key: one has expired and isn't swept yet, the other is its
        // successor's.
        if let Ok(found) = self.by_key.find_entry(key as u64, |at| *at == place) {
            found.remove();
        }

        let ring = self.ring_mut(lifetime);
        ring.first = number.wrapping_add(1);
        let taken = ring.queue.pop_front();
        self.shrink(lifetime);
        taken
    }

    /// Frees storage after a flood, in steps so large that steady traffic never pays for it.
    fn shrink(&mut self, lifetime: TombstoneLifetime) {
        let queue = &mut self.ring_mut(lifetime).queue;
        if queue.capacity() > 1024 && queue.len() < queue.capacity() / 8 {
            queue.shrink_to(queue.capacity() / 4);
        }
        if self.by_key.capacity() > 1024 && self.by_key.len() < self.by_key.capacity() / 8 {
            let (t4, patience) = (&self.t4, &self.patience);
            self.by_key.shrink_to(self.by_key.capacity() / 4, |place| {
                ring_of(t4, patience, place.lifetime).at(place.number).key as u64
            });
        }
    }

    fn at(&self, place: TombstoneIndex) -> &Tombstone {
        self.ring(place.lifetime).at(place.number)
    }

    fn ring(&self, lifetime: TombstoneLifetime) -> &Ring {
        ring_of(&self.t4, &self.patience, lifetime)
    }

    fn ring_mut(&mut self, lifetime: TombstoneLifetime) -> &mut Ring {
        match lifetime {
            TombstoneLifetime::T4 => &mut self.t4,
            TombstoneLifetime::Patience => &mut self.patience,
        }
    }
}

fn ring_of<'r>(t4: &'r Ring, patience: &'r Ring, lifetime: TombstoneLifetime) -> &'r Ring {
    match lifetime {
        TombstoneLifetime::T4 => t4,
        TombstoneLifetime::Patience => patience,
    }
}

impl Ring {
    fn at(&self, number: u32) -> &Tombstone {
        &self.queue[number.wrapping_sub(self.first) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;
    use crate::slot::Node;

    const START: Moment = Moment::from_secs(1_750_000_000);

    fn tombstones(max: usize) -> Tombstones {
        let times = Times {
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
        };
        Tombstones::new(times, max)
    }

    fn raise(
        tombstones: &mut Tombstones,
        key: u128,
        lifetime: TombstoneLifetime,
        now: Moment,
    ) -> Option<u128> {
        tombstones
            .raise(Tombstone::new(key, 0, 200, ToTag::None), lifetime, now)
            .map(|yielded| yielded.key)
    }

    fn after(secs: u64) -> Moment {
        START + Duration::from_secs(secs)
    }

    #[test]
    fn one_is_within_64_octets() {
        assert!(size_of::<Tombstone>() <= 64);
    }

    #[test]
    fn each_stands_for_its_timer() {
        let mut tombstones = tombstones(8);
        raise(&mut tombstones, 1, TombstoneLifetime::T4, START);
        raise(&mut tombstones, 2, TombstoneLifetime::Patience, START);

        let present = |secs, tombstones: &Tombstones| {
            [1, 2].map(|key| tombstones.find(key, after(secs)).is_some())
        };

        assert_eq!(present(4, &tombstones), [true, true]);
        assert_eq!(present(5, &tombstones), [false, true]);
        assert_eq!(present(31, &tombstones), [false, true]);
        assert_eq!(present(32, &tombstones), [false, false]);
        assert_eq!(tombstones.next_sweep(), Some(after(6)));
        assert_eq!(tombstones.sweep(after(6)).map(|fallen| fallen.key), Some(1));
        assert!(tombstones.sweep(after(6)).is_none());
        assert_eq!(tombstones.next_sweep(), Some(after(33)));
        assert_eq!(
            tombstones.sweep(after(33)).map(|fallen| fallen.key),
            Some(2)
        );
        assert_eq!((tombstones.len(), tombstones.next_sweep()), (0, None));
    }

    #[test]
    fn the_oldest_yields_and_the_number_stays_bounded() {
        let mut tombstones = tombstones(100);
        for key in 0..10_000 {
            let lifetime = if key % 3 == 0 {
                TombstoneLifetime::T4
            } else {
                TombstoneLifetime::Patience
            };
            let yielded = raise(&mut tombstones, key, lifetime, START);
            assert_eq!(yielded.is_some(), key >= 100);
        }

        assert_eq!(tombstones.len(), 100);
        assert!(tombstones.find(9_998, START).is_some());
        assert!(tombstones.find(0, START).is_none());
    }

    #[test]
    fn storage_goes_back_after_a_flood() {
        let mut tombstones = tombstones(100_000);
        for key in 0..50_000 {
            raise(&mut tombstones, key, TombstoneLifetime::Patience, START);
        }
        while tombstones.sweep(after(32)).is_some() {}
        assert!(tombstones.patience.queue.capacity() <= 4096);
        assert!(tombstones.by_key.capacity() <= 4096);
        raise(&mut tombstones, 1, TombstoneLifetime::Patience, after(40));
        assert!(tombstones.find(1, after(41)).is_some());
    }

    #[test]
    fn tags_come_back_as_they_were() {
        let minter = Minter::new(Node(2), [4; 16]);
        let slot = Slot::new(17).expect("below COUNT");
        let ours = minter.tag(slot, &mut Entropy::from_seed([0; 32]));
        let elsewhere = Minter::new(Node(3), [4; 16]).tag_of(slot, 5);
        for tag in [&ours[..], &elsewhere[..], b"as83kd9bs"] {
            ToTag::new(tag, &minter).with(&minter, |back| assert_eq!(back, Some(tag)));
        }

        assert_eq!(
            ToTag::new(&ours, &minter),
            ToTag::Ours {
                slot,
                bits: ours.bits()
            }
        );

        ToTag::None.with(&minter, |back| assert_eq!(back, None));
    }
}
