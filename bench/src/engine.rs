//! Two sockets and a clock for an [`Exchange`]: receives, runs due timers and sends; waits only if nothing came.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use crate::clock::Clock;
use crate::exchange::{Exchange, Gate, Parties, Plan};
use crate::kernel::{Receiver, Sender, wait, widen};

/// Size of each socket's buffers.
const QUEUE: i32 = 16 << 20;
/// Interval at which waiting calls are checked, in microseconds.
const SWEEP: u64 = 2_000_000;

/// The sockets and the clock of an exchange.
#[derive(Debug)]
pub struct Engine {
    clock: Clock,
    caller: UdpSocket,
    callee: UdpSocket,
    receiver: Receiver,
    sender: Sender,
    swept: u64,
    /// The calls.
    pub exchange: Exchange,
}

/// Bound sockets before any traffic, since the daemon must know the callee's address before the caller knows the daemon's.
#[derive(Debug)]
pub struct Sockets {
    caller: UdpSocket,
    callee: UdpSocket,
}

impl Sockets {
    /// Binds free loopback ports.
    pub fn bind() -> io::Result<Self> {
        let bind = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            widen(&socket, QUEUE);
            Ok::<_, io::Error>(socket)
        };
        Ok(Self {
            caller: bind()?,
            callee: bind()?,
        })
    }

    /// The caller's address.
    pub fn caller(&self) -> io::Result<SocketAddrV4> {
        address(&self.caller)
    }

    /// The callee's address.
    pub fn callee(&self) -> io::Result<SocketAddrV4> {
        address(&self.callee)
    }
}

fn address(socket: &UdpSocket) -> io::Result<SocketAddrV4> {
    match socket.local_addr()? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

impl Engine {
    /// An engine for `room` calls at once. Without a daemon between caller and callee, `gate` challenges the caller.
    pub fn new(
        sockets: Sockets,
        parties: &Parties,
        plan: Plan,
        gate: Option<Gate>,
        room: usize,
    ) -> Self {
        Self {
            clock: Clock::start(),
            caller: sockets.caller,
            callee: sockets.callee,
            receiver: Receiver::default(),
            sender: Sender::default(),
            swept: 0,
            exchange: Exchange::new(parties, plan, gate, room),
        }
    }

    /// Returns the sockets, for another engine.
    pub fn into_sockets(self) -> Sockets {
        Sockets {
            caller: self.caller,
            callee: self.callee,
        }
    }

    /// Microseconds since the engine was created.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Runs one turn. If nothing came, waits for a datagram, at most until a timer, the next sweep or `until`.
    pub fn turn(&mut self, until: u64) {
        let received = self.receive_for_caller() + self.receive_for_callee();
        let now = self.now();
        let fired = self.exchange.handle_due(now);
        // A sweep looks at all calls, so it isn't part of every turn.
        if now.saturating_sub(self.swept) > SWEEP {
            self.swept = now;
            self.exchange.sweep(now);
        }

        let sent = self.flush();
        // A turn that found anything is followed by another at once: more may have come meanwhile.
        if received == 0 && !fired && !sent {
            let next = self
                .exchange
                .next_due()
                .unwrap_or(u64::MAX)
                .min(until)
                .min(self.swept + SWEEP);
            wait(
                [&self.caller, &self.callee],
                next.saturating_sub(self.now()).max(1),
            );
        }
    }

    fn receive_for_caller(&mut self) -> usize {
        // An ICMP error is reported once, in the place of datagrams; the next turn reads the datagrams.
        let count = self.receiver.receive(&self.caller).unwrap_or_else(|_| {
            self.exchange.tally.socket_errors += 1;
            0
        });
        let now = self.now();
        for at in 0..count {
            let (datagram, source) = self.receiver.datagram(at);
            self.exchange.caller_received(datagram, source, now);
        }
        count
    }

    fn receive_for_callee(&mut self) -> usize {
        let count = self.receiver.receive(&self.callee).unwrap_or_else(|_| {
            self.exchange.tally.socket_errors += 1;
            0
        });
        let now = self.now();
        for at in 0..count {
            let (datagram, source) = self.receiver.datagram(at);
            self.exchange.callee_received(datagram, source, now);
        }
        count
    }

    fn flush(&mut self) -> bool {
        let exchange = &mut self.exchange;
        let any = !exchange.caller_out.is_empty() || !exchange.callee_out.is_empty();
        exchange.tally.socket_errors += self.sender.send(&self.caller, &mut exchange.caller_out);
        exchange.tally.socket_errors += self.sender.send(&self.callee, &mut exchange.callee_out);
        any
    }
}
