//! The RTP sockets: bound when a call needs one, kept for a while after it, and assigned to calls.
//!
//! A released port goes to the end of the queue, so that a late packet of its old call finds no new one.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token, Waker};
use socket2::{Domain, Socket, Type};
use trunkline_sip::entropy::Entropy;

use super::{MediaSettings, Session, Speech};

/// Sockets without a call that stay bound for the next calls; those beyond are closed over time.
pub(super) const KEPT: usize = 32;

/// Most ports that are tried for one call, since its shard waits meanwhile.
const ATTEMPTS: usize = 128;

/// Token of a worker's waker; a socket's token is its port.
pub(super) const WAKER: Token = Token(0x1_0000);

/// One port of the range.
#[derive(Default)]
pub(super) struct Port {
    socket: Option<UdpSocket>,
    session: Option<Box<Session>>,
}

impl Port {
    /// Returns the socket and the session; the session is absent while no call holds the port.
    pub(super) const fn parts(&mut self) -> (Option<&mut UdpSocket>, Option<&mut Box<Session>>) {
        (self.socket.as_mut(), self.session.as_mut())
    }
}

/// All ports of the range.
pub(super) struct Ports {
    first: u16,
    ports: Box<[Mutex<Port>]>,
    /// Ports that have a socket, readable without their locks.
    is_bound: Box<[AtomicBool]>,
    /// Addresses of this machine.
    own: Vec<IpAddr>,
    /// Bound addresses of SIP and HTTP.
    listeners: Vec<SocketAddr>,
    stock: Mutex<Stock>,
    /// Ports whose calls are spoken to.
    speaking: Mutex<Vec<u16>>,
    workers: Vec<(Registry, Waker)>,
    is_stopped: AtomicBool,
}

/// Assignment of ports to calls. Lock order: this before a port.
struct Stock {
    /// Bound and free, the one that has been free longest at the front.
    free: VecDeque<SocketAddr>,
    /// Not bound: even ports first (RFC 3550 §11), odd ones when all even ones are in use.
    unbound: VecDeque<u16>,
    held: HashMap<u64, SocketAddr>,
    entropy: Entropy,
}

impl Ports {
    /// Creates the table; no port is bound yet.
    ///
    /// # Errors
    /// The address isn't this machine's, other programs hold all ports, or the machine refuses sockets.
    pub(super) fn new(
        settings: &MediaSettings,
        polls: &[mio::Poll],
        entropy: Entropy,
    ) -> io::Result<Self> {
        let (first, last) = (*settings.ports.start(), *settings.ports.end());
        let in_range = || first.max(1)..=last;
        let mut unbound: VecDeque<u16> = in_range()
            .filter(|port| port.is_multiple_of(2))
            .chain(in_range().filter(|port| !port.is_multiple_of(2)))
            .collect();

        let workers = polls
            .iter()
            .map(|poll| {
                Ok((
                    poll.registry().try_clone()?,
                    Waker::new(poll.registry(), WAKER)?,
                ))
            })
            .collect::<io::Result<_>>()?;

        for ip in &settings.ips {
            let (port, _) = bind_first(&mut unbound, *ip, usize::MAX)?.ok_or_else(|| {
                let taken = format!("no port of media.rtp_ports is free at {ip}");
                io::Error::new(io::ErrorKind::AddrInUse, taken)
            })?;
            unbound.push_front(port);
        }

        Ok(Self {
            first,
            ports: (first..=last).map(|_| Mutex::default()).collect(),
            is_bound: (first..=last).map(|_| AtomicBool::default()).collect(),
            own: settings.own.clone(),
            listeners: settings.listeners.clone(),
            stock: Mutex::new(Stock {
                free: VecDeque::new(),
                unbound,
                held: HashMap::new(),
                entropy,
            }),
            speaking: Mutex::default(),
            workers,
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Assigns a port at `ip` to a call.
    pub(super) fn open(&self, key: u64, ip: IpAddr) -> Option<SocketAddr> {
        let mut stock = self.stock();
        if let Some(&held) = stock.held.get(&key) {
            return Some(held);
        }
        let address = match stock.take_free(ip) {
            Some(free) => free,
            None => self.bind(&mut stock, ip)?,
        };
        stock.held.insert(key, address);
        let session = Session::new(key, stock.entropy.bits64());
        self.port(address.port()).session = Some(Box::new(session));
        Some(address)
    }

    pub(super) fn close(&self, key: u64) {
        let mut stock = self.stock();
        if let Some(address) = stock.held.remove(&key) {
            self.port(address.port()).session = None;
            stock.free.push_back(address);
        }
    }

    pub(super) fn with_session(&self, key: u64, change: impl FnOnce(&mut Session)) {
        let held = self.stock().held.get(&key).copied();
        let Some(held) = held else { return };
        // Between the two locks the call may have ended, and another one begun on the port.
        if let Some(session) = self
            .port(held.port())
            .session
            .as_deref_mut()
            .filter(|session| session.key() == key)
        {
            change(session);
        }
    }

    /// Begins to speak to the peer of a call: wakes its worker, which then polls every few milliseconds.
    pub(super) fn speak(&self, key: u64, speech: Speech) {
        let Some(held) = self.stock().held.get(&key).copied() else {
            return;
        };
        self.with_session(key, |session| session.say(speech));
        self.speaking().push(held.port());
        let (_, waker) = &self.workers[usize::from(held.port()) % self.workers.len()];
        // A worker that can't be woken still runs once a second.
        let _ = waker.wake();
    }

    /// Calls `keep` for each port of a worker whose call is spoken to, and drops the ports for which it returns false. Returns whether any
    /// is left.
    pub(super) fn speaking_of(&self, worker: usize, mut keep: impl FnMut(u16) -> bool) -> bool {
        let count = self.workers.len();
        let of_worker = |port: &u16| usize::from(*port) % count == worker;
        let mine: Vec<u16> = self.speaking().iter().copied().filter(of_worker).collect();
        let ended: Vec<u16> = mine.iter().copied().filter(|port| !keep(*port)).collect();
        if !ended.is_empty() {
            self.speaking().retain(|port| !ended.contains(port));
        }
        mine.len() > ended.len()
    }

    fn speaking(&self) -> MutexGuard<'_, Vec<u16>> {
        self.speaking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open_calls(&self) -> usize {
        self.stock().held.len()
    }

    /// Returns whether an address is an RTP port of this node.
    pub(super) fn is_ours(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let is_here = ip.is_loopback() || self.own.contains(&ip);
        let at = address.port().checked_sub(self.first).map(usize::from);
        let is_bound = || {
            at.and_then(|at| self.is_bound.get(at))
                .is_some_and(|bound| bound.load(Ordering::Relaxed))
        };
        is_here && is_bound()
    }

    /// Returns whether an address is a listener of this node for SIP or HTTP. A packet from there is forged.
    pub(super) fn is_listener(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.listeners.iter().any(|listener| {
            let bound = listener.ip().to_canonical();
            let is_here = || ip.is_loopback() || self.own.contains(&ip);
            listener.port() == address.port()
                && (bound == ip || (bound.is_unspecified() && is_here()))
        })
    }

    /// Returns the ports that a worker serves.
    pub(super) fn of_worker(&self, worker: usize) -> impl Iterator<Item = u16> {
        let (first, count) = (self.first, self.workers.len());
        (0..self.ports.len())
            .map(move |at| first + at as u16)
            .filter(move |&port| usize::from(port) % count == worker)
    }

    pub(super) fn port(&self, port: u16) -> MutexGuard<'_, Port> {
        self.ports[usize::from(port - self.first)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the kernel report the socket as readable again, for a worker that left some of its packets for later.
    pub(super) fn rearm(&self, port: u16) -> io::Result<()> {
        match &mut self.port(port).socket {
            Some(socket) => self
                .registry(port)
                .reregister(socket, token(port), Interest::READABLE),
            None => Ok(()),
        }
    }

    /// Closes a part of the free sockets beyond [`KEPT`], so that few remain after a burst of calls.
    pub(super) fn shrink(&self) {
        let mut stock = self.stock();
        let excess = stock.free.len().saturating_sub(KEPT);
        for _ in 0..excess.div_ceil(8) {
            self.give_back_one(&mut stock);
        }
    }

    /// Returns the number of bound sockets, assigned or free.
    pub(super) fn bound(&self) -> usize {
        let stock = self.stock();
        stock.free.len() + stock.held.len()
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        // A worker that can't be woken still runs once a second.
        for (_, waker) in &self.workers {
            let _ = waker.wake();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Binds a port at `ip`. If none is left, a free one at another address is closed first.
    fn bind(&self, stock: &mut Stock, ip: IpAddr) -> Option<SocketAddr> {
        let bound = self.try_bind(stock, ip);
        if bound.is_some() || !self.give_back_one(stock) {
            return bound;
        }
        self.try_bind(stock, ip)
    }

    fn try_bind(&self, stock: &mut Stock, ip: IpAddr) -> Option<SocketAddr> {
        let bound = bind_first(&mut stock.unbound, ip, ATTEMPTS).and_then(|bound| {
            let Some((port, socket)) = bound else {
                return Ok(None);
            };
            let mut socket = UdpSocket::from_std(socket);
            self.registry(port)
                .register(&mut socket, token(port), Interest::READABLE)
                .inspect_err(|_| stock.return_unbound(port))?;
            self.port(port).socket = Some(socket);
            self.mark(port, true);
            Ok(Some(SocketAddr::new(ip, port)))
        });

        bound.unwrap_or_else(|error| {
            tracing::warn!(%error, media.ip = %ip, "an RTP socket can't be bound");
            None
        })
    }

    fn give_back_one(&self, stock: &mut Stock) -> bool {
        let Some(address) = stock.free.pop_front() else {
            return false;
        };
        let port = address.port();
        // Closing also removes the socket from its worker's poll.
        self.port(port).socket = None;
        self.mark(port, false);
        stock.return_unbound(port);
        true
    }

    fn mark(&self, port: u16, is_bound: bool) {
        self.is_bound[usize::from(port - self.first)].store(is_bound, Ordering::Relaxed);
    }

    fn registry(&self, port: u16) -> &Registry {
        &self.workers[usize::from(port) % self.workers.len()].0
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stock {
    fn take_free(&mut self, ip: IpAddr) -> Option<SocketAddr> {
        let at = self.free.iter().position(|free| free.ip() == ip)?;
        self.free.remove(at)
    }

    fn return_unbound(&mut self, port: u16) {
        if port.is_multiple_of(2) {
            self.unbound.push_front(port)
        } else {
            self.unbound.push_back(port)
        }
    }
}

/// Binds the first of these ports that is free at `ip`, after at most `attempts`, and removes it from the list. Ports that another program
/// holds go to the end.
///
/// # Errors
/// The address isn't this machine's, or the machine refuses more sockets.
fn bind_first(
    ports: &mut VecDeque<u16>,
    ip: IpAddr,
    attempts: usize,
) -> io::Result<Option<(u16, std::net::UdpSocket)>> {
    let socket = Socket::new(Domain::for_address((ip, 0).into()), Type::DGRAM, None)?;
    socket.set_nonblocking(true)?;

    if ip.is_ipv6() {
        socket.set_only_v6(true)?;
    }

    for _ in 0..attempts.min(ports.len()) {
        let Some(port) = ports.pop_front() else { break };
        match socket.bind(&SocketAddr::new(ip, port).into()) {
            Ok(()) => return Ok(Some((port, socket.into()))),
            Err(error) => {
                ports.push_back(port);
                if error.kind() != io::ErrorKind::AddrInUse {
                    return Err(error);
                }
            }
        }
    }

    Ok(None)
}

const fn token(port: u16) -> Token {
    Token(port as usize)
}
