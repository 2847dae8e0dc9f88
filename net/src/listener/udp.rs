//! A UDP socket of a shard: batches of datagrams in and out, and peers that ICMP reports as unreachable.
//!
//! A response leaves from the address to which its request came (RFC 3261 §18.2.2, RFC 3581), also on a socket bound to a wildcard address.
//! A datagram that can't be sent at once is dropped: SIP over UDP retransmits by itself.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use smallvec::SmallVec;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use trunkline_sip::fault::{Fault, Unreachable};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;

use super::Lost;
use super::datagram_errors::{is_of_a_peer, unreachable};
pub use super::mmsg::BATCH;
use super::mmsg::{self, Incoming, Outgoing};

/// Socket buffer requested from the kernel, each way: some 5,000 messages of 800 octets with their overhead.
const BUFFER_OCTETS: i32 = 8 << 20;

/// Time to wait for room in the send buffer before the rest of a batch is dropped.
const PATIENCE: Duration = Duration::from_millis(5);

/// Opens and binds a UDP socket without an executor, so that an error shows before any shard runs.
///
/// With `reuse_port` several sockets share the address, one for each shard, and the kernel keeps each peer with one of them. An IPv6
/// wildcard accepts no IPv4: the two are separate listeners.
pub fn bind(address: SocketAddr, reuse_port: bool) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }

    if reuse_port {
        socket.set_reuse_port(true)?;
    }

    socket.set_nonblocking(true)?;
    let socket = std::net::UdpSocket::from(socket);
    // Before the bind: a datagram that comes right after it must have its destination and its stamp already.
    mmsg::prepare(&socket, address, BUFFER_OCTETS)?;
    socket2::SockRef::from(&socket).bind(&address.into())?;

    Ok(socket)
}

/// A bound socket, registered with the runtime in which it was created.
pub struct UdpSocket {
    io: AsyncFd<std::net::UdpSocket>,
    listener: u16,
    local: SocketAddr,
    /// True if the error queue may have entries.
    has_errors: AtomicBool,
}

impl UdpSocket {
    /// Takes over a socket from [`bind`] as the `listener`th configured listener. Must be called within the runtime
    /// that will wait for it.
    pub fn new(socket: std::net::UdpSocket, listener: u16) -> io::Result<Self> {
        let local = socket.local_addr()?;
        Ok(Self {
            io: mmsg::register(socket)?,
            listener,
            local,
            has_errors: AtomicBool::new(false),
        })
    }

    /// Calls [`bind`] and [`UdpSocket::new`].
    pub fn bind(address: SocketAddr, listener: u16, reuse_port: bool) -> io::Result<Self> {
        Self::new(bind(address, reuse_port)?, listener)
    }

    /// Returns the bound address, with the port that the kernel chose if 0 was requested.
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Returns the index of the listener, as in [`Flow::listener`].
    pub const fn listener(&self) -> u16 {
        self.listener
    }

    /// Waits until datagrams or entries of the error queue can be read.
    pub async fn readable(&self) -> io::Result<()> {
        let mut guard = self.io.ready(Interest::READABLE | Interest::ERROR).await?;
        if guard.ready().is_error() {
            self.has_errors.store(true, Ordering::Relaxed);
            // Otherwise each further wait would end at once. Reading clears the readable state.
            guard.clear_ready_matching(Ready::ERROR);
        }
        Ok(())
    }

    /// Receives at most [`BATCH`] datagrams into `batch`, and adds peers that turned out to be unreachable to `lost`. Never waits, and
    /// doesn't require a call of [`Self::readable`] before. Returns the number of datagrams; fewer than [`BATCH`] have most likely emptied
    /// the socket.
    ///
    /// `now` and `wall` are the same instant on both clocks: the kernel stamps packets by the wall clock, and the time that a packet has
    /// waited is subtracted from `now` to give its `received_at`.
    pub fn receive_batch(
        &self,
        batch: &mut Batch,
        lost: &mut Vec<Lost>,
        now: Moment,
        wall: SystemTime,
    ) -> io::Result<usize> {
        batch.taken(self, now, wall);
        let mut is_asked = false;
        let mut received = self.io.try_io(Interest::READABLE, |socket| {
            is_asked = true;
            self.receive_some(&mut batch.incoming, socket)
        });

        if !is_asked {
            // The runtime hasn't seen the socket as readable: always so if no task has waited for it.
            received = self.receive_some(&mut batch.incoming, self.io.get_ref());
        }

        self.take_lost(lost)?;
        match received {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(()) | Err(_) => Ok(batch.incoming.arrivals().count()),
        }
    }

    /// Receives datagrams. A batch that isn't full has emptied the socket. It is reported as `WouldBlock`, which saves a system call that would
    /// find nothing.
    fn receive_some(
        &self,
        incoming: &mut Incoming,
        socket: &std::net::UdpSocket,
    ) -> io::Result<()> {
        loop {
            match incoming.receive(socket) {
                Ok(BATCH) => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WouldBlock.into()),
                // The kernel reports the error of an earlier datagram once, before any received datagram.
                Err(error) if is_of_a_peer(&error) => {
                    self.has_errors.store(true, Ordering::Relaxed)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends each message to its flow's peer from its flow's local address; never waits longer than a few milliseconds. Adds peers that
    /// turned out to be unreachable to `lost`.
    pub fn send_batch<'a>(
        &self,
        messages: impl IntoIterator<Item = (Flow, &'a [u8])>,
        lost: &mut Vec<Lost>,
    ) -> Sent {
        let mut sending = Sending {
            socket: self,
            outgoing: Outgoing::default(),
            peers: SmallVec::new(),
            sent: Sent::default(),
            lost,
        };
        for (flow, octets) in messages {
            sending.push(flow, octets);
        }

        sending.flush();
        let sent = sending.sent;

        if let Err(error) = self.take_lost(lost) {
            tracing::warn!(%error, local = %self.local, "cannot read the socket's error queue");
        }

        sent
    }

    /// Empties the error queue.
    fn take_lost(&self, lost: &mut Vec<Lost>) -> io::Result<()> {
        // Cleared before the queue is read: an error that comes meanwhile sets it again.
        if !self.has_errors.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        while let Some(peer) = mmsg::next_unreachable(self.io.get_ref())? {
            let next = peer.map(|(peer, what)| self.lost(peer, what));
            // Each datagram of a batch to a dead peer makes an entry of its own; one report is enough.
            lost.extend(next.filter(|next| lost.last() != Some(next)));
        }
        Ok(())
    }

    const fn lost(&self, peer: SocketAddr, what: Unreachable) -> Lost {
        Lost {
            flow: Flow {
                transport: Transport::Udp,
                listener: self.listener,
                connection: 0,
                local: self.local,
                peer,
            },
            proved: 0,
            was_closing: false,
            fault: Fault::Unreachable(what),
        }
    }

    /// Returns the source address to request: `None` if the socket has only one, or the flow leaves it open.
    fn source(&self, flow: &Flow) -> Option<IpAddr> {
        Some(flow.local.ip()).filter(|ip| self.local.ip().is_unspecified() && !ip.is_unspecified())
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket")
            .field("listener", &self.listener)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

/// Result of sending a batch.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sent {
    /// Datagrams sent.
    pub sent: usize,
    /// Datagrams dropped: the send buffer stayed full, or the kernel refused them.
    pub dropped: usize,
}

/// A [`UdpSocket::send_batch`] in progress.
struct Sending<'s, 'a> {
    socket: &'s UdpSocket,
    outgoing: Outgoing<'a>,
    peers: SmallVec<[SocketAddr; BATCH]>,
    sent: Sent,
    lost: &'s mut Vec<Lost>,
}

impl<'a> Sending<'_, 'a> {
    fn push(&mut self, flow: Flow, octets: &'a [u8]) {
        self.peers.push(flow.peer);
        self.outgoing
            .push(octets, flow.peer, self.socket.source(&flow));
        if self.outgoing.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let mut from = 0;
        while from < self.outgoing.len() {
            from += self.send_from(from);
        }
        self.outgoing.clear();
        self.peers.clear();
    }

    /// Sends from the `from`th datagram on; returns the number of datagrams sent or dropped.
    fn send_from(&mut self, from: usize) -> usize {
        let rest = self.outgoing.len() - from;
        match self.send_patiently(from) {
            Ok(count) => {
                self.sent.sent += count;
                count
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The rest is dropped as well: to wait anew for each datagram would hold up all calls of the shard.
                self.sent.dropped += rest;
                rest
            }
            Err(error) => {
                // Only this datagram is dropped: the next may have another peer.
                self.refused(from, &error);
                1
            }
        }
    }

    /// Sends. After an error that may concern the peer of an earlier datagram it tries once more: only an error that occurs twice is certainly
    /// this datagram's own.
    fn send_patiently(&mut self, from: usize) -> io::Result<usize> {
        let socket = self.socket.io.get_ref();
        match self.outgoing.send(socket, from) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                mmsg::await_room(socket, PATIENCE)
            }
            Err(error) if is_of_a_peer(&error) => {
                self.socket.has_errors.store(true, Ordering::Relaxed)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
        self.outgoing.send(socket, from)
    }

    fn refused(&mut self, at: usize, error: &io::Error) {
        let peer = self.peers[at];
        tracing::debug!(%error, %peer, "datagram refused");
        self.sent.dropped += 1;
        // A shorter message, or a later one, may still reach the peer: its calls must not end for this one.
        let is_of_the_message = matches!(
            error.raw_os_error(),
            Some(libc::EMSGSIZE | libc::ENOBUFS | libc::ENOMEM)
        );
        if !is_of_the_message {
            let what = unreachable(error);
            self.lost.push(self.socket.lost(peer, what));
        }
    }
}

/// Buffers for receiving, allocated at the first batch: 4 MiB of address space, of which only used pages become memory.
pub struct Batch {
    incoming: Incoming,
    flow: Flow,
    now: Moment,
    wall: Duration,
}

/// A received datagram.
#[derive(Copy, Clone, Debug)]
pub struct Datagram<'b> {
    /// Source and destination.
    pub flow: Flow,
    /// Arrival in the kernel, which shows how long the datagram has waited in the socket.
    pub received_at: Moment,
    /// Payload.
    pub octets: &'b [u8],
}

impl Batch {
    /// Creates empty buffers.
    pub fn new() -> Self {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: nowhere,
            peer: nowhere,
        };

        Self {
            incoming: Incoming::default(),
            flow,
            now: Moment::default(),
            wall: Duration::ZERO,
        }
    }

    /// Returns the datagrams of the last batch, in order of arrival.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'_>> {
        self.incoming.arrivals().map(|(arrival, octets)| {
            let waited = arrival
                .stamped
                // If the wall clock was set back since the kernel's stamp, the datagram counts as just arrived.
                .map_or(Duration::ZERO, |stamped| self.wall.saturating_sub(stamped));
            let ip = arrival.local.unwrap_or(self.flow.local.ip());
            let local = SocketAddr::new(ip, self.flow.local.port());

            Datagram {
                flow: Flow {
                    local,
                    peer: arrival.peer,
                    ..self.flow
                },
                received_at: self.now - waited,
                octets,
            }
        })
    }

    /// Returns the number of datagrams dropped for lack of buffer space since the socket was created (wraps around).
    pub const fn overflowed(&self) -> u32 {
        self.incoming.overflowed()
    }

    fn taken(&mut self, socket: &UdpSocket, now: Moment, wall: SystemTime) {
        self.incoming.clear();
        self.flow = Flow {
            local: socket.local,
            listener: socket.listener,
            ..self.flow
        };
        self.now = now;
        self.wall = wall
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.datagrams()).finish()
    }
}

#[cfg(test)]
mod tests;
