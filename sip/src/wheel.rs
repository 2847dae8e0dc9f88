//! One timer wheel for all timers of a shard: schedule, cancel and expiry cost the same however many are running.
//!
//! Deadlines are rounded up to 10 ms. Seven levels of 64 slots hold deadlines centuries ahead; a timer moves down a
//! level when its slot comes up (Varghese and Lauck's hierarchical wheel). Keys are opaque to the wheel.

use std::num::NonZeroU32;

use crate::moment::Moment;

/// Microseconds per tick.
const TICK: u64 = 10_000;
const LEVELS: usize = 7;
const BITS: usize = 6;
const SLOTS: usize = 1 << BITS;
/// The last tick the levels can hold. A later deadline is moved to this tick.
const LAST_TICK: u64 = (1 << (BITS * LEVELS)) - 1;
/// Index of the list of due timers, after the lists of the levels.
const DUE: usize = LEVELS * SLOTS;
const NONE: u32 = u32::MAX;
/// An empty wheel frees storage beyond this many timers.
const KEPT_WHEN_EMPTY: usize = 1024;

/// A scheduled timer. Goes stale when the timer fires or is cancelled; a stale one cancels nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TimerId {
    index: u32,
    stamp: NonZeroU32,
}

/// Timers that carry a key each.
#[derive(Debug)]
pub struct Wheel<K> {
    /// Every timer up to this tick has been moved to the due list.
    tick: u64,
    entries: Vec<Entry<K>>,
    free: u32,
    lists: Box<[List; DUE + 1]>,
    occupied: [u64; LEVELS],
    len: usize,
    next_stamp: NonZeroU32,
}

#[derive(Debug)]
struct Entry<K> {
    tick: u64,
    stamp: NonZeroU32,
    previous: u32,
    next: u32,
    list: u16,
    /// `None` in a free entry.
    key: Option<K>,
}

#[derive(Copy, Clone, Debug)]
struct List {
    head: u32,
    tail: u32,
}

impl<K: Copy> Wheel<K> {
    /// An empty wheel at `now`.
    pub fn new(now: Moment) -> Self {
        Self {
            tick: (now.as_micros() / TICK).min(LAST_TICK),
            entries: Vec::new(),
            free: NONE,
            lists: Box::new(
                [List {
                    head: NONE,
                    tail: NONE,
                }; DUE + 1],
            ),
            occupied: [0; LEVELS],
            len: 0,
            next_stamp: NonZeroU32::MIN,
        }
    }

    /// Number of running timers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no timer is running.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Starts a timer that fires at `at` or up to 10 ms later; at the next [`Wheel::pop`] if `at` has passed.
    pub fn schedule(&mut self, at: Moment, key: K) -> TimerId {
        let stamp = self.next_stamp;
        self.next_stamp = stamp.checked_add(1).unwrap_or(NonZeroU32::MIN);
        // Rounded up, since a timer may fire late but never early.
        let tick = at.as_micros().div_ceil(TICK).min(LAST_TICK);

        let index = self.store(Entry {
            tick,
            stamp,
            previous: NONE,
            next: NONE,
            list: 0,
            key: Some(key),
        });

        self.append(self.list_of(tick), index);
        self.len += 1;
        TimerId { index, stamp }
    }

    /// Stops a timer. Returns false if it has fired or was cancelled before.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        let runs = self
            .entries
            .get(timer.index as usize)
            .is_some_and(|entry| entry.stamp == timer.stamp && entry.key.is_some());
        if runs {
            self.unlink(timer.index);
            self.release(timer.index);
        }
        runs
    }

    /// Moment to call [`Wheel::pop`] next. It is no later than the first deadline, and later than the last moment passed to `pop` unless a
    /// timer is due already.
    pub fn next_deadline(&self) -> Option<Moment> {
        // A turn may leave due timers behind: the caller takes a bounded number at once.
        if self.lists[DUE].head != NONE {
            return Some(Moment::from_micros(self.tick * TICK));
        }
        let (level, slot) = self.first_occupied()?;
        Some(Moment::from_micros(self.start_of(level, slot) * TICK))
    }

    /// Takes the key of a timer that is due at `now`, the earliest first; `None` once there are no more.
    pub fn pop(&mut self, now: Moment) -> Option<K> {
        let tick = now.as_micros() / TICK;
        while self.lists[DUE].head == NONE {
            if !self.advance(tick) {
                return None;
            }
        }
        let index = self.lists[DUE].head;
        self.unlink(index);
        self.release(index)
    }

    /// Advances to the next slot that holds timers, if it starts by `tick`, and empties it.
    fn advance(&mut self, tick: u64) -> bool {
        match self.first_occupied() {
            Some((level, slot)) if self.start_of(level, slot) <= tick => {
                self.tick = self.start_of(level, slot);
                self.empty(level * SLOTS + slot);
                true
            }
            Some(_) | None => {
                // No occupied slot begins by `tick`, so every timer stays in its list. Timers that are scheduled from now on
                // are placed relative to the new tick.
                self.tick = self.tick.max(tick.min(LAST_TICK));
                false
            }
        }
    }

    /// Returns the first occupied slot. The lowest level comes first: its timers share all higher digits with the wheel's tick.
    fn first_occupied(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        // Slots before the wheel's own digit are past and so empty: the lowest bit is the next slot.
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let above = BITS * (level + 1);
        (self.tick >> above << above) | (slot as u64) << (BITS * level)
    }

    /// Moves each timer of a list to its list at the wheel's current tick.
    fn empty(&mut self, list: usize) {
        loop {
            // Ends, since the wheel's tick is the start of this slot: each of its timers moves to a lower level or is
            // due.
            let index = self.lists[list].head;
            if index == NONE {
                return;
            }
            self.unlink(index);
            self.append(self.list_of(self.entries[index as usize].tick), index);
        }
    }

    /// Returns the list of a deadline. Ticks are numbers of 6-bit digits. The level is the place of the highest digit in which the deadline differs
    /// from the wheel's tick.
    fn list_of(&self, tick: u64) -> usize {
        if tick <= self.tick {
            return DUE;
        }
        let level = (tick ^ self.tick).ilog2() as usize / BITS;
        let slot = (tick >> (BITS * level)) as usize % SLOTS;
        level * SLOTS + slot
    }

    fn append(&mut self, list: usize, index: u32) {
        let tail = std::mem::replace(&mut self.lists[list].tail, index);
        let entry = &mut self.entries[index as usize];
        entry.list = list as u16;
        entry.previous = tail;
        entry.next = NONE;
        match tail {
            NONE => self.lists[list].head = index,
            tail => self.entries[tail as usize].next = index,
        }
        if list < DUE {
            self.occupied[list / SLOTS] |= 1 << (list % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry {
            previous,
            next,
            list,
            ..
        } = self.entries[index as usize];
        let list = list as usize;
        match previous {
            NONE => self.lists[list].head = next,
            previous => self.entries[previous as usize].next = next,
        }

        match next {
            NONE => self.lists[list].tail = previous,
            next => self.entries[next as usize].previous = previous,
        }
        if list < DUE && self.lists[list].head == NONE {
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
        }
    }

    fn store(&mut self, entry: Entry<K>) -> u32 {
        match self.free {
            NONE => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
            index => {
                self.free = self.entries[index as usize].next;
                self.entries[index as usize] = entry;
                index
            }
        }
    }

    fn release(&mut self, index: u32) -> Option<K> {
        let entry = &mut self.entries[index as usize];
        let key = entry.key.take();
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        // A stale `TimerId` is harmless after this: stamps go on, so no new entry gets the stamp of a stale `TimerId`.
        if self.len == 0 && self.entries.capacity() > KEPT_WHEN_EMPTY {
            self.entries = Vec::new();
            self.free = NONE;
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const START: Moment = Moment::from_secs(1_750_000_000);

    fn at(millis: u64) -> Moment {
        START + Duration::from_millis(millis)
    }

    fn drain(wheel: &mut Wheel<u32>, now: Moment) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop(now)).collect()
    }

    #[test]
    fn timers_fire_at_their_deadline_and_not_before() {
        let hour = 3_600_000;
        for delay in [
            10,
            500,
            630,
            640,
            650,
            32_000,
            40_960,
            hour,
            24 * hour,
            400 * 24 * hour,
        ] {
            let mut wheel = Wheel::new(START);
            wheel.schedule(at(delay), 1);
            assert_eq!(
                drain(&mut wheel, at(delay - 1)),
                [],
                "{delay} ms, too early"
            );
            assert_eq!(drain(&mut wheel, at(delay)), [1], "{delay} ms");
            assert!(wheel.is_empty());
        }
    }

    #[test]
    fn deadlines_are_rounded_up_to_ten_milliseconds() {
        let mut wheel = Wheel::new(START);
        wheel.schedule(at(11), 1);
        assert_eq!(drain(&mut wheel, at(19)), []);
        assert_eq!(wheel.next_deadline(), Some(at(20)));
        assert_eq!(drain(&mut wheel, at(20)), [1]);
    }

    #[test]
    fn what_has_passed_fires_at_once() {
        let mut wheel = Wheel::new(START);
        wheel.schedule(START - Duration::from_secs(5), 1);
        wheel.schedule(START, 2);
        assert!(wheel.next_deadline() <= Some(START));
        assert_eq!(drain(&mut wheel, START), [1, 2]);
        assert_eq!(wheel.next_deadline(), None);
    }

    #[test]
    fn the_earlier_deadline_fires_first_and_equals_in_order() {
        let mut wheel = Wheel::new(START);
        for (delay, key) in [(7_000, 4), (500, 1), (700, 2), (700, 3), (90_000, 5)] {
            wheel.schedule(at(delay), key);
        }
        assert_eq!(drain(&mut wheel, at(100_000)), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_cancelled_timer_stays_silent_and_a_stale_id_cancels_nothing() {
        let mut wheel = Wheel::new(START);
        let first = wheel.schedule(at(500), 1);
        assert!(wheel.cancel(first));
        assert!(!wheel.cancel(first));
        let second = wheel.schedule(at(500), 2);
        assert!(
            !wheel.cancel(first),
            "the entry is used again under another stamp"
        );
        assert_eq!(drain(&mut wheel, at(500)), [2]);
        assert!(!wheel.cancel(second));
    }

    #[test]
    fn an_empty_wheel_gives_its_storage_back() {
        let mut wheel = Wheel::new(START);
        for n in 0..10_000 {
            wheel.schedule(at(u64::from(n)), n);
        }
        let stale = wheel.schedule(at(1), 0);
        assert_eq!(drain(&mut wheel, at(10_000)).len(), 10_001);
        assert_eq!(wheel.entries.capacity(), 0);
        assert!(!wheel.cancel(stale));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Schedule(u64),
        Cancel(usize),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let delay = || prop_oneof![0..2_000u64, 0..100_000u64, 0..100_000_000u64];
        prop_oneof![
            delay().prop_map(Step::Schedule),
            (0..64usize).prop_map(Step::Cancel),
            delay().prop_map(Step::Wait)
        ]
    }

    proptest! {
        /// Compares with a plain list of deadlines: the timers that fire, and that `next_deadline` always leads further.
        #[test]
        fn behaves_as_a_sorted_list(steps in proptest::collection::vec(step(), 1..200)) {
            let mut wheel = Wheel::new(START);
            let mut model: Vec<(Moment, u32, TimerId)> = Vec::new();
            let mut now = START;
            let mut key = 0;

            for step in steps {
                match step {
                    Step::Schedule(delay) => {
                        let deadline = now + Duration::from_millis(delay);
                        model.push((deadline, key, wheel.schedule(deadline, key)));
                        key += 1;
                    }
                    Step::Cancel(at) if at < model.len() => prop_assert!(wheel.cancel(model.swap_remove(at).2)),
                    Step::Cancel(_) => {}
                    Step::Wait(delay) => {
                        let until = now + Duration::from_millis(delay);
                        let mut fired = Vec::new();
                        while let Some(next) = wheel.next_deadline().filter(|next| *next <= until) {
                            now = now.max(next);
                            fired.extend(std::iter::from_fn(|| wheel.pop(now)));
                            prop_assert!(wheel.next_deadline().is_none_or(|after| after > now));
                        }
                        now = until;

                        let rounded = |at: Moment| at.as_micros().div_ceil(TICK) <= now.as_micros() / TICK;
                        let mut expected: Vec<u32> = model.iter().filter(|t| rounded(t.0)).map(|t| t.1).collect();
                        model.retain(|t| !rounded(t.0));
                        fired.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(fired, expected);
                    }
                }

                prop_assert_eq!(wheel.len(), model.len());
            }
        }
    }
}
