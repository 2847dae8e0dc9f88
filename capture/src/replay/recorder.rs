//! A wire that records the messages of a replay in the form of a flow.

use std::io;
use std::net::SocketAddr;

use trunkline_sip::moment::Moment;

use super::Incoming;
use super::wire::{Wire, WireClosed};
use crate::Transport;
use crate::flow::{Entry, Role};

/// Passes everything on, and records it.
pub(super) struct Recorder<'a> {
    wire: &'a mut dyn Wire,
    began: Moment,
    entries: Vec<Entry>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(wire: &'a mut dyn Wire) -> Self {
        Self {
            began: wire.now(),
            wire,
            entries: Vec::new(),
        }
    }

    /// Returns the messages in the order in which they were sent and received.
    pub(super) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    fn record(&mut self, from: Role, to: Role, octets: &[u8]) {
        let played = if from == Role::Us { to } else { from };
        let since = self.wire.now().since(self.began);
        self.entries.push(Entry {
            at: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            from,
            to,
            transport: self.wire.transport(played),
            expectations: Vec::new(),
            octets: octets.to_vec(),
        });
    }
}

impl Wire for Recorder<'_> {
    fn now(&self) -> Moment {
        self.wire.now()
    }

    fn target(&self) -> SocketAddr {
        self.wire.target()
    }

    fn local(&self, party: Role) -> Option<SocketAddr> {
        self.wire.local(party)
    }

    fn transport(&self, party: Role) -> Transport {
        self.wire.transport(party)
    }

    fn send(&mut self, party: Role, octets: &[u8]) -> io::Result<()> {
        self.record(party, Role::Us, octets);
        self.wire.send(party, octets)
    }

    fn receive(&mut self, until: Moment) -> Result<Option<Incoming>, WireClosed> {
        let received = self.wire.receive(until);
        if let Ok(Some(incoming)) = &received {
            self.record(Role::Us, incoming.party, &incoming.octets);
        }
        received
    }
}
