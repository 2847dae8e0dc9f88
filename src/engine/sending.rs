//! What a shard does with the messages that have gathered: they are copied for traces and sent, each by its flow; those of other shards are
//! handed over.

use trunkline_net::listener::Lost;
use trunkline_net::listener::udp::UdpSocket;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_store::journal::Position;

use super::clock;
use super::inbox::Input;
use super::shard::Shard;

impl Shard {
    /// Copies what is about to be sent, and leaves the copies to be picked up.
    fn trace(&mut self) {
        let now = clock::now();
        for (flow, octets) in self.endpoint.transmits() {
            self.tap.note(clock::on_wall(now), flow, true, octets);
        }
        // A busy shard comes by again before they are due.
        if !self.pace.is_busy() || self.tap.is_due(clock::on_wall(now)) {
            self.tap.hand_on();
        }
    }

    /// Sends what has gathered, each message by its flow, and says which flows are broken.
    pub(super) fn flush(&mut self) {
        self.trace();
        // What begins in this turn has its place in the journal before anything of it leaves.
        self.effect_runner.flush();

        let has_datagrams = self
            .endpoint
            .transmits()
            .any(|(flow, _)| flow.transport == Transport::Udp);
        for socket in self.sockets.iter().filter(|_| has_datagrams) {
            let transmits = self.endpoint.transmits();
            let own = transmits.filter(|(flow, _)| is_by(flow, socket));
            self.observer.sent(socket.send_batch(own, &mut self.lost));
        }

        let transmits = self.endpoint.transmits();
        for (flow, octets) in transmits.filter(|(flow, _)| flow.transport != Transport::Udp) {
            if let Err(error) = self.connections.send(&flow, octets) {
                self.lost.push(Lost::unsent(flow, error));
            }
        }

        self.endpoint.clear_transmits();
        if self.lost.is_empty() {
            return;
        }

        let now = clock::now();
        for lost in std::mem::take(&mut self.lost) {
            self.lose(&lost, now);
            // What waits for an answer from that peer may be another shard's.
            for (at, inbox) in self.router.shards().iter().enumerate() {
                if at != self.index && !inbox.offer(Input::Lost(lost.clone())) {
                    tracing::debug!(shard = at, "no room to tell of a lost flow");
                }
            }
        }

        self.events(now);
    }

    /// The journal has this fact on disk: beginnings and ends up to it can't be lost any more.
    pub(super) fn synced(&mut self, position: Position) {
        let now = clock::now();
        while let Some(call) = self.effect_runner.unsynced.release(position, now) {
            self.effect_runner.live.keep(call);
        }
    }

    /// Hands messages to the shards that they are for.
    pub(super) fn forward(&mut self) {
        for (shard, messages) in self.foreign.iter_mut().enumerate() {
            if messages.is_empty() {
                continue;
            }
            let count = messages.len();
            if !self.router.shards()[shard].offer(Input::Messages(std::mem::take(messages))) {
                self.observer.dropped(count);
            }
        }
    }
}

fn is_by(flow: &Flow, socket: &UdpSocket) -> bool {
    flow.transport == Transport::Udp && flow.listener == socket.listener()
}
