//! The queue between shards and writer: bounded, filled without waiting. Holds the facts and their lines, as they will be written to a
//! segment.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::frame::Draft;
use super::position::{FactPosition, Full};

/// Facts for which an empty queue keeps capacity.
const ROOM: usize = 4_096;

/// Idle time after which the capacity of queue and writer is released.
const IDLE: Duration = Duration::from_secs(1);

/// A bounded queue of facts with their positions.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// Most facts, and most octets of their lines.
    capacity: (usize, usize),
}

struct State<T> {
    waiting: Batch<T>,
    is_closed: bool,
    /// Asks the writer to start the next segment, even if no fact waits.
    is_nudged: bool,
    /// Asks the writer to gather no further facts: somebody waits for those that are queued.
    is_hurried: bool,
}

/// Consecutive facts, and their lines.
#[derive(Debug)]
pub(super) struct Batch<T> {
    pub(super) facts: Vec<T>,
    pub(super) lines: Vec<u8>,
    /// Octets of the lines that the operating system has.
    pub(super) written: usize,
    /// True if every fact has its line. A fact that can't be serialised, or is too long, has none.
    pub(super) is_whole: bool,
    /// Position of the last fact.
    pub(super) last: FactPosition,
}

impl<T> Batch<T> {
    /// Creates the batch of the facts that follow the position `last`.
    const fn after(last: FactPosition, facts: Vec<T>, lines: Vec<u8>) -> Self {
        Self {
            facts,
            lines,
            written: 0,
            is_whole: true,
            last,
        }
    }
}

impl<T> Queue<T> {
    /// Creates a queue for this many facts, and octets of lines.
    pub(super) const fn new(facts: usize, octets: usize) -> Self {
        let state = State {
            waiting: Batch::after(FactPosition(0), Vec::new(), Vec::new()),
            is_closed: false,
            is_nudged: false,
            is_hurried: false,
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            capacity: (facts, octets),
        }
    }

    /// Appends all of `facts` with their lines, or none if there is no room. `is_whole` means that each fact has a line.
    pub(super) fn push(
        &self,
        facts: &mut Vec<T>,
        draft: &mut Draft,
        is_whole: bool,
    ) -> Result<FactPosition, Full> {
        let mut state = self.state();
        let waiting = &state.waiting;
        let has_room = waiting.facts.len() + facts.len() <= self.capacity.0
            && waiting.lines.len() + draft.len() <= self.capacity.1;
        if state.is_closed || !has_room {
            // All or none: the caller tries the same vector again, and must not append a part of it twice.
            return Err(Full);
        }

        let waiting = &mut state.waiting;
        let first = FactPosition(waiting.last.0 + 1);
        waiting.last.0 += facts.len() as u64;
        waiting.is_whole &= is_whole;
        // Positions and checksums are filled in under the lock, so that positions ascend in the order of the lines. The
        // JSON, which takes longer, was made before.
        waiting.lines.extend_from_slice(draft.placed(first));

        // The writer sleeps only while the queue is empty.
        let was_empty = waiting.facts.is_empty() && !facts.is_empty();
        waiting.facts.append(facts);
        let last = waiting.last;
        drop(state);

        if was_empty {
            self.filled.notify_one();
        }

        Ok(last)
    }

    /// Waits for a fact or a nudge; returns false once the queue is closed and empty. Calls `rest` if none comes for [`IDLE`].
    pub(super) fn wait(&self, rest: impl FnOnce()) -> bool {
        let is_idle = |state: &mut State<T>| {
            state.waiting.facts.is_empty() && !state.is_closed && !state.is_nudged
        };
        let (mut state, waited) = self
            .filled
            .wait_timeout_while(self.state(), IDLE, is_idle)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            state.waiting.facts.shrink_to_fit();
            state.waiting.lines.shrink_to_fit();
            drop(state);
            // Called without the lock, so that shards can append while it runs.
            rest();
            state = self
                .filled
                .wait_while(self.state(), is_idle)
                .unwrap_or_else(PoisonError::into_inner);
        }

        !state.waiting.facts.is_empty() || state.is_nudged
    }

    /// Waits while facts gather, for this long at most; not at all if somebody waits for one of them, or the queue is closed.
    pub(super) fn gather(&self, at_most: Duration) {
        let gathers = |state: &mut State<T>| !state.is_hurried && !state.is_closed;
        // A panic of another thread, or the end of the time: either way the writer goes on with what is there.
        drop(
            self.filled
                .wait_timeout_while(self.state(), at_most, gathers),
        );
    }

    /// Asks the writer to write what is queued without gathering more.
    pub(super) fn hurry(&self) {
        self.state().is_hurried = true;
        self.filled.notify_one();
    }

    /// Wakes the writer, and asks it to start the next segment.
    pub(super) fn nudge(&self) {
        self.state().is_nudged = true;
        self.filled.notify_one();
    }

    /// Returns whether the writer was nudged since the last call.
    pub(super) fn take_nudge(&self) -> bool {
        std::mem::take(&mut self.state().is_nudged)
    }

    /// Returns the position of the last appended fact.
    pub(super) fn last(&self) -> FactPosition {
        self.state().waiting.last
    }

    /// Takes all queued facts; `spare` is empty and becomes the buffer for the lines to come.
    pub(super) fn take(&self, spare: Vec<u8>) -> Batch<T> {
        let mut state = self.state();
        state.is_hurried = false;
        // The next batch is likely as large as this one; the bound keeps one burst from fixing the size of all later
        // ones.
        let room = Vec::with_capacity(state.waiting.facts.len().min(ROOM));
        let following = Batch::after(state.waiting.last, room, spare);
        std::mem::replace(&mut state.waiting, following)
    }

    /// Copies the lines that the operating system doesn't have yet into `lines`, which is empty, and counts them as written.
    pub(super) fn hand_over(&self, lines: &mut Vec<u8>) {
        let waiting = &mut self.state().waiting;
        lines.extend_from_slice(&waiting.lines[waiting.written..]);
        waiting.written = waiting.lines.len();
    }

    /// Counts all lines as unwritten, since their segment was abandoned.
    pub(super) fn take_back(&self) {
        self.state().waiting.written = 0;
    }

    /// Accepts no more facts; queued ones will still be written.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.filled.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    pub(super) fn depth(&self) -> usize {
        self.state().waiting.facts.len()
    }

    /// Returns the octets of the queued lines.
    pub(super) fn octets(&self) -> usize {
        self.state().waiting.lines.len()
    }

    /// Returns whether less than half of the queue is used, so that the facts of a new call leave room for calls in progress.
    pub(super) fn has_reserve(&self) -> bool {
        let waiting = &self.state().waiting;
        waiting.facts.len() * 2 < self.capacity.0 && waiting.lines.len() * 2 < self.capacity.1
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OCTETS: usize = 1 << 20;

    fn push(queue: &Queue<char>, facts: &mut Vec<char>) -> Result<FactPosition, Full> {
        let mut draft = Draft::default();
        for (number, fact) in facts.iter().enumerate() {
            let written = draft.add(number as u64, |out| serde_json::to_writer(out, fact));
            written.unwrap();
        }
        queue.push(facts, &mut draft, true)
    }

    #[test]
    fn facts_come_out_in_order_with_their_positions() {
        let queue = Queue::new(10, OCTETS);
        assert_eq!(push(&queue, &mut vec!['a', 'b', 'c']), Ok(FactPosition(3)));
        assert!(queue.wait(|| ()));
        let batch = queue.take(Vec::new());
        assert_eq!(
            (batch.facts, batch.last),
            (vec!['a', 'b', 'c'], FactPosition(3))
        );
        assert_eq!(push(&queue, &mut vec!['d']), Ok(FactPosition(4)));
        let batch = queue.take(Vec::new());
        assert_eq!((batch.facts, batch.last), (vec!['d'], FactPosition(4)));
        let line = String::from_utf8(batch.lines).unwrap();
        assert!(line.ends_with(" 0000000000000004 \"d\"\n"), "{line}");
    }

    #[test]
    fn lines_are_handed_over_once_unless_they_are_taken_back() {
        let queue = Queue::new(10, OCTETS);
        let handed = || {
            let mut lines = Vec::new();
            queue.hand_over(&mut lines);
            lines.iter().filter(|&&octet| octet == b'\n').count()
        };
        push(&queue, &mut vec!['a', 'b']).unwrap();
        assert_eq!((handed(), handed()), (2, 0));
        push(&queue, &mut vec!['c']).unwrap();
        assert_eq!(handed(), 1);
        queue.take_back();
        assert_eq!(handed(), 3);
        push(&queue, &mut vec!['d']).unwrap();

        let batch = queue.take(Vec::new());
        let rest = &batch.lines[batch.written..];
        assert!(rest.ends_with(b"\"d\"\n") && rest.len() * 4 == batch.lines.len());
        assert_eq!(handed(), 0);
    }

    #[test]
    fn facts_gather_unless_somebody_waits_for_them() {
        const FOR_EVER: Duration = Duration::from_secs(3_600);
        let queue = Queue::new(10, OCTETS);
        push(&queue, &mut vec!['a']).unwrap();
        queue.hurry();
        queue.gather(FOR_EVER);
        assert_eq!(queue.take(Vec::new()).facts, ['a']);

        push(&queue, &mut vec!['b']).unwrap();
        std::thread::scope(|scope| {
            let gathered = scope.spawn(|| queue.gather(FOR_EVER));
            push(&queue, &mut vec!['c']).unwrap();
            queue.hurry();
            gathered.join().unwrap();
        });
        assert_eq!(queue.take(Vec::new()).facts, ['b', 'c']);

        queue.close();
        queue.gather(FOR_EVER);
    }

    #[test]
    fn a_queue_that_stays_empty_gives_its_room_back() {
        let queue = Queue::new(ROOM, OCTETS);
        push(&queue, &mut vec!['a'; ROOM]).unwrap();
        queue.take(Vec::with_capacity(ROOM));
        assert!(queue.state().waiting.facts.capacity() >= ROOM);
        let rest = || {
            let state = queue.state();
            let Batch { facts, lines, .. } = &state.waiting;
            assert_eq!((facts.capacity(), lines.capacity()), (0, 0));
            drop(state);
            push(&queue, &mut vec!['b']).unwrap();
        };
        assert!(queue.wait(rest));
        assert_eq!(queue.take(Vec::new()).facts, ['b']);
    }

    #[test]
    fn a_full_queue_takes_nothing_and_leaves_the_facts() {
        let queue = Queue::new(3, OCTETS);
        assert!(queue.has_reserve());
        assert_eq!(push(&queue, &mut vec!['a', 'b']), Ok(FactPosition(2)));
        assert!(!queue.has_reserve());
        let mut facts = vec!['c', 'd'];
        assert_eq!(push(&queue, &mut facts), Err(Full));
        assert_eq!(
            (facts.as_slice(), queue.depth()),
            (['c', 'd'].as_slice(), 2)
        );
        queue.take(Vec::new());
        assert_eq!(push(&queue, &mut facts), Ok(FactPosition(4)));
    }

    #[test]
    fn long_facts_fill_it_sooner() {
        let queue = Queue::new(100, 200);
        let refused = (0..100).find(|_| push(&queue, &mut vec!['a']).is_err());
        assert_eq!(refused, Some(200 / queue.octets() * queue.depth()));
        assert!(!queue.has_reserve());
    }

    #[test]
    fn a_closed_queue_is_emptied_and_takes_nothing() {
        let queue = Queue::new(3, OCTETS);
        push(&queue, &mut vec!['a']).unwrap();
        queue.close();
        assert_eq!(push(&queue, &mut vec!['b']), Err(Full));
        assert!(queue.wait(|| ()));
        assert_eq!(queue.take(Vec::new()).facts, ['a']);
        assert!(!queue.wait(|| ()));
    }
}
