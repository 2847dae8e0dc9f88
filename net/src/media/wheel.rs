//! The wheel of a media thread: 20 slots of 1 ms, so that the calls' ticks of 20 ms are spread, and the thread wakes for slots with calls only.

use std::time::Duration;

use trunkline_sip::moment::Moment;

/// Slots, of 1 ms each.
const SLOTS: usize = 20;

/// Most milliseconds that are caught up after a delay; older ticks are skipped.
const CATCH_UP: u64 = 200;

/// Calls by the slot of their tick.
#[derive(Debug, Default)]
pub(super) struct Wheel {
    slots: [Vec<usize>; SLOTS],
    /// Millisecond of the next slot to be run.
    next: u64,
}

/// A slot that is due.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Due {
    pub(super) slot: usize,
    /// Time at which the slot was due.
    pub(super) at: Moment,
}

impl Wheel {
    /// Adds a call with its first tick at `at`, rounded up to a millisecond. A call that is already in the wheel stays where it is.
    pub(super) fn add(&mut self, call: usize, at: Moment) {
        if self.slots.iter().any(|slot| slot.contains(&call)) {
            return;
        }
        self.slots[slot(at.as_micros().div_ceil(1_000))].push(call);
    }

    /// Removes a call.
    pub(super) fn remove(&mut self, call: usize) {
        for slot in &mut self.slots {
            slot.retain(|of| *of != call);
        }
    }

    /// Returns the next slot that is due.
    pub(super) fn next_due(&mut self, now: Moment) -> Option<Due> {
        let now = now.as_millis();
        if self.next + CATCH_UP < now {
            self.next = now;
        }

        while self.next <= now {
            let due = self.next;
            self.next += 1;
            let slot = slot(due);
            if !self.slots[slot].is_empty() {
                let at = Moment::from_micros(due * 1_000);
                return Some(Due { slot, at });
            }
        }

        None
    }

    /// Returns the number of calls of a slot.
    pub(super) const fn len(&self, slot: usize) -> usize {
        self.slots[slot].len()
    }

    /// Returns a call of a slot.
    pub(super) fn call(&self, slot: usize, at: usize) -> Option<usize> {
        self.slots[slot].get(at).copied()
    }

    /// Returns the time until the next slot that has calls; `None` if there is none.
    pub(super) fn wait(&self, now: Moment) -> Option<Duration> {
        let next =
            (self.next..self.next + SLOTS as u64).find(|due| !self.slots[slot(*due)].is_empty())?;
        Some(Moment::from_micros(next * 1_000).since(now))
    }
}

const fn slot(millisecond: u64) -> usize {
    (millisecond % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_micros(1_000_000_000 + micros)
    }

    /// Calls that are due up to `now`, with their milliseconds.
    fn due(wheel: &mut Wheel, now: Moment) -> Vec<(usize, u64)> {
        let mut all = Vec::new();
        while let Some(due) = wheel.next_due(now) {
            for at in 0..wheel.len(due.slot) {
                all.extend(
                    wheel
                        .call(due.slot, at)
                        .map(|call| (call, due.at.as_millis() - 1_000_000)),
                );
            }
        }
        all
    }

    #[test]
    fn a_call_that_is_added_again_ticks_once() {
        let mut wheel = Wheel::default();
        due(&mut wheel, at(0));
        wheel.add(7, at(1_000));
        wheel.add(7, at(6_000));

        let ticks = due(&mut wheel, at(100_000));
        assert_eq!(ticks, [(7, 1), (7, 21), (7, 41), (7, 61), (7, 81)]);
    }

    #[test]
    fn each_call_ticks_every_20_ms() {
        let mut wheel = Wheel::default();
        due(&mut wheel, at(0));

        assert_eq!(
            wheel.wait(at(0)),
            None,
            "without calls nothing wakes the thread"
        );

        wheel.add(7, at(3_000));
        wheel.add(8, at(12_001));
        wheel.add(8, at(12_001));

        assert_eq!(wheel.wait(at(500)), Some(Duration::from_micros(2_500)));
        assert_eq!(due(&mut wheel, at(2_999)), []);
        assert_eq!(due(&mut wheel, at(3_000)), [(7, 3)]);
        assert_eq!(
            due(&mut wheel, at(45_000)),
            [(8, 13), (7, 23), (8, 33), (7, 43)]
        );
        wheel.remove(7);

        assert_eq!(due(&mut wheel, at(63_000)), [(8, 53)]);
    }

    #[test]
    fn a_long_delay_is_not_made_up_for() {
        let mut wheel = Wheel::default();
        due(&mut wheel, at(0));
        wheel.add(7, at(3_000));
        assert_eq!(due(&mut wheel, at(200_000)).len(), 10);
        assert_eq!(due(&mut wheel, at(3_600_000_000)), []);
        assert_eq!(due(&mut wheel, at(3_600_040_000)).len(), 2);
    }
}
