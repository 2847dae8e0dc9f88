//! The table of open connections: sending on one, opening one, and reusing one (RFC 3261 §18.1.1, §18.2.2). Owns the bounds on their
//! number; knows nothing of messages.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trunkline_sip::flow::{Flow, Transport, source};

use super::outbox::{Outbox, OutboxClosed, UnprovenOctets};
use super::stream::StreamSettings;
use crate::shortage;

pub use super::send_error::SendError;

/// Greatest connection number; the numbers above refer to host names ([`trunkline_sip::verified`]).
const LAST_NUMBER: u32 = (1 << 31) - 1;
/// Most ended connections whose names are kept. A call asks at once, when its message finds the connection closed.
const MAX_ENDED: usize = 1024;

/// Handle for sending; clones share the table.
#[derive(Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    table: Mutex<Table>,
    settings: StreamSettings,
    unproven: Arc<UnprovenOctets>,
    open: Box<Open>,
}

/// Opens a connection in the background. Arguments: the table, the flow it will have, the number of the name that its peer has to prove,
/// and its outbox.
type Open = dyn Fn(&Connections, Flow, u32, Arc<Outbox>) + Send + Sync;

/// A connection that is open or being opened.
#[derive(Debug)]
pub struct Opening(Arc<Outbox>);

impl Opening {
    /// Waits until the connection is open or has ended; returns whether it accepts messages. The wait for a silent peer ends after
    /// [`StreamSettings::connect`].
    pub async fn opened(self) -> bool {
        self.0.opened().await
    }
}

#[derive(Default)]
struct Table {
    last_number: u32,
    by_number: HashMap<u32, Entry>,
    /// Newest connection by its transport, its peer, and the number of the name that the peer has to prove (0: none).
    by_peer: HashMap<(Transport, SocketAddr, u32), u32>,
    accepted: usize,
    in_process: usize,
    /// Accepted connections by source: in IPv6 a /64.
    by_source: HashMap<IpAddr, OfSource>,
    /// Numbers of the accepted connections whose peers have proved nothing: the oldest gives way at the limit. Numbers ascend.
    unproven: BTreeSet<u32>,
    /// Number of connections that we opened, by peer: in IPv6 a /64.
    opened_to: HashMap<IpAddr, usize>,
    /// The last connections that have ended and whose peers had to prove a name: their numbers, and those of the names; oldest first.
    ended: VecDeque<(u32, u32)>,
}

/// Accepted connections of one source.
#[derive(Default)]
struct OfSource {
    count: usize,
    unproven: BTreeSet<u32>,
}

#[derive(Clone)]
struct Entry {
    flow: Flow,
    outbox: Arc<Outbox>,
    /// Number of the name that the peer has to prove; 0: none.
    required_name: u32,
    origin: Origin,
}

/// Side that began a connection.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Origin {
    Accepted,
    Opened,
    /// A user agent in this process, which has no socket.
    InProcess,
}

impl Connections {
    pub(super) fn new(
        settings: StreamSettings,
        open: impl Fn(&Self, Flow, u32, Arc<Outbox>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                table: Mutex::default(),
                settings,
                unproven: Arc::default(),
                open: Box::new(open),
            }),
        }
    }

    /// Queues a message; never waits.
    ///
    /// If `flow.connection` is 0 or the number of a name, an open connection to the peer (that has proved that name) is reused, or one
    /// is opened in the background, from `flow.local`'s address unless that is unspecified. If it can't be opened, or closes later,
    /// [`Sink::lost`](super::stream::Sink::lost) reports it.
    ///
    /// # Errors
    /// [`SendError`]: the connection is closed, or no further one may be opened.
    pub fn send(&self, flow: &Flow, octets: &[u8]) -> Result<(), SendError> {
        let mut table = self.table();
        if let Some(outbox) = table.outbox(flow) {
            drop(table);
            match outbox.push(octets) {
                Ok(()) => return Ok(()),
                // It has ended since the look-up, or ends for this message. Any connection will do, so one is opened.
                Err(OutboxClosed) if !flow.is_connection() => table = self.table(),
                Err(OutboxClosed) => return Err(SendError::Closed),
            }
        } else if flow.is_connection() {
            return Err(SendError::Closed);
        }

        let required_name = flow.connection;
        let (flow, outbox) = table.open(flow, &self.shared.settings)?;
        drop(table);
        // Queued before the task starts, so that it is the first message of the connection.
        let pushed = outbox
            .push(octets)
            .map_err(|OutboxClosed| SendError::Closed);
        // Also if the message didn't fit: only the end of the task takes the entry out of the table.
        (self.shared.open)(self, flow, required_name, outbox);

        pushed
    }

    /// Returns a connection to the flow's peer, or begins to open one; never waits.
    ///
    /// # Errors
    /// [`SendError::TooMany`].
    pub fn open(&self, flow: &Flow) -> Result<Opening, SendError> {
        let mut table = self.table();
        if let Some(outbox) = table.outbox(flow) {
            return Ok(Opening(outbox));
        }
        let required_name = flow.connection;
        let (flow, outbox) = table.open(flow, &self.shared.settings)?;
        drop(table);
        (self.shared.open)(self, flow, required_name, Arc::clone(&outbox));
        Ok(Opening(outbox))
    }

    /// Returns the number of the name that the peer of a connection has to prove, also when the connection has just ended; 0: none.
    pub fn required_name(&self, number: u32) -> u32 {
        let table = self.table();
        if let Some(entry) = table.by_number.get(&number) {
            return entry.required_name;
        }
        let mut ended = table.ended.iter().rev();
        ended
            .find(|(ended, _)| *ended == number)
            .map_or(0, |(_, name)| *name)
    }

    /// Returns the number of connections that are open or being opened.
    pub fn count(&self) -> usize {
        self.table().by_number.len()
    }

    /// Adds an accepted connection. If there are too many, in total or from its source, or no descriptor is left, the oldest of them whose peer has
    /// proved nothing gives way; `None` if there is no such peer.
    pub(super) fn accept(&self, flow: Flow) -> Option<(Flow, Arc<Outbox>)> {
        let settings = &self.shared.settings;
        let mut table = self.table();
        let peer = source(flow.peer.ip());
        let of_source = table.by_source.get(&peer);
        let descriptor = settings.descriptors.take();
        let oldest = match of_source {
            // A source at its own limit displaces one of its own connections, not one of others.
            Some(held) if held.count >= settings.accepted_per_source => {
                Some(held.unproven.first().copied())
            }
            Some(_) | None if table.accepted >= settings.accepted => {
                Some(table.unproven.first().copied())
            }
            Some(_) | None if descriptor.is_none() => Some(table.unproven.first().copied()),
            Some(_) | None => None,
        };
        if let Some(oldest) = oldest {
            table.give_way(oldest?);
        }

        // That of the connection which has given way is dropped when its task ends.
        let descriptor = descriptor.unwrap_or_else(|| settings.descriptors.take_over());
        let outbox = Outbox::of_unproven(
            settings.outbox_octets,
            Arc::clone(&self.shared.unproven),
            Some(descriptor),
        );
        let accepted = table.enter(flow, 0, Origin::Accepted, outbox);
        let number = accepted.0.connection;
        table.accepted += 1;
        table.unproven.insert(number);
        let of_source = table.by_source.entry(peer).or_default();
        of_source.count += 1;
        of_source.unproven.insert(number);
        Some(accepted)
    }

    /// Notes that the peer of a connection is known: it has sent a request that was accepted. The connection gives way to no other.
    pub fn prove(&self, number: u32) {
        let mut table = self.table();
        if table.unproven.remove(&number)
            && let Some(Entry { flow, outbox, .. }) = table.by_number.get(&number).cloned()
        {
            outbox.prove();
            if let Some(of_source) = table.by_source.get_mut(&source(flow.peer.ip())) {
                of_source.unproven.remove(&number);
            }
        }
    }

    /// Adds a user agent in this process. Messages sent by the returned flow come out of the returned outbox. The caller bounds their number.
    pub(super) fn enter_in_process(&self, flow: Flow) -> (Flow, Arc<Outbox>) {
        let mut table = self.table();
        table.in_process += 1;
        table.enter(
            flow,
            0,
            Origin::InProcess,
            Outbox::new(self.shared.settings.outbox_octets, None),
        )
    }

    /// Removes a connection that has ended.
    pub(super) fn remove(&self, number: u32) {
        if let Some(outbox) = self.table().remove(number) {
            // This also ends the wait for a connection that never opened.
            outbox.finish();
        }
    }

    /// Stops new requests from using a connection whose peer has closed its side. Responses may still leave by it.
    pub fn retire(&self, number: u32) {
        let mut table = self.table();
        if let Some(entry) = table.by_number.get(&number).cloned() {
            table.unlist(&entry);
        }
    }

    pub(super) fn settings(&self) -> &StreamSettings {
        &self.shared.settings
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared
            .table
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Returns the outbox of the flow's connection or, with number 0, of the newest one to its peer.
    fn outbox(&self, flow: &Flow) -> Option<Arc<Outbox>> {
        let number = if flow.is_connection() {
            &flow.connection
        } else {
            self.by_peer
                .get(&(flow.transport, flow.peer, flow.connection))?
        };
        self.by_number
            .get(number)
            .map(|entry| Arc::clone(&entry.outbox))
    }

    fn open(
        &mut self,
        flow: &Flow,
        settings: &StreamSettings,
    ) -> Result<(Flow, Arc<Outbox>), SendError> {
        let peer = source(flow.peer.ip());
        // One tenant's server, with many ports or names, would otherwise take all connections that this node may open.
        let to_peer = self.opened_to.get(&peer).copied().unwrap_or(0);
        let opened = self.by_number.len() - self.accepted - self.in_process;
        if opened >= settings.opened || to_peer >= settings.opened_to_one {
            return Err(SendError::TooMany);
        }
        let Some(descriptor) = settings.descriptors.take() else {
            shortage::report(&settings.descriptors);
            return Err(SendError::TooMany);
        };
        *self.opened_to.entry(peer).or_default() += 1;

        Ok(self.enter(
            *flow,
            flow.connection,
            Origin::Opened,
            Outbox::new(settings.outbox_octets, Some(descriptor)),
        ))
    }

    fn enter(
        &mut self,
        flow: Flow,
        required_name: u32,
        origin: Origin,
        outbox: Outbox,
    ) -> (Flow, Arc<Outbox>) {
        let flow = Flow {
            connection: self.next_number(),
            ..flow
        };
        let outbox = Arc::new(outbox);
        if origin != Origin::Opened {
            outbox.set_opened();
        }

        // A user agent in this process isn't listed by address, so that it never gets messages for a network peer with the same address.
        if origin != Origin::InProcess {
            self.by_peer
                .insert((flow.transport, flow.peer, required_name), flow.connection);
        }

        self.by_number.insert(
            flow.connection,
            Entry {
                flow,
                outbox: Arc::clone(&outbox),
                required_name,
                origin,
            },
        );

        (flow, outbox)
    }

    /// Removes a connection; returns its outbox.
    fn remove(&mut self, number: u32) -> Option<Arc<Outbox>> {
        let entry = self.by_number.remove(&number)?;
        self.forget(&entry);
        Some(entry.outbox)
    }

    /// Ends a connection whose place another one needs.
    fn give_way(&mut self, number: u32) {
        if let Some(outbox) = self.remove(number) {
            outbox.give_way();
        }
    }

    /// Returns a free number. Numbers are reused only after all others: the response to a request must not leave by another peer's
    /// connection.
    fn next_number(&mut self) -> u32 {
        loop {
            // Ends soon: far fewer connections are allowed than there are numbers. 0 isn't one: it means any.
            self.last_number = self.last_number % LAST_NUMBER + 1;
            if !self.by_number.contains_key(&self.last_number) {
                return self.last_number;
            }
        }
    }

    /// Stops messages to the peer from choosing this connection; only those that name its number still use it.
    fn unlist(&mut self, entry: &Entry) {
        let Flow {
            transport,
            peer,
            connection,
            ..
        } = entry.flow;
        if let MapEntry::Occupied(newest) =
            self.by_peer.entry((transport, peer, entry.required_name))
            // A newer connection to the same peer may have taken the entry over.
            && *newest.get() == connection
        {
            newest.remove();
        }
    }

    fn forget(&mut self, entry: &Entry) {
        self.unlist(entry);
        if entry.required_name != 0 {
            if self.ended.len() == MAX_ENDED {
                self.ended.pop_front();
            }
            self.ended
                .push_back((entry.flow.connection, entry.required_name));
        }
        let peer = source(entry.flow.peer.ip());

        match entry.origin {
            Origin::Accepted => {
                self.accepted -= 1;
                self.unproven.remove(&entry.flow.connection);

                if let MapEntry::Occupied(mut of_source) = self.by_source.entry(peer) {
                    let held = of_source.get_mut();
                    held.count -= 1;
                    held.unproven.remove(&entry.flow.connection);
                    if held.count == 0 {
                        of_source.remove();
                    }
                }
            }

            Origin::Opened => {
                if let MapEntry::Occupied(mut count) = self.opened_to.entry(peer) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
            }
            Origin::InProcess => self.in_process -= 1,
        }
    }
}
