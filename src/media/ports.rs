//! The RTP sockets: a stock that is bound ahead of need, and which call holds which.
//!
//! Binding costs ten times what a call may wait for on a shard, so a worker keeps bound sockets in stock. A port given
//! back goes to the end of the queue: it rests the longest, and a late packet of the old call finds nobody.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token, Waker};
use trunkline_sip::entropy::Entropy;

use super::{Session, Settings};

/// Fewer bound sockets in stock than this, and a worker binds more.
const LOW: usize = 256;

/// What it fills the stock up to; what is beyond at rest is given back over time.
const FULL: usize = 512;

/// The token of a worker's waker; sockets have their port as token.
pub(super) const WAKER: Token = Token(0x1_0000);

/// One port of the range.
#[derive(Default)]
pub(super) struct Port {
    socket: Option<UdpSocket>,
    session: Option<Box<Session>>,
}

impl Port {
    /// The socket and the session; the session is absent while no call holds the port.
    pub(super) const fn parts(&mut self) -> (Option<&mut UdpSocket>, Option<&mut Box<Session>>) {
        (self.socket.as_mut(), self.session.as_mut())
    }
}

/// All ports of the range.
pub(super) struct Ports {
    ip: IpAddr,
    first: u16,
    ports: Box<[Mutex<Port>]>,
    stock: Mutex<Stock>,
    workers: Vec<(Registry, Waker)>,
    is_asked: AtomicBool,
    is_stopped: AtomicBool,
}

/// Who holds what. Locked before a port where both are.
struct Stock {
    /// Bound and free.
    free: VecDeque<u16>,
    /// Not bound yet: even ports first (RFC 3550 §11), odd ones when those are all in use.
    unbound: VecDeque<u16>,
    held: HashMap<u64, u16>,
    entropy: Entropy,
}

impl Ports {
    pub(super) fn new(
        settings: &Settings,
        polls: &[mio::Poll],
        entropy: Entropy,
    ) -> io::Result<Self> {
        let (first, last) = (*settings.ports.start(), *settings.ports.end());
        let in_range = || first.max(1)..=last;
        let unbound = in_range()
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
        Ok(Self {
            ip: settings.ip,
            first,
            ports: (first..=last).map(|_| Mutex::default()).collect(),
            stock: Mutex::new(Stock {
                free: VecDeque::new(),
                unbound,
                held: HashMap::new(),
                entropy,
            }),
            workers,
            is_asked: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        })
    }

    pub(super) fn open(&self, key: u64) -> Option<SocketAddr> {
        let mut stock = self.stock();
        if let Some(&port) = stock.held.get(&key) {
            return Some(SocketAddr::new(self.ip, port));
        }
        let port = stock
            .free
            .pop_front()
            .or_else(|| self.bind_at_once(&mut stock))?;
        stock.held.insert(key, port);
        let session = Session::new(key, stock.entropy.bits64());
        let is_low = stock.free.len() < LOW && !stock.unbound.is_empty();
        self.port(port).session = Some(Box::new(session));
        drop(stock);
        if is_low {
            self.ask_for_more();
        }
        Some(SocketAddr::new(self.ip, port))
    }

    pub(super) fn close(&self, key: u64) {
        let mut stock = self.stock();
        if let Some(port) = stock.held.remove(&key) {
            self.port(port).session = None;
            stock.free.push_back(port);
        }
    }

    pub(super) fn with_session(&self, key: u64, change: impl FnOnce(&mut Session)) {
        let held = self.stock().held.get(&key).copied();
        let Some(port) = held else { return };
        // The call may have ended between the two locks, and another one begun.
        if let Some(session) = self
            .port(port)
            .session
            .as_deref_mut()
            .filter(|session| session.key() == key)
        {
            change(session);
        }
    }

    pub(super) fn open_calls(&self) -> usize {
        self.stock().held.len()
    }

    /// The ports that a worker serves.
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

    /// Asks the kernel to tell again that the socket is readable, for a worker that left some of it for later.
    pub(super) fn rearm(&self, port: u16) -> io::Result<()> {
        match &mut self.port(port).socket {
            Some(socket) => self
                .registry(port)
                .reregister(socket, token(port), Interest::READABLE),
            None => Ok(()),
        }
    }

    /// Binds sockets until the stock is full or the range exhausted; ports that another program holds are passed over.
    ///
    /// # Errors
    /// The address is not ours or the machine refuses more sockets.
    pub(super) fn fill(&self) -> io::Result<()> {
        self.is_asked.store(false, Ordering::Relaxed);
        let attempts = self.stock().unbound.len();
        for _ in 0..attempts {
            let mut stock = self.stock();
            if stock.free.len() >= FULL {
                break;
            }
            if let Some(port) = self.bind_next(&mut stock)? {
                stock.free.push_back(port);
            }
        }
        Ok(())
    }

    /// Gives back a part of what is in stock beyond need, so that a load that has ended leaves no sockets behind.
    pub(super) fn shrink(&self) {
        let mut stock = self.stock();
        let excess = stock.free.len().saturating_sub(FULL);
        for _ in 0..excess.div_ceil(8) {
            let Some(port) = stock.free.pop_front() else {
                break;
            };
            // Closing takes the socket out of its worker's poll as well.
            self.port(port).socket = None;
            stock.return_unbound(port);
        }
    }

    /// How many sockets are bound, in use or in stock.
    pub(super) fn bound(&self) -> usize {
        let stock = self.stock();
        stock.free.len() + stock.held.len()
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// For a call that finds the stock empty.
    fn bind_at_once(&self, stock: &mut Stock) -> Option<u16> {
        /// More would make the call wait; the worker that fills the stock tries the rest.
        const ATTEMPTS: usize = 8;
        (0..stock.unbound.len().min(ATTEMPTS)).find_map(|_| self.bind_next(stock).ok().flatten())
    }

    /// Binds the next port of the range, if it is not another program's.
    fn bind_next(&self, stock: &mut Stock) -> io::Result<Option<u16>> {
        let Some(port) = stock.unbound.pop_front() else {
            return Ok(None);
        };
        match self.bind(port) {
            Ok(socket) => {
                self.port(port).socket = Some(socket);
                Ok(Some(port))
            }
            Err(error) => {
                stock.unbound.push_back(port);
                if error.kind() == io::ErrorKind::AddrInUse {
                    Ok(None)
                } else {
                    Err(error)
                }
            }
        }
    }

    fn bind(&self, port: u16) -> io::Result<UdpSocket> {
        let mut socket = UdpSocket::bind(SocketAddr::new(self.ip, port))?;
        self.registry(port)
            .register(&mut socket, token(port), Interest::READABLE)?;
        Ok(socket)
    }

    fn registry(&self, port: u16) -> &Registry {
        &self.workers[usize::from(port) % self.workers.len()].0
    }

    fn ask_for_more(&self) {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            self.wake_all();
        }
    }

    /// A worker that can't be woken still comes round once a second.
    fn wake_all(&self) {
        for (_, waker) in &self.workers {
            let _ = waker.wake();
        }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stock {
    fn return_unbound(&mut self, port: u16) {
        if port.is_multiple_of(2) {
            self.unbound.push_front(port)
        } else {
            self.unbound.push_back(port)
        }
    }
}

const fn token(port: u16) -> Token {
    Token(port as usize)
}
