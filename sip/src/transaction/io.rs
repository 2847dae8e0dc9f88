//! Output of a machine: its messages go into one arena, and its timers onto the shard's wheel.

use std::ops::Range;
use std::time::Duration;

use crate::flow::Flow;
use crate::moment::Moment;
use crate::wheel::{TimerId, Wheel};

use super::timer::{FiredTimer, RunningTimers, Timer, Times, Tx};

/// An arena larger than this is freed once its messages were sent.
const KEPT_WHEN_SENT: usize = 1 << 20;

/// Messages waiting to be sent, printed one after the other.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    octets: Vec<u8>,
    messages: Vec<(Flow, Range<usize>)>,
    retransmissions: u64,
}

impl Outbox {
    /// Prints one message; returns its octets for the machines that must keep them.
    pub(crate) fn print(&mut self, flow: Flow, print: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        let start = self.octets.len();
        print(&mut self.octets);
        let message = start..self.octets.len();
        self.messages.push((flow, message.clone()));
        &self.octets[message]
    }

    /// Prints a message that was sent before.
    pub(crate) fn print_again(&mut self, flow: Flow, print: impl FnOnce(&mut Vec<u8>)) {
        self.count_retransmission();
        self.print(flow, print);
    }

    /// Counts the message printed last as one that was sent before.
    pub(crate) const fn count_retransmission(&mut self) {
        self.retransmissions += 1;
    }

    /// Sends kept octets once more.
    pub(crate) fn repeat(&mut self, flow: Flow, message: &[u8]) {
        self.print_again(flow, |out| out.extend_from_slice(message));
    }

    /// Prints the last message in another form, in its place.
    pub(crate) fn rewrite_last(&mut self, rewrite: impl FnOnce(&[u8], &mut Vec<u8>)) -> &[u8] {
        let Some((_, message)) = self.messages.last_mut() else {
            return b"";
        };
        let printed = self.octets.split_off(message.start);
        rewrite(&printed, &mut self.octets);
        message.end = self.octets.len();
        &self.octets[message.clone()]
    }

    /// Takes the last message back.
    pub(crate) fn drop_last(&mut self) {
        if let Some((_, message)) = self.messages.pop() {
            self.octets.truncate(message.start);
        }
    }

    /// Octets of the messages behind the first `count`.
    pub(crate) fn size_since(&self, count: usize) -> usize {
        let first = self.messages.get(count);
        first.map_or(0, |(_, message)| self.octets.len() - message.start)
    }

    /// Takes the messages behind the first `count` back.
    pub(crate) fn drop_since(&mut self, count: usize) {
        while self.messages.len() > count {
            self.drop_last();
        }
    }

    /// Number of messages that wait.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The message printed last, unless it was sent.
    pub(crate) fn last(&self) -> Option<&[u8]> {
        let (_, message) = self.messages.last()?;
        Some(&self.octets[message.clone()])
    }

    pub(crate) fn retransmissions(&self) -> u64 {
        self.retransmissions
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = (Flow, &[u8])> {
        self.messages
            .iter()
            .map(|(flow, message)| (*flow, &self.octets[message.clone()]))
    }

    /// Frees the buffer if it is empty.
    pub(crate) fn rest(&mut self) {
        if self.messages.is_empty() {
            self.octets = Vec::new();
            self.messages = Vec::new();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.octets.clear();
        if self.octets.capacity() > KEPT_WHEN_SENT {
            // The counter runs since the start, so it outlives the buffers.
            *self = Self {
                retransmissions: self.retransmissions,
                ..Self::default()
            };
        }
    }
}

/// State that the machines of a shard share.
#[derive(Debug)]
pub(crate) struct MachineContext {
    pub(crate) outbox: Outbox,
    pub(crate) wheel: Wheel<FiredTimer>,
    pub(crate) times: Times,
}

impl MachineContext {
    /// Stops the timers of a transaction that has ended.
    pub(crate) fn stop(&mut self, running: RunningTimers) {
        for timer in [running.retransmit, running.limit].into_iter().flatten() {
            self.wheel.cancel(timer);
        }
    }
}

/// One transaction's access to the shared state.
#[derive(Debug)]
pub(crate) struct Io<'a> {
    pub(crate) tx: Tx,
    pub(crate) flow: Flow,
    pub(crate) now: Moment,
    pub(crate) running: &'a mut RunningTimers,
    pub(crate) shared: &'a mut MachineContext,
}

impl Io<'_> {
    pub(crate) fn is_reliable(&self) -> bool {
        self.flow.transport.is_reliable()
    }

    /// Starts the timer that ends a state, replacing the one that runs.
    pub(crate) fn limit(&mut self, timer: Timer) {
        let id = self.schedule(timer, self.length(timer, 0));
        if let Some(before) = self.running.limit.replace(id) {
            self.shared.wheel.cancel(before);
        }
    }

    /// Starts the timer of the next retransmission after `sent` transmissions.
    pub(crate) fn retransmit_later(&mut self, timer: Timer, sent: u8) {
        self.stop_retransmitting();
        let id = self.schedule(timer, self.length(timer, sent));
        self.running.retransmit = Some(id);
    }

    pub(crate) fn stop_retransmitting(&mut self) {
        if let Some(before) = self.running.retransmit.take() {
            self.shared.wheel.cancel(before);
        }
    }

    /// Stops both timers. The next state starts those that it needs.
    pub(crate) fn stop(&mut self) {
        self.shared.stop(std::mem::take(self.running));
    }

    pub(crate) fn send(&mut self, print: impl FnOnce(&mut Vec<u8>)) -> &[u8] {
        self.shared.outbox.print(self.flow, print)
    }

    pub(crate) fn resend(&mut self, message: &[u8]) {
        self.shared.outbox.repeat(self.flow, message);
    }

    fn length(&self, timer: Timer, sent: u8) -> Duration {
        timer.length(sent, self.shared.times, self.flow.transport)
    }

    fn schedule(&mut self, timer: Timer, length: Duration) -> TimerId {
        self.shared
            .wheel
            .schedule(self.now + length, FiredTimer { tx: self.tx, timer })
    }
}
