//! Queue of octets to be written to one connection. Shards fill it without waiting; it is bounded in octets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use trunkline_bounds::Descriptor;

/// Most octets queued for a connection whose peer has proved nothing, while more than [`PLENTY`] octets wait for such peers. A message
/// beyond ends the connection.
const SCARCE: usize = 64 << 10;
/// Octets that may wait for all peers together that have proved nothing, before each of them is held to less.
const PLENTY: usize = 64 << 20;

/// Number of octets that wait for peers which have proved nothing.
#[derive(Debug, Default)]
pub(super) struct UnprovenOctets(AtomicUsize);

/// Octets queued for a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
    /// Wakes the tasks in [`Outbox::opened`], which wait until the connection is open or has ended.
    settled: Notify,
    /// Wakes the task in [`Outbox::gave_way`].
    yields: Notify,
    /// Descriptor of the connection, whose task drops the outbox after it has closed the socket; `None` without a socket.
    _descriptor: Option<Descriptor>,
}

#[derive(Debug)]
struct Waiting {
    octets: Vec<u8>,
    /// Number of messages queued so far.
    pushed: u64,
    state: State,
    is_opened: bool,
    limit_octets: usize,
    /// While the peer has proved nothing: the sum over all such peers, and the part of it that is this one's.
    unproven: Option<(Arc<UnprovenOctets>, usize)>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The outbox accepts nothing more; the queued octets are still written, unless the peer reads too slowly for the writer's time limits.
    Finishing,
    /// The peer reads too slowly: the queued octets are not written any more.
    Overfull,
}

/// Error: the connection is ending, or ends because its peer reads too slowly.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct OutboxClosed;

/// Reason why writing ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Done {
    /// All accepted octets have been written.
    Finished,
    /// More octets were pushed than the bound allows.
    Overfull,
}

impl Outbox {
    /// Creates the outbox of a connection that we opened, or that has no socket.
    pub(super) fn new(limit_octets: usize, descriptor: Option<Descriptor>) -> Self {
        Self::with(limit_octets, None, descriptor)
    }

    /// Creates the outbox of a connection whose peer has proved nothing.
    pub(super) fn of_unproven(
        limit_octets: usize,
        all: Arc<UnprovenOctets>,
        descriptor: Option<Descriptor>,
    ) -> Self {
        Self::with(limit_octets, Some((all, 0)), descriptor)
    }

    fn with(
        limit_octets: usize,
        unproven: Option<(Arc<UnprovenOctets>, usize)>,
        descriptor: Option<Descriptor>,
    ) -> Self {
        let waiting = Waiting {
            octets: Vec::new(),
            pushed: 0,
            state: State::Open,
            is_opened: false,
            limit_octets,
            unproven,
        };
        Self {
            waiting: Mutex::new(waiting),
            changed: Notify::new(),
            settled: Notify::new(),
            yields: Notify::new(),
            _descriptor: descriptor,
        }
    }

    /// Notes that the peer is known: it is held to the bound alone.
    pub(super) fn prove(&self) {
        let mut waiting = self.waiting();
        waiting.count(0);
        waiting.unproven = None;
    }

    /// Ends the connection at once, whatever is queued: another one needs its place.
    pub(super) fn give_way(&self) {
        self.finish();
        self.yields.notify_one();
    }

    /// Waits until the connection has to give way.
    pub(super) async fn gave_way(&self) {
        self.yields.notified().await;
    }

    /// Adds a message. If it doesn't fit, the connection ends, since a stream can't skip a message.
    pub(super) fn push(&self, octets: &[u8]) -> Result<(), OutboxClosed> {
        let mut waiting = self.waiting();
        if waiting.state != State::Open {
            return Err(OutboxClosed);
        }

        let was_empty = waiting.octets.is_empty();
        let fits = waiting.octets.len() + octets.len() <= waiting.limit();
        if fits {
            waiting.octets.extend_from_slice(octets);
            waiting.pushed += 1;
            let counted = waiting.counted() + octets.len();
            waiting.count(counted);
        } else {
            waiting.state = State::Overfull;
        }

        drop(waiting);

        // The writer takes everything that waits at once, so only the first message after that has to wake it.
        if was_empty || !fits {
            self.changed.notify_one();
        }

        if fits { Ok(()) } else { Err(OutboxClosed) }
    }

    /// Marks the connection as open.
    pub(super) fn set_opened(&self) {
        self.waiting().is_opened = true;
        self.settled.notify_waiters();
    }

    /// Waits until the connection is open or has ended; returns whether it accepts messages.
    pub(super) async fn opened(&self) -> bool {
        loop {
            // Registered before the state is read, so that a change in between isn't missed.
            let settled = self.settled.notified();
            let (state, is_opened) = {
                let waiting = self.waiting();
                (waiting.state, waiting.is_opened)
            };
            if state != State::Open || is_opened {
                return state == State::Open;
            }
            settled.await;
        }
    }

    /// Returns the number of messages pushed so far.
    pub(super) fn pushed(&self) -> u64 {
        self.waiting().pushed
    }

    /// Waits for octets to write and swaps them into `octets`, which must be empty.
    pub(super) async fn take(&self, octets: &mut Vec<u8>) -> Result<(), Done> {
        while !self.take_now(octets)? {
            self.changed.notified().await;
        }
        Ok(())
    }

    /// Waits until more has been pushed than the bound allows.
    pub(super) async fn overfull(&self) {
        // This may consume a wake-up meant for `take`. None is lost: `take` looks at the state before it waits.
        while self.waiting().state != State::Overfull {
            self.changed.notified().await;
        }
    }

    fn take_now(&self, octets: &mut Vec<u8>) -> Result<bool, Done> {
        let mut waiting = self.waiting();
        match waiting.state {
            State::Overfull => return Err(Done::Overfull),
            State::Finishing if waiting.octets.is_empty() => return Err(Done::Finished),
            State::Open | State::Finishing => {
                // What was taken before is written by now.
                let queued = waiting.octets.len();
                waiting.count(queued);
                std::mem::swap(&mut waiting.octets, octets);
            }
        }
        Ok(!octets.is_empty())
    }

    /// Stops accepting messages.
    pub(super) fn finish(&self) {
        let mut waiting = self.waiting();
        if waiting.state == State::Open {
            waiting.state = State::Finishing;
        }
        drop(waiting);
        self.changed.notify_one();
        self.settled.notify_waiters();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Most octets that may be queued.
    fn limit(&self) -> usize {
        match &self.unproven {
            // Not always so little: honest peers too send many requests before the first of them is accepted.
            Some((all, _)) if all.0.load(Ordering::Relaxed) > PLENTY => {
                self.limit_octets.min(SCARCE)
            }
            Some(_) | None => self.limit_octets,
        }
    }

    fn counted(&self) -> usize {
        self.unproven.as_ref().map_or(0, |(_, counted)| *counted)
    }

    /// Sets the number of octets that count for an unproven peer.
    fn count(&mut self, octets: usize) {
        if let Some((all, counted)) = &mut self.unproven {
            // Added before the old part is subtracted: in between, the sum may be too high, but never wraps below 0.
            all.0.fetch_add(octets, Ordering::Relaxed);
            all.0.fetch_sub(*counted, Ordering::Relaxed);
            *counted = octets;
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.waiting().count(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn peers_that_have_proved_nothing_share_what_waits_for_them() {
        let all = Arc::<UnprovenOctets>::default();
        let outbox = |limit| Outbox::of_unproven(limit, Arc::clone(&all), None);
        let waiting = || all.0.load(Ordering::Relaxed);

        let greedy = outbox(PLENTY + 1);
        let half = vec![b'x'; PLENTY / 2 + 1];
        greedy.push(&half).unwrap();
        outbox(half.len()).push(&half).unwrap();
        assert_eq!(waiting(), half.len(), "one outbox is gone");

        let (honest, other) = (outbox(half.len()), outbox(half.len()));
        other.push(&half).unwrap();
        assert_eq!(honest.push(&half), Err(OutboxClosed));
        let honest = outbox(half.len());
        honest.push(&half[..SCARCE]).unwrap();

        other.prove();
        assert_eq!(waiting(), half.len() + SCARCE);
        let mut octets = Vec::new();
        greedy.take(&mut octets).await.unwrap();
        assert_eq!(waiting(), half.len() + SCARCE, "it is being written");
        greedy.push(b"more").unwrap();
        octets.clear();
        greedy.take(&mut octets).await.unwrap();
        assert_eq!(waiting(), 4 + SCARCE);
    }

    #[tokio::test]
    async fn what_is_pushed_is_taken_together() {
        let outbox = Outbox::new(10, None);
        outbox.push(b"one").unwrap();
        outbox.push(b"two").unwrap();
        let mut octets = Vec::new();
        outbox.take(&mut octets).await.unwrap();
        assert_eq!(octets, b"onetwo");
    }

    #[tokio::test]
    async fn what_waits_is_still_given_out_after_the_end() {
        let outbox = Outbox::new(10, None);
        outbox.push(b"one").unwrap();
        outbox.finish();
        assert_eq!(outbox.push(b"two"), Err(OutboxClosed));
        let mut octets = Vec::new();
        outbox.take(&mut octets).await.unwrap();
        assert_eq!(octets, b"one");
        octets.clear();
        assert_eq!(outbox.take(&mut octets).await, Err(Done::Finished));
    }

    #[tokio::test]
    async fn whoever_waits_learns_whether_it_opens() {
        for opens in [true, false] {
            let outbox = Outbox::new(10, None);
            let (opened, ()) = tokio::join!(outbox.opened(), async {
                match opens {
                    true => outbox.set_opened(),
                    false => outbox.finish(),
                }
            });
            assert_eq!(opened, opens);
            assert_eq!(outbox.opened().await, opens, "asked later");
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_ends_it_and_wakes_the_writer() {
        let outbox = Outbox::new(5, None);
        let mut octets = Vec::new();
        let (taken, pushed) =
            tokio::join!(outbox.take(&mut octets), async { outbox.push(b"sixsix") });
        assert_eq!((taken, pushed), (Err(Done::Overfull), Err(OutboxClosed)));
        outbox.finish();
        assert_eq!(outbox.push(b"x"), Err(OutboxClosed), "for good");
        assert_eq!(outbox.take(&mut octets).await, Err(Done::Overfull));
    }
}
