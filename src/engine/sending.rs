//! Sends the messages that a shard has gathered: each is copied for traces and sent on its flow. Messages for other
//! shards go to their inboxes.

use trunkline_net::listener::Lost;
use trunkline_net::listener::udp::UdpSocket;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_store::journal::FactPosition;

use super::clock;
use super::inbox::Input;
use super::shard::Shard;

impl Shard {
    /// Copies outgoing messages for traces, and hands the copies over.
    fn trace(&mut self) {
        let now = clock::now();
        for (flow, octets) in self.endpoint.transmits() {
            self.effect_runner.tap.note(now, flow, true, octets);
        }
        // A busy shard keeps the copies until they are due: its next turn comes before that.
        if !self.pace.is_busy() || self.effect_runner.tap.is_due(now) {
            self.effect_runner.tap.hand_on();
        }
    }

    /// Sends gathered messages, and reports broken flows to the endpoint.
    pub(super) fn flush(&mut self) {
        self.trace();
        // The journal has the facts of this turn before any message of this turn leaves, unless the journal is full.
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
                let proved = self.connections.required_name(flow.connection);
                self.lost.push(Lost::unsent(flow, proved, error));
            }
        }

        self.endpoint.clear_transmits();
        if self.lost.is_empty() {
            return;
        }

        let now = clock::now();
        for lost in std::mem::take(&mut self.lost) {
            self.handle_lost_flow(&lost, now);
            // A transaction that waits for that peer may belong to another shard.
            for (at, inbox) in self.router.shards().iter().enumerate() {
                if at != self.index && !inbox.offer(Input::Lost(lost.clone())) {
                    tracing::debug!(
                        shard = at,
                        "no room in another shard's inbox to report a lost flow"
                    );
                }
            }
        }

        self.handle_events(now);
    }

    /// Notes that facts up to this position are on disk.
    pub(super) fn synced(&mut self, position: FactPosition) {
        let now = clock::now();
        while let Some(call) = self.effect_runner.unsynced.release(position, now) {
            self.effect_runner.live.note_synced(call);
        }
    }

    /// Hands received messages to the shards that serve them.
    pub(super) fn forward(&mut self) {
        for (shard, messages) in self.foreign.iter_mut().enumerate() {
            if messages.is_empty() {
                continue;
            }
            let count = messages.len();
            // These are datagrams alone: their senders retransmit what is dropped.
            if !self.router.shards()[shard].offer(Input::Messages(std::mem::take(messages))) {
                self.observer.dropped(count);
            }
        }
    }
}

fn is_by(flow: &Flow, socket: &UdpSocket) -> bool {
    flow.transport == Transport::Udp && flow.listener == socket.listener()
}
