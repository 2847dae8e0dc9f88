//! The facts that wait for the writer: bounded, filled by the shards without waiting.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Full, Position};

/// Facts for which an empty queue keeps room.
const ROOM: usize = 4_096;

/// How long it is empty before its room and the writer's are given back.
const IDLE: Duration = Duration::from_secs(1);

/// A bounded queue of facts with their positions.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    capacity: usize,
}

struct State<T> {
    facts: VecDeque<T>,
    /// The position of the last fact taken in.
    last: Position,
    is_closed: bool,
}

/// Facts taken from the queue, in order.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub(super) facts: Vec<T>,
    /// The position of the first.
    pub(super) first: Position,
}

impl<T> Queue<T> {
    pub(super) const fn new(capacity: usize) -> Self {
        let state = State {
            facts: VecDeque::new(),
            last: Position(0),
            is_closed: false,
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            capacity,
        }
    }

    /// Takes all of `facts`, or none when there is no room.
    pub(super) fn push(&self, facts: &mut Vec<T>) -> Result<Position, Full> {
        let mut state = self.state();
        if state.is_closed || state.facts.len() + facts.len() > self.capacity {
            return Err(Full);
        }
        state.last = Position(state.last.0 + facts.len() as u64);
        let last = state.last;
        // The writer sleeps only over an empty queue.
        let was_empty = state.facts.is_empty() && !facts.is_empty();
        state.facts.extend(facts.drain(..));
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(last)
    }

    /// Waits until there is a fact; `false` when the queue is closed and empty. Does `rest` if none comes for a while.
    pub(super) fn wait(&self, rest: impl FnOnce()) -> bool {
        let is_idle = |state: &mut State<T>| state.facts.is_empty() && !state.is_closed;
        let (mut state, waited) = self
            .filled
            .wait_timeout_while(self.state(), IDLE, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            state.facts.shrink_to_fit();
            drop(state);
            rest();
            state = self
                .filled
                .wait_while(self.state(), is_idle)
                .unwrap_or_else(PoisonError::into_inner);
        }
        !state.facts.is_empty()
    }

    /// Takes at most `limit` facts.
    pub(super) fn take(&self, limit: usize) -> Batch<T> {
        let mut state = self.state();
        let first = Position(state.last.0 - state.facts.len() as u64 + 1);
        let count = limit.min(state.facts.len());
        let facts = state.facts.drain(..count).collect();
        if state.facts.is_empty() {
            state.facts.shrink_to(ROOM);
        }
        Batch { facts, first }
    }

    /// No facts are taken in any more; what waits will still be written.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.filled.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub(super) fn depth(&self) -> usize {
        self.state().facts.len()
    }

    /// Whether less than half is taken, so that a new call's facts leave room for those of calls in progress.
    pub(super) fn has_reserve(&self) -> bool {
        self.depth() * 2 < self.capacity
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_out_in_order_with_their_positions() {
        let queue = Queue::new(10);
        assert_eq!(queue.push(&mut vec!['a', 'b', 'c']), Ok(Position(3)));
        assert!(queue.wait(|| ()));
        let batch = queue.take(2);
        assert_eq!((batch.facts, batch.first), (vec!['a', 'b'], Position(1)));
        assert_eq!(queue.push(&mut vec!['d']), Ok(Position(4)));
        let batch = queue.take(10);
        assert_eq!((batch.facts, batch.first), (vec!['c', 'd'], Position(3)));
    }

    #[test]
    fn a_queue_that_stays_empty_gives_its_room_back() {
        let queue = Queue::new(ROOM);
        queue.push(&mut vec!['a'; ROOM]).unwrap();
        queue.take(ROOM);
        assert!(queue.state().facts.capacity() >= ROOM);
        let rest = || {
            assert_eq!(queue.state().facts.capacity(), 0);
            queue.push(&mut vec!['b']).unwrap();
        };
        assert!(queue.wait(rest));
        assert_eq!(queue.take(1).facts, ['b']);
    }

    #[test]
    fn a_full_queue_takes_nothing_and_leaves_the_facts() {
        let queue = Queue::new(3);
        assert!(queue.has_reserve());
        assert_eq!(queue.push(&mut vec!['a', 'b']), Ok(Position(2)));
        assert!(!queue.has_reserve());
        let mut facts = vec!['c', 'd'];
        assert_eq!(queue.push(&mut facts), Err(Full));
        assert_eq!(
            (facts.as_slice(), queue.depth()),
            (['c', 'd'].as_slice(), 2)
        );
        queue.take(1);
        assert_eq!(queue.push(&mut facts), Ok(Position(4)));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_takes_nothing() {
        let queue = Queue::new(3);
        queue.push(&mut vec!['a']).unwrap();
        queue.close();
        assert_eq!(queue.push(&mut vec!['b']), Err(Full));
        assert!(queue.wait(|| ()));
        assert_eq!(queue.take(9).facts, ['a']);
        assert!(!queue.wait(|| ()));
    }
}
